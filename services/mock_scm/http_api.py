"""The mock storage container manager over HTTP: existence of blocks, totals, fault switches, and copies for audits."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from schemas.answers import AuditCopy, ScmTotals
from schemas.records import BlockRun
from services.mock_scm import queries
from services.mock_scm.settings import MockScmSwitches
from services.runtime.copies.audit_copies import audit_routes
from services.runtime.http.reads import MAX_LIMIT, Asked, ReadRoute, Stores, closing_reader, reason_of, refusal
from services.storage.rocks import RocksStore

_SWITCHES = TypeAdapter(MockScmSwitches)
"""What a request leaves out is switched off."""


def routes(stores: Stores, switches: MockScmSwitches) -> list[Route]:
    """Return the routes of the reads, of the switches that all shards share, and of audit copies."""

    def get_switches(_: Request) -> Response:
        return Response(_SWITCHES.dump_json(switches), media_type="application/json")

    async def put_switches(request: Request) -> Response:
        try:
            wanted = _SWITCHES.validate_json(await request.body())
        except ValidationError as error:
            return refusal("INVALID_REQUEST", reason_of(error))
        for field in fields(MockScmSwitches):
            setattr(switches, field.name, getattr(wanted, field.name))
        return await run_in_threadpool(get_switches, request)

    return [
        ReadRoute("/exist", stores, exist, method="POST"),
        ReadRoute("/totals", stores, totals),
        Route("/v1/switches", get_switches, methods=["GET"]),
        Route("/v1/switches", put_switches, methods=["PUT"]),
        *audit_routes(stores, make_copy),
    ]


def make_copy(store: RocksStore, directory: Path) -> AuditCopy:
    """Copy the inventory and its counters for an audit. Return the directory of the copy and its txn."""
    with closing_reader(store.copy_to(directory)) as tables:
        return AuditCopy(str(directory), queries.totals(tables).mark_txn)


def exist(asked: Asked, body: Annotated[list[BlockRun], Field(max_length=MAX_LIMIT)]) -> list[bool]:
    """For each run of blocks, whether it is in the store."""
    with asked.rows() as tables:
        return queries.exist(tables, body)


def totals(asked: Asked) -> ScmTotals:
    """The blocks and bytes that the store has, and has deleted."""
    with asked.rows() as tables:
        return queries.totals(tables)
