"""Measures how fast metadata applies commands."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from bench.alone import Sample, ServiceAlone, bench_broker, reached
from bench.bulk import (
    BulkProducer,
    CommandMaker,
    flat_bulk_deletes,
    flat_deletes,
    flat_puts,
    made_places,
    tree_puts,
)
from bench.ceilings import slowest
from bench.conditions import Conditions
from bench.figures import Ceiling, Figure, Target
from schemas.records import BucketLayout
from schemas.topics import METADATA_COMMANDS
from services.client.plane import NamespaceCommand

NAME = "metadata-commands"
COMMANDS_PER_SECOND = 10_000
"""Commands prepared for each second of each kind."""
LEAST_BULK_KEYS = 50_000
"""Fewest keys that are deleted in bulk: half a second's work, the least that ten readings a second can time. Ten
thousand keys are a hundred commands, and one unit of work may apply them all, with commands of the kinds beside."""
FLAT, BULK, TREE = "flat", "bulk", "tree"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of command, with its target a second."""

    name: str
    commands_of: Callable[[int], Iterable[NamespaceCommand]]
    target: Target | None = None
    unit: str = "commands"
    """The unit of the rate: commands, or the keys that they name."""
    least_keys: int = 200
    """Fewest keys that are named, however short the run is."""


KINDS = (
    Kind("puts", lambda count: flat_puts(FLAT, count), Target(60_000)),
    Kind("deletes", lambda count: flat_deletes(FLAT, count), Target(50_000)),
    Kind("puts for what follows", lambda count: flat_puts(BULK, count), least_keys=LEAST_BULK_KEYS),
    Kind("bulk-deletes", lambda count: flat_bulk_deletes(BULK, count), Target(50_000), "keys", LEAST_BULK_KEYS),
    Kind("tree-puts", lambda count: tree_puts(TREE, count), Target(30_000)),
)
"""All kinds, in the order in which they run; a kind without a target is not measured."""


def measure_metadata_commands(conditions: Conditions) -> Sequence[Figure]:
    """Commands a second applied and durable in one shard: puts, their deletes, deletes in bulk, puts in deep trees.

    All commands are in Kafka before metadata starts, as a process; only the broker runs beside it. metadata reads the
    commands, writes its RocksDB (synced) and publishes the resulting messages (acknowledged). Its count of applied
    messages is read ten times a second. A kind is timed from its first command to its last, interpolated between two
    readings; ``samples`` is the number of readings meanwhile. ``cpu`` is the rate by the process's own processor time,
    which is more reliable on a busy machine. For deletes in bulk, a hundred keys to a command, the keys are counted.
    """
    keys = [conditions.count(COMMANDS_PER_SECOND, kind.least_keys) for kind in KINDS]
    ceiling = slowest(conditions)
    with bench_broker(conditions, NAME) as broker:
        conditions.say(f"{NAME}: writing commands about {sum(keys):,} keys into Kafka")
        producer, maker = BulkProducer(broker.bootstrap_servers), CommandMaker()
        layouts = {FLAT: BucketLayout.OBJECT_STORE, BULK: BucketLayout.OBJECT_STORE}
        ends = []
        try:
            producer.send_commands(maker, made_places({**layouts, TREE: BucketLayout.FILE_SYSTEM_OPTIMIZED}))
            ends.append(maker.number)
            for kind, count in zip(KINDS, keys, strict=True):
                producer.send_commands(maker, kind.commands_of(count))
                ends.append(maker.number)
        finally:
            producer.close()
        with ServiceAlone("metadata", conditions.scratch("metadata"), broker, conditions) as metadata:
            samples = metadata.watch(
                METADATA_COMMANDS.name,
                maker.number,
                lambda applied: conditions.say(f"{NAME}: {applied:,.0f} of {maker.number:,} applied"),
            )
    return kind_figures(samples, ends, keys, ceiling)


def kind_figures(
    samples: Sequence[Sample], ends: Sequence[int], keys: Sequence[int], ceiling: Ceiling | None
) -> list[Figure]:
    """Return the rate of each kind: ``ends`` has the commands before the first kind, and those up to each kind's last.

    Between two readings the progress is taken to be even in keys, since commands of different kinds name more or fewer
    of them: even in commands, a hundred deletes in bulk would take no longer than a hundred puts beside them.
    """
    key_ends, figures = list(accumulate(keys, initial=ends[0])), list[Figure]()
    done = [replace(sample, count=_keys_at(sample.count, ends, key_ends)) for sample in samples]
    for kind, count, (first, last), span in zip(KINDS, keys, pairwise(ends), pairwise(key_ends), strict=True):
        if kind.target is None:
            continue
        start, end = (reached(done, place) for place in span)
        cpu_seconds = max(end.cpu_seconds - start.cpu_seconds, 1e-9)
        rate = count / max(end.at_seconds - start.at_seconds, 1e-9)
        meanwhile = sum(start.at_seconds < sample.at_seconds < end.at_seconds for sample in samples)
        details = {
            "commands": last - first,
            f"{kind.unit}_per_cpu_second": count / cpu_seconds,
            "samples": meanwhile,
        }
        figures.append(Figure(f"{NAME}/{kind.name}", rate, f"{kind.unit}/s", kind.target, ceiling, details))
    return figures


def _keys_at(applied: float, ends: Sequence[int], key_ends: Sequence[int]) -> float:
    """Return the keys that so many applied commands name; each of those before the first kind counts as one."""
    place = bisect_left(ends, applied)
    if place == 0:
        return applied
    if place == len(ends):
        return key_ends[-1]
    share = (applied - ends[place - 1]) / (ends[place] - ends[place - 1])
    return key_ends[place - 1] + share * (key_ends[place] - key_ends[place - 1])
