"""A plane over a cluster of brokers, which exists as long as the plane: one of its brokers may be stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from services.plane.broker.embedded import EmbeddedBroker
from services.plane.machine.java import JavaRuntime
from services.plane.stack.stack import Stack
from tests.broker_cluster import BrokerCluster


class ClusterStack(Stack):
    """The plane of chaos runs, on several brokers."""

    def __init__(self, home: Path, shards: int, brokers: int, **settings: Any) -> None:
        super().__init__(home, shards, **settings)
        self._brokers = brokers
        self._cluster: BrokerCluster | None = None

    def _new_broker(self, port: int, java: JavaRuntime) -> EmbeddedBroker:
        self._cluster = self._cluster or BrokerCluster(self.home / "broker", self._brokers, java=java)
        return cast(EmbeddedBroker, self._cluster)
