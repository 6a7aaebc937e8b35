"""Reads of snapshots from committed tables. Any thread may call them beside the writer."""

from __future__ import annotations

from collections.abc import Collection

from schemas.error_codes import ErrorCode
from schemas.records import DroppedSnapshotRow, SnapshotInfo
from services.domain.refusals import CommandError, SnapshotExpiredError
from services.domain.space_matrix import EMPTY, Holders, SpaceCell, cell_counts, freed_by_dropping
from services.domain.table_keys import bucket_id_key, bucket_id_prefix
from services.snapshots.state.rows import in_order_of_captures, is_active, is_complete
from services.snapshots.state.tables import (
    DROPPED_SNAPSHOT_TABLE,
    SNAPSHOT_INFO_TABLE,
    SPACE_PROGRESS_TABLE,
    SPACE_TABLE,
    name_key,
)
from services.storage.store import prefix_end
from services.storage.tables import Tables


def list_snapshots(tables: Tables, volume: str, bucket: str, *, with_deleted: bool = False) -> list[SnapshotInfo]:
    """Return the snapshots of a bucket in the order of its chain, without those that are being created."""
    return [row for row in snapshot_chain(tables, volume, bucket) if with_deleted or is_active(row)]


def snapshot_info(tables: Tables, volume: str, bucket: str, name: str) -> SnapshotInfo:
    """Return one snapshot. A deleted snapshot is returned until its row is removed.

    Raises:
        CommandError: FILE_NOT_FOUND if no snapshot of that name is known; SNAPSHOT_EXPIRED if it was dropped, with the
            snapshot at which a reader can continue.
    """
    row = tables.table(SNAPSHOT_INFO_TABLE).get(name_key(volume, bucket, name))
    if row is not None and is_complete(row):
        return row
    dropped = tables.table(DROPPED_SNAPSHOT_TABLE).get(name_key(volume, bucket, name))
    if dropped is not None:
        raise SnapshotExpiredError(f"snapshot {name}", _next_after(tables, volume, bucket, dropped))
    raise CommandError(ErrorCode.FILE_NOT_FOUND, f"there is no snapshot {name} of {volume}/{bucket}")


def _next_after(tables: Tables, volume: str, bucket: str, dropped: DroppedSnapshotRow) -> str:
    """Return the name of the bucket's oldest snapshot that was captured after a dropped one; empty for none."""
    later = (
        row.name
        for row in list_snapshots(tables, volume, bucket)
        if row.bucket_id == dropped.bucket_id and row.create_txn > dropped.create_txn
    )
    return next(later, "")


def snapshot_chain(tables: Tables, volume: str = "", bucket: str = "") -> list[SnapshotInfo]:
    """Return the path chain of a bucket, or the global chain of the shard if no volume is named; oldest first."""
    prefix = name_key(volume, bucket, "")
    table = tables.table(SNAPSHOT_INFO_TABLE)
    return in_order_of_captures(row for _, row in (table.scan(prefix, prefix_end(prefix)) if volume else table.scan()))


def freed_by_deleting(tables: Tables, volume: str, bucket: str, names: Collection[str]) -> tuple[SpaceCell, bool]:
    """Return the space that deleting these snapshots of a bucket together would free, and whether it is exact.

    Raises:
        CommandError: FILE_NOT_FOUND.
    """
    chosen = [snapshot_info(tables, volume, bucket, name) for name in names]
    if not chosen:
        return EMPTY, True
    bucket_id = chosen[0].bucket_id
    cells = _cells(tables, bucket_id)
    # A snapshot that only the space figures know is being created or removed: it counts as a holder, too.
    live = {row.create_txn for row in snapshot_chain(tables, volume, bucket)}
    live.update(txn for holders in cells for txn in holders if txn)
    space = freed_by_dropping(cells, {row.create_txn for row in chosen}, sorted(live))
    unexpanded = tables.table(SPACE_PROGRESS_TABLE).get(bucket_id_key(bucket_id))
    oldest = min(row.create_txn for row in chosen)
    is_exact = unexpanded is None or unexpanded.newest_unexpanded_death <= oldest
    return space, is_exact


def _cells(tables: Tables, bucket_id: int) -> dict[Holders, SpaceCell]:
    prefix = bucket_id_prefix(bucket_id)
    return {
        (cell.first_holder, cell.last_holder): SpaceCell(*cell_counts(cell))
        for _, cell in tables.table(SPACE_TABLE).scan(prefix, prefix_end(prefix))
    }
