"""HTTP reads about space: shares of snapshots, bytes that drops would free, and the holders of a path or block."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass
from starlette.routing import Route

from schemas.space_answers import (
    BlockExplanation,
    FreedSpace,
    PathExplanation,
    PlanSpace,
    SnapshotSpaces,
    SpacePlan,
    WhatIf,
)
from services.metadata.reads import block_search, explanations, space_queries
from services.metadata.reads.queries import applied_txn, get_bucket
from services.runtime.http.reads import DEFAULT_LIMIT, Asked, Limit, Number, ReadRoute, Stores
from services.storage.tables import TablesReader

MAX_NAMED_SNAPSHOTS = 10_000
_Ids = Annotated[tuple[str, ...], Field(max_length=MAX_NAMED_SNAPSHOTS)]


@dataclass(frozen=True, slots=True, config={"extra": "forbid"})
class WhatIfBody:
    """``WhatIf`` as a request sends it."""

    snapshot_ids: _Ids
    leaving_snapshot_ids: _Ids = ()


@dataclass(frozen=True, slots=True, config={"extra": "forbid"})
class PlanSpaceBody:
    """``PlanSpace`` as a request sends it."""

    free_bytes: Annotated[int, Field(ge=0)]
    protected_snapshot_ids: _Ids = ()
    leaving_snapshot_ids: _Ids = ()
    is_replicated: bool = False


def routes(stores: Stores) -> list[Route]:
    """Return the routes of reads about space for the shards that this process serves."""
    return [
        ReadRoute("/space/snapshots", stores, snapshots, applied_txn=applied_txn),
        ReadRoute("/space/what-if", stores, what_if, applied_txn=applied_txn, method="POST"),
        ReadRoute("/space/plan", stores, plan, applied_txn=applied_txn, method="POST"),
        ReadRoute("/explain/path", stores, path_explained, applied_txn=applied_txn),
        ReadRoute("/explain/block", stores, block_explained, applied_txn=applied_txn),
    ]


def snapshots(
    asked: Asked, volume: str, bucket: str, start_after: Number = 0, limit: Limit = DEFAULT_LIMIT
) -> SnapshotSpaces:
    """The bytes of each live snapshot of a bucket."""
    with asked.rows() as tables:
        return space_queries.snapshot_spaces(tables, get_bucket(tables, volume, bucket), start_after, limit)


def what_if(asked: Asked, volume: str, bucket: str, body: WhatIfBody) -> FreedSpace:
    """The bytes that drops of snapshots would free."""
    with asked.rows() as tables:
        drops = WhatIf(body.snapshot_ids, body.leaving_snapshot_ids)
        return space_queries.what_if(tables, get_bucket(tables, volume, bucket), drops)


def plan(asked: Asked, volume: str, bucket: str, body: PlanSpaceBody) -> SpacePlan:
    """Snapshots whose drops free a number of bytes."""
    with asked.rows() as tables:
        kept = body.protected_snapshot_ids
        wanted = PlanSpace(body.free_bytes, kept, body.leaving_snapshot_ids, body.is_replicated)
        return space_queries.plan(tables, get_bucket(tables, volume, bucket), wanted)


def path_explained(asked: Asked, volume: str, bucket: str, path: str) -> PathExplanation:
    """The versions of a path, and what holds each."""
    with asked.rows() as tables:
        return explanations.explain_path(
            tables,
            get_bucket(tables, volume, bucket),
            path,
            lambda snapshot_id: TablesReader(asked.store.open_checkpoint(snapshot_id)),
        )


def block_explained(
    asked: Asked, local_id: Number = 0, volume: str = "", bucket: str = "", start: str = ""
) -> BlockExplanation:
    """The version that a block belongs to, and what holds it."""
    with asked.rows() as tables:
        row = get_bucket(tables, volume, bucket) if bucket else None
        return block_search.explain_block(tables, asked.shard, local_id, row, start)
