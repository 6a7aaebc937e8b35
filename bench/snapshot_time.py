"""Measures the time to create a snapshot of few and of many keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from statistics import median

from bench.alone import ServiceAlone, bench_broker
from bench.bulk import KEY_BYTES, VOLUME, BulkProducer, CommandMaker, flat_name, flat_puts, made_places
from bench.conditions import Conditions
from bench.figures import Ceiling, Figure, Target
from bench.held_versions import plane_with_held_versions
from bench.offered import writing
from bench.shared_plane import timed_ms
from schemas.records import BucketLayout, CreateSnapshot, PutKey
from schemas.topics import METADATA_COMMANDS
from services.client.kafka_plane import KafkaPlane, PlaneAddress
from services.client.plane import NamespaceCommand
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.machine.errors import StackError

NAME = "snapshot-time"
AMONG_MANY = "snapshot-among-many"
BUCKET = "flat"
SNAPSHOTS_PER_SECOND = 4
"""Snapshots a second over all sizes: a steady rate instead of the highest possible one."""
LEAST_ROUNDS = 3
FIFTY = Target(50, is_upper=True)
FLAT = Target(1.5, is_of_ratio=True, is_upper=True)


def measure_snapshot_time(conditions: Conditions) -> Sequence[Figure]:
    """Milliseconds that a snapshot takes at 10 thousand, 1 million and 5 million keys with writers: request to reply.

    Three shards, one of each size, in one metadata process beside the snapshots service and the broker. A writer puts
    new keys into each shard, 2,000 a second, while snapshots are created in turns, four a second. The median of each
    size counts, beside the target and beside the median of the smallest size. The same number of rounds before does not
    count: after writers connect, the broker compiles code for some seconds, which takes a core.
    """
    sizes = conditions.sizes
    keys = (sizes.few_keys, sizes.many_keys, sizes.most_keys)
    with bench_broker(conditions, NAME, shards=len(keys)) as broker:
        makers = [CommandMaker(shard) for shard in range(len(keys))]
        for maker, size in zip(makers, keys, strict=True):
            conditions.say(f"{NAME}: writing {size:,} puts into Kafka")
            _write_puts(broker, maker, size)
        home = conditions.scratch("snapshots")
        with ServiceAlone("metadata", home, broker, conditions, shards=len(keys)) as metadata:
            for shard, size in enumerate(keys):
                _await_applied(metadata, shard, size, conditions)
            metadata.await_ready()
            with ServiceAlone("snapshots", home, broker, conditions, shards=len(keys)) as snapshots:
                snapshots.await_ready()
                nowhere = f"{metadata.url}/none"
                address = PlaneAddress(broker.bootstrap_servers, len(keys), metadata.url, snapshots.url, nowhere)
                with KafkaPlane(address, check=metadata.require_running) as plane, ExitStack() as writers:
                    for maker, size in zip(makers, keys, strict=True):
                        bodies = maker.encoded(_more_puts(size))
                        writers.enter_context(
                            writing(broker.bootstrap_servers, bodies, sizes.offered_per_second, maker.shard)
                        )
                    created = _create_in_turns(conditions, plane, len(keys))
    return _figures(keys, created)


def measure_snapshot_among_many(conditions: Conditions) -> Sequence[Figure]:
    """Milliseconds that a snapshot takes where 1,000 were taken before, of the plane that holds 10 million versions.

    All snapshots are of a small bucket, each after a put; the median counts. A checkpoint links every file of the
    database, so the time depends on the number of files.
    """
    plane, held = plane_with_held_versions(conditions)
    bucket = plane.make_bucket(AMONG_MANY)
    created = []
    for number in range(conditions.count(SNAPSHOTS_PER_SECOND, at_least=LEAST_ROUNDS)):
        plane.send(flat_puts(bucket, 1, number))
        plane.settle(AMONG_MANY)
        created.append(timed_ms(partial(plane.snapshot, bucket, f"snapshot-{number:04}")))
    details = {"snapshots_before": float(held.snapshots), "created": float(len(created)), "slowest_ms": max(created)}
    return [Figure(AMONG_MANY, median(created), "ms", FIFTY, None, details)]


def _write_puts(broker: EmbeddedBroker, maker: CommandMaker, size: int) -> None:
    producer = BulkProducer(broker.bootstrap_servers)
    try:
        producer.send_commands(maker, made_places({BUCKET: BucketLayout.OBJECT_STORE}))
        producer.send_commands(maker, flat_puts(BUCKET, size))
    finally:
        producer.close()


def _more_puts(size: int) -> Iterator[NamespaceCommand]:
    return (PutKey(VOLUME, BUCKET, flat_name(number), KEY_BYTES) for number in count(size))


def _await_applied(metadata: ServiceAlone, shard: int, size: int, conditions: Conditions) -> None:
    metadata.watch(METADATA_COMMANDS.name, size, lambda done: conditions.say(f"{NAME}: {done:,.0f} keys loaded"), shard)


def _create_in_turns(conditions: Conditions, plane: KafkaPlane, shards: int) -> list[list[float]]:
    """Return for each shard the milliseconds of each snapshot."""
    created: list[list[float]] = [[] for _ in range(shards)]
    rounds = max(LEAST_ROUNDS, int(SNAPSHOTS_PER_SECOND * conditions.seconds / shards))
    started, pause = time.perf_counter(), threading.Event()
    for number in range(2 * rounds * shards):
        conditions.say(f"{NAME}: {number} of {2 * rounds * shards} snapshots")
        pause.wait(max(0.0, started + number / SNAPSHOTS_PER_SECOND - time.perf_counter()))
        milliseconds = _create(plane, number % shards, number)
        if number >= rounds * shards:
            created[number % shards].append(milliseconds)
    return created


def _create(plane: KafkaPlane, shard: int, number: int) -> float:
    started = time.perf_counter()
    reply = plane.request(shard, CreateSnapshot(VOLUME, BUCKET, f"snapshot-{number:05}"))
    seconds = time.perf_counter() - started
    if reply.error:
        raise StackError(f"No snapshot could be taken ({reply.error}: {reply.message}): see what holds it up.")
    return seconds * 1_000


def _figures(keys: Sequence[int], created: Sequence[Sequence[float]]) -> list[Figure]:
    """Return a figure of each size with the target, and of each but the first with the first as ceiling."""
    medians = [median(milliseconds) for milliseconds in created]
    figures = []
    for size, value, milliseconds in zip(keys, medians, created, strict=True):
        details = {
            "snapshots": float(len(milliseconds)),
            "fastest_ms": min(milliseconds),
            "slowest_ms": max(milliseconds),
        }
        figures.append(Figure(f"{NAME}/at-{size}-keys", value, "ms", FIFTY, None, details))
    ceiling = Ceiling(medians[0], f"at {keys[0]:,} keys")
    figures += [
        Figure(f"{NAME}/flat-at-{size}-keys", value, "ms", FLAT, ceiling)
        for size, value in zip(keys[1:], medians[1:], strict=True)
    ]
    return figures
