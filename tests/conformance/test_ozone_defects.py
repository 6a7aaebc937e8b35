"""The workloads of docs/ozone-defects.md, beside what a real Ozone 2.2.0 has shown after them.

Ozone's lines contradict themselves where it has lost data: a version that is listed is also among the reclaimed ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from services.workloads.workload import read_operations
from tests.model_lines import lines_of

PAGE = Path(__file__).parents[2] / "docs" / "ozone-defects.md"
FOLDER = PAGE.parent / "examples" / "ozone-defects"
DIFFERENT = {
    "01_refused_puts": set[str](),  # what leaks is in no line
    "02_complete_over_a_held_key": {"snapshot_used_bytes"},
    "03_synced_again": {"used_namespace"},
    "04_exclusive_bytes_of_a_grown_key": {"exclusive_bytes", "used_namespace"},
    "05_synced_snapshot_closed_deleted": {
        "exclusive_bytes",
        "reclaimed",
        "snapshot_used_bytes",
        "unreclaimed_bytes",
        "used_namespace",
    },
    "06_commit_after_deletion": {"error", "bytes", "tag", "open_keys", "used_bytes", "used_namespace"},
    "07_expiry_over_an_upload": {"tag", "reclaimed", "unreclaimed_bytes"},
    "08_deleted_with_versions": {
        *("exclusive_bytes", "reclaimed", "referenced_bytes", "snapshot_used_bytes"),
        *("unreclaimed_bytes", "used_namespace"),
    },
    "09_renamed_and_expired": {"error", "open_keys", "reclaimed"},
    "10_deleted_and_expired": {"error", "open_keys", "exclusive_bytes"},
    "11_refused_completion": {"used_namespace"},
    "12_names_of_deleted_directories": {"error", "bytes", "tag", "unreclaimed_bytes", "used_bytes", "used_namespace"},
    "13_synced_blocks_counted_twice": {"error", "bytes", "open_keys", "unreclaimed_bytes", "used_bytes"},
    "14_deleted_twice": {"reclaimed", "snapshot_used_bytes", "unreclaimed_bytes"},
    "15_moved_and_expired": {"open_keys"},
    "16_expired_upload_of_an_erasure_code": {
        *("error", "bytes", "tag", "unreclaimed_bytes", "used_bytes", "used_namespace", "reclaimed"),
    },
}
"""By workload, the names of what Ozone and we show differently."""
LOST = {
    "05_synced_snapshot_closed_deleted": {"p3", "p4"},
    "06_commit_after_deletion": {"p4"},
    "07_expiry_over_an_upload": {"p3", "p4"},
    "08_deleted_with_versions": {"p3", "p4", "p7", "p8"},
}
"""Versions that Ozone lists although their blocks are deleted."""


def ozone_lines(name: str) -> list[Any]:
    return [json.loads(line) for line in (FOLDER / f"{name}.ozone.jsonl").read_text("utf-8").splitlines()]


def our_lines(name: str) -> list[Any]:
    operations = read_operations(FOLDER / f"{name}.jsonl")
    return [json.loads(json.dumps(line)) for line in Replay(InMemoryClient(InMemoryPlane())).run(operations)]


def lost(lines: list[Any]) -> set[str]:
    """Tags of versions that are listed although their blocks are deleted."""
    return {
        version["tag"]
        for line in lines
        for bucket in line.get("buckets", {}).values()
        for listing in bucket["listing"].values()
        for version in listing.values()
        if version["tag"] in line["reclaimed"]
    }


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All values of a line that are not objects, with the names on the way to them."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path, value


def by_path(lines: list[Any]) -> dict[tuple[str, ...], Any]:
    return {(str(line["op"]), *path): value for line in lines for path, value in leaves(line) if path != ("op",)}


def test_each_history_has_a_workload_and_is_on_the_page() -> None:
    workloads = {file.name.removesuffix(".jsonl") for file in FOLDER.glob("*.jsonl")} - {
        file.name.removesuffix(".jsonl") for file in FOLDER.glob("*.ozone.jsonl")
    }
    assert workloads == DIFFERENT.keys()
    page = PAGE.read_text("utf-8")
    numbers = {int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert numbers == {int(name.split("_")[0]) for name in workloads}
    for name in workloads:
        assert f"`{name}.jsonl`" in page


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_plane_shows_what_a_recount_gives(name: str) -> None:
    assert our_lines(name) == lines_of(read_operations(FOLDER / f"{name}.jsonl"))


@pytest.mark.parametrize("name", DIFFERENT)
def test_ozone_has_shown_something_else_and_has_lost_what_we_keep(name: str) -> None:
    ours, ozone = our_lines(name), ozone_lines(name)
    shown, recorded = by_path(ours), by_path(ozone)
    differing = {path[-1] for path in shown.keys() | recorded.keys() if shown.get(path) != recorded.get(path)}
    assert differing == DIFFERENT[name]
    assert (lost(ozone), lost(ours)) == (LOST.get(name, set()), set())
