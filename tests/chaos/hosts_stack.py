"""A plane on two hosts that share its shards: three brokers, each service twice, and Spark on a standalone cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from schemas.topics import LEDGER, METADATA_COMMANDS, METADATA_PROGRESS, METADATA_REPLIES
from services.client.kafka_plane import PlaneAddress
from services.log.kafka import KafkaLog
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.machine.processes import ChildProcess
from services.plane.stack.description import PlaneDescription, read_description
from services.plane.stack.plane_file import running_plane
from services.plane.stack.process_names import HTTP_PROCESSES, SERVICES, STREAMING
from services.plane.stack.stack import Stack
from services.plane.upkeep.backups import backups_of, known_backups, make_backup
from services.plane.upkeep.log_trims import planned_trims
from services.runtime.copies.restores import RESTORED
from tests.broker_cluster import BrokerCluster
from tests.chaos.linked_stack import READY_SECONDS, ManyDoorsNode, some_links
from tests.chaos.links import Links
from tests.chaos.plane import AT
from tests.spark_cluster import SparkCluster, spark_cluster
from tests.spark_session import java_for_spark

HOSTS = ("one", "two")
SHARDS, BROKERS, WORKERS = 4, 3, 2
VERIFIED = frozenset(topic.name for topic in (METADATA_COMMANDS, METADATA_PROGRESS, METADATA_REPLIES, LEDGER))
"""Topics that ``deepclean verify`` needs from their beginning."""


def name_on(host: str, process: str) -> str:
    """Return the name of a process of a host: the Spark job runs once."""
    return process if process == STREAMING else f"{process}{AT}{host}"


def host_of(name: str) -> str:
    """Return the host of a process; empty if it runs once."""
    return name.partition(AT)[2]


NAMES = tuple(dict.fromkeys(name_on(host, name) for host in HOSTS for name in HTTP_PROCESSES))


class _Host(Stack):
    """A host whose processes have ways of their own to the brokers."""

    def __init__(self, home: Path, shards: int, name: str, links: Links, *, described: PlaneDescription) -> None:
        super().__init__(home, shards, described=described, is_rename_allowed=True)
        self._name = name
        self._links = links

    def _servers_of(self, name: str) -> str:
        return self._links.address(name_on(self._name, name))


class HostsStack:
    """Both hosts, their brokers and the Spark cluster; the first host runs the driver of the Spark job."""

    shards = SHARDS

    def __init__(self, home: Path) -> None:
        self.home = home
        self._cluster = BrokerCluster(home / "brokers", BROKERS, node=ManyDoorsNode)
        doors = some_links(BROKERS, NAMES)
        for node, links in zip(self._cluster.nodes, doors, strict=True):
            assert isinstance(node, ManyDoorsNode)
            node.doors, node.ready_seconds = links, READY_SECONDS
        self.links = Links(doors)
        self._leaving = contextlib.ExitStack()
        self._hosts: list[Stack] = []
        self._spark: SparkCluster | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            java = opened.enter_context(java_for_spark())
            opened.enter_context(self.links)
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
            f'[host]\ninstance = "{name}"\nprocesses = [{named}]\nbackups = "{self.home / "backups"}"\n'
            f'[spark]\nmaster = "{master}"\nconf = {{"spark.executor.memory" = "512m"}}\n'
            f"[settings.key_deletion]\nundo_window_ms = 0\n[settings.directory_deletion]\nundo_window_ms = 0\n"
        )
        return _Host(self.home / name, self.shards, name, self.links, described=read_description(file))

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
        hosts = zip(HOSTS, self._hosts, strict=True)
        return {name_on(host, name): child for host, stack in hosts for name, child in stack.children.items()}

    def back_up_and_trim(self) -> bool:
        """Back up both hosts into the directory that they share, and trim what a restored database does not need.

        Return whether anything was trimmed.

        What ``deepclean verify`` reads stays, since the judges of a schedule replay the log.

        Raises:
            StackError: a process did not answer.
            RetryableError: the brokers did not answer.
        """
        planes = [running_plane(stack.home) for stack in self._hosts]
        for plane in planes:
            make_backup(plane, backups_of(plane), has_digest=False)
        log = KafkaLog(self.address.bootstrap_servers, "deepclean.trim")
        planned = planned_trims(planes[0], log, known_backups(planes[0]))
        trims = [trim for trim in planned if trim.topic not in VERIFIED and trim.messages]
        for trim in trims:
            log.trim(trim.topic, trim.shard, trim.until)
        return bool(trims)

    def restored(self) -> int:
        """Return how many databases processes have restored from a backup by themselves."""
        logs = [child.log_file.read_text() for child in self.children.values()]
        return sum(line.count(RESTORED) for line in logs)

    def restart_worker(self, number: int) -> None:
        """Kill a worker of Spark with its executors, and start it again."""
        assert self._spark is not None
        self._spark.restart_worker(number % WORKERS)
