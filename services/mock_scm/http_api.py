"""The mock storage container manager over HTTP: blocks, datanodes, fault switches, and copies for audits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from schemas.answers import AuditCopy, ScmTotals
from schemas.block_store import BlockStoreStatus, ContainerPlace, Heartbeat, ListedTransaction, NodeOrders
from schemas.records import BlockRun
from services.mock_scm import queries
from services.mock_scm.deletion_log import PARKED
from services.mock_scm.service import MockScmService
from services.mock_scm.settings import MockScmSwitches
from services.runtime.copies.audit_copies import audit_routes
from services.runtime.http.reads import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Asked,
    Flag,
    Limit,
    Number,
    ReadError,
    ReadRoute,
    Stores,
    closing_reader,
    reason_of,
    refusal,
)
from services.storage.rocks import RocksStore

_SWITCHES = TypeAdapter(MockScmSwitches)
"""What a request leaves out is switched off."""


Services = Mapping[int, MockScmService]
"""The services of the shards that this process serves."""


def routes(stores: Stores, switches: MockScmSwitches, services: Services | None = None) -> list[Route]:
    """Return the routes of the reads, of the datanodes, of the switches that all shards share, and of audit copies."""
    served = {} if services is None else services

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
        ReadRoute("/stored-runs", stores, stored_runs),
        ReadRoute("/deleted-blocks", stores, deleted_blocks),
        *_datanode_routes(stores, served),
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


def stored_runs(
    asked: Asked, container_id: Number = 0, first_local_id: Number = 0, limit: Limit = DEFAULT_LIMIT
) -> list[BlockRun]:
    """The runs of blocks whose bytes are on datanodes, from a container and local id on."""
    with asked.rows() as tables:
        return queries.stored_runs(tables, container_id, first_local_id, limit)


def deleted_blocks(
    asked: Asked, start: Number = 0, limit: Limit = DEFAULT_LIMIT, is_parked: Flag = False
) -> list[ListedTransaction]:
    """The transactions of the deletedBlocks log from a delTxnId on; only those that are parked, if so wanted."""
    with asked.rows() as tables:
        found = queries.transactions_from(tables, start)
        return list(islice((one for one in found if one.retry_count == PARKED or not is_parked), limit))


def _datanode_routes(stores: Stores, services: Services) -> list[Route]:
    """Return the routes that need what the loop knows of the datanodes."""

    def container(asked: Asked, container_id: Number) -> ContainerPlace:
        """Where the blocks of a container are read and written."""
        with asked.rows() as tables:
            return queries.place_of(tables, services[asked.shard].registry, container_id)

    def block_store(asked: Asked) -> BlockStoreStatus:
        """The datanodes, the containers and the log of deleted blocks in figures."""
        service = services[asked.shard]
        with asked.rows() as tables:
            return queries.status(tables, service.registry, service.replication)

    def heartbeat(asked: Asked, body: Heartbeat) -> NodeOrders:
        """Report all that a datanode has of the shard; the answer is what it has to do."""
        return replace(services[asked.shard].registry.receive(body), shards=1 + max(services))

    def retry(asked: Asked, body: Annotated[list[int], Field(max_length=MAX_LIMIT)]) -> int:
        """Send parked transactions to the datanodes again, all if the list is empty. The answer is their number."""
        retried = services[asked.shard].retry(body or None)
        if retried is None:
            raise ReadError("UNAVAILABLE", "mock_scm did not get to it: see /readyz, and ask again")
        return retried

    return [
        ReadRoute("/container", stores, container),
        ReadRoute("/block-store", stores, block_store),
        ReadRoute("/heartbeat", stores, heartbeat, method="POST"),
        ReadRoute("/deleted-blocks/retry", stores, retry, method="POST"),
    ]
