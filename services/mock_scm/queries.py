"""Reads of the mock storage container manager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from schemas.answers import ScmTotals
from schemas.block_store import BlockStoreStatus, ContainerPlace, ListedTransaction, NodeStatus, ReplicaState
from schemas.records import BlockRun, ContainerState
from services.domain.block_placement import is_lost, is_under_replicated
from services.domain.replication import sequence_of
from services.domain.table_keys import local_id_txn
from services.mock_scm.containers import container, containers
from services.mock_scm.deletion_log import PARKED, waits_for
from services.mock_scm.node_registry import Node, NodeRegistry
from services.mock_scm.sequences import scm_state
from services.mock_scm.tables import (
    DELAYED_DELETION_TABLE,
    DELETED_BLOCKS_TABLE,
    INVENTORY_TABLE,
    STORED_RUNS_TABLE,
    WAITING_DELETION_TABLE,
    inventory_key,
    number_key,
)
from services.storage.tables import TableDefinition, TablesReader


def exist(tables: TablesReader, runs: Iterable[BlockRun]) -> list[bool]:
    """Return for each run of blocks whether it is in the store."""
    table = tables.table(INVENTORY_TABLE)
    rows = ((run, table.get(inventory_key(run.container_id, run.first_local_id))) for run in runs)
    return [row is not None and row.blocks == run for run, row in rows]


def totals(tables: TablesReader) -> ScmTotals:
    """Return sums over the inventory, and the number of pending deletions."""
    state = scm_state(tables)
    return ScmTotals(
        mark_txn=local_id_txn(state.mark_local_id),
        inventory_bytes=state.inventory_bytes,
        inventory_blocks=state.inventory_blocks,
        deleted_bytes=state.deleted_bytes,
        deleted_blocks=state.deleted_blocks,
        waiting_deletions=pending_deletions(tables),
    )


def pending_deletions(tables: TablesReader) -> int:
    """Return the number of deletions that wait for their blocks or time, and of rows left for the datanodes."""
    deletions: tuple[TableDefinition[Any], ...] = (WAITING_DELETION_TABLE, DELAYED_DELETION_TABLE, DELETED_BLOCKS_TABLE)
    return sum(1 for table in deletions for _ in tables.table(table).scan())


MAX_CONTAINERS_AHEAD = 1_000
"""A database that was restored from an older copy may be behind what metadata was granted, but not by more."""


def place_of(tables: TablesReader, registry: NodeRegistry, container_id: int) -> ContainerPlace:
    """Return where a client reads and writes the blocks of a container."""
    if sequence_of(container_id) <= scm_state(tables).container_id + MAX_CONTAINERS_AHEAD:
        registry.name(container_id)
    row, alive = container(container_id, tables), registry.alive()
    having = [one.node for one in row.replicas if _is_complete(alive.get(one.node), container_id)]
    is_writable = row.state is ContainerState.OPEN and bool(having) and len(having) == len(row.replicas)
    return ContainerPlace(container_id, row.state, is_writable, tuple([alive[node].heartbeat.url for node in having]))


def _is_complete(node: Node | None, container_id: int) -> bool:
    copy = None if node is None else node.replicas.get(container_id)
    return copy is not None and copy.state is not ReplicaState.RECOVERING


def status(tables: TablesReader, registry: NodeRegistry, replication: int) -> BlockStoreStatus:
    """Return the datanodes, the containers and the log of deleted blocks in figures."""
    alive = registry.alive()
    waiting: Counter[str] = Counter()
    transactions = list(transactions_from(tables, 0))
    for one in transactions:
        waiting.update(one.waits_for)
    states: Counter[str] = Counter()
    under_replicated = lost = 0
    for row in containers(tables):
        states[row.state] += 1
        complete = sum(_is_complete(alive.get(one.node), row.container_id) for one in row.replicas)
        under_replicated += is_under_replicated(row, complete)
        lost += is_lost(row, complete)
    return BlockStoreStatus(
        replication=replication,
        nodes=tuple([_status_of(node, waiting, is_alive=name in alive) for name, node in registry.nodes().items()]),
        containers=dict(sorted(states.items())),
        under_replicated=under_replicated,
        lost_containers=lost,
        waiting_transactions=sum(one.retry_count != PARKED for one in transactions),
        parked_transactions=sum(one.retry_count == PARKED for one in transactions),
    )


def _status_of(node: Node, waiting: Counter[str], *, is_alive: bool) -> NodeStatus:
    replicas = node.replicas.values()
    return NodeStatus(
        node=node.heartbeat.node,
        url=node.heartbeat.url,
        is_alive=is_alive,
        volumes=node.heartbeat.volumes,
        containers=len(replicas),
        used_bytes=sum(copy.used_bytes for copy in replicas),
        damaged_blocks=sum(copy.damaged_blocks for copy in replicas),
        waiting_transactions=waiting[node.heartbeat.node],
    )


def transactions_from(tables: TablesReader, start: int) -> Iterator[ListedTransaction]:
    """Yield the transactions of the deletedBlocks log from an id on."""
    for _, row in tables.table(DELETED_BLOCKS_TABLE).scan(number_key(start)):
        yield ListedTransaction(
            deletion_txn=row.deletion_txn,
            container_id=row.container_id,
            block_count=sum(row.block_counts),
            size_bytes=sum(row.sizes_bytes),
            retry_count=row.retry_count,
            waits_for=tuple(waits_for(row, tables)),
        )


def stored_runs(tables: TablesReader, container_id: int, first_local_id: int, limit: int) -> list[BlockRun]:
    """Return the runs whose bytes are on datanodes, from a container and local id on."""
    rows = tables.table(STORED_RUNS_TABLE).scan(inventory_key(container_id, first_local_id))
    return [row.blocks for _, row in islice(rows, limit)]
