"""The plane of a run: the real services with small limits, so that pages, waits and retries happen, behind faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from random import Random

from prometheus_client import CollectorRegistry

from services.directory_deletion.metrics import DirectoryDeletionMetrics
from services.directory_deletion.service import DirectoryDeletionService
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.service import KeyDeletionService
from services.key_deletion.settings import KeyDeletionSettings
from services.log.clock import Clock
from services.log.memory import MemoryLog
from services.log.port import Log
from services.metadata.checkpoints.capture_drop import remove_unused_checkpoints
from services.metadata.recovery.start import FOLLOWED
from services.metadata.service import MetadataService
from services.mock_scm.metrics import MockScmMetrics
from services.mock_scm.service import MockScmService
from services.mock_scm.settings import MockScmSettings, MockScmSwitches
from services.plane.in_memory.plane import SERVICES, InMemoryPlane
from services.runtime.loop.positions import POSITIONS
from services.runtime.loop.runner import UNIT_BYTES, UNIT_ROWS, Runner
from services.runtime.loop.service import Service, Work
from services.runtime.process.standby import Standby
from services.snapshots.metrics import SnapshotsMetrics
from services.snapshots.service import SnapshotsService
from services.snapshots.settings import SnapshotsSettings
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader
from tests.simulation.faults import Address, Faults, FaultyLog
from tests.simulation.owned_sinks import OwnedLog, Owners


@dataclass(frozen=True, slots=True)
class UnitLimits:
    """How much a service takes in at once: as much as in production, or so little that it is always under load."""

    batch_messages: int = 500
    unit_bytes: int = UNIT_BYTES
    unit_rows: int = UNIT_ROWS


def draw_units(random: Random) -> UnitLimits:
    """Small ones in about half of the runs, each by itself."""
    return UnitLimits(
        random.choice((500, 500, 40, 10, 3)),
        random.choice((UNIT_BYTES, UNIT_BYTES, 1_000, 100)),
        random.choice((UNIT_ROWS, UNIT_ROWS, 30, 3)),
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings of one run."""

    key_deletion: KeyDeletionSettings
    directory_deletion: DirectoryDeletionSettings
    container_size_bytes: int
    max_rollback_page_entries: int
    units: UnitLimits = field(default_factory=UnitLimits)


def draw_limits(random: Random) -> Limits:
    """Small limits, so that a few dozen rows make many tasks and pages."""
    undo_window_ms = random.choice((0, 0, 2_000, 900_000))
    return Limits(
        KeyDeletionSettings(
            undo_window_ms=undo_window_ms,
            max_rows_per_second=random.choice((0, 0, 1)),
            max_bytes_per_second=random.choice((0, 0, 0, 1_000)),
            purge_hours=random.choice(("", "", "3-4")),
            max_task_rows=random.choice((1, 2, 5, 100)),
            max_tasks_in_flight=random.choice((1, 2, 8)),
            max_retries_in_flight=random.choice((1, 4)),
            max_sweeps_in_flight=random.choice((1, 2, 8)),
            max_sweep_pages_in_flight=random.choice((1, 2, 32)),
            max_sweep_page_rows=random.choice((1, 2, 3, 100)),
        ),
        DirectoryDeletionSettings(
            undo_window_ms=undo_window_ms,
            max_page_entries=random.choice((1, 2, 3, 100)),
            max_expansions_in_flight=random.choice((1, 2, 64)),
            max_removal_rows=random.choice((1, 2, 100)),
        ),
        container_size_bytes=random.choice((4_096, 20_000, 1 << 30)),
        max_rollback_page_entries=random.choice((1, 3, 10, 1_000)),
    )


def draw_expiry(limits: Limits, random: Random) -> Limits:
    """Open keys and uploads expire within the run, or long after it."""
    keys = replace(
        limits.key_deletion,
        write_expiry_interval_ms=random.choice((600_000, 1_800_000, 3_600_000)),
        open_key_expiry_ms=random.choice((60_000, 7_200_000, 43_200_000, 7 * 86_400_000)),
        upload_expiry_ms=random.choice((60_000, 7_200_000, 43_200_000, 30 * 86_400_000)),
        max_expiry_page_rows=random.choice((1, 1, 2, 5, 1_000)),
    )
    return replace(limits, key_deletion=keys)


@cache
def _metrics() -> tuple[SnapshotsMetrics, KeyDeletionMetrics, DirectoryDeletionMetrics, MockScmMetrics]:
    """One set for all runs: making them takes longer than a run, and nothing here reads them."""
    return (
        SnapshotsMetrics(CollectorRegistry()),
        KeyDeletionMetrics(CollectorRegistry()),
        DirectoryDeletionMetrics(CollectorRegistry()),
        MockScmMetrics(CollectorRegistry()),
    )


@dataclass(frozen=True, slots=True)
class SkewedClock:
    """The clock of one process: before or behind that of the broker."""

    clock: Clock
    offset_ms: int

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as this process believes."""
        return self.clock.now_ms() + self.offset_ms


def standby_address(shard: int) -> Address:
    """By what the standby of a shard of metadata is known to the faults."""
    return ("standby", shard)


class SimulatedPlane(InMemoryPlane):
    """The whole plane in one process, each service behind a faulty log and with a probe in its loop."""

    def __init__(self, shards: int, limits: Limits, faults: Faults, secrets: Mapping[str, bytes] | None = None) -> None:
        self.limits = limits
        self.faults = faults
        self.owners = Owners()
        self.switches = [MockScmSwitches() for _ in range(shards)]
        self.addresses = [(name, shard) for name in SERVICES for shard in range(shards)]
        probes = {address: partial(faults.at, address) for address in self.addresses}
        super().__init__(
            shards=shards,
            probes=probes,
            max_batch_messages=limits.units.batch_messages,
            unit_bytes=limits.units.unit_bytes,
            unit_rows=limits.units.unit_rows,
            secrets=secrets or {},
        )

    def add_shard(self) -> int:
        """Add a shard, and start its services; return its number."""
        shard = self.shards
        added = [(name, shard) for name in SERVICES]
        self.switches.append(MockScmSwitches())
        self.addresses += added
        self.probes = {**self.probes, **{address: partial(self.faults.at, address) for address in added}}
        self.add_shards(shard + 1)
        return shard

    def _new_log(self) -> MemoryLog:
        return MemoryLog(self.clock, has_control_records=True)

    def clock_of(self, name: str, shard: int) -> Clock:
        """The clock that one service goes by."""
        return SkewedClock(self.clock, self.faults.skew_ms((name, shard)))

    def _log_of(self, name: str, shard: int) -> Log:
        if self.faults.mix.takeover and name != "streaming":  # Spark publishes without transactions
            return OwnedLog(self.log, self.faults, (name, shard), self.owners)
        return FaultyLog(self.log, self.faults, (name, shard))

    def open_standby(self, shard: int, store: MemoryStore) -> Standby:
        """Follow a shard of metadata in another process, on a database of its own."""
        service = self._make_service("metadata", shard)
        assert isinstance(service, MetadataService)
        remove_unused_checkpoints(store)
        probe = partial(self.faults.at, standby_address(shard))
        return Standby(
            *(FOLLOWED, service, shard, store, self._log_of("metadata", shard), self.clock_of("metadata", shard)),
            self.max_batch_messages,
            after_write=partial(service.remove_unneeded, store),
            make_runner=partial(Runner, unit_bytes=self.unit_bytes, unit_rows=self.unit_rows, probe=probe),
        )

    def _make_service(self, name: str, shard: int) -> Service:
        service = self._make_sound_service(name, shard)
        end_batch = service.end_batch

        def may_fail(work: Work) -> None:
            end_batch(work)
            self.faults.ends_unit(len(work.inputs))

        setattr(service, "end_batch", may_fail)  # noqa: B010 a method of one object alone
        return service

    def _make_sound_service(self, name: str, shard: int) -> Service:
        snapshots, key_deletion, directory_deletion, mock_scm = _metrics()
        if name == "snapshots":
            settings = SnapshotsSettings(
                is_rename_allowed=True, max_rollback_page_entries=self.limits.max_rollback_page_entries
            )
            return SnapshotsService(settings, snapshots)
        if name == "key_deletion":
            return KeyDeletionService(self.limits.key_deletion, key_deletion)
        if name == "directory_deletion":
            return DirectoryDeletionService(self.limits.directory_deletion, directory_deletion)
        if name == "mock_scm":
            scm_settings = MockScmSettings(container_size_bytes=self.limits.container_size_bytes)
            return MockScmService(scm_settings, self.switches[shard], mock_scm)
        return super()._make_service(name, shard)

    def tables(self, name: str, shard: int) -> TablesReader:
        """Committed rows of a service."""
        return TablesReader(self.processes[name, shard].store)

    def position(self, name: str, shard: int, topic: str) -> int:
        """Position of a service behind an input, as it is on disk."""
        row = self.tables(name, shard).table(POSITIONS).get(topic.encode())
        return row.next_offset if row else 0
