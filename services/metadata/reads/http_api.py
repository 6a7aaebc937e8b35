"""Metadata's HTTP reads: volumes, buckets, their contents now or in a snapshot, deletions, space, collection states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.routing import Route

from schemas.answers import BucketSpace, CollectionStatus, ListedDeletion, ListedEntry, ShardBacklog, StatAnswer
from schemas.error_codes import ErrorCode
from schemas.records import BucketRow, KeyRow, ShardState, VolumeRow
from services.domain.refusals import CommandError
from services.domain.table_keys import snapshot_id_key, volume_key
from services.metadata.reads import queries, space_api
from services.metadata.reads.collection_queries import collection_status
from services.metadata.reads.deleted_queries import list_deleted
from services.metadata.state.tables import SNAPSHOT_LIST_TABLE, VOLUME_TABLE
from services.runtime.http.reads import Question, ReadError, Stores, closing_reader, read_route
from services.storage.tables import TablesReader

_ID = re.compile(r"-?\d{1,19}", re.ASCII)


def routes(stores: Stores, undo_window_ms: int = 0) -> list[Route]:
    """Return all read routes for the shards that this process serves."""

    def applied_txn(tables: TablesReader) -> int:
        return queries.shard_state(tables).txn

    def deleted(question: Question) -> list[ListedDeletion]:
        with closing_reader(question.store.reading()) as tables:
            bucket = _bucket_row(question, tables)
            return list_deleted(tables, bucket, question.text("start_after", ""), question.limit(), undo_window_ms)

    return [
        read_route("/state", stores, _state, ShardState, applied_txn=applied_txn),
        read_route("/backlog", stores, _backlog, ShardBacklog, applied_txn=applied_txn),
        read_route("/volumes", stores, _volumes, list[VolumeRow], applied_txn=applied_txn),
        read_route("/buckets", stores, _buckets, list[BucketRow], applied_txn=applied_txn),
        read_route("/bucket", stores, _bucket, BucketRow, applied_txn=applied_txn),
        read_route("/entries", stores, _entries, list[ListedEntry], applied_txn=applied_txn),
        read_route("/deleted", stores, deleted, list[ListedDeletion], applied_txn=applied_txn),
        read_route("/stat", stores, _stat, StatAnswer, applied_txn=applied_txn),
        read_route("/space", stores, _space, BucketSpace, applied_txn=applied_txn),
        read_route("/collection", stores, _collection, list[CollectionStatus], applied_txn=applied_txn),
        *space_api.routes(stores, applied_txn),
    ]


@contextmanager
def _rows(question: Question) -> Iterator[TablesReader]:
    """Open committed rows of the active namespace, or of the snapshot that the request names."""
    snapshot_id = question.text("snapshot_id", "")
    if not snapshot_id:
        with closing_reader(question.store.reading()) as tables:
            yield tables
        return
    try:
        checkpoint = question.store.open_checkpoint(snapshot_id)
    except (KeyError, ValueError):  # there is no such checkpoint, or the name is invalid
        raise queries.missing_snapshot(TablesReader(question.store), snapshot_id) from None
    with closing_reader(checkpoint) as tables:
        yield tables


def _bucket_row(question: Question, tables: TablesReader) -> BucketRow:
    """Return the bucket that the request names. Only the snapshot's own bucket can be read in a snapshot."""
    row = queries.get_bucket(tables, question.text("volume"), question.text("bucket"))
    snapshot_id = question.text("snapshot_id", "")
    if snapshot_id:
        captured = TablesReader(question.store).table(SNAPSHOT_LIST_TABLE).get(snapshot_id_key(snapshot_id))
        if captured is None or captured.bucket_id != row.object_id:
            raise ReadError(
                "FILE_NOT_FOUND", f"there is no snapshot with the id {snapshot_id} of {row.volume}/{row.bucket}"
            )
    return row


def _state(question: Question) -> ShardState:
    return queries.shard_state(TablesReader(question.store))


def _backlog(question: Question) -> ShardBacklog:
    with closing_reader(question.store.reading()) as tables:
        return queries.shard_backlog(tables)


def _volumes(question: Question) -> list[VolumeRow]:
    with closing_reader(question.store.reading()) as tables:
        return queries.list_volumes(tables, question.text("start_after", ""), question.limit())


def _buckets(question: Question) -> list[BucketRow]:
    volume = question.text("volume")
    with closing_reader(question.store.reading()) as tables:
        if tables.table(VOLUME_TABLE).get(volume_key(volume)) is None:
            raise CommandError(ErrorCode.VOLUME_NOT_FOUND, f"there is no volume {volume}")
        return queries.list_buckets(tables, volume, question.text("start_after", ""), question.limit())


def _bucket(question: Question) -> BucketRow:
    with closing_reader(question.store.reading()) as tables:
        return _bucket_row(question, tables)


def _entries(question: Question) -> list[ListedEntry]:
    with _rows(question) as tables:
        return queries.list_entries(
            tables,
            _bucket_row(question, tables),
            question.text("prefix", ""),
            question.text("start_after", ""),
            question.limit(),
        )


def _stat(question: Question) -> StatAnswer:
    with _rows(question) as tables:
        row = queries.stat(tables, _bucket_row(question, tables), question.text("path"))
    return StatAnswer(key=row) if isinstance(row, KeyRow) else StatAnswer(directory=row)


def _space(question: Question) -> BucketSpace:
    with closing_reader(question.store.reading()) as tables:
        start_after, limit = question.text("start_after", ""), question.limit()
        return queries.bucket_space(tables, _bucket_row(question, tables), start_after, limit)


def _bucket_id(text: str) -> int | None:
    """Return the bucket id after which a page begins. Ids of later epochs are negative."""
    if not text:
        return None
    if _ID.fullmatch(text) is None:
        raise ReadError("INVALID_REQUEST", f"start_after is {text[:100]!r}; write the bucket_id of the last line")
    return int(text)


def _collection(question: Question) -> list[CollectionStatus]:
    with closing_reader(question.store.reading()) as tables:
        volume, bucket = question.text("volume", ""), question.text("bucket", "")
        start_after, limit = _bucket_id(question.text("start_after", "")), question.limit()
        return collection_status(tables, volume, bucket, start_after, limit, shard=question.shard)
