"""What the datanodes have reported to one shard, and what they are to do: between the HTTP server and the loop.

Requests only leave heartbeats and take the orders of the last review; the loop decides (``replication``). Nothing is
kept over a restart: each heartbeat says all again, and each review gives all orders again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from schemas.block_store import Heartbeat, NodeOrders, ReplicaReport
from services.domain.replication import sequence_of
from services.runtime.loop.service import Work

NO_ORDERS = NodeOrders()
SILENT_MS = 10_000
"""Time without a heartbeat after which a process of a datanode is taken to have ended if another one is heard.
Heartbeats come every second, and none of an ended process is under way for so long."""
APPLY_SECONDS = 10.0
"""Longest time that a request waits for the loop to carry out an operator's request."""


@dataclass(slots=True)
class Node:
    """One datanode, as its last heartbeat has it."""

    heartbeat: Heartbeat
    seen_ms: int
    replicas: Mapping[int, ReplicaReport]


@dataclass(slots=True)
class OperatorRequest:
    """Something that the loop does between messages. ``result`` is valid once it is done."""

    do: Callable[[Work], int]
    result: int = 0
    is_done: threading.Event = field(default_factory=threading.Event)


class NodeRegistry:
    """The datanodes of one shard. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._received: dict[tuple[str, int], Heartbeat] = {}
        """By datanode and the start of its process the last heartbeat that came. What earlier ones have acknowledged is
        acknowledged again, until the loop has taken it and gives other orders."""
        self._orders: dict[str, tuple[int, NodeOrders]] = {}
        """By datanode the start of the process that they are for, and the orders."""
        self._requests: list[OperatorRequest] = []
        self._nodes: dict[str, Node] = {}
        self._alive: frozenset[str] = frozenset()
        self.named_container = 0
        """Highest number of a container that a client asked for: metadata was granted it."""
        self.named_ids: frozenset[int] = frozenset()
        """Containers of that number that clients asked for."""

    def receive(self, heartbeat: Heartbeat) -> NodeOrders:
        """Take in a heartbeat. Return the present orders of the datanode.

        A process that was just started gets none: those of the process before it may be about a disk that is lost.
        """
        with self._lock:
            place = (heartbeat.node, heartbeat.started_ms)
            before = self._received.get(place)
            if before is None or before.number < heartbeat.number:
                self._received[place] = heartbeat
            started_ms, orders = self._orders.get(heartbeat.node, (0, NO_ORDERS))
            return orders if started_ms == heartbeat.started_ms else NO_ORDERS

    def name(self, container_id: int) -> None:
        """Note that a client has asked for a container: it has blocks there, or is about to write some."""
        sequence = sequence_of(container_id)
        with self._lock:
            if sequence > self.named_container:
                self.named_container, self.named_ids = sequence, frozenset()
            if sequence == self.named_container:
                self.named_ids |= {container_id}

    def take(self, now_ms: int) -> list[Heartbeat]:
        """Return the heartbeats since the last call, without those that an earlier one has overtaken."""
        with self._lock:
            received, self._received = self._received, {}
            for node in self._nodes.values():
                node.seen_ms = min(node.seen_ms, now_ms)  # it is later only by a clock that was set back
            newer = [one for one in received.values() if self._is_newer(one, now_ms)]
            for one in newer:
                replicas = {replica.container_id: replica for replica in one.replicas}
                self._nodes[one.node] = Node(one, now_ms, replicas)
            return newer

    def _is_newer(self, one: Heartbeat, now_ms: int) -> bool:
        """Return whether a heartbeat is behind the known one of its datanode: of the same process, or of a later one.

        A process that has started earlier by its clock is later if the known one has been silent: the clock was ahead.
        """
        known = self._nodes.get(one.node)
        if known is None:
            return True
        before = known.heartbeat
        if one.started_ms == before.started_ms:
            return one.number > before.number
        return one.started_ms > before.started_ms or now_ms - known.seen_ms > SILENT_MS

    def nodes(self) -> dict[str, Node]:
        """Return all datanodes that were heard of since the start."""
        with self._lock:
            return dict(self._nodes)

    def alive(self) -> dict[str, Node]:
        """Return the datanodes that were alive at the last review."""
        with self._lock:
            return {name: node for name, node in self._nodes.items() if name in self._alive}

    def publish(self, orders: Mapping[str, NodeOrders]) -> None:
        """Replace the orders of all datanodes; those that have orders, even empty ones, are alive."""
        with self._lock:
            self._alive = frozenset(orders)
            self._orders = {
                node: (self._nodes[node].heartbeat.started_ms, given)
                for node, given in orders.items()
                if node in self._nodes
            }

    def request(self, do: Callable[[Work], int]) -> int | None:
        """Have the loop do something; return its result, or None if the loop is not getting to it."""
        asked = OperatorRequest(do)
        with self._lock:
            self._requests.append(asked)
        return asked.result if asked.is_done.wait(APPLY_SECONDS) else None

    def requests(self) -> Iterable[OperatorRequest]:
        """Return what operators have requested since the last call."""
        with self._lock:
            requests, self._requests = self._requests, []
            return requests
