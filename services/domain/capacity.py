"""How large a plane has to be: shards, cores, memory, disk and log for a number of keys and deletions a day.

The model is a steady state: as many keys are put as are deleted, and a snapshot holds each deleted version for some
days before it is freed. A resource is what a key costs, times the keys of a second in the busiest hour, divided by the
share of the resource that may be in use. A shard applies its commands in one thread, so ``metadata`` also limits what
one shard can do; all other processes grow by cores. docs/scale.md compares the model with planes of one, two and four
shards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from services.domain.table_keys import LAST_TXN_WITH_BLOCKS, MOST_SHARDS

SECONDS_PER_DAY = 86_400
DAYS_PER_YEAR = 365.25
_MICRO = 1e-6
METADATA, STREAMING, BROKER = "metadata", "streaming", "broker"
MOST_SNAPSHOTS_PER_SHARD = 10_000
"""The default of ``DEEPCLEAN_SNAPSHOTS_MAX_SNAPSHOTS``."""
WANTED_YEARS = 5.0
"""How long a shard should have ids for new blocks: there are enough shards for that."""
COMMANDS_OF_A_KEY = 2
"""A put and a delete; a claim and a finish are commands, too, but each of up to a thousand rows."""
CORES_PER_EXECUTOR = 2


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What one key costs, as measured by ``python -m bench --only scale`` with one shard."""

    put_microseconds: Mapping[str, float]
    """Processor time of each process for a put."""
    deletion_microseconds: Mapping[str, float]
    """Processor time of each process from a delete to its freed block."""
    put_log_bytes: float
    """What a put adds to the topics, of one replica."""
    deletion_log_bytes: float
    live_row_bytes: float
    """Rows of a live key and its block in the databases of metadata and the block store."""
    held_row_bytes: float
    """Rows of a deleted version that a snapshot holds."""
    snapshot_bytes: float
    """What a checkpoint takes beside the rows: a manifest, options, links."""
    process_megabytes: Mapping[str, float]
    """Resident memory of each process; of metadata for each shard, of streaming for each executor."""


MEASURED = UnitCosts(
    put_microseconds={
        "metadata": 20.1,
        "streaming": 9.4,
        "broker": 9.6,
        "mock_scm": 3.9,
        "key_deletion": 0.6,
        "snapshots": 0.5,
        "directory_deletion": 0.5,
    },
    deletion_microseconds={
        "metadata": 43.6,
        "streaming": 44.8,
        "broker": 18.5,
        "mock_scm": 9.1,
        "key_deletion": 4.4,
        "snapshots": 2.2,
        "directory_deletion": 1.3,
    },
    put_log_bytes=22.0,
    deletion_log_bytes=104.0,
    live_row_bytes=128.0,
    held_row_bytes=99.0,
    snapshot_bytes=40_000.0,
    process_megabytes={
        "metadata": 265.0,
        "streaming": 1_619.0,
        "mock_scm": 145.0,
        "snapshots": 93.0,
        "key_deletion": 79.0,
        "directory_deletion": 76.0,
    },
)
"""Two shared cores that ran the whole plane; docs/scale.md has the runs that these are from."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What a plane is for."""

    keys: float
    deletes_per_day: float
    snapshots: int
    held_days: float
    """How long a snapshot holds a deleted version."""
    peak: float
    """Rate of the busiest hour, divided by the mean."""
    log_days: float
    """How long messages are kept: the time between two backups, after which the log is trimmed."""
    replicas: int
    """Copies of the log."""
    is_followed: bool
    """Whether a second host follows each shard, to take it over within seconds."""
    busy: float = 0.6
    """Share of a core that may be in use in the busiest hour."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound that does not grow with hosts, and how much of it is used."""

    name: str
    used: float
    most: float
    unit: str
    advice: str
    """What to do when it is used up."""

    @property
    def share(self) -> float:
        """The used part, 1 when nothing is left."""
        return self.used / self.most


@dataclass(frozen=True, slots=True)
class Capacity:
    """The size of a plane."""

    shards: int
    """Each in a process of metadata of its own: several in one process do less than the sum of them."""
    peak_deletes_per_second: float
    cores: Mapping[str, float]
    """By process; those of all brokers, all executors, and of the standbys together with metadata."""
    executors: int
    memory_bytes: Mapping[str, float]
    """Resident memory by process, of all processes of its kind; brokers have what their owners give them."""
    page_cache_bytes: float
    """Database files of live keys. A delete of a key whose files are not in memory takes up to four times as long."""
    disk_bytes: float
    """Databases of all services, with those of the standbys."""
    held_versions: float
    log_bytes_per_day: float
    """What all topics grow by, of one replica."""
    log_bytes: float
    """What the brokers keep, of all replicas."""
    limits: tuple[Limit, ...]
    """The one that is used most comes first: it breaks first when everything grows alike."""


def rate_of_shards(seconds_per_key: Mapping[str, float], processes: int, cores: int) -> float:
    """Return the keys a second that a plane does: bounded by all cores, and by its processes of one thread.

    ``seconds_per_key`` has the processor time of each process for a key; ``processes`` is how many of each service run,
    at most one for each shard.
    """
    single = max(used for name, used in seconds_per_key.items() if name not in (STREAMING, BROKER))
    return min(cores / sum(seconds_per_key.values()), processes / single)


def capacity_of(work: Workload, costs: UnitCosts) -> Capacity:
    """Return the size of the plane that a workload needs."""
    mean = work.deletes_per_day / SECONDS_PER_DAY
    peak = mean * work.peak
    names = costs.deletion_microseconds.keys() | costs.put_microseconds.keys()
    each = {
        name: (costs.put_microseconds.get(name, 0.0) + costs.deletion_microseconds.get(name, 0.0)) * _MICRO
        for name in sorted(names)
    }
    per_shard = work.busy / each[METADATA]
    commands = COMMANDS_OF_A_KEY * work.deletes_per_day
    by_ids = math.ceil(WANTED_YEARS / years_of_ids(commands))
    shards = max(1, math.ceil(peak / per_shard), by_ids, math.ceil(work.snapshots / MOST_SNAPSHOTS_PER_SHARD))
    copies = 2 if work.is_followed else 1
    times = {METADATA: copies, BROKER: work.replicas}
    cores = {name: peak * used * times.get(name, 1) / work.busy for name, used in each.items()}
    executors = max(1, math.ceil(cores[STREAMING] / CORES_PER_EXECUTOR))
    held = work.deletes_per_day * work.held_days
    rows = work.keys * costs.live_row_bytes + held * costs.held_row_bytes + work.snapshots * costs.snapshot_bytes
    daily = work.deletes_per_day * (costs.put_log_bytes + costs.deletion_log_bytes)
    return Capacity(
        shards=shards,
        peak_deletes_per_second=peak,
        cores=cores,
        executors=executors,
        memory_bytes=_memory_bytes(costs, cores, work.busy, {METADATA: shards * copies, STREAMING: executors}),
        page_cache_bytes=work.keys * costs.live_row_bytes,
        disk_bytes=rows * copies,
        held_versions=held,
        log_bytes_per_day=daily,
        log_bytes=daily * work.log_days * work.replicas,
        limits=_limits(work, shards, peak, per_shard),
    )


def _memory_bytes(
    costs: UnitCosts, cores: Mapping[str, float], busy: float, known: Mapping[str, int]
) -> dict[str, float]:
    """Return the memory by process; a process for each core in use, where the number of processes is not ``known``."""
    return {
        name: megabytes * 1e6 * (known.get(name) or max(1, math.ceil(cores[name] * busy)))
        for name, megabytes in costs.process_megabytes.items()
    }


def years_of_ids(commands_per_day: float) -> float:
    """Return how long one shard has ids for new blocks: each command takes a txn, and ids have few bits for it."""
    return LAST_TXN_WITH_BLOCKS / max(commands_per_day, 1.0) / DAYS_PER_YEAR


def _limits(work: Workload, shards: int, peak: float, per_shard: float) -> tuple[Limit, ...]:
    years = years_of_ids(COMMANDS_OF_A_KEY * work.deletes_per_day / shards)
    each = work.snapshots / shards
    limits = (
        Limit("shards", shards, MOST_SHARDS, "of a plane", "several planes"),
        Limit("snapshots", each, MOST_SNAPSHOTS_PER_SHARD, "of a shard", "a shorter retention, or more shards"),
        Limit("one volume with all keys", peak, per_shard, "deletions a second", "more volumes: each has one shard"),
        Limit(
            "block ids", WANTED_YEARS, years, "years wanted, years until used up", "more shards, and volumes in them"
        ),
    )
    return tuple(sorted(limits, key=lambda limit: limit.share, reverse=True))
