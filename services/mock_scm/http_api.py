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
from services.runtime.http.reads import MAX_LIMIT, Question, ReadError, Stores, closing_reader, read_route, refusal
from services.storage.rocks import RocksStore

_RUNS = TypeAdapter(Annotated[list[BlockRun], Field(max_length=MAX_LIMIT)])


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
            return refusal("INVALID_REQUEST", _first_reason(error))
        for field in fields(MockScmSwitches):
            setattr(switches, field.name, getattr(wanted, field.name))
        return await run_in_threadpool(get_switches, request)

    return [
        read_route("/exist", stores, _exist, list[bool], method="POST"),
        read_route("/totals", stores, _totals, ScmTotals),
        Route("/v1/switches", get_switches, methods=["GET"]),
        Route("/v1/switches", put_switches, methods=["PUT"]),
        *audit_routes(stores, make_copy),
    ]


def make_copy(store: RocksStore, directory: Path) -> AuditCopy:
    """Copy the inventory and its counters for an audit. Return the directory of the copy and its txn."""
    with closing_reader(store.copy_to(directory)) as tables:
        return AuditCopy(str(directory), queries.totals(tables).mark_txn)


def _exist(question: Question) -> list[bool]:
    try:
        runs = _RUNS.validate_json(question.body)
    except ValidationError as error:
        raise ReadError("INVALID_REQUEST", _first_reason(error)) from error
    with closing_reader(question.store.reading()) as tables:
        return queries.exist(tables, runs)


def _totals(question: Question) -> ScmTotals:
    with closing_reader(question.store.reading()) as tables:
        return queries.totals(tables)


def _first_reason(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place or 'body'}: {first['msg']}"
