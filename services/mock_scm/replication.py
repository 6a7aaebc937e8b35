"""Keeps the containers of one shard on datanodes: reviews what they report, and gives them their orders.

A review changes rows by the rules of ``services.domain.block_placement``. Orders are made from rows that are on disk,
and the same orders are given until a report shows that they were carried out: a heartbeat or an answer that is lost
changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from schemas.block_store import DeletionOrder, NodeOrders, RemoveOrder, RepairOrder, ReplicaState
from schemas.records import ContainerReplica, ContainerRow, ContainerState, PipelineRow
from schemas.records import Replication as Scheme
from services.domain.block_placement import (
    Facts,
    LiveCopy,
    choose_nodes,
    is_lost,
    is_surplus,
    is_under_replicated,
    reviewed,
)
from services.domain.replication import COPIES, replication_of, sequence_of
from services.mock_scm.containers import container, containers, open_containers, put_container
from services.mock_scm.deletion_log import DeletionLog
from services.mock_scm.metrics import MockScmMetrics
from services.mock_scm.node_registry import Node, NodeRegistry
from services.mock_scm.sequences import (
    CONTAINER_ID,
    DELETION_TXN,
    PIPELINE_ID,
    last_id,
    next_container,
    raise_to,
    scm_state,
    take_ids,
)
from services.mock_scm.settings import MockScmSettings
from services.mock_scm.tables import CONTAINER_TABLE, PIPELINE_TABLE, number_key
from services.runtime.loop.service import Work
from services.storage.tables import TablesReader


@dataclass(slots=True)
class _Orders:
    """The orders of one datanode while they are collected."""

    create: list[int] = field(default_factory=list)
    close: list[int] = field(default_factory=list)
    remove: list[RemoveOrder] = field(default_factory=list)
    repair: list[RepairOrder] = field(default_factory=list)

    def with_deletions(self, delete: list[DeletionOrder]) -> NodeOrders:
        """Return all orders."""
        return NodeOrders(tuple(self.create), tuple(self.close), tuple(self.remove), tuple(delete), tuple(self.repair))


class Replication:
    """The datanodes of one shard, as the loop sees them."""

    def __init__(self, settings: MockScmSettings, registry: NodeRegistry, metrics: MockScmMetrics) -> None:
        self._settings = settings
        self._registry = registry
        self._metrics = metrics
        self._since_ms: int | None = None
        """When this process began to listen: before that it has heard of nobody."""
        self._interval_ends_ms = 0
        self.knows_all = False
        """Whether there was a review after each datanode that is not dead had reported to this process."""

    def do_due(self, now_ms: int, log: DeletionLog, work: Work) -> int | None:
        """Take in heartbeats and requests, and review all containers if there is news or an interval is over.

        Return the id of the container that metadata is to use from now on, if that has changed.
        """
        interval_ms = self._settings.deletion_interval_ms
        # A clock that is set back lengthens no wait: neither this process' first one nor an interval.
        self._since_ms = now_ms if self._since_ms is None else min(self._since_ms, now_ms)
        self._interval_ends_ms = min(self._interval_ends_ms, now_ms + interval_ms)
        for asked in self._registry.requests():
            asked.result = asked.do(work)
            asked.is_done.set()
        heartbeats = self._registry.take(now_ms)
        for one in heartbeats:
            log.acknowledge(one.node, one.acknowledged, {copy.container_id for copy in one.replicas}, work)
            raise_to(DELETION_TXN, max((copy.last_deletion_txn for copy in one.replicas), default=0), work)
        is_over = now_ms >= self._interval_ends_ms
        if not heartbeats and not is_over:
            return None
        nodes = self._registry.nodes()
        seen = _Seen(nodes, now_ms, self._settings.dead_after_ms, is_sure=self._is_sure(now_ms, work))
        if is_over:
            self._interval_ends_ms = now_ms + interval_ms
            limit, most = self._settings.max_deletion_rows_per_tick, self._settings.max_deletion_retries
            log.count_tries(limit, most, work)
        self._give_orders(seen, log, TablesReader(work.store))
        granted = self._review(seen, log, work)
        self.knows_all = seen.is_sure
        return granted

    def _is_sure(self, now_ms: int, work: Work) -> bool:
        has_listened = self._since_ms is not None and now_ms - self._since_ms > self._settings.dead_after_ms
        return has_listened and work.is_caught_up

    def _review(self, seen: _Seen, log: DeletionLog, work: Work) -> int | None:
        under_replicated = lost = 0
        _adopt_unknown(seen, self._registry.named_container, work)
        for row in containers(work):
            if not (row.replicas or seen.nodes_with(row.container_id)):
                continue
            facts = seen.facts(row, log)
            after = reviewed(row, facts, self._copies(row.container_id))
            if after != row:
                put_container(after, work)
            if [one.node for one in after.replicas] != [one.node for one in row.replicas]:
                log.replicas_changed(row.container_id, work)
            for one in after.replicas:
                if one.node in seen.alive and one.node not in facts.copies:
                    log.void(row.container_id, one.node, work)
            complete = len(facts.sources(after))
            under_replicated += is_under_replicated(after, complete)
            lost += is_lost(after, complete)
        shard = str(work.shard)
        self._metrics.datanodes_alive.labels(shard).set(len(seen.alive))
        self._metrics.under_replicated.labels(shard).set(under_replicated)
        self._metrics.lost_containers.labels(shard).set(lost)
        self._metrics.parked_transactions.labels(shard).set(log.parked())
        self._metrics.damaged_blocks.labels(shard).set(seen.damaged_blocks())
        return self._open_container(seen, work)

    def _copies(self, container_id: int) -> int:
        """Return on how many datanodes a container is to be; 0 for an erasure-coded one, whose bytes none keeps."""
        replication = replication_of(container_id)
        if replication is Scheme.RATIS_ONE:
            return self._settings.replication
        return COPIES.get(replication, 0) if replication else 0

    def _open_container(self, seen: _Seen, work: Work) -> int | None:
        """Put the newest container on datanodes, if it is on none, and those of other replications with the same number
        that clients use. Follow them by the next when one of them is closed.

        A database that was made again from the log does not know on which datanodes its containers are: it waits for
        the reports of all. If no block was ever written, there are none to wait for.
        """
        granted = None
        state, rows = scm_state(work), open_containers(work)
        is_closed = any(row.state is not ContainerState.OPEN for row in rows)
        if is_closed or last_id(CONTAINER_ID, work) > state.container_id:
            for row in rows:
                if row.state is ContainerState.OPEN:
                    state_after = ContainerState.CLOSING if row.replicas else ContainerState.CLOSED
                    put_container(replace(row, state=state_after), work)
            granted = next_container(work)
            rows = open_containers(work)
        known = {row.container_id for row in rows}
        named = [one for one in self._registry.named_ids if sequence_of(one) == scm_state(work).container_id]
        rows += [container(one, work) for one in sorted(named) if one not in known]
        for row in rows:
            self._place(row, seen, work, has_blocks=bool(state.mark_local_id))
        return granted

    def _place(self, row: ContainerRow, seen: _Seen, work: Work, *, has_blocks: bool) -> None:
        """Put an open container on datanodes, if it is on none."""
        is_first = work.is_caught_up and not (has_blocks or seen.nodes_with(row.container_id))
        copies = self._copies(row.container_id)
        nodes = choose_nodes(seen.load, copies)
        if (seen.is_sure or is_first) and nodes and copies and not row.replicas:
            replicas = tuple([ContainerReplica(node, is_complete=False) for node in nodes])
            put_container(replace(row, replicas=replicas, pipeline_id=_pipeline_of(nodes, seen.load, work)), work)

    def _give_orders(self, seen: _Seen, log: DeletionLog, written: TablesReader) -> None:
        orders: dict[str, _Orders] = defaultdict(_Orders)
        for row in containers(written):
            facts = seen.facts(row, log)
            for node in facts.copies.keys() | {one.node for one in row.replicas if one.node in seen.alive}:
                _order(row, node, facts, seen, orders[node])
        limit = self._settings.max_deletion_rows_per_tick
        self._registry.publish(
            {node: orders[node].with_deletions(log.batch(node, limit, written)) for node in seen.alive}
        )


class _Seen:
    """The datanodes at the time of a review."""

    def __init__(self, nodes: dict[str, Node], now_ms: int, dead_after_ms: int, *, is_sure: bool) -> None:
        self.alive = {name: node for name, node in nodes.items() if now_ms - node.seen_ms <= dead_after_ms}
        self.is_sure = is_sure
        self.load = {name: len(node.replicas) for name, node in self.alive.items() if node.heartbeat.volumes}

    def nodes_with(self, container_id: int) -> list[str]:
        """Return the datanodes that are alive and have a copy of a container."""
        return [name for name, node in self.alive.items() if container_id in node.replicas]

    def facts(self, row: ContainerRow, log: DeletionLog) -> Facts:
        """Return what is known of a container."""
        found = {name: self.alive[name].replicas[row.container_id] for name in self.nodes_with(row.container_id)}
        copies = {
            name: LiveCopy(
                copy.state is ReplicaState.OPEN,
                copy.state is ReplicaState.RECOVERING,
                copy.block_count,
                copy.damaged_blocks,
            )
            for name, copy in found.items()
        }
        return Facts(copies, self.load, self.alive, self.is_sure, log.is_pending(row.container_id))

    def damaged_blocks(self) -> int:
        """Return the number of damaged blocks that the datanodes report."""
        return sum(copy.damaged_blocks for node in self.alive.values() for copy in node.replicas.values())

    def container_ids(self) -> set[int]:
        """Return all containers of which a datanode has a copy."""
        return {container_id for node in self.alive.values() for container_id in node.replicas}


def _order(row: ContainerRow, node: str, facts: Facts, seen: _Seen, orders: _Orders) -> None:
    """Add what one datanode has to do about one container."""
    copy = facts.copies.get(node)
    container_id = row.container_id
    wanted = next((one for one in row.replicas if one.node == node), None)
    if wanted is None:
        if copy is not None and is_surplus(row, node, facts):
            orders.remove.append(RemoveOrder(container_id, only_if_empty=False))
        elif copy is not None and copy.is_open and row.state is not ContainerState.OPEN:
            orders.close.append(container_id)
        return
    if row.state is ContainerState.OPEN and copy is None:
        if not wanted.is_complete:
            orders.create.append(container_id)
        return
    if row.state is ContainerState.DELETING:
        if copy is not None:
            orders.remove.append(RemoveOrder(container_id, only_if_empty=True))
        return
    is_open = row.state is ContainerState.OPEN
    if copy is not None and copy.is_open and not is_open:
        orders.close.append(container_id)
    others = tuple([seen.alive[other].heartbeat.url for other in _sources(row, copy, facts) if other != node])
    if (is_open or row.state is ContainerState.CLOSED) and others:
        orders.repair.append(RepairOrder(container_id, others))


def _sources(row: ContainerRow, copy: LiveCopy | None, facts: Facts) -> list[str]:
    """Return the datanodes from which a copy, or one that is missing, is to be made whole; none if it is whole."""
    sources = facts.sources(row)
    if copy is None or copy.is_recovering:
        return sources
    # A copy that is to be removed may have the only whole copy of a block. A new copy is not made from it: it may have
    # blocks that were deleted since.
    leaving = [one for one, found in facts.copies.items() if one not in sources and not found.is_recovering]
    return [*sources, *leaving] if copy.damaged_blocks else []


def _adopt_unknown(seen: _Seen, named_container: int, work: Work) -> None:
    """Make rows of containers that datanodes know and this database does not: it was restored from an older copy."""
    reported = seen.container_ids()
    raise_to(CONTAINER_ID, max({*map(sequence_of, reported), named_container}), work)
    for container_id in sorted(reported):
        if work.table(CONTAINER_TABLE).get(number_key(container_id)) is None:
            put_container(replace(container(container_id, work), state=ContainerState.CLOSED), work)


def _pipeline_of(nodes: tuple[str, ...], load: dict[str, int], work: Work) -> int:
    """Return the open pipeline of these datanodes, a new one if there is none. Close those that have lost one."""
    found = 0
    for key, row in list(work.table(PIPELINE_TABLE).scan()):
        if row.is_open and not load.keys() >= set(row.nodes):
            work.table(PIPELINE_TABLE).put(key, replace(row, is_open=False))
        elif row.is_open and set(row.nodes) == set(nodes):
            found = row.pipeline_id
    if not found:
        found = take_ids(PIPELINE_ID, 1, work)
        work.table(PIPELINE_TABLE).put(number_key(found), PipelineRow(found, nodes, is_open=True))
    return found
