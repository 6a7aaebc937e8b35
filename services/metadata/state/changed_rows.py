"""changedTable: which rows of the namespace changed between which snapshots of their bucket.

It is written only for buckets that have a snapshot to compare with, in the same batch as the rows themselves, and is a
set: a row that changes often is there once for each pair of neighbours. So a diff of two snapshots reads what changed
since the older one, and not what both have.

An interval begins with a snapshot, live or dropped, and ends at the next one. Those before the oldest live snapshot
serve nobody: they are removed a page at a time, outside of units of work, as the files of dropped snapshots are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from schemas.codec import codec
from schemas.records import BucketLayout, BucketRow, ChangedRow
from services.domain.table_keys import bucket_id_key, bucket_id_prefix, changed_key, flat_key
from services.metadata.state.snapshot_lists import SnapshotLists
from services.metadata.state.tables import (
    BUCKET_TABLE,
    CHANGED_TABLE,
    DIRECTORY_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    SNAPSHOT_COUNT_TABLE,
    SNAPSHOT_LIST_TABLE,
)
from services.runtime.loop.service import Work
from services.storage.store import Store, prefix_end
from services.storage.tables import TableDefinition, TablesReader

TRIMMED_AT_ONCE = 2_000
MOST_REMEMBERED = 10_000
"""Buckets of which it is known how far their changes are removed; of another one the next range begins at its first."""
Range = tuple[bytes, bytes]
"""Keys of changedTable from one up to another."""
_LETTERS: tuple[tuple[TableDefinition[Any], bytes], ...] = (
    (KEY_TABLE, b"k"),
    (FILE_TABLE, b"f"),
    (DIRECTORY_TABLE, b"d"),
)
_ALL = (b"/", b"0")


def note_changes(work: Work, snapshots: SnapshotLists) -> None:
    """Write down every row of the namespace that a unit of work has changed. Takes and drops stand alone in theirs."""
    noted: dict[bytes, bytes] = {}
    for table, letter in _LETTERS:
        bucket, interval = b"none", None  # of the key at hand: mostly that of the one before
        intervals: dict[bytes, tuple[bytes, bytes] | None] = {}
        for key in work.table(table).changed_keys():
            if not key.startswith(bucket):
                bucket = key[: key.index(b"/", key.index(b"/", 1) + 1) + 1]
                if bucket not in intervals:
                    intervals[bucket] = _interval(work, snapshots, table, bucket, letter)
                interval = intervals[bucket]
            if interval is not None:
                noted[interval[0] + key[len(bucket) :]] = interval[1]
    if noted:
        work.table(CHANGED_TABLE).put_at_the_end(noted)


def _interval(
    work: Work, snapshots: SnapshotLists, table: TableDefinition[Any], bucket: bytes, letter: bytes
) -> tuple[bytes, bytes] | None:
    """What the keys of a bucket's changes begin with now, and their value; None without a snapshot to compare with."""
    if table is KEY_TABLE:
        named = work.table(BUCKET_TABLE).get(bucket[:-1])
        bucket_id = named.object_id if named else 0
    else:
        bucket_id = int(bucket.split(b"/")[2])
    listed = snapshots.of(work, bucket_id)
    if not listed.live_txns:
        return None
    row = codec(ChangedRow).encode(ChangedRow(listed.newest_txn))
    return changed_key(bucket_id, listed.ever, letter), row


@dataclass(frozen=True, slots=True)
class ChangedKey:
    """A row of the namespace that was changed: its table and its key there."""

    table: TableDefinition[Any]
    key: bytes


def changed_rows(tables: TablesReader, bucket: BucketRow, first: int, end: int) -> Iterator[ChangedKey]:
    """Every row that changed after the snapshot with the ordinal ``first`` and before the one with ``end``.

    Each row at least once. Rows that are the same again are among them; none that differs is missing.
    """
    by_letter = {letter[0]: table for table, letter in _LETTERS}
    prefix = _prefix(bucket)
    letter_at = len(changed_key(bucket.object_id, 0))
    scanned = tables.table(CHANGED_TABLE).scan(changed_key(bucket.object_id, first), changed_key(bucket.object_id, end))
    for key, _ in scanned:
        yield ChangedKey(by_letter[key[letter_at]], prefix + key[letter_at + 1 :])


def is_changed(tables: TablesReader, bucket: BucketRow, ordinal: int, row: ChangedKey) -> bool:
    """Whether a row changed after the snapshot with an ordinal, and before the next: one point look-up."""
    letter = next(letter for table, letter in _LETTERS if table is row.table)
    key = changed_key(bucket.object_id, ordinal, letter, row.key[len(_prefix(bucket)) :])
    return tables.table(CHANGED_TABLE).get_encoded(key) is not None


def _prefix(bucket: BucketRow) -> bytes:
    """What the keys of a bucket's rows in the namespace begin with."""
    if bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED:
        return b"/%d/%d/" % (bucket.volume_id, bucket.object_id)
    return flat_key(bucket.volume, bucket.bucket, "")


def unneeded_changes(tables: TablesReader) -> dict[int, Range]:
    """Per bucket the range of changes that no diff can ask for, now or ever."""
    ranges: dict[int, Range] = {}
    start, end = _ALL
    while True:
        found = next(tables.table(CHANGED_TABLE).scan(start, end), None)
        if found is None:
            return ranges
        bucket_id = int(found[0].split(b"/")[1])
        prefix = bucket_id_prefix(bucket_id)
        start = prefix_end(prefix)
        oldest = next((row.ordinal for _, row in tables.table(SNAPSHOT_LIST_TABLE).scan(prefix, start)), None)
        count = tables.table(SNAPSHOT_COUNT_TABLE).get(bucket_id_key(bucket_id))
        ranges[bucket_id] = unneeded_of(bucket_id, oldest, count.snapshots_ever if count else 0)


def unneeded_of(bucket_id: int, oldest_live: int | None, ever: int) -> Range:
    """The range of one bucket's changes before its oldest live snapshot, or before the next one when there is none.

    It stays right whatever comes: what changes later belongs to an interval behind it, even if it is removed much later
    and a snapshot was taken in between. ``oldest_live`` is an ordinal, ``ever`` how many snapshots the bucket has had.
    """
    first_needed = ever + 1 if oldest_live is None else oldest_live
    return bucket_id_prefix(bucket_id), changed_key(bucket_id, first_needed)


class UnneededChanges:
    """What is to be removed of changedTable: a range for each bucket, which begins where the last one ended.

    A scan steps over each removed row until RocksDB has compacted it away: from the beginning of a bucket it took 0.2
    seconds of processor time for each drop, once 150 snapshots with 10,000 changes each were gone.
    """

    def __init__(self, ranges: Mapping[int, Range] | None = None) -> None:
        self._ranges = dict(ranges or {})
        self._removed_until: dict[int, bytes] = {}
        """By bucket the key below which no change is left that is not needed."""

    def __len__(self) -> int:
        return len(self._ranges)

    def add(self, bucket_id: int, oldest_live: int | None, ever: int) -> None:
        """A snapshot of the bucket was dropped; the rest as ``unneeded_of`` takes it."""
        start, end = unneeded_of(bucket_id, oldest_live, ever)
        self._ranges[bucket_id] = self._removed_until.get(bucket_id, start), end

    def remove_page(self, store: Store) -> None:
        """Remove some of the changes; what is left of a range stays, and an empty one goes."""
        left = TRIMMED_AT_ONCE
        while self._ranges and left:
            bucket_id, (start, end) = next(iter(self._ranges.items()))
            keys = [key for key, _ in islice(store.scan(CHANGED_TABLE.name, start, end), left)]
            if keys:
                store.write({CHANGED_TABLE.name: dict.fromkeys(keys)})
            if len(keys) == left:
                self._ranges[bucket_id] = keys[-1], end
            else:
                del self._ranges[bucket_id]
            self._remember(bucket_id, keys[-1] if len(keys) == left else end)
            left -= len(keys)

    def _remember(self, bucket_id: int, until: bytes) -> None:
        self._removed_until.pop(bucket_id, None)
        self._removed_until[bucket_id] = until
        if len(self._removed_until) > MOST_REMEMBERED:
            del self._removed_until[next(iter(self._removed_until))]
