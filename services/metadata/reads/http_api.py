"""Metadata's HTTP reads: volumes, buckets, their contents now or in a snapshot, deletions, space, collection states."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError
from starlette.routing import Route

from schemas.answers import (
    BucketSpace,
    CollectionStatus,
    ListedDeletion,
    ListedEntry,
    ListedOpenKey,
    ListedToken,
    ListedVersion,
    ShardBacklog,
    ShardKept,
    StatAnswer,
)
from schemas.error_codes import ErrorCode
from schemas.records import (
    AccessIdRow,
    Acl,
    AclObject,
    BlockRun,
    BucketRow,
    KeyRow,
    PartRow,
    ShardState,
    TenantRow,
    UploadRow,
    VolumeRow,
)
from services.domain.refusals import CommandError
from services.domain.table_keys import snapshot_id_key, volume_key
from services.metadata.reads import queries, space_api, tenant_queries, writing_queries
from services.metadata.reads.acl_queries import acls_of
from services.metadata.reads.collection_queries import collection_status
from services.metadata.reads.deleted_queries import list_deleted
from services.metadata.reads.queries import applied_txn, get_bucket
from services.metadata.state.tables import SNAPSHOT_LIST_TABLE, VOLUME_TABLE
from services.runtime.http.reads import (
    DEFAULT_LIMIT,
    Asked,
    Limit,
    Number,
    ReadError,
    ReadRoute,
    Stores,
    closing_reader,
)
from services.storage.rocks import RocksStore
from services.storage.tables import TablesReader

ObjectKind = Literal["VOLUME", "BUCKET", "PREFIX", "KEY"]
_ID = re.compile(r"-?\d{1,19}", re.ASCII)


def routes(stores: Stores, undo_window_ms: int = 0) -> list[Route]:
    """Return all read routes for the shards that this process serves."""

    def deleted(
        asked: Asked, volume: str, bucket: str, start_after: str = "", limit: Limit = DEFAULT_LIMIT
    ) -> list[ListedDeletion]:
        """The deletions of a bucket that an undelete can still bring back, or could."""
        with asked.rows() as tables:
            return list_deleted(tables, get_bucket(tables, volume, bucket), start_after, limit, undo_window_ms)

    answers: dict[str, Callable[..., Any]] = {
        "/state": state,
        "/backlog": backlog,
        "/kept": kept,
        "/volumes": volumes,
        "/buckets": buckets,
        "/acl": acl,
        "/tenants": tenants,
        "/access-ids": access_ids,
        "/delegation-tokens": delegation_tokens,
        "/bucket": bucket_row,
        "/entries": entries,
        "/deleted": deleted,
        "/stat": stat,
        "/versions": versions,
        "/key-blocks": key_blocks,
        "/open-keys": open_keys,
        "/uploads": uploads,
        "/parts": parts,
        "/space": space,
        "/collection": collection,
    }
    own = [ReadRoute(path, stores, answer, applied_txn=applied_txn) for path, answer in answers.items()]
    return [*own, *space_api.routes(stores)]


@contextmanager
def _bucket_at(asked: Asked, volume: str, bucket: str, snapshot_id: str) -> Iterator[tuple[TablesReader, BucketRow]]:
    """Open committed rows of the active namespace, or of a snapshot of the bucket; yield them and the bucket's row."""
    active = TablesReader(asked.store)
    if not snapshot_id:
        with asked.rows() as tables:
            yield tables, get_bucket(tables, volume, bucket)
        return
    with closing_reader(queries.open_snapshot(asked.store, snapshot_id)) as tables:
        row = get_bucket(tables, volume, bucket)
        captured = active.table(SNAPSHOT_LIST_TABLE).get(snapshot_id_key(snapshot_id))
        if captured is None or captured.bucket_id != row.object_id:
            raise ReadError("FILE_NOT_FOUND", f"there is no snapshot with the id {snapshot_id} of {volume}/{bucket}")
        yield tables, row


def state(asked: Asked) -> ShardState:
    """The shard's counters."""
    return queries.shard_state(TablesReader(asked.store))


def backlog(asked: Asked) -> ShardBacklog:
    """What waits in the shard to be freed."""
    with asked.rows() as tables:
        return queries.shard_backlog(tables)


def kept(asked: Asked) -> ShardKept:
    """What the shard keeps: of what a new volume is created where there is least."""
    return ShardKept(asked.store.size_bytes() if isinstance(asked.store, RocksStore) else 0)


def volumes(asked: Asked, user: str = "", start_after: str = "", limit: Limit = DEFAULT_LIMIT) -> list[VolumeRow]:
    """The volumes of the shard, or those that a user owns, by name."""
    with asked.rows() as tables:
        if user:
            return queries.list_volumes_of(tables, user, start_after, limit)
        return queries.list_volumes(tables, start_after, limit)


def acl(asked: Asked, object: ObjectKind, volume: str, bucket: str = "", path: str = "") -> list[Acl]:  # noqa: A002
    """The access list of a volume, a bucket or link, a prefix, a key or a directory."""
    with asked.rows() as tables:
        return list(acls_of(tables, AclObject(object), volume, bucket, path))


def tenants(asked: Asked, start_after: str = "", limit: Limit = DEFAULT_LIMIT) -> list[TenantRow]:
    """The tenants of the shard, by name."""
    with asked.rows() as tables:
        return tenant_queries.list_tenants(tables, start_after, limit)


def access_ids(
    asked: Asked, tenant: str = "", user: str = "", start_after: str = "", limit: Limit = DEFAULT_LIMIT
) -> list[AccessIdRow]:
    """The access ids of the shard, of a tenant or of a user, without secrets."""
    with asked.rows() as tables:
        return tenant_queries.list_access_ids(tables, tenant, user, start_after, limit)


def delegation_tokens(
    asked: Asked, owner: str = "", start_after: str = "", limit: Limit = DEFAULT_LIMIT
) -> list[ListedToken]:
    """The delegation tokens of the shard or of an owner, without secrets. Expired ones stay for up to an hour."""
    with asked.rows() as tables:
        return tenant_queries.list_tokens(tables, owner, start_after, limit)


def buckets(asked: Asked, volume: str, start_after: str = "", limit: Limit = DEFAULT_LIMIT) -> list[BucketRow]:
    """The buckets of a volume, by name."""
    with asked.rows() as tables:
        if tables.table(VOLUME_TABLE).get(volume_key(volume)) is None:
            raise CommandError(ErrorCode.VOLUME_NOT_FOUND, f"there is no volume {volume}")
        return queries.list_buckets(tables, volume, start_after, limit)


def bucket_row(asked: Asked, volume: str, bucket: str) -> BucketRow:
    """One bucket."""
    with asked.rows() as tables:
        return get_bucket(tables, volume, bucket)


def entries(
    asked: Asked,
    volume: str,
    bucket: str,
    snapshot_id: str = "",
    prefix: str = "",
    start_after: str = "",
    limit: Limit = DEFAULT_LIMIT,
) -> list[ListedEntry]:
    """The keys and directories of a bucket, now or in a snapshot."""
    with _bucket_at(asked, volume, bucket, snapshot_id) as (tables, row):
        return queries.list_entries(tables, row, prefix, start_after, limit)


def stat(asked: Asked, volume: str, bucket: str, path: str, snapshot_id: str = "", version: Number = 0) -> StatAnswer:
    """The key or directory at a path, now or in a snapshot, or one version of a key."""
    with _bucket_at(asked, volume, bucket, snapshot_id) as (tables, row):
        if version:
            return StatAnswer(key=queries.stat_version(tables, row, path, version))
        found = queries.stat(tables, row, path)
    return StatAnswer(key=found) if isinstance(found, KeyRow) else StatAnswer(directory=found)


def versions(
    asked: Asked,
    volume: str,
    bucket: str,
    path: str,
    snapshot_id: str = "",
    start_after: Number = 0,
    limit: Limit = DEFAULT_LIMIT,
) -> list[ListedVersion]:
    """The versions of a key, now or in a snapshot, oldest first."""
    with _bucket_at(asked, volume, bucket, snapshot_id) as (tables, row):
        return queries.list_versions(tables, row, path, start_after, limit)


def key_blocks(asked: Asked, volume: str, bucket: str, path: str, snapshot_id: str = "") -> list[BlockRun]:
    """All runs of blocks of a key, now or in a snapshot, in the order of its contents."""
    with _bucket_at(asked, volume, bucket, snapshot_id) as (tables, row):
        return queries.key_blocks(tables, row, path)


def open_keys(
    asked: Asked, volume: str, bucket: str, start_after: str = "", limit: Limit = DEFAULT_LIMIT
) -> list[ListedOpenKey]:
    """The keys of a bucket that clients are writing."""
    with asked.rows() as tables:
        return writing_queries.list_open_keys(tables, get_bucket(tables, volume, bucket), start_after, limit)


def uploads(
    asked: Asked, volume: str, bucket: str, start_after: str = "", limit: Limit = DEFAULT_LIMIT
) -> list[UploadRow]:
    """The uploads in parts of a bucket that are neither completed nor aborted."""
    with asked.rows() as tables:
        return writing_queries.list_uploads(tables, get_bucket(tables, volume, bucket), start_after, limit)


def parts(
    asked: Asked,
    volume: str,
    bucket: str,
    path: str,
    upload_id: str,
    start_after: Number = 0,
    limit: Limit = DEFAULT_LIMIT,
) -> list[PartRow]:
    """The parts of an upload, by number."""
    with asked.rows() as tables:
        row = get_bucket(tables, volume, bucket)
        return writing_queries.list_parts(tables, row, path, upload_id, start_after, limit)


def space(asked: Asked, volume: str, bucket: str, start_after: str = "", limit: Limit = DEFAULT_LIMIT) -> BucketSpace:
    """The bytes and versions of a bucket: live, held, waiting and freed."""
    with asked.rows() as tables:
        return queries.bucket_space(tables, get_bucket(tables, volume, bucket), start_after, limit)


def _bucket_id(text: object) -> int | None:
    """Return the bucket id after which a page begins. Ids of later epochs are negative."""
    if not text:
        return None
    if not isinstance(text, str) or _ID.fullmatch(text) is None:
        raise PydanticCustomError("bucket_id", "write the bucket_id of the last line")
    return int(text)


def collection(
    asked: Asked,
    volume: str = "",
    bucket: str = "",
    start_after: Annotated[int | None, BeforeValidator(_bucket_id)] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> list[CollectionStatus]:
    """The collection states of the shard, of a volume's buckets or of one bucket."""
    with asked.rows() as tables:
        return collection_status(tables, volume, bucket, start_after, limit, shard=asked.shard)
