"""Deleted versions as a whole: each run of blocks is a garbage row, and that of the first run names the others."""

from __future__ import annotations

from schemas.records import BucketRow, DeletedKeyRow, KeyRow
from services.domain.replication import replicated_bytes_of
from services.domain.table_keys import garbage_key
from services.metadata.namespace.key_parts import Ids, parts_of, runs_of
from services.metadata.state.tables import DELETED_TABLE, RECLAIM_TABLE
from services.storage.tables import TablesReader


def size_of_whole(tables: TablesReader, bucket: BucketRow, first: DeletedKeyRow) -> int:
    """Return the size of a deleted version from the row of its first run. Runs that are freed are not counted."""
    parts = [_part(tables, garbage_key(*_place(bucket, first), object_id)) for object_id in first.part_ids]
    return first.key.size_bytes - first.unread_bytes + sum(part.key.size_bytes for part in parts if part is not None)


def replicated_bytes_of_whole(tables: TablesReader, bucket: BucketRow, first: DeletedKeyRow) -> int:
    """Return what the blocks of a deleted version take on disks. Runs that are freed are not counted."""
    parts = [_part(tables, garbage_key(*_place(bucket, first), object_id)) for object_id in first.part_ids]
    return sum(replicated_bytes_of(row.key.blocks) for row in (first, *parts) if row is not None)


def replicated_bytes_of_live(tables: TablesReader, ids: Ids, key: KeyRow) -> int:
    """Return what the blocks that a row of the namespace shows take on disks. A later row may have further runs."""
    taken = shown = 0
    for run in runs_of(key, parts_of(tables, ids, key)):
        if shown < key.size_bytes:
            taken += replicated_bytes_of(run)
        shown += run.size_bytes
    return taken


def is_claimed_in_part(tables: TablesReader, bucket: BucketRow, first: DeletedKeyRow) -> bool:
    """Return whether a further run of a version is claimed already, so that the version cannot come back."""
    table = tables.table(DELETED_TABLE)
    return any(table.get(garbage_key(*_place(bucket, first), object_id)) is None for object_id in first.part_ids)


def _place(bucket: BucketRow, first: DeletedKeyRow) -> tuple[int, int, int]:
    return bucket.volume_id, bucket.object_id, first.death


def _part(tables: TablesReader, key: bytes) -> DeletedKeyRow | None:
    row = tables.table(DELETED_TABLE).get(key)
    if row is not None:
        return row
    claimed = tables.table(RECLAIM_TABLE).get(key)
    return None if claimed is None else claimed.version
