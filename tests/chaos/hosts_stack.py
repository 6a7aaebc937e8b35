"""A plane on two hosts that share its shards: three brokers, each service twice, and Spark on a standalone cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from services.client.kafka_plane import PlaneAddress
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.machine.processes import ChildProcess
from services.plane.stack.description import read_description
from services.plane.stack.process_names import SERVICES, STREAMING
from services.plane.stack.stack import Stack
from tests.broker_cluster import BrokerCluster
from tests.chaos.plane import AT
from tests.spark_cluster import SparkCluster, spark_cluster
from tests.spark_session import java_for_spark

HOSTS = ("one", "two")
WORKERS = 2


class HostsStack:
    """Both hosts, their brokers and the Spark cluster; the first host runs the driver of the Spark job."""

    def __init__(self, home: Path, shards: int, brokers: int) -> None:
        self.home = home
        self.shards = shards
        self._cluster = BrokerCluster(home / "brokers", brokers)
        self._leaving = contextlib.ExitStack()
        self._hosts: list[Stack] = []
        self._spark: SparkCluster | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            java = opened.enter_context(java_for_spark())
            opened.callback(self._cluster.stop)
            self._cluster.start()
            directory = self.home / "spark"
            directory.mkdir(parents=True)
            self._spark = opened.enter_context(spark_cluster(directory, java, WORKERS))
            for name in HOSTS:
                self._hosts.append(opened.enter_context(self._host(name, self._spark.master)))
            self._leaving = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.__exit__(kind, error, trace)

    def _host(self, name: str, master: str) -> Stack:
        """A host as its file says."""
        processes = (*SERVICES, STREAMING) if name == HOSTS[0] else SERVICES
        named = ", ".join(f'"{one}"' for one in processes)
        file = self.home / f"{name}.toml"
        file.write_text(
            f'shards = {self.shards}\n[kafka]\nbootstrap_servers = "{self._cluster.bootstrap_servers}"\n'
            f'[host]\ninstance = "{name}"\nprocesses = [{named}]\n'
            f'[spark]\nmaster = "{master}"\nconf = {{"spark.executor.memory" = "512m"}}\n'
            f"[settings.key_deletion]\nundo_window_ms = 0\n[settings.directory_deletion]\nundo_window_ms = 0\n"
        )
        return Stack(self.home / name, self.shards, described=read_description(file), is_rename_allowed=True)

    @property
    def address(self) -> PlaneAddress:
        """Where clients find the brokers, and by them the owners."""
        return self._hosts[0].address

    @property
    def broker(self) -> EmbeddedBroker:
        """The cluster of brokers, which has the methods of one."""
        return cast(EmbeddedBroker, self._cluster)

    @property
    def children(self) -> Mapping[str, ChildProcess]:
        """The processes of both hosts."""
        return {
            name if name == STREAMING else f"{name}{AT}{host}": child
            for host, stack in zip(HOSTS, self._hosts, strict=True)
            for name, child in stack.children.items()
        }

    def restart_worker(self, number: int) -> None:
        """Kill a worker of Spark with its executors, and start it again."""
        assert self._spark is not None
        self._spark.restart_worker(number % WORKERS)
