"""Measures a diff with few changes, beside a comparison of all keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

from bench.bulk import KEY_BYTES, VOLUME, flat_name, flat_puts, tree_path, tree_puts
from bench.conditions import Conditions
from bench.figures import Ceiling, Figure, Target
from bench.loaded_shard import LoadedShard
from schemas.records import BucketLayout, DeleteKey, PutKey, RenameKey
from services.client.plane import NamespaceCommand
from services.domain.snapshot_diff import DiffEntry
from services.metadata.diffs.differences import compare_all, compare_changes, opened_states
from services.plane.machine.errors import StackError

NAME = "diff"
BUCKET = "bucket"
CHANGES = 100
REPEATS = 5
TWENTIETH = Target(1 / 20, is_of_ratio=True, is_upper=True)
"""At least twenty times as fast."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of bucket to compare: flat, or a tree."""

    name: str
    layout: BucketLayout
    puts: Callable[[str, int], Iterator[NamespaceCommand]]
    path: Callable[[int], str]


KINDS = (
    _Kind("flat", BucketLayout.OBJECT_STORE, flat_puts, flat_name),
    _Kind("tree", BucketLayout.FILE_SYSTEM_OPTIMIZED, tree_puts, tree_path),
)


def measure_diff(conditions: Conditions) -> Sequence[Figure]:
    """Milliseconds of a diff of two snapshots of 1 million keys with 100 changes, beside a comparison of all keys.

    metadata itself applies the puts, the snapshots and the changes, to a database on disk; only the log is in memory. A
    third of the changes each are puts, deletes and renames, at random keys. Each diff opens and closes the checkpoints
    that it reads. The quick diff runs first; the median of five counts. Both diffs must return the same entries.
    """
    figures = []
    for kind in KINDS:
        shard = LoadedShard(conditions.scratch(f"diff-{kind.name}"))
        try:
            count = conditions.sizes.many_keys
            shard.make_bucket(BUCKET, kind.layout)
            for done in shard.load(kind.puts(BUCKET, count)):
                conditions.say(f"{NAME}: {done:,} {kind.name} keys loaded")
            shard.snapshot("before", BUCKET)
            shard.apply(_changes(kind, count))
            shard.snapshot("after", BUCKET)
            conditions.say(f"{NAME}: comparing {count:,} {kind.name} keys")
            figures.append(_measured(shard, kind, count))
        finally:
            shard.close()
    return figures


def _measured(shard: LoadedShard, kind: _Kind, count: int) -> Figure:
    quick = [_timed(shard, is_full=False) for _ in range(REPEATS)]
    full_seconds, full_entries = _timed(shard, is_full=True)
    if any(entries != full_entries for _, entries in quick):
        raise StackError("the quick diff and the comparison of everything differ: this is a defect, report it")
    milliseconds = [seconds * 1000 for seconds, _ in quick]
    details = {"entries": float(len(full_entries)), "slowest_ms": max(milliseconds)}
    ceiling = Ceiling(full_seconds * 1000, "comparing all keys")
    return Figure(f"{NAME}/{kind.name}-{count}-keys", median(milliseconds), "ms", TWENTIETH, ceiling, details)


def _changes(kind: _Kind, count: int) -> Iterator[NamespaceCommand]:
    """Yield overwrites, deletes and renames of keys at random places."""
    random = Random(count)  # noqa: S311  the same at each run
    for number, chosen in enumerate(random.sample(range(count), min(CHANGES, count))):
        path = kind.path(chosen)
        if number % 3 == 0:
            yield PutKey(VOLUME, BUCKET, path, KEY_BYTES)
        elif number % 3 == 1:
            yield DeleteKey(VOLUME, BUCKET, path)
        else:
            yield RenameKey(VOLUME, BUCKET, path, f"{path}.renamed")


def _timed(shard: LoadedShard, *, is_full: bool) -> tuple[float, list[DiffEntry]]:
    """Return the seconds of one diff, and its entries."""
    started = time.perf_counter()
    with opened_states(shard.store, VOLUME, BUCKET, "before", "after") as states:
        if is_full:
            entries = compare_all(states.before, states.after)
        else:
            entries = compare_changes(states.before, states.after, states.changes())
    return time.perf_counter() - started, entries
