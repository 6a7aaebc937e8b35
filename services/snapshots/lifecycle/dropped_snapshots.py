"""Remembers dropped snapshots: their readers get SNAPSHOT_EXPIRED and the snapshot at which they can continue."""

from __future__ import annotations

from schemas.records import DroppedSnapshotRow, SnapshotInfo
from services.runtime.loop.service import Work
from services.runtime.parts.due import DueQueue
from services.snapshots.state.rows import row_key
from services.snapshots.state.tables import DROPPED_SNAPSHOT_TABLE
from services.storage.tables import Tables

_FOR_EVER_MS = 2**63 - 1


class DroppedSnapshots:
    """The newest dropped snapshots, at most one for each name."""

    def __init__(self, max_remembered: int) -> None:
        self._max_remembered = max_remembered
        self._keys: set[bytes] = set()
        self._by_deletion: DueQueue[bytes] = DueQueue()

    def restore(self, tables: Tables) -> None:
        """Read the dropped snapshots from the table."""
        self._keys.clear()
        self._by_deletion.clear()
        for key, row in tables.table(DROPPED_SNAPSHOT_TABLE).scan():
            self._keys.add(key)
            self._by_deletion.set(key, row.deletion_time_ms)

    def snapshot_completed(self, row: SnapshotInfo, log_time_ms: int, work: Work) -> None:
        """Forget the dropped snapshot of the same name: from now on the name means the new snapshot."""
        del log_time_ms
        key = row_key(row)
        if key in self._keys:
            self._by_deletion.discard(key)
            self._forget(key, work)

    def snapshot_removed(self, row: SnapshotInfo, work: Work) -> None:
        """Remember a removed snapshot. If there are too many, forget the one that was deleted first."""
        key = row_key(row)
        self._keys.add(key)
        self._by_deletion.set(key, row.deletion_time_ms)
        dropped = DroppedSnapshotRow(row.snapshot_id, row.bucket_id, row.create_txn, row.deletion_time_ms)
        work.table(DROPPED_SNAPSHOT_TABLE).put(key, dropped)
        if len(self._keys) > self._max_remembered:
            oldest = self._by_deletion.pop_due(_FOR_EVER_MS)
            if oldest is not None:
                self._forget(oldest, work)

    def _forget(self, key: bytes, work: Work) -> None:
        self._keys.discard(key)
        work.table(DROPPED_SNAPSHOT_TABLE).delete(key)
