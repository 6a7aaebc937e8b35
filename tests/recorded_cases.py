"""Cases recorded from a real Apache Ozone 2.2.0: what was done, and what it then showed, line by line.

Where Ozone's own figures are wrong, or count otherwise, a plane must show the figures of a recount instead: those of
the brute-force model. ``DEVIATIONS`` says which figures these are, and why. Everything else must be equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.workloads.workload import Operation, parse_line
from tests.model_lines import lines_of

FOLDER = Path(__file__).parent / "conformance" / "cases"
CASES = sorted(file.name.removesuffix(".ops.jsonl") for file in FOLDER.glob("*.ops.jsonl"))


@dataclass(frozen=True, slots=True)
class Deviation:
    """A reason why Ozone shows another figure than a recount gives."""

    reason: str
    follows: str
    """The operation that must have come before, in the same bucket; with "refused " in front if it must be refused.
    ``_explained_by`` says what else can be named here."""
    figures: dict[str, int]
    """Figures of a bucket: 1 where Ozone's is too high, -1 where it is too low, 0 for either."""


DEVIATIONS = {
    1: Deviation(
        "A refused put leaks the blocks that were got before the check. No figure shows it, and we get none before.",
        follows="put_key",
        figures={},
    ),
    2: Deviation(
        "mpu_complete over an existing key does not count the old version as held.",
        follows="mpu_complete",
        figures={"snapshot_used_bytes": -1},
    ),
    3: Deviation(
        "Each reported sync of a key that is there already, and the commit after it, counts one name more.",
        follows="hsync",
        figures={"used_namespace": 1},
    ),
    4: Deviation(
        "A key that is shorter or longer in a neighbour is exclusive as a whole or not at all: we count its blocks.",
        follows="hsync",
        figures={"exclusive_bytes": 0},
    ),
    5: Deviation(
        "Files below a deleted directory stay used as long as a snapshot holds it: with us they are deleted ones.",
        follows="delete_dir",
        figures={"used_bytes": 1, "used_namespace": 1, "snapshot_used_bytes": -1},
    ),
    11: Deviation(
        "A refused completion whose directory has gone counts the directories that it did not create.",
        follows="refused mpu_complete",
        figures={"used_namespace": 1},
    ),
    16: Deviation(
        "An expired upload of a bucket with an erasure code gives back more bytes than its parts had taken.",
        follows="expired mpu_part of an erasure code",
        figures={"used_bytes": -1},
    ),
}
"""By number: those of Ozone's defects in docs/ozone-defects.md, but for 5, which is a choice that Ozone makes
otherwise."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of an observation that differs from the recount."""

    place: str
    """Volume and bucket."""
    figure: str
    recorded: int
    recounted: int


def operations_of(case: str) -> list[tuple[int, Operation]]:
    """Return the operations of a case with their numbers."""
    lines = (FOLDER / f"{case}.ops.jsonl").read_text("utf-8").splitlines()
    return [(number, parse_line(line, number)) for number, line in enumerate(lines)]


def recorded_lines(case: str) -> list[Any]:
    """Return what Ozone has shown."""
    return [json.loads(line) for line in (FOLDER / f"{case}.expected.jsonl").read_text("utf-8").splitlines()]


def expected_lines(case: str) -> tuple[list[Any], set[int]]:
    """Return what a plane must show, and the numbers of the deviations that explain what differs from Ozone."""
    recorded, used = recorded_lines(case), set[int]()
    recounted = {line["op"]: line for line in lines_of(operations_of(case))}
    for line in recorded:
        if "buckets" in line:
            for difference, holder in list(_differences(line, recounted[line["op"]])):
                if numbers := _explained_by(case, line["op"], difference):
                    used |= numbers
                    holder[difference.figure] = difference.recounted
    return recorded, used


def _differences(recorded: Any, recounted: Any) -> Iterator[tuple[Difference, dict[str, Any]]]:
    """Yield each figure that some deviation may change and that differs, and the object that has it."""
    known = {figure for deviation in DEVIATIONS.values() for figure in deviation.figures}
    for place, bucket in recorded["buckets"].items():
        other = recounted["buckets"][place]
        holders = [(bucket, other)]
        for snapshots in ("snapshots", "replicated"):
            holders += [(shown, other[snapshots][name]) for name, shown in bucket.get(snapshots, {}).items()]
        for shown, counted in holders:
            for figure in sorted(known & shown.keys()):
                if shown[figure] != counted[figure]:
                    yield Difference(place, figure, shown[figure], counted[figure]), shown


def _explained_by(case: str, op: int, difference: Difference) -> set[int]:
    """Return the deviations that can be the reason for a difference; none when nothing explains it."""
    refused = {line["op"] for line in recorded_lines(case) if "error" in line}
    seen, leads_to, has_code = set[str](), dict[str, str](), False
    for number, line in enumerate((FOLDER / f"{case}.ops.jsonl").read_text("utf-8").splitlines()[:op]):
        one = json.loads(line)
        place = f"{one.get('volume')}/{one.get('bucket')}"
        if one["op"] == "create_link":
            leads_to[place] = f"{one['link_volume']}/{one['link_bucket']}"
        while place in leads_to:
            place = leads_to[place]
        if place == difference.place:
            seen |= {one["op"], f"refused {one['op']}"} if number in refused else {one["op"]}
            has_code |= one.get("replication", "").startswith("EC_")
        if one["op"] == "expire_uploads" and has_code and "mpu_part" in seen:
            seen.add("expired mpu_part of an erasure code")
    sign = 1 if difference.recorded > difference.recounted else -1
    return {
        number
        for number, deviation in DEVIATIONS.items()
        if deviation.follows in seen and deviation.figures.get(difference.figure) in (0, sign)
    }
