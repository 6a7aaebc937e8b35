"""Runs a datanode: ``python -m services.datanode --help``.

Exit codes: 0 after SIGTERM or SIGINT, 1 when no disk can be used or the address is taken, 2 when a setting is wrong.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue

import structlog
from prometheus_client import CollectorRegistry

from schemas.credentials import CredentialsError
from schemas.private_files import keep_files_private
from services.datanode.http_api import routes
from services.datanode.metrics import DatanodeMetrics
from services.datanode.node import DataNode
from services.datanode.peers import HttpPeers
from services.datanode.settings import DatanodeSettings
from services.datanode.tables import TABLES, Counter
from services.datanode.upkeep import Chores, Heartbeats
from services.datanode.volume import Volume
from services.domain.errors import DeepcleanError
from services.runtime.http.server import HttpServer, ServerError, http_app
from services.runtime.process.process import configure_logging, http_token, queued_signals, registry_of_process
from services.runtime.process.settings import InvalidSettingsError, ServiceSettings, read_limits, read_settings
from services.storage.rocks import RocksStore

CHORE_SECONDS = 0.1
MORE_SECONDS = 0.1
"""Pause before the next heartbeat while mock_scm gives deletions: it gives others when it has taken the last report."""
logger = structlog.get_logger(__name__)


def open_node(settings: ServiceSettings, limits: DatanodeSettings) -> DataNode:
    """Return the datanode with the disks that can be opened. Raise DeepcleanError if none can."""
    volumes: list[Volume] = []
    reasons = []
    for number in range(limits.disks):
        directory = settings.directory / limits.name / f"disk-{number}"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            volumes.append(Volume(directory, RocksStore(directory / "db", TABLES)))
        except (DeepcleanError, OSError) as error:
            logger.error("a disk cannot be used", disk=str(directory), reason=str(error))
            reasons.append(str(error))
    if not volumes:
        raise DeepcleanError(f"no disk of {limits.name} can be used: {'; '.join(reasons)}")
    return DataNode(volumes)


class DatanodeProcess:
    """One datanode with its server and its threads."""

    def __init__(self, settings: ServiceSettings, limits: DatanodeSettings, registry: CollectorRegistry) -> None:
        self._stop = threading.Event()
        self._limits = limits
        self._metrics = DatanodeMetrics(registry)
        self._node = open_node(settings, limits)
        token = http_token(settings)
        self._peers = HttpPeers(token)
        app = http_app(registry, list, self._why_unready, routes(self._node, self._metrics), token=token)
        self._server = HttpServer(app, settings.http_host, settings.http_port)
        send = partial(self._peers.heartbeat, limits.scm_url)
        self._heartbeats = Heartbeats(
            self._node,
            limits.name,
            self._server.url,
            settings.shards,
            send,
            self._metrics,
            has_added_shards=settings.has_added_shards,
        )
        self._chores = Chores(self._node, self._peers, limits, self._metrics)
        self._threads = [
            threading.Thread(target=self._repeat, args=(self._beat, "heartbeats"), name="heartbeats"),
            threading.Thread(target=self._repeat, args=(self._do_chores, "chores"), name="chores"),
        ]

    def _why_unready(self) -> list[str]:
        silent = [f"shard {shard} of mock_scm: {reason}" for shard, reason in self._heartbeats.silent.items()]
        return [*self._node.failures(), *silent]

    def run(self, signals: SimpleQueue[int]) -> int:
        """Run until a signal arrives."""
        self._server.start()
        for thread in self._threads:
            thread.start()
        logger.info("ready", url=self._server.url)
        logger.info("stopping", signal=signal.Signals(signals.get()).name)
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._server.stop()
        self._node.close()
        self._peers.close()
        return 0

    def _repeat(self, step: Callable[[], float], name: str) -> None:
        """Do a step again and again; wait as long as it says in between."""
        while not self._stop.is_set():
            try:
                seconds = step()
            except Exception:
                logger.exception("unexpected error: tried again", thread=name)
                seconds = 1.0
            self._stop.wait(seconds)

    def _beat(self) -> float:
        has_more = self._heartbeats.beat()
        found = [(volume.counter(storage, Counter.BYTES_USED)) for storage, volume in self._node.containers()]
        self._metrics.containers.set(len(found))
        self._metrics.used_bytes.set(sum(found))
        self._metrics.failed_disks.set(len(self._node.failures()))
        return MORE_SECONDS if has_more else self._limits.heartbeat_ms / 1_000

    def _do_chores(self) -> float:
        self._chores.go_on(time.monotonic_ns() // 1_000_000)
        return CHORE_SECONDS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a datanode with the settings of its command line and environment; return the exit code."""
    keep_files_private()
    try:
        settings, limits = read_settings("datanode", arguments), read_limits(DatanodeSettings, "datanode")
        configure_logging(limits.name, settings.log_level)
        process = DatanodeProcess(settings, limits, registry_of_process())
    except (InvalidSettingsError, CredentialsError) as error:
        print(f"datanode: {error}", file=sys.stderr)
        return 2
    except (ServerError, DeepcleanError) as error:
        print(f"datanode: {error}", file=sys.stderr)
        return 1
    return process.run(queued_signals())


if __name__ == "__main__":
    sys.exit(main())
