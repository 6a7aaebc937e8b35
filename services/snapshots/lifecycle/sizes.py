"""Sizes of snapshots, computed from the space figures that metadata publishes.

The sizes are stored in snapshotInfoTable only. At the end of a batch they are computed again for the snapshots whose
figures have changed. Figures may arrive before the capture of their snapshot.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.records import SnapshotInfo, SpaceUpdate
from services.domain.space_matrix import cell_counts
from services.domain.table_keys import bucket_id_key, cell_key
from services.runtime.loop.service import Work
from services.snapshots.state.rows import SnapshotRows
from services.snapshots.state.tables import SNAPSHOT_SIZE_TABLE, SPACE_PROGRESS_TABLE, SPACE_TABLE
from services.storage.tables import Tables


class Sizes:
    """Stores the figures of ``gc.space``, and computes the sizes of snapshots from them."""

    def __init__(self, rows: SnapshotRows) -> None:
        self._rows = rows
        self._stale: set[str] = set()
        self.complete_txn = 0
        """The txn up to which all figures have arrived."""

    def restore(self, tables: Tables) -> None:
        """Read the progress of the figures. Snapshots that the current batch has marked stale stay stale."""
        self.complete_txn = space_complete_until(tables)

    def forget_stale(self) -> None:
        """Forget which snapshots are stale: their batch was aborted, and rows and figures agree."""
        self._stale.clear()

    def captured(self, row: SnapshotInfo) -> None:
        """Mark a completed snapshot as stale: its figures may have arrived before its capture."""
        self._stale.add(row.snapshot_id)

    def update(self, update: SpaceUpdate, work: Work) -> None:
        """Store changed figures. A repeat of an older message is ignored."""
        progress = work.table(SPACE_PROGRESS_TABLE)
        key = bucket_id_key(update.bucket_id)
        before = progress.get(key) or SpaceUpdate(0, update.bucket_id, (), (), 0, 0)
        if update.txn < before.txn:
            return
        progress.put(key, replace(update, cells=(), snapshots=()))
        if update.bucket_id == 0:
            self.complete_txn = update.txn
            return
        self._update_cells(update, work)
        for size in update.snapshots:
            work.table(SNAPSHOT_SIZE_TABLE).put(size.snapshot_id.encode(), size)
            self._stale.add(size.snapshot_id)
        if _bounds(update) != _bounds(before):
            self._stale.update(
                row.snapshot_id
                for row in self._rows.of_bucket(update.bucket_id)
                if _exactness(update, row.create_txn) != _exactness(before, row.create_txn)
            )

    def _update_cells(self, update: SpaceUpdate, work: Work) -> None:
        table = work.table(SPACE_TABLE)
        for cell in update.cells:
            key = cell_key(update.bucket_id, cell.first_holder, cell.last_holder)
            if not any(cell_counts(cell)):
                table.delete(key)
            else:
                table.put(key, cell)
            if cell.first_holder == cell.last_holder:
                alone = self._rows.captured_at(update.bucket_id, cell.first_holder)
                if alone is not None:
                    self._stale.add(alone.snapshot_id)

    def refresh(self, work: Work) -> None:
        """Compute the sizes of the stale snapshots."""
        for snapshot_id in sorted(self._stale):
            row = self._rows.of(snapshot_id)
            if row is not None and row.create_txn:
                measured = measure(row, work)
                if measured != row:
                    self._rows.put(measured, work)
        self._stale.clear()

    def forget_removed(self, work: Work) -> None:
        """Delete sizes that arrived after the removal of their snapshot. Only when settled: no size is in transit."""
        table = work.table(SNAPSHOT_SIZE_TABLE)
        for key, size in list(table.scan()):
            if self._rows.of(size.snapshot_id) is None:
                table.delete(key)


def space_complete_until(tables: Tables) -> int:
    """Return the txn up to which all space figures have arrived."""
    complete = tables.table(SPACE_PROGRESS_TABLE).get(bucket_id_key(0))
    return complete.txn if complete else 0


def measure(row: SnapshotInfo, tables: Tables) -> SnapshotInfo:
    """Return a snapshot with the sizes that are known now."""
    alone = tables.table(SPACE_TABLE).get(cell_key(row.bucket_id, row.create_txn, row.create_txn))
    size = tables.table(SNAPSHOT_SIZE_TABLE).get(row.snapshot_id.encode())
    unexpanded = tables.table(SPACE_PROGRESS_TABLE).get(bucket_id_key(row.bucket_id))
    exclusive_bytes = alone.bytes if alone else 0
    referenced_bytes, replicated_bytes = row.referenced_bytes, row.referenced_replicated_bytes
    if size is not None:
        referenced_bytes = size.referenced_bytes
        replicated_bytes = referenced_bytes + size.referenced_redundancy_bytes
    is_referenced_exact, is_exclusive_exact = _exactness(unexpanded, row.create_txn) if unexpanded else (True, True)
    return replace(
        row,
        exclusive_bytes=exclusive_bytes,
        exclusive_replicated_bytes=exclusive_bytes + (alone.redundancy_bytes if alone else 0),
        referenced_bytes=referenced_bytes,
        referenced_replicated_bytes=replicated_bytes,
        is_referenced_exact=is_referenced_exact,
        is_exclusive_exact=is_exclusive_exact,
    )


def _bounds(update: SpaceUpdate) -> tuple[int, int]:
    return update.oldest_unexpanded_death, update.newest_unexpanded_death


def _exactness(update: SpaceUpdate, create_txn: int) -> tuple[bool, bool]:
    """Return whether a snapshot's referenced and exclusive sizes are exact.

    An unexpanded directory that died before the capture still counts in the bytes that the bucket used then. The files
    below an unexpanded directory that died after the capture are not yet in any cell.
    """
    is_none_before = not 0 < update.oldest_unexpanded_death <= create_txn
    is_none_after = update.newest_unexpanded_death <= create_txn
    return is_none_before, is_none_after
