"""The full chain as messages of bounded size, and the reader that assembles them.

The contents of a part depend only on the chain at its version. So parts of one version and count are the same in every
publication, and a reader may combine parts of several publications. Parts are sent in order, and a repeat may begin
with any of them. Part 1 always starts over, a repeated part is ignored, and after a missing part the rest is skipped
until the next part 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from schemas.records import ChainedBucket, FullChain

PART_CELLS = 8_000
"""Maximum cells of one part, where a cell is a live snapshot or a bucket. With ids of the maximum length a part stays
under 1 MiB."""
_SMALLEST = 2
"""Minimum free cells to add to a part: a bucket and one of its snapshots."""


def in_parts(buckets: Iterable[ChainedBucket], max_cells: int = PART_CELLS) -> list[FullChain]:
    """Return a chain as parts. ``buckets`` are in the order of their ids; a bucket may span several parts."""
    cut = list(_cut(buckets, max_cells)) or [()]
    return [FullChain(part, number, len(cut)) for number, part in enumerate(cut, start=1)]


def _cut(buckets: Iterable[ChainedBucket], max_cells: int) -> Iterator[tuple[ChainedBucket, ...]]:
    part: list[ChainedBucket] = []
    room = max_cells
    for bucket in buckets:
        rest, is_begun = bucket.snapshots, False
        while rest or not is_begun:
            if room < _SMALLEST:
                yield tuple(part)
                part, room = [], max_cells
            now, rest, is_begun = rest[: room - 1], rest[room - 1 :], True
            part.append(replace(bucket, snapshots=now))
            room -= 1 + len(now)
    if part:
        yield tuple(part)


@dataclass(slots=True)
class FullChainParts:
    """The parts of one full chain received so far: from part 1 on, without gaps."""

    version: int = 0
    """Its chain version."""
    count: int = 0
    """Number of parts of the full chain."""
    _parts: list[FullChain] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._parts)

    def is_completed_by(self, version: int, part: FullChain) -> bool:
        """Return whether this part would complete a full chain."""
        is_next = (version, part.parts, part.part) == (self.version, self.count, len(self._parts) + 1)
        return part.part == part.parts and (part.part == 1 or is_next)

    def follow(self, version: int, part: FullChain) -> bool:
        """Add a part. Return whether the full chain is complete with it."""
        if part.part == 1:
            self.version, self.count, self._parts = version, part.parts, [part]
        elif (version, part.parts) != (self.version, self.count) or part.part > len(self._parts) + 1:
            self.clear()
        elif part.part == len(self._parts) + 1:
            self._parts.append(part)
        else:
            return False
        return bool(self._parts) and len(self._parts) == self.count

    def pop(self) -> list[ChainedBucket]:
        """Return the buckets of a complete full chain and clear the parts."""
        buckets: list[ChainedBucket] = []
        for part in self._parts:
            first, *others = part.buckets or (None,)
            if first is not None and buckets and buckets[-1].bucket_id == first.bucket_id:
                before = buckets.pop()  # the bucket continues in this part
                first = replace(first, snapshots=before.snapshots + first.snapshots)
            buckets += [first, *others] if first is not None else []
        self.clear()
        return buckets

    def clear(self) -> None:
        """Wait for the next part 1."""
        self.version, self.count, self._parts = 0, 0, []
