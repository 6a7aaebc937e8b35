"""What a datanode does by itself: heartbeats, deletions, repairs and scrubbing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog

from schemas.block_store import Acknowledgement, Heartbeat, NodeOrders
from services.datanode.errors import BlockError, DiskError
from services.datanode.metrics import DatanodeMetrics
from services.datanode.node import DataNode
from services.datanode.peers import Peers, UnreachableError
from services.datanode.repair import repair
from services.datanode.scrubber import Scrubber
from services.datanode.settings import DatanodeSettings

logger = structlog.get_logger(__name__)
HeartbeatTo = Callable[[int, Heartbeat], NodeOrders]
"""Sends a heartbeat to a shard; returns the orders. Raises UnreachableError."""


class Heartbeats:
    """Reports to each shard, one heartbeat at a time, and carries out what the answers say."""

    def __init__(
        self,
        node: DataNode,
        name: str,
        url: str,
        shards: Sequence[int],
        send: HeartbeatTo,
        metrics: DatanodeMetrics,
        *,
        has_added_shards: bool = False,
    ) -> None:
        """``has_added_shards`` says that this datanode reports to the shards that are added later, too."""
        self._has_added_shards = has_added_shards
        self._node = node
        self._name = name
        self._url = url
        self._send = send
        self._metrics = metrics
        self._started_ms = time.time_ns() // 1_000_000
        self._numbers = dict.fromkeys(shards, 0)
        self._acknowledged: dict[int, list[Acknowledgement]] = {shard: [] for shard in shards}
        self.silent: dict[int, str] = {}
        """Shards that did not answer, with the reason."""

    def beat(self) -> bool:
        """Report once to each shard. Return whether transactions were stored that one has given: more may wait."""
        answers = [self._beat_to(shard) for shard in list(self._numbers)]
        return any(answers)

    def _report_to_all(self, shards: int) -> None:
        """Begin to report to shards that were added."""
        for shard in range(shards):
            self._numbers.setdefault(shard, 0)
            self._acknowledged.setdefault(shard, [])

    def _beat_to(self, shard: int) -> bool:
        self._numbers[shard] += 1
        replicas = self._node.report(shard)
        heartbeat = Heartbeat(
            self._name,
            self._url,
            self._started_ms,
            self._numbers[shard],
            len(self._node.volumes()),
            replicas,
            tuple(self._acknowledged[shard]),
        )
        try:
            orders = self._send(shard, heartbeat)
        except (UnreachableError, BlockError) as error:
            self._metrics.heartbeats.labels("failed").inc()
            self.silent[shard] = str(error)
            return False
        self._metrics.heartbeats.labels("answered").inc()
        self.silent.pop(shard, None)
        if self._has_added_shards:
            self._report_to_all(orders.shards)
        self._acknowledged[shard] = self._node.obey(shard, orders)
        return any(one.is_stored for one in self._acknowledged[shard])


class Chores:
    """Deletions, repairs and scrubbing, in one thread: none of them takes the disks from the clients."""

    def __init__(self, node: DataNode, peers: Peers, settings: DatanodeSettings, metrics: DatanodeMetrics) -> None:
        self._node = node
        self._peers = peers
        self._settings = settings
        self._metrics = metrics
        self._scrubber = Scrubber(node, settings.scrub_interval_ms, settings.scrub_bytes_per_second)
        self._next_deletions_ms = 0

    def go_on(self, now_ms: int) -> None:
        """Do what is due."""
        if now_ms >= self._next_deletions_ms:
            self._next_deletions_ms = now_ms + self._settings.deletion_interval_ms
            _, size_bytes = self._node.carry_out_deletions(self._settings.max_deletions_per_round)
            self._metrics.deleted_bytes.inc(size_bytes)
        self._repair()
        read_bytes, damaged = self._scrubber.go_on(now_ms)
        self._metrics.scrubbed_bytes.inc(read_bytes)
        self._metrics.damaged_blocks.inc(damaged)

    def _repair(self) -> None:
        wanted = self._node.next_repair()
        if wanted is None:
            return
        shard, order = wanted
        try:
            self._metrics.repaired_blocks.inc(repair(self._node, shard, order, self._peers))
        except (UnreachableError, BlockError, DiskError) as error:
            logger.warning("a container was not repaired yet", container=order.container_id, reason=str(error))
