"""The space matrix in the tables: changed in the same batch as the rows that it counts, and sent as absolute values."""

from __future__ import annotations

from schemas.records import CountRow, SnapshotSize, SpaceCellValue, SpaceUpdate
from schemas.topics import SPACE
from services.domain.space_matrix import EMPTY, Holders, SpaceCell, merged_after_drop
from services.domain.table_keys import (
    ascending_death_key,
    bucket_id_prefix,
    cell_key,
    death_of_key,
    descending_death_key,
    holders_of_cell,
)
from services.metadata.batch_sums import BatchSums, PresentTxn
from services.metadata.tables import SPACE_TABLE, UNEXPANDED_TABLE
from services.runtime.errors import InvariantError
from services.runtime.service import Work
from services.storage.store import prefix_end
from services.storage.tables import TablesReader

MAX_CELLS_PER_UPDATE = 10_000
Counts = tuple[int, int, int, int, int]
"""Bytes, versions, rows of deletedTable, deletedDirectoryTable and snapshotRenamedTable."""


def cell_of(value: SpaceCellValue | None) -> SpaceCell:
    """The cell of a row; the empty one when there is none."""
    if value is None:
        return EMPTY
    return SpaceCell(value.bytes, value.versions, value.key_rows, value.directory_rows, value.rename_rows)


def _value(first: int, last: int, cell: SpaceCell) -> SpaceCellValue:
    return SpaceCellValue(first, last, cell.bytes, cell.versions, cell.key_rows, cell.directory_rows, cell.rename_rows)


def _counts(value: SpaceCellValue | None) -> Counts:
    if value is None:
        return 0, 0, 0, 0, 0
    return value.bytes, value.versions, value.key_rows, value.directory_rows, value.rename_rows


def _put(work: Work, bucket_id: int, holder: Holders, cell: SpaceCell) -> None:
    key = cell_key(bucket_id, *holder)
    if cell.is_empty:
        work.table(SPACE_TABLE).delete(key)
    else:
        work.table(SPACE_TABLE).put(key, _value(*holder, cell))


class SpaceChanges:
    """What a batch has changed in the matrices: written and sent at the end of the batch, coalesced."""

    def __init__(self, present: PresentTxn) -> None:
        self._rows: BatchSums[tuple[int, Holders]] = BatchSums(present)
        self._cells: dict[int, dict[Holders, None]] = {}
        self._sizes: dict[int, dict[str, SnapshotSize]] = {}
        self._is_barrier_due = False

    def clear(self) -> None:
        """Forget: the batch was written or thrown away."""
        self._rows.clear()
        self._cells.clear()
        self._sizes.clear()
        self._is_barrier_due = False

    def undo_message(self) -> None:
        """The present message was not applied."""
        self._rows.undo_message()

    def add(self, bucket_id: int, holder: Holders, counts: Counts) -> None:
        """Count a row that has entered a garbage table."""
        self._rows.add((bucket_id, holder), counts)

    def subtract(self, bucket_id: int, holder: Holders, counts: Counts) -> None:
        """Discount a row that leaves its garbage table."""
        self._rows.add((bucket_id, holder), tuple(-count for count in counts))

    def counts(self, work: Work, bucket_id: int, holder: Holders) -> Counts:
        """What a cell holds with all that this batch has changed so far."""
        written = _counts(work.table(SPACE_TABLE).get(cell_key(bucket_id, *holder)))
        changed = self._rows.of((bucket_id, holder))
        if changed is None:
            return written
        size_bytes, versions, keys, directories, renames = map(sum, zip(written, changed, strict=True))
        return size_bytes, versions, keys, directories, renames

    def write(self, work: Work) -> None:
        """Write the changed cells.

        Raises:
            InvariantError: a cell would fall below zero: rows and matrix disagree.
        """
        table = work.table(SPACE_TABLE)
        for (bucket_id, holder), counts in self._rows.items():
            key = cell_key(bucket_id, *holder)
            before = table.get(key)
            values = [old + more for old, more in zip(_counts(before), counts, strict=True)]
            if min(values) < 0:
                raise InvariantError(
                    f"the space matrix of bucket {bucket_id} would fall below zero at {holder}: {values}"
                )
            _put(work, bucket_id, holder, SpaceCell(*values))
            self._cells.setdefault(bucket_id, {})[holder] = None
        self._rows.clear()

    def drop(self, work: Work, bucket_id: int, dropped: int, live_before: tuple[int, ...]) -> int:
        """Merge the cells of a dropped snapshot into its neighbours'; says how many rows it alone held."""
        table = work.table(SPACE_TABLE)
        prefix = bucket_id_prefix(bucket_id)
        cells = {holders_of_cell(key): cell_of(value) for key, value in table.scan(prefix, prefix_end(prefix))}
        alone = cells.get((dropped, dropped), EMPTY)
        for holder, cell in merged_after_drop(cells, dropped, live_before).items():
            _put(work, bucket_id, holder, cell)
            self._cells.setdefault(bucket_id, {})[holder] = None
        return alone.key_rows + alone.directory_rows + alone.rename_rows

    def size_changed(self, bucket_id: int, size: SnapshotSize) -> None:
        """A snapshot refers to another number of bytes now."""
        self._sizes.setdefault(bucket_id, {})[size.snapshot_id] = size

    def unexpanded_changed(self, work: Work, bucket_id: int, death: int, difference: int) -> None:
        """Count deleted directories of one death that wait for their expansion."""
        table = work.table(UNEXPANDED_TABLE)
        ascending, descending = ascending_death_key(bucket_id, death), descending_death_key(bucket_id, death)
        before = table.get(ascending)
        count = (before.count if before else 0) + difference
        if count:
            table.put(ascending, CountRow(count))
            if before is None:
                table.put(descending, CountRow(0))
        else:
            table.delete(ascending)
            table.delete(descending)
        self._cells.setdefault(bucket_id, {})

    def barrier(self) -> None:
        """Say at the end of the batch how far the figures go, even when none has changed."""
        self._is_barrier_due = True

    def send(self, work: Work, txn: int) -> None:
        """Send every changed figure."""
        for bucket_id in sorted(self._cells.keys() | self._sizes.keys()):
            self._send_bucket(work, txn, bucket_id)
        if self._is_barrier_due:
            work.send(SPACE, SpaceUpdate(txn, 0, (), (), 0, 0))
        self.clear()

    def _send_bucket(self, work: Work, txn: int, bucket_id: int) -> None:
        table = work.table(SPACE_TABLE)
        values = [
            table.get(cell_key(bucket_id, *holder)) or _value(*holder, EMPTY)
            for holder in self._cells.get(bucket_id, ())
        ]
        sizes = tuple(self._sizes.get(bucket_id, {}).values())
        oldest, newest = unexpanded_bounds(work, bucket_id)
        for start in range(0, max(len(values), 1), MAX_CELLS_PER_UPDATE):
            page = tuple(values[start : start + MAX_CELLS_PER_UPDATE])
            work.send(SPACE, SpaceUpdate(txn, bucket_id, page, sizes, oldest, newest))


def unexpanded_bounds(tables: Work | TablesReader, bucket_id: int) -> tuple[int, int]:
    """Oldest and newest death of the directories that are not expanded; zeros when there are none."""
    table = tables.table(UNEXPANDED_TABLE)
    ascending, descending = b"/%d/a/" % bucket_id, b"/%d/d/" % bucket_id
    oldest = next(table.scan(ascending, prefix_end(ascending)), None)
    newest = next(table.scan(descending, prefix_end(descending)), None)
    if oldest is None or newest is None:
        return 0, 0
    return death_of_key(oldest[0]), death_of_key(newest[0])


def unexpanded_count(
    tables: Work | TablesReader, bucket_id: int, after_death: int, until_death: int, limit: int
) -> int:
    """How many deleted directories died in a range and are not expanded, counted up to a limit."""
    end = ascending_death_key(bucket_id, until_death + 1) if until_death else b"/%d/a0" % bucket_id
    count = 0
    for _, row in tables.table(UNEXPANDED_TABLE).scan(ascending_death_key(bucket_id, after_death + 1), end):
        count += row.count
        if count >= limit:
            return limit
    return count
