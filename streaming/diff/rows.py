"""The tasks of a diff: read a range of both snapshot checkpoints side by side, and keep the rows that may differ.

A row that is byte for byte the same in both needs no decoding, except below a directory that only one side reaches:
there the row belongs to that side alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from schemas.records import DirectoryRow, KeyRow
from schemas.stored_rows import row_codec
from services.domain.snapshot_diff import NamespaceObject, PlacedObject
from services.domain.table_keys import flat_key
from streaming.rocksdb.checkpoint_rows import CheckpointRows, Row

BEFORE, AFTER = 0, 1
FILES, FLAT_KEYS, DIRECTORIES = "fileTable", "keyTable", "directoryTable"
Range = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class ComparedBucket:
    """A bucket and the snapshot checkpoints of its two states."""

    checkpoints: tuple[str, str]
    """The directories of the older and the newer state."""
    volume: str
    bucket: str
    volume_id: int
    bucket_id: int
    is_tree: bool

    @property
    def keys_family(self) -> str:
        """Return the column family of the bucket's keys."""
        return FILES if self.is_tree else FLAT_KEYS

    @property
    def whole(self) -> Range:
        """Return the range of its rows, the same in each of its column families."""
        prefix = (
            b"/%d/%d/" % (self.volume_id, self.bucket_id) if self.is_tree else flat_key(self.volume, self.bucket, "")
        )
        return prefix, prefix[:-1] + b"0"

    def open(self, side: int) -> CheckpointRows:
        """Open the snapshot checkpoint of one side."""
        return CheckpointRows(self.checkpoints[side], (self.keys_family, DIRECTORIES))


def directories_in(bucket: ComparedBucket, side: int, part: Range) -> list[NamespaceObject]:
    """Return the directories of one side in a range, reached or not."""
    decode = row_codec(DirectoryRow).decode
    with bucket.open(side) as rows:
        found = (decode(value) for _, value in rows.scan(DIRECTORIES, *part))
        return [NamespaceObject(row.object_id, row.parent_id, row.name, True, (0, 0)) for row in found]


@dataclass(frozen=True, slots=True)
class DirectorySide:
    """The directories of one side, as a task needs them."""

    paths: Mapping[int, str]
    """Path of each directory that can be reached, by objectID, with a trailing slash; the root's path is empty."""
    lone: frozenset[int]
    """ObjectIDs of the directories that the other side does not reach."""


def keys_that_may_differ(
    bucket: ComparedBucket, sides: tuple[DirectorySide, DirectorySide], part: Range
) -> Iterator[tuple[int, PlacedObject]]:
    """Yield, with their side, the keys of a range that are missing or different on the other side."""
    decode = row_codec(KeyRow).decode
    with bucket.open(BEFORE) as before, bucket.open(AFTER) as after:
        family = bucket.keys_family
        for key, *values in _side_by_side(before.scan(family, *part), after.scan(family, *part)):
            is_same = values[BEFORE] == values[AFTER]
            if is_same and not bucket.is_tree:
                continue
            parent_id = int(key.split(b"/", 4)[3]) if bucket.is_tree else bucket.bucket_id
            for side, value in enumerate(values):
                if value is None or (is_same and parent_id not in sides[side].lone):
                    continue
                base = sides[side].paths.get(parent_id)
                if base is not None:
                    row = decode(value)
                    found = NamespaceObject(row.object_id, parent_id, row.name, False, (row.birth, row.size_bytes))
                    yield side, PlacedObject(found, base + row.name)


def _side_by_side(before: Iterable[Row], after: Iterable[Row]) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Yield the rows of both sides in the order of the keys; None for a side without this key."""
    old, new = iter(before), iter(after)
    was, now = next(old, None), next(new, None)
    while was is not None or now is not None:
        if now is None or (was is not None and was[0] < now[0]):
            assert was is not None  # noqa: S101 the loop's condition says so
            yield was[0], was[1], None
            was = next(old, None)
        elif was is None or now[0] < was[0]:
            yield now[0], None, now[1]
            now = next(new, None)
        else:
            yield was[0], was[1], now[1]
            was, now = next(old, None), next(new, None)
