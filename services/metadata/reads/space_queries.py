"""Shares of a bucket's snapshots and bytes that drops free, from the committed space matrix of one moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from schemas.records import BucketRow, SnapshotListRow
from schemas.space_answers import FreedSpace, PlanSpace, SnapshotSpace, SnapshotSpaces, SpacePlan, WhatIf
from services.domain.reclaimability import Txn
from services.domain.space_matrix import (
    Holders,
    SpaceCell,
    after_dropping,
    by_replicated_bytes,
    freed_by_dropping,
    runs_of,
    total,
)
from services.domain.space_plan import plan_drops
from services.domain.space_shares import Share, shares_of_rows
from services.domain.table_keys import bucket_id_prefix, cell_key, holders_of_cell
from services.metadata.reads.queries import live_snapshots, shard_state
from services.metadata.state.space import cell_of, unexpanded_bounds
from services.metadata.state.tables import SPACE_TABLE
from services.runtime.http.reads import ReadError
from services.storage.store import prefix_end
from services.storage.tables import TablesReader


def snapshot_spaces(tables: TablesReader, bucket: BucketRow, start_after: Txn, limit: int) -> SnapshotSpaces:
    """Return the referenced, held and shared bytes of live snapshots: a page after the txn ``start_after``.

    Cost: all cells of the bucket's matrix are read, for every page.
    """
    rows, cells = live_snapshots(tables, bucket.object_id), _all_cells(tables, bucket.object_id)
    unexpanded = unexpanded_bounds(tables, bucket.object_id)
    following = [*(row.txn for row in rows), 0][1:]
    page = [
        _snapshot_space(row, share, its_replicated, next_txn, unexpanded)
        for row, (share, its_replicated), next_txn in zip(rows, shares_of_rows(cells, rows), following, strict=True)
        if row.txn > start_after
    ]
    state = shard_state(tables)
    return SnapshotSpaces(state.txn, state.chain_version, tuple(page[:limit]))


def _snapshot_space(
    row: SnapshotListRow, share: Share, on_disks: Share, next_txn: Txn, unexpanded: tuple[Txn, Txn]
) -> SnapshotSpace:
    """Return one snapshot's space, plain and as it is ``on_disks``, and which of its figures are exact.

    The referenced size of a snapshot includes unexpanded directories that died before it. Files below a directory that
    died later are not in any cell yet. The size that two neighbours share is computed from the older one's referenced
    size and from the versions that died between them. So it is exact if the younger one's referenced size is.
    """
    oldest_unexpanded, newest_unexpanded = unexpanded

    def is_expanded_before(txn: Txn) -> bool:
        return not 0 < oldest_unexpanded <= txn

    return SnapshotSpace(
        snapshot_id=row.snapshot_id,
        txn=row.txn,
        creation_time_ms=row.creation_time_ms,
        referenced_bytes=share.referenced_bytes,
        held_bytes=share.held_bytes,
        exclusive_bytes=share.exclusive_bytes,
        exclusive_versions=share.exclusive_versions,
        shared_with_previous_bytes=share.shared_with_previous_bytes,
        shared_with_next_bytes=share.shared_with_next_bytes,
        oldest_sharer=share.oldest_sharer,
        newest_sharer=share.newest_sharer,
        is_referenced_exact=is_expanded_before(row.txn),
        is_exclusive_exact=newest_unexpanded <= row.txn,
        is_shared_with_next_exact=is_expanded_before(next_txn) if next_txn else not oldest_unexpanded,
        referenced_replicated_bytes=on_disks.referenced_bytes,
        held_replicated_bytes=on_disks.held_bytes,
        exclusive_replicated_bytes=on_disks.exclusive_bytes,
        shared_with_previous_replicated_bytes=on_disks.shared_with_previous_bytes,
        shared_with_next_replicated_bytes=on_disks.shared_with_next_bytes,
    )


def what_if(tables: TablesReader, bucket: BucketRow, question: WhatIf) -> FreedSpace:
    """Return the space that dropping a set of snapshots would free.

    Cost: only the cells within the set are read.

    Raises:
        ReadError: FILE_NOT_FOUND, one of them is not a live snapshot of the bucket.
    """
    bucket_id = bucket.object_id
    by_id = {row.snapshot_id: row.txn for row in live_snapshots(tables, bucket_id)}
    live = list(by_id.values())
    dropped = _txns_of(by_id, question.snapshot_ids, bucket)
    leaving = _known(by_id, question.leaving_snapshot_ids)
    freed = _freed_within(tables, bucket_id, dropped | leaving, live)
    if leaving:
        freed -= _freed_within(tables, bucket_id, leaving, live)
    state = shard_state(tables)
    _, newest_unexpanded = unexpanded_bounds(tables, bucket_id)
    return FreedSpace(
        txn=state.txn,
        chain_version=state.chain_version,
        freed_bytes=freed.bytes,
        freed_versions=freed.versions,
        is_exact=not dropped or newest_unexpanded <= min(dropped),
        freed_replicated_bytes=freed.replicated_bytes,
    )


def _freed_within(tables: TablesReader, bucket_id: int, dropped: Collection[Txn], live: list[Txn]) -> SpaceCell:
    """Return the sum of the cells within the runs of a set."""
    table = tables.table(SPACE_TABLE)
    found: list[SpaceCell] = []
    for first, last in runs_of(dropped, live):
        for snapshot in live:
            if first <= snapshot <= last:
                rows = table.scan(cell_key(bucket_id, snapshot, snapshot), cell_key(bucket_id, snapshot, last + 1))
                found += [cell_of(value) for _, value in rows]
    return total(found)


def plan(tables: TablesReader, bucket: BucketRow, question: PlanSpace) -> SpacePlan:
    """Return the smallest set of snapshots whose drop frees the requested bytes; ties prefer older snapshots.

    Cost: all cells of the bucket's matrix are read; then that of ``services.domain.space_plan``.
    """
    bucket_id = bucket.object_id
    by_id = {row.snapshot_id: row.txn for row in live_snapshots(tables, bucket_id)}
    leaving = _known(by_id, question.leaving_snapshot_ids)
    cells, live = after_dropping(_all_cells(tables, bucket_id), leaving, list(by_id.values()))
    protected = _known(by_id, question.protected_snapshot_ids)
    counted = by_replicated_bytes(cells) if question.is_replicated else cells
    found = plan_drops(counted, live, question.free_bytes, protected=protected)
    freed = freed_by_dropping(cells, found.snapshots, live) if question.is_replicated else found.freed
    ids = {txn: snapshot_id for snapshot_id, txn in by_id.items()}
    state = shard_state(tables)
    _, newest_unexpanded = unexpanded_bounds(tables, bucket_id)
    oldest = min((txn for txn in live if txn not in protected), default=newest_unexpanded)
    return SpacePlan(
        txn=state.txn,
        chain_version=state.chain_version,
        snapshot_ids=tuple(ids[txn] for txn in found.snapshots),
        freed_bytes=freed.bytes,
        freed_versions=freed.versions,
        is_enough=found.is_enough,
        is_smallest=found.is_smallest,
        is_exact=newest_unexpanded <= oldest,
        freed_replicated_bytes=freed.replicated_bytes,
    )


def _all_cells(tables: TablesReader, bucket_id: int) -> dict[Holders, SpaceCell]:
    prefix = bucket_id_prefix(bucket_id)
    return {
        holders_of_cell(key): cell_of(value)
        for key, value in tables.table(SPACE_TABLE).scan(prefix, prefix_end(prefix))
    }


def _txns_of(by_id: Mapping[str, Txn], snapshot_ids: Collection[str], bucket: BucketRow) -> set[Txn]:
    """Return the txns of snapshots. Raise ReadError (FILE_NOT_FOUND) if one is not live."""
    for snapshot_id in snapshot_ids:
        if snapshot_id not in by_id:
            raise ReadError(
                "FILE_NOT_FOUND", f"{bucket.volume}/{bucket.bucket} has no live snapshot with the id {snapshot_id}"
            )
    return {by_id[snapshot_id] for snapshot_id in snapshot_ids}


def _known(by_id: Mapping[str, Txn], snapshot_ids: Collection[str]) -> set[Txn]:
    """Return the txns of the live ones among the snapshots."""
    return {by_id[snapshot_id] for snapshot_id in snapshot_ids if snapshot_id in by_id}
