"""What may be asked about snapshots, over committed tables: any thread, beside the writer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from schemas.error_codes import ErrorCode
from schemas.records import DroppedSnapshotRow, SnapshotInfo
from services.domain.refusals import CommandError, SnapshotExpiredError
from services.domain.space_matrix import Holders, SpaceCell, freed_by_dropping
from services.domain.table_keys import bucket_id_key, bucket_id_prefix
from services.snapshots.lifecycle.chain_check import ChainCheck
from services.snapshots.lifecycle.snapshots import corruption_of
from services.snapshots.state.rows import SnapshotRows, in_order_of_captures, is_active, is_complete
from services.snapshots.state.tables import (
    DROPPED_SNAPSHOT_TABLE,
    SNAPSHOT_INFO_TABLE,
    SPACE_PROGRESS_TABLE,
    SPACE_TABLE,
    ReadableTables,
    snapshot_key,
)
from services.storage.store import prefix_end


@dataclass(frozen=True, slots=True)
class FreedSpace:
    """What dropping some snapshots would free."""

    space: SpaceCell
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether the rows make one chain, and the same one as metadata's."""

    snapshots: int
    corruption: str
    chain_version: int
    is_chain_known: bool
    differences: dict[str, list[str]]


def list_snapshots(
    tables: ReadableTables, volume: str, bucket: str, *, with_deleted: bool = False
) -> list[SnapshotInfo]:
    """Snapshots of a bucket in the order of its chain; those that are being made are not there yet."""
    return [row for row in snapshot_chain(tables, volume, bucket) if with_deleted or is_active(row)]


def snapshot_info(tables: ReadableTables, volume: str, bucket: str, name: str) -> SnapshotInfo:
    """One snapshot, deleted ones too until they are purged.

    Raises:
        CommandError: FILE_NOT_FOUND when there never was one of that name, as far as is remembered;
            SNAPSHOT_EXPIRED when there was, with the one at which its reader can go on.
    """
    row = tables.table(SNAPSHOT_INFO_TABLE).get(snapshot_key(volume, bucket, name))
    if row is not None and is_complete(row):
        return row
    dropped = tables.table(DROPPED_SNAPSHOT_TABLE).get(snapshot_key(volume, bucket, name))
    if dropped is not None:
        raise SnapshotExpiredError(f"snapshot {name}", _next_after(tables, volume, bucket, dropped))
    raise CommandError(ErrorCode.FILE_NOT_FOUND, f"there is no snapshot {name} of {volume}/{bucket}")


def _next_after(tables: ReadableTables, volume: str, bucket: str, dropped: DroppedSnapshotRow) -> str:
    """Name of the oldest snapshot of the same bucket that was taken after one that has gone; empty for none."""
    later = (
        row.name
        for row in list_snapshots(tables, volume, bucket)
        if row.bucket_id == dropped.bucket_id and row.create_txn > dropped.create_txn
    )
    return next(later, "")


def snapshot_chain(tables: ReadableTables, volume: str = "", bucket: str = "") -> list[SnapshotInfo]:
    """The path chain of a bucket, or the global one of the shard when none is named; oldest first."""
    prefix = snapshot_key(volume, bucket, "")
    table = tables.table(SNAPSHOT_INFO_TABLE)
    return in_order_of_captures(row for _, row in (table.scan(prefix, prefix_end(prefix)) if volume else table.scan()))


def verify(tables: ReadableTables) -> Verification:
    """Verify the links of all rows, and compare them with metadata's chain both ways."""
    rows = SnapshotRows()
    rows.restore(tables)
    check = ChainCheck(rows)
    check.restore(tables)
    return Verification(len(rows), corruption_of(rows), check.version, check.is_known, check.different_snapshots())


def freed_by_deleting(tables: ReadableTables, volume: str, bucket: str, names: Collection[str]) -> FreedSpace:
    """What would be freed if these snapshots of a bucket were deleted together.

    Raises:
        CommandError: FILE_NOT_FOUND.
    """
    chosen = [snapshot_info(tables, volume, bucket, name) for name in names]
    if not chosen:
        return FreedSpace(SpaceCell(0, 0, 0, 0, 0), is_exact=True)
    bucket_id = chosen[0].bucket_id
    cells = _cells(tables, bucket_id)
    # A snapshot that only the figures know of is on its way in or out: it holds what they say.
    live = {row.create_txn for row in snapshot_chain(tables, volume, bucket)}
    live.update(txn for holders in cells for txn in holders if txn)
    space = freed_by_dropping(cells, {row.create_txn for row in chosen}, sorted(live))
    unexpanded = tables.table(SPACE_PROGRESS_TABLE).get(bucket_id_key(bucket_id))
    oldest = min(row.create_txn for row in chosen)
    is_exact = unexpanded is None or unexpanded.newest_unexpanded_death <= oldest
    return FreedSpace(space, is_exact)


def space_complete_until(tables: ReadableTables) -> int:
    """txn up to which all figures are here."""
    complete = tables.table(SPACE_PROGRESS_TABLE).get(bucket_id_key(0))
    return complete.txn if complete else 0


def _cells(tables: ReadableTables, bucket_id: int) -> dict[Holders, SpaceCell]:
    prefix = bucket_id_prefix(bucket_id)
    return {
        (cell.first_holder, cell.last_holder): SpaceCell(
            cell.bytes, cell.versions, cell.key_rows, cell.directory_rows, cell.rename_rows
        )
        for _, cell in tables.table(SPACE_TABLE).scan(prefix, prefix_end(prefix))
    }
