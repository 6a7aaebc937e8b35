"""How fast metadata applies commands."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.records import BucketLayout
from schemas.topics import METADATA_COMMANDS
from services.plane.bench.alone import ServiceAlone, bench_broker, reached
from services.plane.bench.bulk import BulkProducer, CommandMaker, flat_deletes, flat_puts, made_places, tree_puts
from services.plane.bench.ceilings import slowest
from services.plane.bench.conditions import Conditions
from services.plane.bench.figures import Figure, Target

NAME = "metadata-commands"
COMMANDS_PER_SECOND = 10_000
"""How many are prepared for each second of each of the three kinds."""
TARGETS = {"puts": Target(60_000), "deletes": Target(50_000), "tree-puts": Target(30_000)}
FLAT, TREE = "flat", "tree"


def measure_metadata_commands(conditions: Conditions) -> Sequence[Figure]:
    """Commands a second applied and durable in one shard: puts, their deletes, and puts in deep trees.

    All commands lie in Kafka before metadata starts, as a process, with nothing else running but the broker. It reads
    them, writes its RocksDB (synced) and publishes what they cause (acknowledged). Its own count of applied messages
    is read ten times a second; a kind is timed from its first command to its last, on a straight line between two
    readings. ``cpu`` is the same in seconds of the process's own time: on a busy machine it says more.
    """
    count = conditions.count(COMMANDS_PER_SECOND)
    ceiling = slowest(conditions)
    with bench_broker(conditions, NAME) as broker:
        conditions.say(f"{NAME}: writing {3 * count:,} commands into Kafka")
        producer, maker = BulkProducer(broker.bootstrap_servers), CommandMaker()
        places = made_places({FLAT: BucketLayout.OBJECT_STORE, TREE: BucketLayout.FILE_SYSTEM_OPTIMIZED})
        try:
            for commands in (places, flat_puts(FLAT, count), flat_deletes(FLAT, count), tree_puts(TREE, count)):
                producer.send_commands(maker, commands)
        finally:
            producer.close()
        with ServiceAlone("metadata", conditions.scratch("metadata"), broker, conditions) as metadata:
            samples = metadata.watch(
                METADATA_COMMANDS.name,
                maker.number,
                lambda applied: conditions.say(f"{NAME}: {applied:,.0f} of {maker.number:,} applied"),
            )
    figures = []
    for place, kind in enumerate(TARGETS):
        start = reached(samples, len(places) + place * count)
        end = reached(samples, len(places) + (place + 1) * count)
        cpu_seconds = max(end.cpu_seconds - start.cpu_seconds, 1e-9)
        rate = count / max(end.at_seconds - start.at_seconds, 1e-9)
        details = {"commands": count, "commands_per_cpu_second": count / cpu_seconds}
        figures.append(Figure(f"{NAME}/{kind}", rate, "commands/s", TARGETS[kind], ceiling, details))
    return figures
