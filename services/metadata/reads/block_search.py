"""Finds the version, or the run of blocks of a version, that owns a block. A block's id contains the txn that has
allocated it, which is the birth of its version, unless the version was written in steps or undeleted as a new object.

No table is ordered by block. So the search reads the versions of a bucket, or of the shard if none is named: first the
claimed, then the deleted, then the live ones, current and noncurrent. It goes page by page and stops at the first
match. Blocks of open keys and of parts of uploads belong to no version: it does not find them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.records import BlockRun, BucketIdentity, BucketLayout, BucketRow, ClaimedRow, DeletedKeyRow, KeyRow
from schemas.space_answers import BlockExplanation, ExplainedVersion, VersionStage
from services.domain.reclaimability import Txn
from services.domain.replication import replicated_bytes_of
from services.domain.table_keys import (
    bucket_id_key,
    bucket_key,
    garbage_end,
    garbage_from,
    key_of_version,
    key_versions_prefix,
    local_id,
    local_id_txn,
)
from services.metadata.namespace.key_parts import parts_of, row_of_part
from services.metadata.reads.explanations import explained_version
from services.metadata.reads.queries import live_snapshots, shard_state
from services.metadata.reads.whole_versions import replicated_bytes_of_live
from services.metadata.state.tables import (
    BUCKET_ID_TABLE,
    BUCKET_TABLE,
    DELETED_DIRECTORY_TABLE,
    DELETED_TABLE,
    DIRECTORY_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    KEY_VERSION_TABLE,
    RECLAIM_TABLE,
    namespace_prefix,
)
from services.runtime.http.reads import ReadError
from services.storage.store import prefix_end
from services.storage.tables import TableDefinition, TablesReader

MAX_ROWS_PER_PAGE = 100_000
_EVERYTHING = (b"/", b"0")
_PLACES: tuple[TableDefinition[Any], ...] = (RECLAIM_TABLE, DELETED_TABLE, KEY_TABLE, FILE_TABLE, KEY_VERSION_TABLE)
_Row = ClaimedRow | DeletedKeyRow | KeyRow


def _bounds(table: TableDefinition[Any], bucket: BucketRow, birth: Txn) -> tuple[bytes, bytes]:
    """Return the range of a bucket's keys in a table; of garbage keys only those with a death after the birth."""
    if table in (KEY_TABLE, FILE_TABLE):
        prefix = namespace_prefix(bucket)
        return prefix, prefix_end(prefix)
    ids = (bucket.volume_id, bucket.object_id)
    if table is KEY_VERSION_TABLE:
        return key_versions_prefix(*ids), prefix_end(key_versions_prefix(*ids))
    return garbage_from(*ids, birth + 1), garbage_end(*ids)


def explain_block(
    tables: TablesReader, shard: int, block_id: int, bucket: BucketRow | None = None, start: str = ""
) -> BlockExplanation:
    """Return the version that owns a block, or where the search continues.

    Raises:
        ReadError: INVALID_REQUEST, the id is not a block of this shard, or ``start`` is not a ``next_start``.
    """
    birth = local_id_txn(block_id)
    state = shard_state(tables)
    if not birth or local_id(shard, birth, 0) != block_id & ~0xFFFF:
        raise ReadError("INVALID_REQUEST", f"{block_id} is not the id of a block of shard {shard}")
    place, owner, next_start = _search(tables, birth, block_id, bucket, start)
    path, version = ("", None) if place is None or owner is None else _explained(tables, *place, owner)
    return BlockExplanation(
        txn=state.txn,
        chain_version=state.chain_version,
        birth=birth,
        bucket_id=owner.bucket_id if owner else 0,
        volume=owner.volume if owner else "",
        bucket=owner.bucket if owner else "",
        path=path,
        version=version,
        claims_stopped=state.claims_stopped,
        next_start=next_start,
    )


def _search(
    tables: TablesReader, birth: Txn, block_id: int, bucket: BucketRow | None, start: str
) -> tuple[tuple[_Row, int] | None, BucketIdentity | None, str]:
    """Search one page. Return the row that owns the block, with the objectID of its key if it is a noncurrent version,
    and its bucket, or where the next page begins.
    """
    read = 0
    for place, key, row in _rows(tables, birth, bucket, start):
        if read >= MAX_ROWS_PER_PAGE:
            return None, None, f"{place}:{key.hex()}"
        read += 1
        if _has(_key_of(row).blocks, block_id):
            return (row, _version_of(row, key, place)), _identity(tables, key, place), ""
        if isinstance(row, KeyRow) and row.is_composed and (owner := _identity(tables, key, place)) is not None:
            parts = parts_of(tables, (owner.volume_id, owner.bucket_id), row)
            read += len(parts)
            for part in parts:
                if _has(part.blocks, block_id):
                    return (row_of_part(row, part), _version_of(row, key, place)), owner, ""
    return None, None, ""


def _has(run: BlockRun | None, block_id: int) -> bool:
    return run is not None and 0 <= block_id - run.first_local_id < run.block_count


def _rows(tables: TablesReader, birth: Txn, bucket: BucketRow | None, start: str) -> Iterator[tuple[int, bytes, Any]]:
    first_place, start_key = _start(start)
    for place, table in enumerate(_PLACES):
        if place < first_place:
            continue
        begin, end = _EVERYTHING if bucket is None else _bounds(table, bucket, birth)
        if place == first_place:
            begin = max(begin, start_key)
        for key, row in tables.table(table).scan(begin, end):
            yield place, key, row


def _start(start: str) -> tuple[int, bytes]:
    if not start:
        return 0, b""
    place, _, digits = start.partition(":")
    try:
        return int(place), bytes.fromhex(digits)
    except ValueError:
        raise ReadError("INVALID_REQUEST", f"start is {start!r}; send the next_start of the previous page") from None


def _identity(tables: TablesReader, key: bytes, place: int) -> BucketIdentity | None:
    """Return the bucket of a row. Keys contain its id, but keys of flat buckets contain its name."""
    if _PLACES[place] is KEY_TABLE:
        _, volume, bucket, _ = key.split(b"/", 3)
        named = tables.table(BUCKET_TABLE).get(bucket_key(volume.decode(), bucket.decode()))
        bucket_id = named.object_id if named else 0
    else:
        bucket_id = int(key.split(b"/")[2])
    return tables.table(BUCKET_ID_TABLE).get(bucket_id_key(bucket_id))


def _version_of(row: _Row, key: bytes, place: int) -> int:
    """Return the objectID of the key of which a row is a noncurrent version; 0 for a current one."""
    if isinstance(row, ClaimedRow):
        row = row.version
    if isinstance(row, DeletedKeyRow):
        return row.version_of
    return key_of_version(key)[0] if _PLACES[place] is KEY_VERSION_TABLE else 0


def _key_of(row: _Row) -> KeyRow:
    """Return the version in a row."""
    if isinstance(row, ClaimedRow):
        row = row.version
    return row.key if isinstance(row, DeletedKeyRow) else row


def _explained(
    tables: TablesReader, row: _Row, version_of: int, bucket: BucketIdentity
) -> tuple[str, ExplainedVersion]:
    """Return the path and the version of a row."""
    live = [snapshot.txn for snapshot in live_snapshots(tables, bucket.bucket_id)]
    key = _key_of(row)
    path, death_above = key.name, 0
    if bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED:
        path, death_above = _path_of(tables, bucket, key)
    taken = replicated_bytes_of(key.blocks)
    if isinstance(row, ClaimedRow):
        return path, explained_version(key, row.version.death, VersionStage.CLAIMED, live, version_of, taken)
    if isinstance(row, DeletedKeyRow):
        return path, explained_version(key, row.death, VersionStage.HELD, live, version_of, taken)
    stage = VersionStage.UNEXPANDED if death_above else VersionStage.LIVE
    taken = replicated_bytes_of_live(tables, (bucket.volume_id, bucket.bucket_id), key)
    return path, explained_version(key, death_above, stage, live, version_of, taken)


def _path_of(tables: TablesReader, bucket: BucketIdentity, key: KeyRow) -> tuple[str, Txn]:
    """Return the path of a file, and the death of the nearest deleted directory above it, 0 for none.

    Directories are stored below their parents, so all directories of the bucket are read to find those above.
    """
    start = namespace_prefix(bucket)
    end = prefix_end(start)
    above = {row.object_id: (row, 0) for _, row in tables.table(DIRECTORY_TABLE).scan(start, end)}
    for _, row in tables.table(DELETED_DIRECTORY_TABLE).scan(start, end):
        above.setdefault(row.directory.object_id, (row.directory, row.death))
    names, parent_id, nearest_death = [key.name], key.parent_id, 0
    while parent_id != bucket.bucket_id:
        if parent_id not in above:
            return "", nearest_death
        directory, death = above[parent_id]
        names.append(directory.name)
        parent_id, nearest_death = directory.parent_id, nearest_death or death
    return "/".join(reversed(names)), nearest_death
