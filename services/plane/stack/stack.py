"""The real plane as processes: broker, topics, five services and the Spark job, started, watched and stopped together.

    <home>/plane.json    the processes and their addresses       <home>/logs/<name>.log   the output of each process
    <home>/plane.lock    locked while the plane runs             <home>/broker            the broker and its records
    <home>/data/<name>   databases and checkpoints by shard, Spark's state

All processes listen on loopback. A plane that is started again on the same home resumes its work.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn, Self

import structlog

from schemas.http_token import bearer
from services.client.kafka_plane import ANSWER_SECONDS, KafkaPlane, PlaneAddress
from services.domain.topic_rules import Replicas
from services.log.added_shards import AddedShards
from services.log.kafka import KafkaLog
from services.plane.broker.cluster import KafkaCluster
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.quiet_admin import quiet_admin
from services.plane.broker.security import administrator_of
from services.plane.broker.topic_care import chosen_replicas
from services.plane.broker.topics import create_plane_topics
from services.plane.machine.errors import StackError
from services.plane.machine.home import home_directory, kept_datanodes, kept_shards
from services.plane.machine.java import JavaRuntime, find_java
from services.plane.machine.ports import HOST, free_ports, hold_port, port_or_free
from services.plane.machine.processes import ChildProcess, ProcessIdentity, identify
from services.plane.stack.description import PlaneDescription
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
from services.plane.stack.process_names import BROKER, HTTP_PROCESSES, PAGE, PAGE_PORT, SERVICES, STREAMING
from services.plane.stack.restarts import Restarts
from services.plane.stack.secrets import ClientSecrets, client_secrets, http_token, person, plane_security
from services.plane.stack.settings import (
    PlaneSettings,
    child_command,
    child_environment,
    datanode_names,
    default_replication,
)

WATCH_SECONDS = 0.5

logger = structlog.get_logger(__name__)


class Stack:
    """One plane on one home directory. ``base_port`` 0 takes free ports, else the ports from ``base_port`` upwards."""

    def __init__(
        self,
        home: Path,
        shards: int | None = None,
        *,
        base_port: int = 0,
        is_rename_allowed: bool = False,
        settings: Mapping[str, str] | None = None,
        is_secured: bool = False,
        datanodes: int | None = None,
        described: PlaneDescription | None = None,
        has_page: bool = False,
    ) -> None:
        """``is_secured`` requires authentication at the broker and a token over HTTP. A secured home stays secured.

        ``datanodes`` are started with the plane, by default as many as the home has; without any, blocks have no bytes.
        ``described`` says which processes run on this host and over which log; by default all, over an own broker.
        ``has_page`` starts the page, too, on loopback.
        """
        self.home = home.absolute()
        self.described = described or PlaneDescription()
        self._security = plane_security(self.home, is_wanted=is_secured)
        self.shards = shards or kept_shards(self.home)
        """Their number; it grows when shards are added."""
        self._added_shards: AddedShards | None = None
        self._writing = threading.RLock()
        self.datanodes = datanode_names(max(datanodes or 0, kept_datanodes(self.home)))
        self._has_page = has_page
        self.services = tuple([name for name in SERVICES if name in self.described.host.processes])
        rename = {"DEEPCLEAN_SNAPSHOTS_IS_RENAME_ALLOWED": "true"} if is_rename_allowed else {}
        self._settings = {**rename, **(settings or {})}
        self._base_port = base_port
        self._lock: IO[bytes] | None = None
        self._java: JavaRuntime | None = None
        self._broker: EmbeddedBroker | KafkaCluster | None = None
        self.children: dict[str, ChildProcess] = {}
        """The processes by their names, for tests that kill one and start it again."""
        self._urls: dict[str, str] = {}
        self._reason = ""
        self._restarts: dict[str, Restarts] = {}
        self._broker_identity: ProcessIdentity | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(error)

    def start(self) -> Self:
        """Start all processes, and return when all are ready. Raise StackError if one does not start."""
        self._lock = acquire_plane_lock(self.home)
        self.children, self._restarts = {}, {}
        self._reason, self._broker_identity = "", None
        try:
            self._start_broker()
            self._start_children()
            self._write(PlaneState.RUNNING)
            self._follow_shards()
        except BaseException as error:
            self.stop(error)
            raise
        return self

    def _follow_shards(self) -> None:
        """From now on say in ``plane.json`` how many shards there are, and start processes again with all of them."""
        administrator = self.described.kafka.credentials() or administrator_of(self._security)
        log = KafkaLog(self._log_brokers.bootstrap_servers, "deepclean.supervisor", credentials=administrator)
        self._added_shards = AddedShards(log, self._shards_are_added)
        self._added_shards.start()

    def _shards_are_added(self, shards: int) -> None:
        with self._writing:
            if self._added_shards is None or shards <= self.shards:
                return
            logger.info("shards were added", shards=shards)
            self.shards = shards
            for name, child in self.children.items():
                if name == PAGE:  # it reads the number where clients do
                    continue
                port = self._port_of(name)
                child.command = child_command(name, self._plane_of(name), port)
                child.environment = self._environment(name)
            self._write(PlaneState.RUNNING)

    def stop(self, error: BaseException | None = None) -> None:
        """Stop Spark, the services and the broker, in this order. Do nothing if the plane is stopped."""
        if self._lock is None:
            return
        if self._added_shards is not None:
            self._added_shards.stop()
        with self._writing:
            self._added_shards = None
        with contextlib.suppress(StackError):  # a full disk must not keep the processes from being stopped
            self._write(PlaneState.STOPPING)
        for group in ([PAGE, STREAMING], self.datanodes, self.services):
            stopping = [self.children[name] for name in group if name in self.children]
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
        """Raise StackError, with the last lines of the log, if a process has ended unexpectedly."""
        for child in self.children.values():
            child.require_running()
        if self._broker is not None and not self._broker.is_running:
            raise self._broker.why_it_ended()

    def watch(self) -> NoReturn:
        """Start each process again that ends, and leave the others alone. Signals end the loop by their own exception.

        A service whose broker is away waits for it; a Spark job ends, and is started again until it finds it.
        """
        pause, began = threading.Event(), time.monotonic()
        self._restarts = {name: Restarts(began) for name in (BROKER, *self.children)}
        while True:
            news = [self._is_restarted(name, restarts) for name, restarts in self._restarts.items()]
            if any(news):
                with contextlib.suppress(StackError):  # a full disk must not end the processes that run
                    self._write(PlaneState.RUNNING)
            pause.wait(WATCH_SECONDS)

    def _is_restarted(self, name: str, restarts: Restarts) -> bool:
        """Look after one process; return whether there is news of it."""
        process = self._log_brokers if name == BROKER else self.children[name]
        now_seconds = time.monotonic()
        if not restarts.reason:
            if process.is_running:
                return False
            restarts.ended(str(process.why_it_ended()), now_seconds)
            logger.warning("a process has ended", process=name, reason=restarts.reason)
            return True
        if not restarts.is_due(now_seconds):
            return False
        try:
            process.start() if isinstance(process, ChildProcess) else process.launch()
        except StackError as error:
            restarts.ended(str(error), now_seconds)
        else:
            restarts.started(now_seconds)
            logger.info("started again", process=name, restarts=restarts.count)
        return True

    @property
    def address(self) -> PlaneAddress:
        """The addresses where clients reach the plane."""
        urls = {**self.described.urls_elsewhere, **self._urls}
        secrets = client_secrets(self.home, self.described.kafka.credentials_file)
        is_moving = bool(self.described.host.instance)
        servers = self._log_brokers.bootstrap_servers
        return _address(servers, self.shards, {} if is_moving else urls, secrets, is_moving=is_moving)

    def url(self, name: str) -> str:
        """Return the base URL of a service, or of ``streaming``."""
        return self._urls[name]

    @property
    def broker(self) -> EmbeddedBroker:
        """The broker, for tests that kill it and start it again."""
        broker = self._log_brokers
        assert not isinstance(broker, KafkaCluster)  # noqa: S101  such a test has its plane start one
        return broker

    @property
    def _log_brokers(self) -> EmbeddedBroker | KafkaCluster:
        assert self._broker is not None  # noqa: S101  _start_broker has set it
        return self._broker

    def client(self, *, answer_seconds: float = ANSWER_SECONDS) -> KafkaPlane:
        """Return a new client, whose waits end with an error as soon as a process of this plane ends."""
        return KafkaPlane(self.address, answer_seconds=answer_seconds, check=self.require_running)

    def _start_broker(self) -> None:
        self._java = find_java()
        self._broker = self._foreign_cluster() or self._new_broker(self._base_port, self._java)
        ports, host = self._choose_ports(), self.described.host.address
        self._urls = {name: f"http://{host}:{port}" for name, port in ports.items() if name != BROKER}
        if PAGE in ports:
            self._urls[PAGE] = f"http://{HOST}:{ports[PAGE]}"
        self._write(PlaneState.STARTING)
        self._broker.start()
        self._write(PlaneState.STARTING)
        address = self._broker.bootstrap_servers
        administrator = self.described.kafka.credentials() or administrator_of(self._security)
        first = default_replication(len(self.datanodes))
        signer, replicas = person(self.home), self._replicas()
        self.shards = create_plane_topics(address, self.shards, administrator, signer, first, replicas)
        if self._security is not None and not self.described.kafka.bootstrap_servers:
            with quiet_admin(address, administrator) as admin:
                self._security.admit(admin)

    def _foreign_cluster(self) -> KafkaCluster | None:
        kafka = self.described.kafka
        return KafkaCluster(kafka.bootstrap_servers, kafka.credentials()) if kafka.bootstrap_servers else None

    def _replicas(self) -> Replicas | None:
        """Return the replicas of new topics; None for those that the home's own broker is set to."""
        kafka = self.described.kafka
        if not kafka.bootstrap_servers:
            return None
        return chosen_replicas(
            kafka.bootstrap_servers, kafka.credentials(), kafka.replication_factor, kafka.min_insync_replicas
        )

    def _new_broker(self, port: int, java: JavaRuntime) -> EmbeddedBroker:
        return EmbeddedBroker(self.home / "broker", port=port, java=java, security=self._security)

    def _port_of(self, name: str) -> int:
        return int(self._urls[name].rpartition(":")[2])

    def _servers_of(self, name: str) -> str:  # noqa: ARG002 tests give some processes another address
        """Return the address of the broker for a process."""
        return self._log_brokers.bootstrap_servers

    def _choose_ports(self) -> dict[str, int]:
        """Return a port for each process of this host. A base port counts all: hosts have equal ports."""
        here = {*self.described.host.processes, *self.datanodes}
        if self._base_port:
            names = (BROKER, *HTTP_PROCESSES, *self.datanodes)
            if not self.described.kafka.bootstrap_servers:
                here.add(BROKER)
            ports = {name: self._base_port + offset for offset, name in enumerate(names) if name in here}
            for name, port in ports.items():
                if taken := hold_port(port):
                    raise StackError(
                        f"Port {port} on {HOST}, which {name} wants, cannot be used ({taken.strerror}): stop the "
                        f"program that holds it, or choose others (--base-port)."
                    ) from taken
            if self._has_page:
                ports[PAGE] = self._page_port(max(PAGE_PORT, len(names)))
            return ports
        if self._has_page:
            here.add(PAGE)
        return dict(zip(sorted(here), free_ports(len(here)), strict=True))

    def _page_port(self, offset: int) -> int:
        """Return the page's port: a free one if another program has its own, since the plane does not need the page."""
        wanted = self._base_port + offset
        port = port_or_free(wanted)
        if port != wanted:
            logger.warning("the page's port is taken, so it has another one", wanted=wanted, port=port)
        return port

    def _start_children(self) -> None:
        """Start all processes, then wait until all are ready. Spark is started first, because it takes longest."""
        spark = (STREAMING,) if self.described.has_spark else ()
        page = (PAGE,) if self._has_page else ()
        for name in (*spark, *self.services, *self.datanodes, *page):
            self.children[name] = self._child(name)
            self.children[name].start()
            self._write(PlaneState.STARTING)
        for name in (*self.services, *self.datanodes, *page, *spark):
            self.children[name].await_ready(self.require_running)
        if self._security is not None:
            with self.client() as client:
                enrol(client, self._security)

    def _child(self, name: str) -> ChildProcess:
        plane, port = self._plane_of(name), self._port_of(name)
        return ChildProcess(
            name,
            child_command(name, plane, port),
            self._environment(name),
            self.home / "logs" / f"{name}.log",
            f"{self._urls[name]}/readyz",
            ready_headers=bearer(http_token(self.home)),
        )

    def _environment(self, name: str) -> dict[str, str]:
        port = self._port_of(name)
        return {**os.environ, **child_environment(name, self._plane_of(name), port), **self._settings}

    def _plane_of(self, name: str) -> PlaneSettings:
        assert self._java is not None  # noqa: S101  _start_broker has set it
        return PlaneSettings(
            self.home,
            self._servers_of(name),
            self.shards,
            self._java,
            self._security,
            len(self.datanodes),
            {**self.described.urls_elsewhere, **self._urls}.get("mock_scm", ""),
            self.described,
        )

    def _write(self, state: PlaneState) -> None:
        processes = {}
        if self._broker is not None and self._broker.process_id is not None:
            self._broker_identity = identify(self._broker.process_id)
        if self._broker is not None and self._broker_identity is not None:
            processes[BROKER] = self._process(BROKER, self._broker_identity, self._broker.log_file)
        for name, child in self.children.items():
            if child.identity is not None:
                processes[name] = self._process(name, child.identity, child.log_file)
        plane = PlaneFile(
            state=state,
            home=str(self.home),
            shards=self.shards,
            supervisor=identify(os.getpid()),
            bootstrap_servers=self._known_servers(processes),
            processes=processes,
            elsewhere=self.described.urls_elsewhere,
            has_fixed_shards=self.described.host.shards is not None,
            has_moving_shards=bool(self.described.host.instance),
            backups=str(self.described.host.backups.absolute()) if self.described.host.backups else "",
            credentials_file=str(self.described.kafka.credentials_file or ""),
            http_token_file=self.described.http_token_file,
            reason=self._reason,
        )
        with self._writing:
            write_plane_file(self.home, plane)

    def _known_servers(self, processes: Mapping[str, PlaneProcess]) -> str:
        """Return the brokers' address; empty while the plane's own broker has no port."""
        is_known = BROKER in processes or isinstance(self._broker, KafkaCluster)
        return self._broker.bootstrap_servers if self._broker is not None and is_known else ""

    def _process(self, name: str, identity: ProcessIdentity, log_file: Path) -> PlaneProcess:
        restarts = self._restarts.get(name)
        known = (restarts.count, restarts.reason) if restarts else (0, "")
        return PlaneProcess(identity, self._urls.get(name, ""), str(log_file), *known)


def running_client(home: Path | None = None) -> KafkaPlane:
    """Return a new client of the plane that runs on a home. Raise StackError if none runs."""
    home = home or home_directory()
    plane = running_plane(home)
    here = {name: process.url for name, process in plane.processes.items()}
    urls = {} if plane.has_moving_shards else plane.elsewhere | here
    secrets = client_secrets(home, Path(plane.credentials_file) if plane.credentials_file else None)
    return KafkaPlane(_address(plane.bootstrap_servers, plane.shards, urls, secrets, is_moving=plane.has_moving_shards))


def _address(
    bootstrap_servers: str, shards: int, urls: Mapping[str, str], secrets: ClientSecrets, *, is_moving: bool
) -> PlaneAddress:
    missing = sorted({"metadata", "snapshots", "mock_scm"} - urls.keys())
    if missing and not is_moving:
        raise StackError(f"{missing[0]} does not run here: say where it is, under [elsewhere] in deepclean.toml.")
    return PlaneAddress(
        bootstrap_servers=bootstrap_servers,
        shards=shards,
        metadata_url=urls.get("metadata", ""),
        snapshots_url=urls.get("snapshots", ""),
        scm_url=urls.get("mock_scm", ""),
        **secrets,
    )
