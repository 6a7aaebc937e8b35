"""The buckets with the most bytes and their figures: read by one thread every few seconds, for all who look.

Which buckets are the largest is found by reading the rows of all of them, one read for each volume. That is done the
less often the more reads it takes; the figures of those that were found are read each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.answers import BucketSpace
from schemas.records import BucketRow
from services.client.errors import PlaneError
from services.client.plane import Plane
from services.domain.words import counted
from services.wording.figures import size_text

MOST_LISTED = 50
"""Most buckets in the list: those with the most bytes."""
MOST_READ = 2_000
"""Most volumes and buckets together that are compared for the list."""
READS_A_TURN = 50
"""Reads that finding the largest buckets may take on the average, each time that figures are read."""
STATES = ("live", "held", "pending", "claimed", "freed")

Place = tuple[str, str]
"""A volume and a bucket in it."""


@dataclass(frozen=True, slots=True)
class ListedBuckets:
    """The buckets with the most bytes, and the number of those that were compared."""

    rows: tuple[tuple[int, BucketRow], ...] = ()
    """Shard and bucket."""
    count: int = 0
    are_all: bool = True
    """Whether all buckets of the plane were compared."""
    reads: int = 0
    """Reads that it took."""


def largest_buckets(plane: Plane, most: int = MOST_LISTED) -> ListedBuckets:
    """Return the buckets that have the most bytes, live or deleted, among the first ``MOST_READ``, by shard and name.

    A volume counts as a bucket, since it costs a read. Links are left out.
    """
    found: list[tuple[int, BucketRow]] = []
    left, reads, are_all = MOST_READ, plane.shards, True
    for shard, volume in _volumes(plane):
        if not left:
            are_all = False
            break
        left, reads = left - 1, reads + 1
        rows = plane.metadata(shard).buckets(volume, limit=left + 1)  # one more, to know whether there are more
        are_all = are_all and len(rows) <= left
        found += [(shard, row) for row in rows[:left] if not row.source_bucket]
        left -= min(left, len(rows))
    found.sort(key=lambda one: (-(one[1].used_bytes + one[1].snapshot_used_bytes), one[1].volume, one[1].bucket))
    return ListedBuckets(tuple(found[:most]), len(found), are_all, reads)


def _volumes(plane: Plane) -> Iterator[tuple[int, str]]:
    for shard in range(plane.shards):
        for row in plane.metadata(shard).volumes(limit=MOST_READ + 1):
            yield shard, row.volume


def bytes_by_state(space: BucketSpace) -> dict[str, int]:
    """Return the bytes of a bucket in each state."""
    return {state: getattr(space, f"{state}_bytes") for state in STATES}


@dataclass(slots=True)
class BucketList:
    """Reads figures of the largest buckets, and of others if they are named. One thread at a time may use it."""

    _largest: ListedBuckets = field(default_factory=ListedBuckets, init=False)
    _turns_to_wait: int = field(default=0, init=False)
    """Turns until the largest buckets are found anew."""

    def read(self, plane: Plane, others: Mapping[Place, int]) -> tuple[dict[str, Any], dict[Place, dict[str, int]]]:
        """Return the list for a browser, and the bytes by state of its buckets and of others, given with their shards.

        Those that were deleted meanwhile are left out.
        """
        if self._turns_to_wait:
            self._turns_to_wait -= 1
        else:
            self._largest = largest_buckets(plane)
            self._turns_to_wait = self._largest.reads // READS_A_TURN
        listed = {(row.volume, row.bucket): shard for shard, row in self._largest.rows}
        rows: list[dict[str, Any]] = []
        amounts: dict[Place, dict[str, int]] = {}
        for place, shard in (listed | dict(others)).items():
            try:
                space = plane.metadata(shard).space(*place, limit=1)
            except PlaneError:
                continue
            amounts[place] = bytes_by_state(space)
            if place in listed:
                rows.append(_row(place, space))
        return {"buckets": rows, "note": _note(self._largest)}, amounts


def _row(place: Place, space: BucketSpace) -> dict[str, Any]:
    states = {
        state: {"bytes": size, "text": size_text(size, is_exact=not space.unexpanded_directories)}
        for state, size in bytes_by_state(space).items()
    }
    return {"volume": place[0], "bucket": place[1], "snapshots": space.live_snapshots, "states": states}


def _note(listed: ListedBuckets) -> str:
    more = listed.count - len(listed.rows)
    note = f"{counted(more, 'smaller bucket')} not listed: open one by its name." if more else ""
    if not listed.are_all:
        note += f" The plane has further buckets: only the first {listed.count:,} were compared."
    return note.strip()
