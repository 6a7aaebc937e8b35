"""Reads a database of an Ozone Manager as the lens' tasks do, in this process and without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.lens.ozone.layout import directories_at
from streaming.lens.ozone.plan import BucketPlan, Plan, make_plan
from streaming.lens.ozone.reader import OzoneReader

Held = list[tuple[int, tuple[int, int] | None]]
"""Bytes of the things of a path, with their first and last holder; None if nobody holds them."""


class Read:
    """What the lens reads in a database."""

    def __init__(self, location: Path, scratch: Path, bucket: str = "") -> None:
        scratch.mkdir()
        self.plan: Plan = make_plan(directories_at(location), bucket, scratch)
        reader = OzoneReader(scratch, 2)
        self.rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]

    def bucket(self, name: str) -> BucketPlan:
        """The plan of a bucket."""
        return next(bucket for bucket in self.plan.buckets if bucket.keys.name == name)

    def things(self, bucket: str) -> Iterator[dict[str, Any]]:
        """The rows of things."""
        return (row for row in self.rows if row["fact"] is None and row["bucket"] == bucket)

    def held(self, bucket: str) -> dict[str, Held]:
        """Bytes and holders by path."""
        found: dict[str, Held] = {}
        for row in self.things(bucket):
            runs = [(run["first"], run["last"]) for run in row["runs"]]
            found.setdefault(row["path"], []).append((row["bytes"], runs[0] if runs else None))
        return {path: sorted(held, key=lambda one: one[0]) for path, held in found.items()}

    def blocks(self, bucket: str) -> dict[str, tuple[int, frozenset[int]]]:
        """The length and the places that hold it of each block, which may be in several rows."""
        ranked: dict[str, list[tuple[int, int, frozenset[int]]]] = {}
        for row in self.things(bucket):
            rank = int(row["kind"] in ("open-key", "upload-part"))
            places = frozenset(place for run in row["runs"] for place in range(run["first"], run["last"] + 1))
            for block in row["blocks"]:
                name = f"{block['container']}:{block['local']}"
                ranked.setdefault(name, []).append((rank, block["bytes"], places))
        found = {}
        for name, rows in ranked.items():
            best = [row for row in rows if row[0] == min(rows)[0]]
            found[name] = (best[0][1], frozenset[int]().union(*(places for _, _, places in best)))
        return found

    def sums(self, fact: str) -> tuple[int, int]:
        """The bytes, and the bytes on disks, of a sum."""
        of_fact = [row for row in self.rows if row["fact"] == fact]
        return sum(row["bytes"] for row in of_fact), sum(row["replicated_bytes"] for row in of_fact)

    def listed(self, fact: str) -> list[tuple[str, int]]:
        """Path and bytes of findings."""
        return [(row["path"], row["bytes"]) for row in self.rows if row["fact"] == fact]
