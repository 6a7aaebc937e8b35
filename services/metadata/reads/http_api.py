"""Metadata's HTTP reads: volumes, buckets, their contents now or in a snapshot, deletions, space, collection states."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from starlette.routing import Route

from schemas.answers import BucketSpace, CollectionStatus, ListedDeletion, ListedEntry, ShardBacklog, StatAnswer
from schemas.error_codes import ErrorCode
from schemas.records import BucketRow, KeyRow, ShardState, VolumeRow
from schemas.space_answers import (
    BlockExplanation,
    FreedSpace,
    PathExplanation,
    PlanSpace,
    SnapshotSpaces,
    SpacePlan,
    WhatIf,
)
from services.domain.refusals import CommandError
from services.domain.table_keys import snapshot_id_key, volume_key
from services.metadata.reads import block_search, explanations, queries, space_queries
from services.metadata.reads.collection_queries import collection_status
from services.metadata.reads.deleted_queries import list_deleted
from services.metadata.state.tables import SNAPSHOT_LIST_TABLE, VOLUME_TABLE
from services.runtime.http.reads import Question, ReadError, Stores, closing_reader, read_route
from services.storage.tables import TablesReader

_ID = re.compile(r"-?\d{1,19}", re.ASCII)
MAX_NAMED_SNAPSHOTS = 10_000
_Ids = Annotated[tuple[str, ...], Field(max_length=MAX_NAMED_SNAPSHOTS)]


@dataclass(frozen=True, slots=True, config={"extra": "forbid"})
class _WhatIfBody:
    """``WhatIf`` as a request sends it."""

    snapshot_ids: _Ids
    leaving_snapshot_ids: _Ids = ()


@dataclass(frozen=True, slots=True, config={"extra": "forbid"})
class _PlanBody:
    """``PlanSpace`` as a request sends it."""

    free_bytes: Annotated[int, Field(ge=0)]
    protected_snapshot_ids: _Ids = ()
    leaving_snapshot_ids: _Ids = ()


_WHAT_IF = TypeAdapter(_WhatIfBody)
_PLAN = TypeAdapter(_PlanBody)


def routes(stores: Stores, undo_window_ms: int = 0) -> list[Route]:
    """Return all read routes for the shards that this process serves."""

    def route(
        path: str,
        answer: Callable[[Question, TablesReader], Any],
        answer_type: Any,
        *,
        opened: Callable[[Question], AbstractContextManager[TablesReader]] = _committed,
        method: str = "GET",
    ) -> Route:
        def answered(question: Question) -> Any:
            with opened(question) as tables:
                return answer(question, tables)

        return read_route(path, stores, answered, answer_type, applied_txn=queries.applied_txn, method=method)

    return [
        route("/state", lambda _, tables: queries.shard_state(tables), ShardState),
        route("/backlog", lambda _, tables: queries.shard_backlog(tables), ShardBacklog),
        route("/volumes", _volumes, list[VolumeRow]),
        route("/buckets", _buckets, list[BucketRow]),
        route("/bucket", _bucket, BucketRow),
        route("/entries", _entries, list[ListedEntry], opened=_named_state),
        route("/deleted", partial(_deleted, undo_window_ms), list[ListedDeletion]),
        route("/stat", _stat, StatAnswer, opened=_named_state),
        route("/space", _space, BucketSpace),
        route("/collection", _collection, list[CollectionStatus]),
        route("/space/snapshots", _snapshots, SnapshotSpaces),
        route("/space/what-if", _what_if, FreedSpace, method="POST"),
        route("/space/plan", _plan, SpacePlan, method="POST"),
        route("/explain/path", _path, PathExplanation),
        route("/explain/block", _block, BlockExplanation),
    ]


def _committed(question: Question) -> AbstractContextManager[TablesReader]:
    return closing_reader(question.store.reading())


def _named_state(question: Question) -> AbstractContextManager[TablesReader]:
    """Open committed rows of the active namespace, or of the snapshot that the request names."""
    snapshot_id = question.text("snapshot_id", "")
    return closing_reader(queries.open_snapshot(question.store, snapshot_id)) if snapshot_id else _committed(question)


def _bucket(question: Question, tables: TablesReader) -> BucketRow:
    """Return the bucket that the request names. Only the snapshot's own bucket can be read in a snapshot."""
    row = _present_bucket(question, tables)
    snapshot_id = question.text("snapshot_id", "")
    if snapshot_id:
        captured = TablesReader(question.store).table(SNAPSHOT_LIST_TABLE).get(snapshot_id_key(snapshot_id))
        if captured is None or captured.bucket_id != row.object_id:
            raise ReadError(
                "FILE_NOT_FOUND", f"there is no snapshot with the id {snapshot_id} of {row.volume}/{row.bucket}"
            )
    return row


def _present_bucket(question: Question, tables: TablesReader) -> BucketRow:
    return queries.get_bucket(tables, question.text("volume"), question.text("bucket"))


def _volumes(question: Question, tables: TablesReader) -> list[VolumeRow]:
    return queries.list_volumes(tables, question.text("start_after", ""), question.limit())


def _buckets(question: Question, tables: TablesReader) -> list[BucketRow]:
    volume = question.text("volume")
    if tables.table(VOLUME_TABLE).get(volume_key(volume)) is None:
        raise CommandError(ErrorCode.VOLUME_NOT_FOUND, f"there is no volume {volume}")
    return queries.list_buckets(tables, volume, question.text("start_after", ""), question.limit())


def _entries(question: Question, tables: TablesReader) -> list[ListedEntry]:
    bucket, prefix = _bucket(question, tables), question.text("prefix", "")
    return queries.list_entries(tables, bucket, prefix, question.text("start_after", ""), question.limit())


def _deleted(undo_window_ms: int, question: Question, tables: TablesReader) -> list[ListedDeletion]:
    bucket, start_after = _bucket(question, tables), question.text("start_after", "")
    return list_deleted(tables, bucket, start_after, question.limit(), undo_window_ms)


def _stat(question: Question, tables: TablesReader) -> StatAnswer:
    row = queries.stat(tables, _bucket(question, tables), question.text("path"))
    return StatAnswer(key=row) if isinstance(row, KeyRow) else StatAnswer(directory=row)


def _space(question: Question, tables: TablesReader) -> BucketSpace:
    start_after, limit = question.text("start_after", ""), question.limit()
    return queries.bucket_space(tables, _bucket(question, tables), start_after, limit)


def _bucket_id(text: str) -> int | None:
    """Return the bucket id after which a page begins. Ids of later epochs are negative."""
    if not text:
        return None
    if _ID.fullmatch(text) is None:
        raise ReadError("INVALID_REQUEST", f"start_after is {text[:100]!r}; write the bucket_id of the last line")
    return int(text)


def _collection(question: Question, tables: TablesReader) -> list[CollectionStatus]:
    volume, bucket = question.text("volume", ""), question.text("bucket", "")
    start_after, limit = _bucket_id(question.text("start_after", "")), question.limit()
    return collection_status(tables, volume, bucket, start_after, limit, shard=question.shard)


def _snapshots(question: Question, tables: TablesReader) -> SnapshotSpaces:
    start_after, limit = question.whole_number("start_after", 0), question.limit()
    return space_queries.snapshot_spaces(tables, _present_bucket(question, tables), start_after, limit)


def _body(question: Question, adapter: TypeAdapter[Any]) -> Any:
    try:
        return adapter.validate_json(question.body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise ReadError("INVALID_REQUEST", f"{place}: {first['msg']}") from error


def _what_if(question: Question, tables: TablesReader) -> FreedSpace:
    body = _body(question, _WHAT_IF)
    asked = WhatIf(body.snapshot_ids, body.leaving_snapshot_ids)
    return space_queries.what_if(tables, _present_bucket(question, tables), asked)


def _plan(question: Question, tables: TablesReader) -> SpacePlan:
    body = _body(question, _PLAN)
    asked = PlanSpace(body.free_bytes, body.protected_snapshot_ids, body.leaving_snapshot_ids)
    return space_queries.plan(tables, _present_bucket(question, tables), asked)


def _path(question: Question, tables: TablesReader) -> PathExplanation:
    bucket, path = _present_bucket(question, tables), question.text("path")
    return explanations.explain_path(
        tables, bucket, path, lambda snapshot_id: TablesReader(question.store.open_checkpoint(snapshot_id))
    )


def _block(question: Question, tables: TablesReader) -> BlockExplanation:
    block_id = question.whole_number("local_id", 0)
    bucket = _present_bucket(question, tables) if question.text("bucket", "") else None
    return block_search.explain_block(tables, question.shard, block_id, bucket, question.text("start", ""))
