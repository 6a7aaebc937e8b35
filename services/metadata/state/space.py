"""The space matrix in the tables: written in the same batch as the rows that it counts, and sent as absolute values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import add

from schemas.records import CountRow, SnapshotListRow, SnapshotSize, SpaceCellValue, SpaceUpdate
from schemas.topics import SPACE
from services.domain.space_matrix import (
    EMPTY,
    Counts,
    Holders,
    SpaceCell,
    SpaceError,
    cell_counts,
    merged_after_drop,
    merged_into_after_drop,
)
from services.domain.table_keys import (
    ascending_death_key,
    cell_key,
    death_of_key,
    descending_death_key,
    holders_of_cell,
)
from services.metadata.state.batch_sums import BatchSums, PresentTxn
from services.metadata.state.tables import SPACE_TABLE, UNEXPANDED_TABLE
from services.runtime.loop.service import Work
from services.storage.store import prefix_end
from services.storage.tables import TablesReader

MAX_CELLS_PER_UPDATE = 10_000


def cell_of(value: SpaceCellValue | None) -> SpaceCell:
    """Return the cell of a row; ``EMPTY`` without a row."""
    return EMPTY if value is None else SpaceCell(*cell_counts(value))


def _sum(one: Counts, other: Sequence[int]) -> Counts:
    size_bytes, versions, keys, directories, renames, redundancy_bytes = map(add, one, other)
    return size_bytes, versions, keys, directories, renames, redundancy_bytes


def _cells_from(work: Work, bucket_id: int, first: int) -> dict[Holders, SpaceCell]:
    """Return the cells of a bucket that begin with a snapshot."""
    start, end = cell_key(bucket_id, first, 0), cell_key(bucket_id, first + 1, 0)
    return {holders_of_cell(key): cell_of(value) for key, value in work.table(SPACE_TABLE).scan(start, end)}


def _cells_until(work: Work, bucket_id: int, last: int, live: Sequence[int]) -> dict[Holders, SpaceCell]:
    """Return the cells of a bucket that end with a snapshot and begin with a live one before it."""
    table = work.table(SPACE_TABLE)
    keys = {(first, last): cell_key(bucket_id, first, last) for first in live[: bisect_left(live, last)]}
    table.read_ahead(list(keys.values()))
    rows = {holder: table.get_encoded(key) for holder, key in keys.items()}
    return {holder: cell_of(table.decode(row)) for holder, row in rows.items() if row is not None}


class SpaceChanges:
    """The changes of a batch to the matrices, coalesced; written and sent at its end."""

    def __init__(self, present: PresentTxn) -> None:
        self._rows: BatchSums[tuple[int, Holders]] = BatchSums(present)
        self.lowered: dict[tuple[int, Holders], None] = {}
        """Cells that the present message has lowered."""
        self.disagreements: dict[int, Counts] = {}
        """Buckets whose rows and figures disagree, as the present message has found, with the figures."""
        self._cells: dict[int, dict[Holders, None]] = {}
        self._sizes: dict[int, dict[str, SnapshotSize]] = {}
        self._deleted: dict[int, tuple[str, int]] = {}
        self._is_barrier_due = False

    def clear(self) -> None:
        """Discard all changes: the batch was written or aborted."""
        self._rows.clear()
        self._forget_message()
        self._cells.clear()
        self._sizes.clear()
        self._deleted.clear()
        self._is_barrier_due = False

    def undo_message(self) -> None:
        """Roll back the changes of the present message, which was not applied."""
        self._rows.undo_message()
        self._forget_message()

    def _forget_message(self) -> None:
        self.lowered.clear()
        self.disagreements.clear()

    def add(self, bucket_id: int, holder: Holders, counts: Counts) -> None:
        """Count a row that has entered a garbage table."""
        self._rows.add((bucket_id, holder), counts)

    def subtract(self, bucket_id: int, holder: Holders, counts: Counts) -> None:
        """Subtract a row that leaves its garbage table."""
        self._rows.add((bucket_id, holder), tuple(-count for count in counts))
        self.lowered[bucket_id, holder] = None

    def disagrees(self, bucket_id: int, counts: Counts) -> None:
        """Note that the rows of a bucket disagree with its figures."""
        self.disagreements[bucket_id] = counts

    def disagreeing(self, work: Work) -> dict[int, Counts]:
        """Return the buckets whose rows and figures disagree after the present message, with the wrong figures.

        A cell below zero has lost rows that were never counted in it, or had too low a count. Call this after each
        applied message, so that the result does not depend on how the log is split into batches.
        """
        found = dict(self.disagreements)
        for bucket_id, holder in self.lowered:
            counts = self.counts(work, bucket_id, holder)
            if min(counts) < 0:
                found.setdefault(bucket_id, counts)
        self._forget_message()
        return found

    def counts(self, work: Work, bucket_id: int, holder: Holders) -> Counts:
        """Return the counts of a cell, with the changes of this batch so far."""
        written = cell_counts(work.table(SPACE_TABLE).get(cell_key(bucket_id, *holder)) or EMPTY)
        changed = self._rows.of((bucket_id, holder))
        return written if changed is None else _sum(written, changed)

    def write(self, work: Work) -> None:
        """Write the changed cells, also those below zero: sums continue until an operator has looked."""
        table = work.table(SPACE_TABLE)
        for (bucket_id, holder), counts in self._rows.items():
            before = cell_counts(table.get(cell_key(bucket_id, *holder)) or EMPTY)
            self._put(work, bucket_id, holder, _sum(before, counts))
        self._rows.clear()

    def _put(self, work: Work, bucket_id: int, holder: Holders, counts: Counts) -> None:
        table, key = work.table(SPACE_TABLE), cell_key(bucket_id, *holder)
        if any(counts):
            table.put(key, SpaceCellValue(*holder, *counts))
        else:
            table.delete(key)
        self._cells.setdefault(bucket_id, {})[holder] = None

    def drop(self, work: Work, bucket_id: int, dropped: int, live_before: tuple[int, ...]) -> int:
        """Merge the cells of a dropped snapshot into its neighbours'. Return the number of rows that it alone held.

        If a cell names a snapshot that is not live, all cells stay as they are. The number of rows is then unknown, and
        at least 1 is returned. Only the changing cells are read, as the matrix grows with the square of the live
        snapshots.
        """
        table = work.table(SPACE_TABLE)
        cells = _cells_from(work, bucket_id, dropped) | _cells_until(work, bucket_id, dropped, live_before)
        alone = cells.get((dropped, dropped), EMPTY)
        try:
            targets = merged_into_after_drop(cells, dropped, live_before).values()
            cells |= {merged_into: cell_of(table.get(cell_key(bucket_id, *merged_into))) for merged_into in targets}
            merged = merged_after_drop(cells, dropped, live_before)
        except SpaceError:
            self.disagrees(bucket_id, (alone.bytes, alone.versions, 0, 0, 0, 0))
            return max(1, alone.rows)
        for holder, cell in merged.items():
            self._put(work, bucket_id, holder, cell_counts(cell))
        return alone.rows

    def size_changed(self, row: SnapshotListRow) -> None:
        """Note that a snapshot's referenced bytes have changed."""
        size = SnapshotSize(
            row.snapshot_id, row.referenced_bytes, row.referenced_namespace, row.referenced_redundancy_bytes
        )
        self._sizes.setdefault(row.bucket_id, {})[row.snapshot_id] = size

    def unexpanded_changed(self, work: Work, bucket_id: int, death: int, difference: int) -> None:
        """Change the number of deleted directories of one death that are not expanded yet."""
        table = work.table(UNEXPANDED_TABLE)
        ascending, descending = ascending_death_key(bucket_id, death), descending_death_key(bucket_id, death)
        before = table.get(ascending)
        count = (before.count if before else 0) + difference
        if count < 0:
            self.disagrees(bucket_id, (0, 0, 0, count, 0, 0))
        if count > 0:
            table.put(ascending, CountRow(count))
            if before is None:
                table.put(descending, CountRow(0))
        else:
            table.delete(ascending)
            table.delete(descending)
        self._cells.setdefault(bucket_id, {})

    def bucket_deleted(self, bucket_id: int, path: str, log_time_ms: int) -> None:
        """Note a deleted bucket: other services may remove what they keep under its name."""
        self._deleted[bucket_id] = (path, log_time_ms)

    def barrier(self) -> None:
        """Send the txn of the figures at the end of the batch, even if no figure has changed."""
        self._is_barrier_due = True

    def send(self, work: Work, txn: int) -> None:
        """Send every changed figure."""
        for bucket_id in sorted(self._cells.keys() | self._sizes.keys() | self._deleted.keys()):
            self._send_bucket(work, txn, bucket_id)
        if self._is_barrier_due:
            work.send(SPACE, SpaceUpdate(txn, 0, (), (), 0, 0))
        self.clear()

    def _send_bucket(self, work: Work, txn: int, bucket_id: int) -> None:
        table = work.table(SPACE_TABLE)
        values = [
            table.get(cell_key(bucket_id, *holder)) or SpaceCellValue(*holder, *cell_counts(EMPTY))
            for holder in self._cells.get(bucket_id, ())
        ]
        sizes = tuple(self._sizes.get(bucket_id, {}).values())
        oldest, newest = unexpanded_bounds(work, bucket_id)
        for start in range(0, max(len(values), 1), MAX_CELLS_PER_UPDATE):
            page = tuple(values[start : start + MAX_CELLS_PER_UPDATE])
            deleted = self._deleted.get(bucket_id, ("", 0))
            work.send(SPACE, SpaceUpdate(txn, bucket_id, page, sizes, oldest, newest, *deleted))


def unexpanded_bounds(tables: Work | TablesReader, bucket_id: int) -> tuple[int, int]:
    """Return the oldest and newest death of the directories that are not expanded; zeros if there are none."""
    table = tables.table(UNEXPANDED_TABLE)
    ascending, descending = b"/%d/a/" % bucket_id, b"/%d/d/" % bucket_id
    oldest = next(table.scan(ascending, prefix_end(ascending)), None)
    newest = next(table.scan(descending, prefix_end(descending)), None)
    if oldest is None or newest is None:
        return 0, 0
    return death_of_key(oldest[0]), death_of_key(newest[0])


MAX_UNEXPANDED_COUNT = 1_000
"""Maximum deleted directories to count; beyond it a listing says "at least"."""


def unexpanded_count(
    tables: Work | TablesReader, bucket_id: int, after_death: int, until_death: int, limit: int
) -> int:
    """Return the number of deleted directories that died in a range and are not expanded, at most ``limit``."""
    end = ascending_death_key(bucket_id, until_death + 1) if until_death else b"/%d/a0" % bucket_id
    count = 0
    for _, row in tables.table(UNEXPANDED_TABLE).scan(ascending_death_key(bucket_id, after_death + 1), end):
        count += row.count
        if count >= limit:
            return limit
    return count
