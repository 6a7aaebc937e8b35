"""Runs a service as a process: its shards, its HTTP server, its log; from the command line until SIGTERM.

Exit codes: 0 after SIGTERM or SIGINT, 1 when a shard had to stop (the last line of the log says why and what to do),
2 when a setting is wrong.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.process_collector import ProcessCollector

from schemas.access import group_prefix
from schemas.compiled import unused_modules
from schemas.credentials import CredentialsError, read_credentials, read_secret
from schemas.http_token import check_address
from schemas.private_files import keep_files_private
from services.domain.errors import DeepcleanError, InvariantError
from services.log.added_shards import AddedShards
from services.log.clock import Clock, SystemClock
from services.log.kafka import KafkaLog, consumer_configuration
from services.log.port import Log
from services.log.schema_topic import follow_schemas
from services.log.shard_group import ShardGroup, Shards
from services.log.signing import SigningLog, read_signing_secret
from services.runtime.http.reads import ServedStores
from services.runtime.http.registry import routes as registry_routes
from services.runtime.http.server import HttpServer, ServerError, http_app
from services.runtime.process.backups import copy_route
from services.runtime.process.hosted_shard import HostedShard, ServiceParts
from services.runtime.process.memory import calm_garbage_collector, share_arenas
from services.runtime.process.metrics import RuntimeMetrics
from services.runtime.process.settings import InvalidSettingsError, ServiceSettings, read_settings

CLEAN_UP_SECONDS = 5.0
DEFRAGMENT_SECONDS = 30.0
SIGNAL_SECONDS = 0.2
GROUP_SECONDS = 0.2

Join = Callable[[str, Shards, Shards], ShardGroup]
"""Joins the group of a service, given its first input and what to do with shards that are gained and lost."""
BuildService = Callable[[ServiceSettings, CollectorRegistry], ServiceParts]

logger = structlog.get_logger(__name__)


class ServiceProcess:
    """The shards and the server of one process. ``run`` returns its exit code."""

    def __init__(
        self,
        name: str,
        parts: ServiceParts,
        settings: ServiceSettings,
        registry: CollectorRegistry,
        log: Log,
        clock: Clock | None = None,
        join: Join | None = None,
    ) -> None:
        """``join`` makes this process a member of its service's group, which says what shards it runs."""
        self._name = name
        self._settings = settings
        self._stop = threading.Event()
        self._stores = ServedStores(() if join else settings.shards)
        self._starting = set() if join else set(settings.shards)
        self._join = join
        self._lock = threading.Lock()
        self._failures: list[str] = []
        self._membership: threading.Thread | None = None
        clock = clock or SystemClock(settings.clock_offset_seconds * 1000)
        metrics = RuntimeMetrics(registry, name)

        def new_shard(shard: int, *, is_added: bool) -> HostedShard:
            hooks = self._shard_is_ready, self._stop.set
            return HostedShard(shard, parts, settings, log, clock, metrics, *hooks, is_added=is_added)

        self._new_added_shard = partial(new_shard, is_added=True)
        self._shards = [new_shard(shard, is_added=False) for shard in settings.shards]
        self._given: set[int] = set()
        """The shards that the group has given to this process, those included that it does not know yet."""
        self._plane_shards = 0
        self._added_shards = AddedShards(log, self._shards_are_added) if settings.has_added_shards else None
        app = http_app(
            registry,
            lambda: [reason for shard in self._shards for reason in shard.why_unhealthy()],
            lambda: [reason for shard in self._shards for reason in shard.why_unready()],
            [*parts.routes(self._stores), copy_route(lambda: self._shards), *registry_routes()],
            token=http_token(settings),
            owned_shards=(lambda: [shard.shard for shard in self._shards if shard.is_running]) if join else None,
        )
        self._server = HttpServer(app, settings.http_host, settings.http_port)
        self._beside = [
            threading.Thread(target=self._repeat, args=arguments, name=arguments[0], daemon=True)
            for arguments in (
                ("clean-up", CLEAN_UP_SECONDS, HostedShard.clean_up),
                ("defragmentation", DEFRAGMENT_SECONDS, HostedShard.defragment),
            )
        ]

    @property
    def url(self) -> str:
        """Return the URL of the HTTP server."""
        return self._server.url

    def stop(self) -> None:
        """Make the process finish its batches and end."""
        self._stop.set()

    def run(self, signals: SimpleQueue[int] | None = None) -> int:
        """Run until ``stop`` is called or a signal arrives (return 0), or a shard has to stop (return 1)."""
        self._server.start()
        for shard in self._shards:
            shard.url = self._settings.advertised_url or self._server.url
            if self._join is None:
                shard.start()
            else:
                shard.follow()
        for thread in self._beside:
            thread.start()
        if self._added_shards is not None:
            self._added_shards.start()
        if self._join is not None:
            self._membership = threading.Thread(target=self._take_part, args=(self._join,), name="group")
            self._membership.start()
            self._say_ready()
        try:
            self._await_end(signals or SimpleQueue())
        finally:
            self._end()
        failures = [*self._failures, *(shard.failure for shard in self._shards if shard.failure)]
        for failure in failures:
            logger.critical("stopped", service=self._name, reason=failure)
        return 1 if failures else 0  # one that is fenced asks the group again when it is started again

    def _await_end(self, signals: SimpleQueue[int]) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(Empty):
                number = signals.get(timeout=SIGNAL_SECONDS)
                logger.info("stopping", signal=signal.Signals(number).name)
                return

    def _end(self) -> None:
        """Stop the writers, then the server, then close the databases that both use."""
        with self._lock:  # no shard is added from now on
            self._stop.set()
        if self._added_shards is not None:
            self._added_shards.stop()
        if self._membership is not None:
            self._membership.join()
        for shard in self._shards:
            shard.ask_to_stop()
        for shard in self._shards:
            shard.stop()
        self._server.stop()
        for thread in self._beside:
            thread.join()
        for shard in self._shards:
            shard.close()

    def _shard_is_ready(self, shard: HostedShard) -> None:
        with self._lock:
            if shard.store is not None:
                self._stores[shard.shard] = shard.store
            if self._starting:
                self._starting.discard(shard.shard)
                if not self._starting:
                    self._say_ready()

    def _say_ready(self) -> None:
        ready = {"event": "ready", "service": self._name, "shards": sorted(self._stores), "url": self.url}
        print(json.dumps(ready), flush=True)

    def _take_part(self, join: Join) -> None:
        """Run the shards that the group gives to this process, until it ends."""
        group = join(self._shards[0].service.inputs[0].name, self._gained, self._lost)
        try:
            known = len(self._shards)
            while not self._stop.is_set():
                group.poll(GROUP_SECONDS)
                if self._plane_shards > known:
                    known = self._plane_shards
                    self._add(known)
                    group.look_for_shards()
        except InvariantError as error:
            self._failures.append(str(error))
            self._stop.set()
        finally:
            group.close()

    def _shards_are_added(self, plane_shards: int) -> None:
        """Run the shards that were added to the plane; in a group, those of them that it gives to this process."""
        self._plane_shards = plane_shards
        if self._join is None:
            self._add(plane_shards)

    def _add(self, plane_shards: int) -> None:
        """Make the shards that this process does not have yet; start those that it is to run."""
        known = {shard.shard for shard in self._shards}
        added = [self._new_added_shard(shard) for shard in range(plane_shards) if shard not in known]
        with self._lock:
            if self._stop.is_set():
                return
            self._shards = [*self._shards, *added]
            for shard in added:
                shard.url = self._settings.advertised_url or self._server.url
                if self._join is None or shard.shard in self._given:
                    logger.info("added", shard=shard.shard)
                    self._run_shard(shard)
                else:
                    shard.follow()

    def _run_shard(self, shard: HostedShard) -> None:
        self._stores.shards.add(shard.shard)
        shard.start()

    def _gained(self, shards: Collection[int]) -> None:
        """Run these shards. One that is not known yet is run when the plane's topic says that all of it is there."""
        self._given |= set(shards)
        gained = [shard for shard in self._shards if shard.shard in shards]
        for shard in gained:
            shard.ask_to_stop()  # all standbys at once
        for shard in gained:
            logger.info("gained", shard=shard.shard)
            self._run_shard(shard)

    def _lost(self, shards: Collection[int]) -> None:
        self._given -= set(shards)
        lost = [shard for shard in self._shards if shard.shard in shards]
        for shard in lost:
            self._stores.shards.discard(shard.shard)
            self._stores.pop(shard.shard, None)
            shard.ask_to_stop()
        for shard in lost:
            shard.stop()
            self._stores.pop(shard.shard, None)  # it may have become ready meanwhile
            logger.info("lost", shard=shard.shard)
            if not self._stop.is_set():
                shard.follow()

    def _repeat(self, what: str, seconds: float, act: Callable[[HostedShard], None]) -> None:
        """Do something for each shard from time to time, until the process stops."""
        while not self._stop.wait(seconds):
            for shard in self._shards:
                try:
                    act(shard)
                except (DeepcleanError, OSError) as error:  # a writer that cannot continue fails by itself
                    logger.warning(f"{what} failed and is tried again", shard=shard.shard, reason=str(error))


def http_token(settings: ServiceSettings) -> str:
    """Return the token that every HTTP request must carry; "" for none, which is allowed on loopback only.

    Raises:
        CredentialsError: the file cannot be used, or is not set though the address requires it.
    """
    token = "" if settings.http_token_file is None else read_secret(settings.http_token_file)
    check_address(settings.http_host, token)
    return token


def run_process(name: str, build: BuildService, arguments: Sequence[str] | None = None) -> int:
    """Run a service with the settings of its command line and environment; return the exit code."""
    faulthandler.enable()  # if RocksDB or Kafka's client crashes, the log has the stack of each Python thread
    keep_files_private()
    share_arenas()
    try:
        settings = read_settings(name, arguments)
        configure_logging(name, settings.log_level)
        registry = registry_of_process()
        parts = build(settings, registry)
        credentials = read_credentials(settings.kafka_credentials_file) if settings.kafka_credentials_file else None
        client = consumer_configuration(settings.bootstrap_servers, f"deepclean.{name}", credentials)
        log: Log = KafkaLog(settings.bootstrap_servers, f"deepclean.{name}", credentials=credentials)
        follow_schemas(log)
        if settings.signing_secret_file is not None:
            log = SigningLog(log, read_signing_secret(settings.signing_secret_file))
        join = (
            partial(ShardGroup, client, f"{group_prefix(name)}.owners", settings.instance)
            if settings.instance
            else None
        )
        process = ServiceProcess(name, parts, settings, registry, log, join=join)
    except (InvalidSettingsError, CredentialsError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except ServerError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1

    signals = queued_signals()
    calm_garbage_collector()
    if settings.crash_at or settings.clock_offset_seconds:
        logger.warning("a test has this process fail", at=settings.crash_at, ahead_s=settings.clock_offset_seconds)
    for reason in unused_modules():
        logger.warning("a compiled module is not used", reason=reason)
    logger.info("starting", shards=settings.shards, url=process.url, directory=str(settings.directory))
    status = process.run(signals)
    logger.info("ended", status=status)
    return status


def registry_of_process() -> CollectorRegistry:
    """Return a registry of metrics that has those of the process."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def queued_signals() -> SimpleQueue[int]:
    """Return the queue of the signals that stop this process, from now on.

    A handler may run at any point of the main thread, also while that holds a lock: it only queues the signal.
    """
    signals: SimpleQueue[int] = SimpleQueue()
    for expected in (signal.SIGTERM, signal.SIGINT):
        signal.signal(expected, lambda number, _: signals.put(number))
    return signals


def configure_logging(service: str, level: str) -> None:
    """Log one JSON object per line to standard error (readable text on a terminal), for libraries, too."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: Any = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )

    def add_service(_: Any, __: str, event: Any) -> Any:
        event["service"] = service
        return event

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, add_service, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    logging.getLogger("httpx").setLevel(logging.WARNING)
