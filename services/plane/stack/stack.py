"""The real plane as processes: broker, topics, five services and the Spark job, started, watched and stopped together.

    <home>/plane.json    which processes, where they answer      <home>/logs/<name>.log   what each of them says
    <home>/plane.lock    held by whoever runs the plane          <home>/broker            the broker and its records
    <home>/data/<name>   databases and checkpoints by shard, Spark's state

Everything is on loopback. Started again on the same home it goes on where it was.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn, Self

from schemas.topics import CHANGELOGS, DEAD_LETTERS, TOPICS
from services.client.kafka_plane import ANSWER_SECONDS, KafkaPlane, PlaneAddress
from services.log.port import MAX_CHANGE_MESSAGE_BYTES, MAX_LETTER_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from services.plane.broker.cluster import BrokerCluster
from services.plane.broker.embedded import EmbeddedBroker, quiet_admin
from services.plane.broker.security import administrator_of
from services.plane.broker.topics import create_topics
from services.plane.machine.errors import StackError
from services.plane.machine.home import home_directory
from services.plane.machine.java import JavaRuntime, find_java
from services.plane.machine.ports import HOST, free_ports
from services.plane.machine.processes import ChildProcess, identify
from services.plane.stack.enrolment import enrol
from services.plane.stack.plane_file import (
    PlaneFile,
    PlaneProcess,
    PlaneState,
    remove_plane_file,
    running_plane,
    write_plane_file,
)
from services.plane.stack.plane_lock import acquire_plane_lock
from services.plane.stack.secrets import client_secrets, plane_security, token_header
from services.plane.stack.settings import (
    BROKER,
    HTTP_PROCESSES,
    SERVICES,
    STREAMING,
    PlaneSettings,
    child_command,
    child_environment,
    rename_setting,
)

WATCH_SECONDS = 0.5
TOPIC_SETTINGS = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
}
PLANE_TOPICS = {topic.name: TOPIC_SETTINGS for topic in TOPICS} | {
    DEAD_LETTERS.name: {**TOPIC_SETTINGS, "max.message.bytes": str(MAX_LETTER_MESSAGE_BYTES)},
    **{
        topic.name: {**TOPIC_SETTINGS, "max.message.bytes": str(MAX_CHANGE_MESSAGE_BYTES)}
        for topic in CHANGELOGS.values()
    },
}


class Stack:
    """One plane over one home directory. ``base_port`` 0 takes free ports, else the ports from there on.

    More ``brokers`` than one make a cluster, which lasts as long as this object: for tests that take one away.
    """

    def __init__(
        self,
        home: Path,
        shards: int = 1,
        *,
        base_port: int = 0,
        brokers: int = 1,
        is_rename_allowed: bool = False,
        settings: Mapping[str, str] | None = None,
        is_secured: bool = False,
    ) -> None:
        """``is_secured`` makes the broker ask who comes, and HTTP for a token; once on, a home stays so."""
        self.home = home.absolute()
        self._security = plane_security(self.home, is_wanted=is_secured)
        self.shards = shards
        self._settings = {**rename_setting(is_allowed=is_rename_allowed), **(settings or {})}
        self._base_port = base_port
        self._lock: IO[bytes] | None = None
        self._java: JavaRuntime | None = None
        self._brokers = brokers
        self._broker: EmbeddedBroker | BrokerCluster | None = None
        self._children: dict[str, ChildProcess] = {}
        self._urls: dict[str, str] = {}
        self._state = PlaneState.STARTING
        self._reason = ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(error)

    def start(self) -> Self:
        """Start everything, and return when all of it is ready; raises StackError with what to do."""
        self._lock = acquire_plane_lock(self.home)
        self._children = {}
        self._reason = ""
        try:
            self._start_broker()
            self._start_children()
            self._write(PlaneState.RUNNING)
        except BaseException as error:
            self.stop(error)
            raise
        return self

    def stop(self, error: BaseException | None = None) -> None:
        """Stop Spark, the services and the broker, in this order; nothing to do when it is stopped."""
        if self._lock is None:
            return
        with contextlib.suppress(StackError):  # a full disk must not keep the processes from being stopped
            self._write(PlaneState.STOPPING)
        for group in ([STREAMING], SERVICES):
            stopping = [self._children[name] for name in group if name in self._children]
            for child in stopping:
                child.ask_to_stop()
            for child in stopping:
                child.stop()
        if self._broker is not None:
            self._broker.stop()
        if isinstance(error, StackError):
            self._reason = str(error)
            with contextlib.suppress(StackError):
                self._write(PlaneState.FAILED)
        else:
            remove_plane_file(self.home)
        self._lock.close()
        self._lock = None

    def require_running(self) -> None:
        """Raise StackError, with the last lines of its log, when a process has ended that nobody stopped."""
        for child in self._children.values():
            child.require_running()
        if self._broker is not None and not self._broker.is_running:
            raise self._broker.why_it_ended()

    def watch(self) -> NoReturn:
        """Never return; raise StackError when a process ends, and the exception that a signal raises."""
        pause = threading.Event()
        while True:
            self.require_running()
            pause.wait(WATCH_SECONDS)

    @property
    def address(self) -> PlaneAddress:
        """The addresses where clients reach the plane."""
        assert self._broker is not None  # noqa: S101  it is started
        return PlaneAddress(
            bootstrap_servers=self._broker.bootstrap_servers,
            shards=self.shards,
            metadata_url=self._urls["metadata"],
            snapshots_url=self._urls["snapshots"],
            scm_url=self._urls["mock_scm"],
            **client_secrets(self._security),
        )

    def url(self, name: str) -> str:
        """Where a service, or ``streaming``, serves HTTP."""
        return self._urls[name]

    def child(self, name: str) -> ChildProcess:
        """One of the processes: for tests that kill it and start it again."""
        return self._children[name]

    @property
    def broker(self) -> EmbeddedBroker | BrokerCluster:
        """The broker, or all of them: for tests that kill it and start it again."""
        assert self._broker is not None  # noqa: S101  it is started
        return self._broker

    def client(self, *, answer_seconds: float = ANSWER_SECONDS) -> KafkaPlane:
        """A new client, which notices at once when a process of this plane ends."""
        return KafkaPlane(self.address, answer_seconds=answer_seconds, check=self.require_running)

    def _start_broker(self) -> None:
        ports = self._choose_ports()
        self._urls = {name: f"http://{HOST}:{ports[name]}" for name in HTTP_PROCESSES}
        self._java = find_java()
        port = ports[BROKER] if self._base_port else 0
        if self._brokers == 1:
            self._broker = self._one_broker(port, self._java)
        elif self._security is not None:
            raise StackError(
                "Several brokers of one home cannot refuse strangers: start one, or use a cluster of your own."
            )
        elif self._broker is None:
            self._broker = BrokerCluster(self.home / "broker", self._brokers, java=self._java)
        self._write(PlaneState.STARTING)
        self._broker.start()
        self._write(PlaneState.STARTING)
        address, administrator = self._broker.bootstrap_servers, administrator_of(self._security)
        create_topics(address, PLANE_TOPICS, self.shards, administrator)
        if self._security is not None:
            with quiet_admin(address, administrator) as admin:
                self._security.admit(admin)

    def _one_broker(self, port: int, java: JavaRuntime) -> EmbeddedBroker:
        return EmbeddedBroker(self.home / "broker", port=port, java=java, security=self._security)

    def _servers_of(self, name: str) -> str:  # noqa: ARG002 the same for all, but where a test stands in their way
        """Where a process finds the broker."""
        assert self._broker is not None  # noqa: S101  it was started before
        return self._broker.bootstrap_servers

    def _choose_ports(self) -> dict[str, int]:
        names = (BROKER, *HTTP_PROCESSES)
        if self._base_port:
            ports = {name: self._base_port + index for index, name in enumerate(names)}
            for name, port in ports.items():
                _require_free(name, port)
            return ports
        return dict(zip(names, free_ports(len(names)), strict=True))

    def _start_children(self) -> None:
        """Start all, then wait for all: Spark takes longest, so it goes first."""
        for name in (STREAMING, *SERVICES):
            self._children[name] = self._child(name)
            self._children[name].start()
            self._write(PlaneState.STARTING)
        for name in (*SERVICES, STREAMING):
            self._children[name].await_ready(self.require_running)
        if self._security is not None:
            with self.client() as client:
                enrol(client, self._security)

    def _child(self, name: str) -> ChildProcess:
        assert self._java is not None  # noqa: S101  the broker runs on it
        plane = PlaneSettings(self.home, self._servers_of(name), self.shards, self._java, self._security)
        port = int(self._urls[name].rpartition(":")[2])
        return ChildProcess(
            name,
            child_command(name, plane, port),
            {**os.environ, **child_environment(name, plane, port), **self._settings},
            self.home / "logs" / f"{name}.log",
            f"{self._urls[name]}/readyz",
            ready_headers=token_header(self.home),
        )

    def _write(self, state: PlaneState) -> None:
        self._state = state
        processes = {}
        if self._broker is not None and self._broker.process_id is not None:
            processes[BROKER] = PlaneProcess(identify(self._broker.process_id), "", str(self._broker.log_file))
        for name, child in self._children.items():
            if child.identity is not None:
                processes[name] = PlaneProcess(child.identity, self._urls[name], str(child.log_file))
        plane = PlaneFile(
            state=state,
            home=str(self.home),
            shards=self.shards,
            supervisor=identify(os.getpid()),
            bootstrap_servers=self._broker.bootstrap_servers if BROKER in processes and self._broker else "",
            processes=processes,
            reason=self._reason,
        )
        write_plane_file(self.home, plane)


def running_client(home: Path | None = None) -> KafkaPlane:
    """Return a new client of the plane that runs on a home. Raise StackError if none runs."""
    plane = running_plane(home or home_directory())
    return KafkaPlane(
        PlaneAddress(
            bootstrap_servers=plane.bootstrap_servers,
            shards=plane.shards,
            metadata_url=plane.processes["metadata"].url,
            snapshots_url=plane.processes["snapshots"].url,
            scm_url=plane.processes["mock_scm"].url,
            **client_secrets(plane_security(home or home_directory())),
        )
    )


def _require_free(name: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise StackError(
                f"Port {port} on {HOST}, which {name} wants, cannot be used ({error.strerror}): stop the program that "
                f"holds it, or choose others (--base-port)."
            ) from error
