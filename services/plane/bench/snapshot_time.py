"""How long a snapshot takes, beside few keys and beside many."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from schemas.records import BucketLayout, CreateSnapshot
from schemas.topics import METADATA_COMMANDS
from services.client.kafka_plane import KafkaPlane, PlaneAddress
from services.plane.bench.alone import ServiceAlone, bench_broker
from services.plane.bench.bulk import VOLUME, BulkProducer, CommandMaker, flat_puts, made_places
from services.plane.bench.conditions import Conditions
from services.plane.bench.figures import Ceiling, Figure, Target
from services.plane.broker import EmbeddedBroker
from services.plane.errors import StackError

NAME = "snapshot-time"
BUCKET = "flat"
SMALL, LARGE = 0, 1
"""The shards: one with few keys and one with many."""
SNAPSHOTS_PER_SECOND = 2
LEAST_SNAPSHOTS = 5
PUTS_BETWEEN = 200
FLAT = Target(1.5, is_of_ratio=True, is_upper=True)


def measure_snapshot_time(conditions: Conditions) -> Sequence[Figure]:
    """Milliseconds that a snapshot takes at 10 thousand and at 1 million keys: request to reply, and metadata's share.

    Two shards, one with few keys and one with many, in one metadata process beside snapshots and the broker. Snapshots
    are taken in turns, each after some puts so that there is something to flush; of each kind the median counts.
    metadata's share is the batch in which it takes the checkpoint, by its own clock: from the command until durable.
    """
    keys = {SMALL: conditions.small_bucket_keys, LARGE: conditions.large_bucket_keys}
    with bench_broker(conditions, NAME, shards=2) as broker:
        for shard, count in keys.items():
            conditions.say(f"{NAME}: writing {count:,} puts into Kafka")
            _write_puts(broker, shard, count)
        home = conditions.scratch("snapshots")
        with ServiceAlone("metadata", home, broker, conditions, shards=2) as metadata:
            _await_applied(metadata, keys[LARGE], conditions)
            metadata.await_ready()
            with ServiceAlone("snapshots", home, broker, conditions, shards=2) as snapshots:
                snapshots.await_ready()
                nowhere = f"{metadata.url}/none"
                address = PlaneAddress(broker.bootstrap_servers, 2, metadata.url, snapshots.url, nowhere)
                with KafkaPlane(address, check=metadata.require_running) as plane:
                    taken = _take_in_turns(conditions, metadata, plane, keys)
    return _figures(keys, taken)


def _write_puts(broker: EmbeddedBroker, shard: int, count: int) -> None:
    producer, maker = BulkProducer(broker.bootstrap_servers), CommandMaker(shard)
    try:
        producer.send_commands(maker, made_places({BUCKET: BucketLayout.OBJECT_STORE}))
        producer.send_commands(maker, flat_puts(BUCKET, count))
    finally:
        producer.close()


def _await_applied(metadata: ServiceAlone, count: int, conditions: Conditions) -> None:
    metadata.watch(
        METADATA_COMMANDS.name, count, lambda done: conditions.say(f"{NAME}: {done:,.0f} keys loaded"), LARGE
    )


def _take_in_turns(
    conditions: Conditions, metadata: ServiceAlone, plane: KafkaPlane, keys: dict[int, int]
) -> dict[int, list[tuple[float, float]]]:
    """Per shard the seconds of each snapshot: from request to reply, and of metadata's batch."""
    taken: dict[int, list[tuple[float, float]]] = {SMALL: [], LARGE: []}
    rounds = max(LEAST_SNAPSHOTS, int(SNAPSHOTS_PER_SECOND * conditions.seconds))
    for number in range(rounds + 1):
        conditions.say(f"{NAME}: {number} of {rounds} snapshots")
        for shard in (SMALL, LARGE):
            puts = flat_puts(BUCKET, PUTS_BETWEEN, keys[shard] + number * PUTS_BETWEEN)
            numbers = [plane.submit(shard, put) for put in puts]
            for sent in numbers:
                plane.answer(shard, sent)
            seconds = _take(metadata, plane, shard, number)
            if number:  # the first one opens connections and files
                taken[shard].append(seconds)
    return taken


def _take(metadata: ServiceAlone, plane: KafkaPlane, shard: int, number: int) -> tuple[float, float]:
    name = f'deepclean_batch_seconds_sum{{service="metadata",shard="{shard}"}}'
    before = metadata.metrics()[name]
    started = time.perf_counter()
    reply = plane.request(shard, CreateSnapshot(VOLUME, BUCKET, f"snapshot-{number:05}"))
    seconds = time.perf_counter() - started
    if reply.error:
        raise StackError(f"No snapshot could be taken ({reply.error}: {reply.message}): see what holds it up.")
    return seconds, metadata.metrics()[name] - before


def _figures(keys: dict[int, int], taken: dict[int, list[tuple[float, float]]]) -> list[Figure]:
    figures = []
    for place, part in enumerate(("request", "checkpoint")):
        milliseconds = {shard: [seconds[place] * 1000 for seconds in taken[shard]] for shard in taken}
        small = median(milliseconds[SMALL])
        for shard, measured in milliseconds.items():
            details = {"snapshots": float(len(measured)), "fastest_ms": min(measured), "slowest_ms": max(measured)}
            name = f"{NAME}/{part}-at-{keys[shard]}-keys"
            if shard == SMALL:
                figures.append(Figure(name, small, "ms", details=details))
            else:
                ceiling = Ceiling(small, f"at {keys[SMALL]:,} keys")
                figures.append(Figure(name, median(measured), "ms", FLAT, ceiling, details))
    return figures
