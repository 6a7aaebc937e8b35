"""Measures how fast metadata applies commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.alone import ServiceAlone, bench_broker, reached
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
from bench.figures import Figure, Target
from schemas.records import BucketLayout
from schemas.topics import METADATA_COMMANDS
from services.client.plane import NamespaceCommand

NAME = "metadata-commands"
COMMANDS_PER_SECOND = 10_000
"""Commands prepared for each second of each kind."""
FLAT, BULK, TREE = "flat", "bulk", "tree"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of command, with its target a second."""

    name: str
    commands_of: Callable[[int], Iterable[NamespaceCommand]]
    target: Target | None = None
    unit: str = "commands"
    """The unit of the rate: commands, or the keys that they name."""


KINDS = (
    Kind("puts", lambda count: flat_puts(FLAT, count), Target(60_000)),
    Kind("deletes", lambda count: flat_deletes(FLAT, count), Target(50_000)),
    Kind("puts for what follows", lambda count: flat_puts(BULK, count)),
    Kind("bulk-deletes", lambda count: flat_bulk_deletes(BULK, count), Target(50_000), unit="keys"),
    Kind("tree-puts", lambda count: tree_puts(TREE, count), Target(30_000)),
)
"""All kinds, in the order in which they run; a kind without a target is not measured."""


def measure_metadata_commands(conditions: Conditions) -> Sequence[Figure]:
    """Commands a second applied and durable in one shard: puts, their deletes, deletes in bulk, puts in deep trees.

    All commands are in Kafka before metadata starts, as a process; only the broker runs beside it. metadata reads the
    commands, writes its RocksDB (synced) and publishes the resulting messages (acknowledged). Its count of applied
    messages is read ten times a second. A kind is timed from its first command to its last, interpolated between two
    readings. ``cpu`` is the rate by the process's own processor time, which is more reliable on a busy machine. For
    deletes in bulk, a hundred keys to a command, the keys are counted.
    """
    count = conditions.count(COMMANDS_PER_SECOND)
    ceiling = slowest(conditions)
    with bench_broker(conditions, NAME) as broker:
        conditions.say(f"{NAME}: writing commands about {len(KINDS) * count:,} keys into Kafka")
        producer, maker = BulkProducer(broker.bootstrap_servers), CommandMaker()
        layouts = {FLAT: BucketLayout.OBJECT_STORE, BULK: BucketLayout.OBJECT_STORE}
        ends = []
        try:
            producer.send_commands(maker, made_places({**layouts, TREE: BucketLayout.FILE_SYSTEM_OPTIMIZED}))
            ends.append(maker.number)
            for kind in KINDS:
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
    figures = []
    for kind, (first, last) in zip(KINDS, pairwise(ends), strict=True):
        if kind.target is None:
            continue
        start, end = reached(samples, first), reached(samples, last)
        cpu_seconds = max(end.cpu_seconds - start.cpu_seconds, 1e-9)
        rate = count / max(end.at_seconds - start.at_seconds, 1e-9)
        details = {"commands": last - first, f"{kind.unit}_per_cpu_second": count / cpu_seconds}
        figures.append(Figure(f"{NAME}/{kind.name}", rate, f"{kind.unit}/s", kind.target, ceiling, details))
    return figures
