"""Metadata's metrics beside those of the loop: the bytes of its shards by state, and its diffs. Labels are closed sets.

Buckets and snapshots are not labels, because their number has no bound. Their figures are read over HTTP.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from schemas.answers import DiffJob, DiffStatus, ShardBacklog
from schemas.histograms import observe_many
from schemas.records import BreakerCause, CollectionState
from services.domain.errors import DeepcleanError
from services.domain.purge_hours import purge_hours
from services.domain.table_keys import LAST_TXN_WITH_BLOCKS
from services.metadata.reads.queries import shard_backlog
from services.metadata.settings import MetadataSettings
from services.metadata.state.reclaim_clocks import Freed
from services.runtime.http.reads import Stores, closing_reader
from services.storage.store import Store

FRESH_SECONDS = 15.0
READ_SECONDS = 0.5
"""Time that a scrape waits for new figures."""
_UNKNOWN = float("nan")
FREED_SECONDS = (5.0, 15.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 21_600.0, 86_400.0)
"""Bucket bounds. One of them is the objective of the alerts: see deploy/prometheus/rules.yml."""
_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3_600.0)
_ENDS = [status for status in DiffStatus if status.is_end]


_Figure = Callable[[ShardBacklog], int]


def _collection_states(state: CollectionState, sums: ShardBacklog) -> int:
    return sums.collection_states.get(state, 0)


def _trips(cause: BreakerCause, sums: ShardBacklog) -> int:
    return sums.trips.get(cause, 0)


def _txns_with_blocks_left(sums: ShardBacklog) -> int:
    return max(0, LAST_TXN_WITH_BLOCKS - sums.txn)


_GAUGES: tuple[tuple[str, str, str], ...] = (
    ("deepclean_metadata_space_cells", "cells", "Cells of the space matrices of all buckets."),
    (
        "deepclean_metadata_suspended_bytes",
        "suspended_bytes",
        "Bytes that no snapshot holds and that wait because claims are suspended.",
    ),
    (
        "deepclean_metadata_suspended_versions",
        "suspended_versions",
        "Versions that no snapshot holds and that wait because claims are suspended.",
    ),
    ("deepclean_metadata_shadow_bytes", "shadow_bytes", "Bytes that would have been claimed, counted in shadow mode."),
    (
        "deepclean_metadata_shadow_versions",
        "shadow_versions",
        "Versions that would have been claimed, counted in shadow mode.",
    ),
    (
        "deepclean_metadata_refused_rows",
        "refused_rows",
        "Rows of this shard that metadata was ever asked to claim or remove, and kept: must stay 0.",
    ),
)
"""Gauges with one value for a shard: the name, its field of ``ShardBacklog``, the description."""
_GAUGES_BY: tuple[tuple[str, str, dict[str, _Figure], str], ...] = (
    (
        "deepclean_metadata_space_bytes",
        "state",
        {state: attrgetter(f"{state}_bytes") for state in ("live", "held", "pending", "claimed")},
        "Bytes of all versions by state; at rest the sum equals the bytes in the block store.",
    ),
    (
        "deepclean_metadata_space_replicated_bytes",
        "state",
        {state: attrgetter(f"{state}_replicated_bytes") for state in ("live", "held", "pending", "claimed")},
        "Bytes that the blocks of all versions take on disks, with all copies and parity, by state.",
    ),
    (
        "deepclean_metadata_collection_states",
        "state",
        {state.value.lower(): partial(_collection_states, state) for state in CollectionState},
        "Buckets that ever got a collection state or limits, by their present state; the shard counts as one more.",
    ),
    (
        "deepclean_metadata_breaker_trips",
        "cause",
        {cause.value.lower(): partial(_trips, cause) for cause in BreakerCause},
        (
            "Buckets whose breaker has tripped, by cause: limits (those of an hour), forecast (a claim would exceed "
            "the space figures), figures (a figure contradicts a row or is below zero)."
        ),
    ),
    (
        "deepclean_metadata_reclaimable_versions",
        "state",
        {
            "waiting": lambda sums: sums.pending_versions - sums.suspended_versions,
            "claimed": attrgetter("claimed_versions"),
            "freed": attrgetter("freed_versions"),
        },
        "Versions that no snapshot holds, by state: waiting and not suspended, claimed, or freed (total).",
    ),
)
"""Gauges with a value for each value of a label: name, label, figures and description."""


class MetadataMetrics:
    """The gauges of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges: list[tuple[Gauge, _Figure]] = [
            (Gauge(name, description, ["shard"], registry=registry), attrgetter(field))
            for name, field, description in _GAUGES
        ]
        left = Gauge(
            "deepclean_metadata_txns_with_blocks_left",
            "Commands that can still give ids to new blocks. At 0 the shard refuses writes (SHARD_FULL).",
            ["shard"],
            registry=registry,
        )
        self._gauges.append((left, _txns_with_blocks_left))
        self._gauges_by = [
            (Gauge(name, description, ["shard", label], registry=registry), figures)
            for name, label, figures, description in _GAUGES_BY
        ]
        self.freed_seconds = Histogram(
            "deepclean_metadata_freed_seconds",
            "For each freed version, the time from the moment when no snapshot, undo window or suspension kept it any "
            "more until it was freed, without the time outside of the purge hours.",
            ["shard"],
            buckets=FREED_SECONDS,
            registry=registry,
        )

    def freed(self, freed: Mapping[Freed, int], settings: MetadataSettings) -> None:
        """Observe the versions that a durable unit of work has finished."""
        hours = purge_hours(settings.purge_hours)
        for one, versions in freed.items():
            if one.deletion_ms:  # 0 for rows that were written before it was noted
                free_ms = max(one.deletion_ms + settings.undo_window_ms, one.since_ms)
                observe_many(
                    self.freed_seconds.labels(str(one.shard)), hours.open_ms(free_ms, one.finished_ms) / 1_000, versions
                )

    def watch(self, stores: Stores, shards: Sequence[int]) -> None:
        """Make the gauges read the figures of these shards at each scrape."""
        for shard in shards:
            sums = _ShardSums(stores, shard)
            for gauge, figure in self._gauges:
                gauge.labels(str(shard)).set_function(partial(sums.value, figure))
            for gauge, figures in self._gauges_by:
                for value, figure_of in figures.items():
                    gauge.labels(str(shard), value).set_function(partial(sums.value, figure_of))
            self.freed_seconds.labels(str(shard))  # so that the first late version shows as an increase


@dataclass(slots=True)
class _ShardSums:
    """The sums of one shard, read at a scrape, at most every ``FRESH_SECONDS``.

    In a thread: a read waits for a write, and on a disk that hangs a write does not end. A scrape has to answer then,
    with the last figures, or no alert says that the loop hangs.
    """

    stores: Stores
    shard: int
    _sums: ShardBacklog | None = None
    _read_seconds: float = 0.0
    _reading: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def value(self, figure: Callable[[ShardBacklog], int]) -> float:
        """Return one of the figures; NaN until the database is open."""
        with self._lock:
            store = self.stores.get(self.shard)
            is_due = self._sums is None or time.monotonic() - self._read_seconds >= FRESH_SECONDS
            if store is not None and is_due and not (self._reading and self._reading.is_alive()):
                self._reading = threading.Thread(target=self._read, args=(store,), name="figures", daemon=True)
                self._reading.start()
                self._reading.join(READ_SECONDS)
            return _UNKNOWN if self._sums is None else figure(self._sums)

    def _read(self, store: Store) -> None:
        try:
            with closing_reader(store.reading()) as tables:
                self._sums = shard_backlog(tables)
        except DeepcleanError:
            return  # the disk fails or the process ends, which is reported elsewhere: keep the last figures
        self._read_seconds = time.monotonic()


class SnapshotDiffMetrics:
    """Metrics of the diffs of a process."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.ended_jobs = Counter(
            "deepclean_metadata_diffs_total", "Diffs that have ended, by status.", ["status"], registry=registry
        )
        self.seconds = Histogram(
            "deepclean_metadata_diff_seconds",
            "Time from the request of a diff until it was done.",
            buckets=_SECONDS,
            registry=registry,
        )
        for status in _ENDS:  # so that a status never reached reads 0 instead of being absent
            self.ended_jobs.labels(status.value)

    def ended(self, job: DiffJob) -> None:
        """Count an ended diff."""
        self.ended_jobs.labels(job.status.value).inc()
        if job.status is DiffStatus.DONE:
            self.seconds.observe(max(0, job.ended_ms - job.created_ms) / 1000)
