"""Measures how the cost of metadata's operations grows, in a bucket of ten thousand to ten million keys.

A cost bends when ten times the keys make it more than ``MOST_STEP`` times as large, or when, over all sizes, it grows
faster than keys to the power of ``MOST_SLOPE`` (the slope on a plot of both logarithms). The cost of a look-up in a
sorted table grows with the logarithm of its rows and stays well below both bounds; the cost of a scan grows with the
keys and exceeds them.

The bounds apply to a database whose files are in the machine's memory. A look-up whose block is neither in memory nor
in the store's own cache waits for a disk, so costs jump when the database outgrows memory. The cost of a delete with
the files only on disk is reported, but has no bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from random import Random
from statistics import fmean, median

from bench.bulk import KEY_BYTES, VOLUME, flat_name, flat_puts
from bench.conditions import Conditions
from bench.figures import Figure
from bench.loaded_shard import LoadedShard
from schemas.records import (
    BucketLayout,
    ClaimRows,
    DeletedEntries,
    DeletedKind,
    DeleteKey,
    FinishRows,
    PutKey,
    RowName,
    RowsClaimed,
)
from schemas.topics import DELETED_ENTRIES, METADATA_PROGRESS
from services.client.plane import NamespaceCommand
from services.domain.row_columns import by_columns, names_of_groups
from services.domain.space_matrix import NOBODY, holders
from services.metadata.reads.explanations import explain_path
from services.metadata.reads.queries import get_bucket, live_snapshots, shard_state
from services.metadata.state.tables import DELETED_TABLE
from services.plane.machine.errors import StackError
from services.runtime.process.memory import calm_garbage_collector
from services.storage.tables import TablesReader

NAME = "growth"
BUCKET = "bucket"
FEWEST_KEYS, MOST_KEYS = 10_000, 10_000_000
FACTOR = 10
MOST_STEP = 2.0
MOST_SLOPE = 0.2
OPERATIONS_AT_ONCE = 2_000
ROWS_AT_ONCE = 1_000
"""Rows in one command of garbage collection."""
ROUNDS = 5
HELD_SHARE = 10
"""One in ``HELD_SHARE`` keys has a version that a snapshot holds, when paths are explained."""
PUT, OVERWRITE, DELETE, CLAIM, FINISH, DELETE_ON_DISK, CAPTURE, EXPLAIN = (
    *("put", "overwrite", "delete", "claim", "finish"),
    *("delete-with-files-on-disk", "snapshot-capture", "explain"),
)
UNBOUNDED = frozenset({DELETE_ON_DISK})
Costs = Mapping[str, Mapping[int, float]]
"""Microseconds of one operation, by its name and the number of keys."""
Timer = Callable[[], float]
"""Returns seconds, of wall-clock time or of a thread's processor time."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How one operation's cost grows."""

    operation: str
    costs: Mapping[int, float]
    """Microseconds by number of keys."""

    @property
    def steepest_step(self) -> float:
        """Return the largest factor of the cost from one size to the next."""
        costs = [self.costs[size] for size in sorted(self.costs)]
        return max((after / before for before, after in pairwise(costs)), default=1.0)

    @property
    def slope(self) -> float:
        """Return the exponent with which the cost grows with the keys: the slope of a line fitted to the logarithms."""
        points = [(math.log10(size), math.log10(cost)) for size, cost in self.costs.items()]
        if len(points) < 2:
            return 0.0
        x_mean, y_mean = fmean(x for x, _ in points), fmean(y for _, y in points)
        return sum((x - x_mean) * (y - y_mean) for x, y in points) / sum((x - x_mean) ** 2 for x, _ in points)

    @property
    def is_bent(self) -> bool:
        """Return whether the cost grows faster than the bounds allow."""
        return self.is_bounded and (self.steepest_step > MOST_STEP or self.slope > MOST_SLOPE)

    @property
    def is_bounded(self) -> bool:
        """Return whether the bounds apply; otherwise the cost is only reported."""
        return self.operation not in UNBOUNDED


def measure_growth(conditions: Conditions, max_keys: int = MOST_KEYS) -> list[Growth]:
    """Return the cost of metadata's operations for buckets of 10 thousand to ``max_keys`` keys, in steps of ten times.

    metadata itself applies commands to a database on disk; only the log is in memory. Each of five rounds does some
    thousand operations of each kind, on random keys. The cheapest round counts, by the processor time of this thread,
    which also does the look-ups that metadata otherwise does in another thread; compaction is left out. Before each
    round the database's files are read once, so that the machine has them in memory. Python's garbage collector works
    as in a process of the service. Deletes are done once more after the machine has dropped the files from memory,
    timed by the clock; the median round counts. Paths are explained while one snapshot holds a version of every tenth
    key. A snapshot is timed by the clock, including its flush; the median counts.
    """
    shard = LoadedShard(conditions.scratch(NAME))
    costs: dict[str, dict[int, float]] = {}
    try:
        shard.make_bucket(BUCKET, BucketLayout.OBJECT_STORE)
        bucket = _GrowingBucket(shard)
        for size in sizes_up_to(max_keys):
            for _ in bucket.grow_to(size):
                conditions.say(f"{NAME}: {bucket.keys:,} of {size:,} keys loaded")
            conditions.say(f"{NAME}: measuring at {size:,} keys")
            for operation, cost in bucket.costs().items():
                costs.setdefault(operation, {})[size] = cost
    finally:
        shard.close()
    return [Growth(operation, by_size) for operation, by_size in costs.items()]


def sizes_up_to(max_keys: int) -> list[int]:
    """Return the sizes to measure: powers of ten, then ``max_keys``."""
    sizes, size = [], min(FEWEST_KEYS, max_keys)
    while size < max_keys:
        sizes.append(size)
        size *= FACTOR
    return [*sizes, max_keys]


def growth_figures(grown: Sequence[Growth]) -> list[Figure]:
    """Return each cost as a figure, for a report."""
    return [
        Figure(f"{NAME}/{one.operation}-at-{size}-keys", cost, "µs", details={"slope": one.slope})
        for one in grown
        for size, cost in one.costs.items()
    ]


@dataclass(slots=True)
class _GrowingBucket:
    """A bucket that is measured, enlarged and measured again."""

    shard: LoadedShard
    keys: int = 0
    _random: Random = field(default_factory=lambda: Random(1))  # noqa: S311  the same at each run
    _made: int = 0
    _snapshots: list[str] = field(default_factory=list)

    def grow_to(self, size: int) -> Iterator[int]:
        """Put keys until the bucket has ``size`` keys."""
        first = self.keys
        for done in self.shard.load(flat_puts(BUCKET, size - first, first)):
            self.keys = first + done
            yield done

    def costs(self) -> dict[str, float]:
        """Return the microseconds of each operation now. Snapshots come last: held versions cannot be claimed."""
        calm_garbage_collector()  # as in a process of the service
        rounds = [self._round() for _ in range(ROUNDS)]
        found = {operation: min(one[operation] for one in rounds) for operation in rounds[0]}
        found[DELETE_ON_DISK] = median(one[DELETE_ON_DISK] for one in rounds)
        found[CAPTURE] = median(self._capture() for _ in range(ROUNDS))
        found[EXPLAIN] = self._explain()
        for snapshot in self._snapshots:
            self.shard.drop(snapshot)
        self._snapshots.clear()
        self._collect()
        return found

    def _collect(self) -> None:
        """Claim and finish the rows that no snapshot holds, as garbage collection does."""
        tables = self.shard.tables
        bucket_id = get_bucket(tables, VOLUME, BUCKET).object_id
        live = [row.txn for row in live_snapshots(tables, bucket_id)]
        unheld = [
            RowName(DeletedKind.KEY, bucket_id, row.key.object_id, row.key.birth, row.death)
            for _, row in tables.table(DELETED_TABLE).scan(b"/", b"0")
            if holders(row.key.birth, row.death, live) == NOBODY
        ]
        version = shard_state(tables).chain_version
        pages = [by_columns(unheld[start : start + ROWS_AT_ONCE]) for start in range(0, len(unheld), ROWS_AT_ONCE)]
        self.shard.append_from("key_deletion", [ClaimRows(0, version, names) for names in pages])
        self.shard.step()
        self.shard.append_from("key_deletion", [FinishRows(0, names) for names in pages])
        self.shard.step()

    def _round(self) -> dict[str, float]:
        """Return the microseconds of one round.

        It puts new keys, overwrites and deletes old keys, claims and finishes the dead versions, and deletes with the
        files on disk.
        """
        many = min(OPERATIONS_AT_ONCE, self.keys // 4)
        chosen = self._random.sample(range(self.keys), 3 * many)
        overwritten, deleted, deleted_on_disk = chosen[:many], chosen[many : 2 * many], chosen[2 * many :]
        self.shard.read_files()
        found = {
            PUT: self._applied(many, (self._put(f"{flat_name(number)}.{self._made}") for number in chosen[:many])),
            OVERWRITE: self._applied(many, (self._put(flat_name(number)) for number in overwritten)),
            DELETE: self._applied(many, (self._delete(flat_name(number)) for number in deleted)),
        }
        self._made += 1
        entries = [one for one in self.shard.said(DELETED_ENTRIES) if isinstance(one, DeletedEntries)]
        rows = tuple(one.rows for one in entries if one.rows.object_ids)
        claims = [
            ClaimRows(number, shard_state(self.shard.tables).chain_version, (names,))
            for number, names in enumerate(rows)
        ]
        self.shard.append_from("key_deletion", claims)
        found[CLAIM] = self._stepped(many)
        said = [one.body for one in self.shard.said(METADATA_PROGRESS)]
        groups = [one.groups for one in said if isinstance(one, RowsClaimed)]
        if sum(len(one.object_ids) for one in groups) != many:
            raise StackError("not everything that was deleted could be claimed: this is a defect, report it")
        self.shard.append_from(
            "key_deletion", [FinishRows(number, (names_of_groups(one),)) for number, one in enumerate(groups)]
        )
        found[FINISH] = self._stepped(many)
        self.shard.forget_files()
        on_disk = (self._delete(flat_name(number)) for number in deleted_on_disk)
        found[DELETE_ON_DISK] = self._applied(many, on_disk, time.perf_counter)
        self.shard.apply(self._put(flat_name(number)) for number in chosen[many:])  # restores the deleted keys
        return found

    def _put(self, name: str) -> NamespaceCommand:
        return PutKey(VOLUME, BUCKET, name, KEY_BYTES)

    def _delete(self, name: str) -> NamespaceCommand:
        return DeleteKey(VOLUME, BUCKET, name)

    def _applied(self, count: int, commands: Iterator[NamespaceCommand], clock: Timer = time.thread_time) -> float:
        self.shard.append(commands)
        return self._stepped(count, clock)

    def _stepped(self, count: int, clock: Timer = time.thread_time) -> float:
        """Apply the messages in the log; return the time divided by ``count``, in microseconds."""
        return _microseconds(self.shard.step, clock) / count

    def _capture(self) -> float:
        """Return the microseconds of a snapshot, after some puts, so that there are rows to flush."""
        many = min(OPERATIONS_AT_ONCE, self.keys // 4)
        self.shard.apply(self._put(flat_name(self._random.randrange(self.keys))) for _ in range(many))
        self._made += 1
        self.shard.read_files()
        self._snapshots.append(f"growth-{self._made}")
        return _microseconds(lambda: self.shard.snapshot(self._snapshots[-1], BUCKET), time.perf_counter)

    def _explain(self) -> float:
        """Return the microseconds of explaining a random path, while a snapshot holds a version of every tenth key."""
        for _ in self.shard.load(self._put(flat_name(number)) for number in range(0, self.keys, HELD_SHARE)):
            pass
        self._collect()
        many = min(OPERATIONS_AT_ONCE, self.keys)
        rounds = [[flat_name(number) for number in self._random.sample(range(self.keys), many)] for _ in range(ROUNDS)]
        return min(self._explained(paths) for paths in rounds) / many

    def _explained(self, paths: Sequence[str]) -> float:
        self.shard.read_files()
        return _microseconds(partial(self._explain_all, paths), time.thread_time)

    def _explain_all(self, paths: Sequence[str]) -> None:
        """Explain each path as a separate request, with a separate view."""
        for path in paths:
            with closing(self.shard.store.reading()) as view:
                tables = TablesReader(view)
                row = get_bucket(tables, VOLUME, BUCKET)
                explain_path(tables, row, path, lambda name: TablesReader(self.shard.store.open_checkpoint(name)))


def _microseconds(act: Callable[[], object], clock: Timer) -> float:
    started = clock()
    act()
    return max((clock() - started) * 1e6, 1e-3)
