"""snapshotInfoTable, with its rows and their indexes in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from schemas.error_codes import ErrorCode
from schemas.records import SnapshotInfo, SnapshotStatus
from services.domain.refusals import CommandError
from services.runtime.loop.service import Work
from services.snapshots.state.tables import SNAPSHOT_INFO_TABLE, name_key
from services.storage.tables import Tables


def row_key(row: SnapshotInfo) -> bytes:
    """Return the key of a row in snapshotInfoTable."""
    return name_key(row.volume, row.bucket, row.name)


def is_complete(row: SnapshotInfo) -> bool:
    """Return whether metadata has captured the snapshot; until then clients do not see it."""
    return row.create_txn != 0


def is_active(row: SnapshotInfo) -> bool:
    """Return whether a client may read the snapshot."""
    return is_complete(row) and row.status is SnapshotStatus.SNAPSHOT_ACTIVE


def in_order_of_captures(rows: Iterable[SnapshotInfo]) -> list[SnapshotInfo]:
    """Return the complete rows in the order of their captures: the order of both chains, whatever the clocks showed."""
    return sorted((row for row in rows if is_complete(row)), key=lambda row: row.create_txn)


class SnapshotRows:
    """All rows of the shard, by key, by id, and by bucket and txn; and the set of rows that a batch has changed."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, SnapshotInfo] = {}
        self._keys: dict[str, bytes] = {}
        self._buckets: dict[int, dict[int, str]] = {}
        self._paths: dict[str, dict[str, None]] = {}
        self._changed: dict[str, None] = {}
        self._removed: dict[str, SnapshotInfo] = {}

    def restore(self, tables: Tables) -> None:
        """Read all rows from the table. Changes of the current batch are still published."""
        self._by_key.clear()
        self._keys.clear()
        self._buckets.clear()
        self._paths.clear()
        for _, row in tables.table(SNAPSHOT_INFO_TABLE).scan():
            self._remember(row)

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[SnapshotInfo]:
        return iter(self._by_key.values())

    def named(self, volume: str, bucket: str, name: str) -> SnapshotInfo | None:
        """Return the row of a name, complete or not; None for an unknown name."""
        return self._by_key.get(name_key(volume, bucket, name))

    def of(self, snapshot_id: str) -> SnapshotInfo | None:
        """Return the row of an id, complete or not; None for an unknown id."""
        key = self._keys.get(snapshot_id)
        return None if key is None else self._by_key[key]

    def captured_at(self, bucket_id: int, txn: int) -> SnapshotInfo | None:
        """Return the complete row of a bucket that was captured at a txn; None for none."""
        return self.of(self._buckets.get(bucket_id, {}).get(txn, ""))

    def of_bucket(self, bucket_id: int) -> Iterator[SnapshotInfo]:
        """Yield the complete rows of a bucket."""
        for snapshot_id in self._buckets.get(bucket_id, {}).values():
            yield self._by_key[self._keys[snapshot_id]]

    def readable(self, volume: str, bucket: str, name: str) -> SnapshotInfo:
        """Return the row of a snapshot that clients may read.

        Raises:
            CommandError: FILE_NOT_FOUND.
        """
        row = self.named(volume, bucket, name)
        if row is None or not is_active(row):
            raise CommandError(ErrorCode.FILE_NOT_FOUND, f"there is no snapshot {name} of {volume}/{bucket}")
        return row

    def active_chain(self, volume: str, bucket: str) -> list[SnapshotInfo]:
        """Return the snapshots of a bucket that clients may read, oldest first."""
        ids = self._paths.get(f"{volume}/{bucket}", {})
        return in_order_of_captures(row for row in map(self.of, ids) if row is not None and is_active(row))

    def put(self, row: SnapshotInfo, work: Work) -> None:
        """Store a row. If its name has changed, delete it under the old key."""
        key = row_key(row)
        before = self._keys.get(row.snapshot_id)
        if before is not None and before != key:
            del self._by_key[before]
            work.table(SNAPSHOT_INFO_TABLE).delete(before)
        work.table(SNAPSHOT_INFO_TABLE).put(key, row)
        self._remember(row)
        self._changed[row.snapshot_id] = None

    def remove(self, last: SnapshotInfo, work: Work) -> None:
        """Delete a row. ``last`` is its last version, which is still published."""
        key = self._keys.pop(last.snapshot_id)
        del self._by_key[key]
        work.table(SNAPSHOT_INFO_TABLE).delete(key)
        self._buckets.get(last.bucket_id, {}).pop(last.create_txn, None)
        self._paths[last.snapshot_path].pop(last.snapshot_id)
        self._changed[last.snapshot_id] = None
        if is_complete(last):
            self._removed[last.snapshot_id] = last

    def has_changed(self) -> bool:
        """Return whether any row has changed since the last call of ``pop_changed``."""
        return bool(self._changed)

    def pop_changed(self) -> list[SnapshotInfo]:
        """Return the newest version of each complete row that has changed since the last call."""
        rows = [self.of(snapshot_id) or self._removed.get(snapshot_id) for snapshot_id in self._changed]
        self.forget_changed()
        return [row for row in rows if row is not None and is_complete(row)]

    def forget_changed(self) -> None:
        """Forget which rows have changed: their batch was aborted, or they are being published."""
        self._changed.clear()
        self._removed.clear()

    def _remember(self, row: SnapshotInfo) -> None:
        key = row_key(row)
        self._by_key[key] = row
        self._keys[row.snapshot_id] = key
        self._paths.setdefault(row.snapshot_path, {})[row.snapshot_id] = None
        if is_complete(row):
            self._buckets.setdefault(row.bucket_id, {})[row.create_txn] = row.snapshot_id
