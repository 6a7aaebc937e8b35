"""What metadata reports beside its loop: where the bytes of its shards are, and its diffs. Labels are closed sets.

Buckets and snapshots are no labels: there is no bound on them. Their figures are read over HTTP.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from schemas.answers import DiffJob, DiffStatus, ShardBacklog
from schemas.records import CollectorState
from services.metadata.queries import shard_backlog
from services.runtime.errors import DeepcleanError
from services.runtime.reads import Stores, closing_reader

FRESH_SECONDS = 15.0
_UNKNOWN = float("nan")
_BYTES: dict[str, Callable[[ShardBacklog], int]] = {
    "live": lambda sums: sums.live_bytes,
    "held": lambda sums: sums.held_bytes,
    "pending": lambda sums: sums.pending_bytes,
    "claimed": lambda sums: sums.claimed_bytes,
}
_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3_600.0)
_ENDS = [status for status in DiffStatus if status.is_end]


class MetadataMetrics:
    """The gauges of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.space_bytes = Gauge(
            "deepclean_metadata_space_bytes",
            "Bytes of all versions by where they are; at rest the sum is what the block store has.",
            ["shard", "state"],
            registry=registry,
        )
        self.space_cells = Gauge(
            "deepclean_metadata_space_cells",
            "Cells of the space matrices of all buckets.",
            ["shard"],
            registry=registry,
        )

        self.held_back_bytes = Gauge(
            "deepclean_metadata_held_back_bytes",
            "Bytes that nobody holds and that wait because the collector may not claim.",
            ["shard"],
            registry=registry,
        )
        self.held_back_versions = Gauge(
            "deepclean_metadata_held_back_versions",
            "Versions that nobody holds and that wait because the collector may not claim.",
            ["shard"],
            registry=registry,
        )
        self.shadow_bytes = Gauge(
            "deepclean_metadata_shadow_bytes",
            "Bytes that would have been claimed, as counted in the shadow.",
            ["shard"],
            registry=registry,
        )
        self.shadow_versions = Gauge(
            "deepclean_metadata_shadow_versions",
            "Versions that would have been claimed, as counted in the shadow.",
            ["shard"],
            registry=registry,
        )
        self.collectors = Gauge(
            "deepclean_metadata_collectors",
            "Buckets, and the shard as one more, for which something was said of the collector, by what it does.",
            ["shard", "state"],
            registry=registry,
        )

    def watch(self, stores: Stores, shards: Sequence[int]) -> None:
        """Have the gauges show the figures of these shards whenever they are asked for."""
        for shard in shards:
            sums = _ShardSums(stores, shard)
            for state, bytes_of in _BYTES.items():
                self.space_bytes.labels(str(shard), state).set_function(partial(sums.value, bytes_of))
            for gauge, held_back in (
                (self.held_back_bytes, attrgetter("held_back_bytes")),
                (self.held_back_versions, attrgetter("held_back_versions")),
                (self.shadow_bytes, attrgetter("shadow_bytes")),
                (self.shadow_versions, attrgetter("shadow_versions")),
            ):
                gauge.labels(str(shard)).set_function(partial(sums.value, held_back))
            for collector in CollectorState:
                count = self.collectors.labels(str(shard), collector.value.lower())
                count.set_function(partial(sums.value, partial(_collectors, collector)))
            self.space_cells.labels(str(shard)).set_function(partial(sums.value, lambda found: found.cells))


def _collectors(state: CollectorState, sums: ShardBacklog) -> int:
    return sums.collectors.get(state, 0)


@dataclass(slots=True)
class _ShardSums:
    """The sums of one shard, added up when they are asked for and no more often than every few seconds."""

    stores: Stores
    shard: int
    _sums: ShardBacklog | None = None
    _read_seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def value(self, figure: Callable[[ShardBacklog], int]) -> float:
        """One of the figures; not a number until the database is open."""
        with self._lock:
            now_seconds = time.monotonic()
            if self._sums is None or now_seconds - self._read_seconds >= FRESH_SECONDS:
                self._read(now_seconds)
            return _UNKNOWN if self._sums is None else figure(self._sums)

    def _read(self, now_seconds: float) -> None:
        store = self.stores.get(self.shard)
        if store is None:
            return
        try:
            with closing_reader(store.reading()) as tables:
                self._sums = shard_backlog(tables)
        except DeepcleanError:
            return  # the disk or the process is on its way out, and says so elsewhere: the last figures stay
        self._read_seconds = now_seconds


class SnapshotDiffMetrics:
    """The diffs of a process."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.ended_jobs = Counter(
            "deepclean_metadata_diffs_total", "Diffs that have ended, by how.", ["status"], registry=registry
        )
        self.seconds = Histogram(
            "deepclean_metadata_diff_seconds",
            "From asking for a diff until it was done.",
            buckets=_SECONDS,
            registry=registry,
        )
        for status in _ENDS:  # so that one never reached reads 0 instead of being absent
            self.ended_jobs.labels(status.value)

    def ended(self, job: DiffJob) -> None:
        """A diff has come to its end."""
        self.ended_jobs.labels(job.status.value).inc()
        if job.status is DiffStatus.DONE:
            self.seconds.observe(max(0, job.ended_ms - job.created_ms) / 1000)
