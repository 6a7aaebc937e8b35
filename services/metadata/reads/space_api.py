"""HTTP reads about space: shares of snapshots, bytes that drops would free, and the holders of a path or block."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from starlette.routing import Route

from schemas.records import BucketRow
from schemas.space_answers import (
    BlockExplanation,
    FreedSpace,
    PathExplanation,
    PlanSpace,
    SnapshotSpaces,
    SpacePlan,
    WhatIf,
)
from services.metadata.reads import block_search, explanations, queries, space_queries
from services.runtime.http.reads import AppliedTxn, Question, ReadError, Stores, closing_reader, read_route
from services.storage.tables import TablesReader

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


def routes(stores: Stores, applied_txn: AppliedTxn) -> list[Route]:
    """Return the routes of reads about space for the shards that this process serves."""
    return [
        read_route("/space/snapshots", stores, _snapshots, SnapshotSpaces, applied_txn=applied_txn),
        read_route("/space/what-if", stores, _what_if, FreedSpace, applied_txn=applied_txn, method="POST"),
        read_route("/space/plan", stores, _plan, SpacePlan, applied_txn=applied_txn, method="POST"),
        read_route("/explain/path", stores, _path, PathExplanation, applied_txn=applied_txn),
        read_route("/explain/block", stores, _block, BlockExplanation, applied_txn=applied_txn),
    ]


def _bucket(question: Question, tables: TablesReader) -> BucketRow:
    return queries.get_bucket(tables, question.text("volume"), question.text("bucket"))


def _body(question: Question, adapter: TypeAdapter[Any]) -> Any:
    try:
        return adapter.validate_json(question.body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise ReadError("INVALID_REQUEST", f"{place}: {first['msg']}") from error


def _snapshots(question: Question) -> SnapshotSpaces:
    with closing_reader(question.store.reading()) as tables:
        start_after, limit = question.whole_number("start_after", 0), question.limit()
        return space_queries.snapshot_spaces(tables, _bucket(question, tables), start_after, limit)


def _what_if(question: Question) -> FreedSpace:
    body = _body(question, _WHAT_IF)
    with closing_reader(question.store.reading()) as tables:
        asked = WhatIf(body.snapshot_ids, body.leaving_snapshot_ids)
        return space_queries.what_if(tables, _bucket(question, tables), asked)


def _plan(question: Question) -> SpacePlan:
    body = _body(question, _PLAN)
    with closing_reader(question.store.reading()) as tables:
        asked = PlanSpace(body.free_bytes, body.protected_snapshot_ids, body.leaving_snapshot_ids)
        return space_queries.plan(tables, _bucket(question, tables), asked)


def _path(question: Question) -> PathExplanation:
    with closing_reader(question.store.reading()) as tables:
        bucket, path = _bucket(question, tables), question.text("path")
        return explanations.explain_path(
            tables, bucket, path, lambda snapshot_id: TablesReader(question.store.open_checkpoint(snapshot_id))
        )


def _block(question: Question) -> BlockExplanation:
    block_id = question.whole_number("local_id", 0)
    with closing_reader(question.store.reading()) as tables:
        bucket = _bucket(question, tables) if question.text("bucket", "") else None
        start = question.text("start", "")
        return block_search.explain_block(tables, question.shard, block_id, bucket, start)
