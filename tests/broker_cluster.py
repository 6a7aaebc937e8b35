"""Several brokers on this machine as one cluster: each holds a copy of every topic, and one of three may fail.

A cluster has the methods of a single broker that a ``Stack`` and the tests call.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from services.plane.broker.embedded import EmbeddedBroker, new_cluster_id
from services.plane.machine.errors import StackError
from services.plane.machine.java import JavaRuntime
from services.plane.machine.ports import free_ports


class ClusterNode(EmbeddedBroker):
    """One node of a cluster."""

    def __init__(self, directory: Path, number: int, cluster_id: str, ports: Sequence[int], **settings: Any) -> None:
        """``ports`` are the controllers' ports of all nodes, in the order of their numbers."""
        super().__init__(directory, **settings)
        self.number = number
        self._cluster_id = cluster_id
        self._ports = ports

    def _controller_ports(self) -> Sequence[int]:
        return self._ports

    def _new_cluster_id(self) -> str:
        return self._cluster_id


class BrokerCluster:
    """Brokers with one directory each, ``1``, ``2`` and so on. Their ports do not change while this object exists."""

    def __init__(
        self, directory: Path, nodes: int, *, java: JavaRuntime | None = None, node: type[ClusterNode] = ClusterNode
    ) -> None:
        ports, cluster_id = free_ports(nodes), new_cluster_id()
        self.nodes = [
            node(directory / str(number), number, cluster_id, ports, java=java, heap="384m")
            for number in range(1, nodes + 1)
        ]

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, for clients."""
        return ",".join(node.bootstrap_servers for node in self.nodes)

    @property
    def process_id(self) -> int | None:
        """The process id of the first running broker."""
        return next((node.process_id for node in self.nodes if node.is_running), None)

    @property
    def log_file(self) -> Path:
        """The log file of the first broker."""
        return self.nodes[0].log_file

    @property
    def is_running(self) -> bool:
        """Whether a majority of the brokers runs. A minority does not acknowledge messages."""
        return sum(node.is_running for node in self.nodes) > len(self.nodes) // 2

    def start(self) -> Self:
        """Start the brokers that do not run, and wait until each answers. Raise StackError if one does not."""
        try:
            launched = [(node, node.launch()) for node in self.nodes if not node.is_running]
            for node, process in launched:
                process.await_answer(node.ready_seconds)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop all running brokers."""
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        """Kill all brokers at once."""
        for node in self.nodes:
            node.kill()

    def why_it_ended(self) -> StackError:
        """Return the error in the log of the first broker that does not run."""
        return next(node for node in self.nodes if not node.is_running).why_it_ended()
