"""A plane in one process: the real services over a log and databases in memory, with the pure rule instead of Spark.

``--in-memory`` and the simulator run it. Time is virtual: it advances slowly while services have work and jumps when
they are idle, so that back-offs take no real time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from schemas.topics import METADATA_COMMANDS
from services.directory_deletion.service import DirectoryDeletionService
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.domain.errors import RetryableError
from services.key_deletion.service import KeyDeletionService
from services.key_deletion.settings import KeyDeletionSettings
from services.log.clock import Clock, VirtualClock
from services.log.first_commands import first_commands
from services.log.memory import MemoryLog
from services.log.port import Log
from services.log.signing import SigningLog
from services.metadata.checkpoints.capture_drop import remove_unused_checkpoints
from services.metadata.recovery.start import start as start_metadata
from services.metadata.service import MetadataService
from services.metadata.state.tables import CHECKPOINTED
from services.mock_scm.service import MockScmService
from services.plane.in_memory.judge import PureJudge
from services.runtime.loop.probe import Probe, no_probe
from services.runtime.loop.runner import UNIT_BYTES, UNIT_ROWS, Runner
from services.runtime.loop.service import Service
from services.runtime.process.hosted_shard import Start
from services.snapshots.service import SnapshotsService
from services.snapshots.settings import SnapshotsSettings
from services.storage.memory import MemoryStore

Address = tuple[str, int]
"""A service's name and a shard."""
SERVICES = ("metadata", "snapshots", "streaming", "key_deletion", "directory_deletion", "mock_scm")
LONGEST_BACKOFF_MS = 60_000
MAX_ADVANCES = 10_000
"""Advances of the clock in one wait: with the longest back-off about a week."""


@dataclass(slots=True)
class Process:
    """One shard of one service. Its database outlives the process."""

    store: MemoryStore
    service: Service
    runner: Runner


def _opened(open_runner: Callable[[], Runner]) -> Runner:
    """Open a runner; try again while the log cannot be reached."""
    while True:
        with contextlib.suppress(RetryableError):
            return open_runner()


@dataclass(slots=True)
class InMemoryPlane:
    """All services of ``shards`` shards over one log in memory."""

    shards: int = 1
    snapshots_settings: SnapshotsSettings = field(default_factory=lambda: SnapshotsSettings(is_rename_allowed=True))
    clock: VirtualClock = field(default_factory=VirtualClock)
    max_batch_messages: int = 2_000
    unit_bytes: int = UNIT_BYTES
    unit_rows: int = UNIT_ROWS
    secrets: Mapping[str, bytes] = field(default_factory=dict)
    """Signing secrets of the services, by name."""
    undo_window_ms: int = 0
    probes: Mapping[Address, Probe] = field(default_factory=dict)
    log: MemoryLog = field(init=False)
    processes: dict[Address, Process] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.log = self._new_log()
        self._start_shards(range(self.shards))

    def _start_shards(self, shards: range) -> None:
        for shard in shards:
            for message in first_commands(shard, None, self.clock.now_ms()):
                self.log.append(METADATA_COMMANDS.name, shard, message)
        for name in SERVICES:
            for shard in shards:
                self.start(name, shard)

    def add_shards(self, shards: int) -> None:
        """Raise the number of shards; the others go on."""
        self._start_shards(range(self.shards, shards))
        self.shards = max(self.shards, shards)

    def _new_log(self) -> MemoryLog:
        """Return the log of all services."""
        return MemoryLog(self.clock)

    def start(self, name: str, shard: int, store: MemoryStore | None = None) -> None:
        """Start or restart a service, on its own database or on ``store``; the old process ends as in a crash."""
        before = self.processes.get((name, shard))
        if store is None:
            store = before.store if before else MemoryStore(CHECKPOINTED if name == "metadata" else None)
        service = self._make_service(name, shard)
        log = self._log_of(name, shard)
        if name in self.secrets:
            log = SigningLog(log, self.secrets[name])
        runner = _opened(partial(self._open_runner, service, shard, store, log))
        self.processes[name, shard] = Process(store, service, runner)

    def _open_runner(self, service: Service, shard: int, store: MemoryStore, log: Log) -> Runner:
        begun, after_write = Start(log), None
        if isinstance(service, MetadataService):
            remove_unused_checkpoints(store)
            after_write = partial(service.remove_unneeded, store)
            begun = start_metadata(log, shard, store)
        return Runner(
            service,
            shard,
            store,
            begun.log,
            self.clock_of(service.name, shard),
            max_batch_messages=self.max_batch_messages,
            unit_bytes=self.unit_bytes,
            unit_rows=self.unit_rows,
            probe=self.probes.get((service.name, shard), no_probe),
            after_write=after_write,
            must_defer=begun.must_defer,
            published_below=begun.published_below,
        )

    def clock_of(self, name: str, shard: int) -> Clock:  # noqa: ARG002 subclasses give services different clocks
        """Return the clock of one service."""
        return self.clock

    def _log_of(self, name: str, shard: int) -> Log:  # noqa: ARG002 a plane with faults gives each service its own
        """Return the log of one service."""
        return self.log

    def _make_service(self, name: str, shard: int) -> Service:  # noqa: ARG002 the same settings for every shard
        makers: dict[str, Callable[[], Any]] = {
            "metadata": MetadataService,
            "snapshots": lambda: SnapshotsService(self.snapshots_settings),
            "streaming": PureJudge,
            "key_deletion": lambda: KeyDeletionService(KeyDeletionSettings(undo_window_ms=self.undo_window_ms)),
            "directory_deletion": lambda: DirectoryDeletionService(
                DirectoryDeletionSettings(undo_window_ms=self.undo_window_ms)
            ),
            "mock_scm": MockScmService,
        }
        service: Service = makers[name]()
        return service

    def step(self) -> int:
        """Advance the clock by 1 ms, let every service take one step, and return the number of messages read."""
        self.clock.advance(1)
        return sum(process.runner.step() for process in list(self.processes.values()))

    def run_until(self, is_done: Callable[[], bool], max_idle_advances: int = 1_000) -> bool:
        """Run until ``is_done``; return whether that happened.

        While no service reads a message, the clock advances by the longest back-off, at most ``max_idle_advances``
        times in a row, and ``MAX_ADVANCES`` times in all: what services do every hour would go on for ever.
        """
        idle = advances = 0
        while not is_done():
            if self.step():
                idle = 0
                continue
            if is_done():
                return True
            idle, advances = idle + 1, advances + 1
            if idle > max_idle_advances or advances > MAX_ADVANCES:
                return False
            self.clock.advance(LONGEST_BACKOFF_MS)
        return True
