"""Measures how fast one process of the library writes many keys, beside what metadata takes without a client."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.alone import ServiceAlone, bench_broker
from bench.bulk import KEY_BYTES, VOLUME, BulkProducer, CommandMaker, flat_name, flat_puts
from bench.conditions import Conditions
from bench.figures import Ceiling, Figure
from deepclean import Bucket, BucketLayout, Connection, KafkaPlane, PlaneAddress
from schemas.topics import METADATA_COMMANDS

NAME = "library"
KEYS_PER_SECOND = 4_000
"""Keys of a round for each second of the run."""
ROUNDS = 3
"""Of the library and of prepared commands, in turns, so that a busy moment of the machine meets both."""


@dataclass(frozen=True, slots=True)
class _Round:
    """One round: rates by the clock, and by processor time of this process and of metadata."""

    rate: float
    client_rate: float
    metadata_rate: float


def measure_library(conditions: Conditions) -> Sequence[Figure]:
    """Keys a second that one bulk writer of the library puts, and deletes, each command with its answer.

    A broker and metadata run beside it, as processes. The ceiling is the rate at which metadata applies puts that were
    encoded before the clock starts and that nobody waits for, in turns with the library on the same processes. All
    rates are medians of rounds. ``client_keys_per_cpu_second`` counts the processor time of the library's process, and
    ``metadata_keys_per_cpu_second`` that of metadata: the smaller one is what a machine with enough cores is bound by.
    """
    count = conditions.count(KEYS_PER_SECOND)
    with bench_broker(conditions, NAME) as broker:
        producer, maker = BulkProducer(broker.bootstrap_servers), CommandMaker()
        with ServiceAlone("metadata", conditions.scratch("metadata"), broker, conditions) as metadata:
            metadata.await_ready()
            address = PlaneAddress(broker.bootstrap_servers, 1, metadata.url, "", "")
            with Connection(KafkaPlane(address)) as plane:
                volume = plane.volume(VOLUME).create()
                puts, deletes, prepared = list[_Round](), list[_Round](), list[float]()
                for number in range(ROUNDS):
                    conditions.say(f"{NAME}: round {number + 1} of {ROUNDS}, {count:,} keys")
                    bucket = volume.bucket(f"library-{number}").create(BucketLayout.OBJECT_STORE)
                    puts.append(_timed(metadata, bucket, count, is_delete=False))
                    deletes.append(_timed(metadata, bucket, count, is_delete=True))
                    other = volume.bucket(f"prepared-{number}").create(BucketLayout.OBJECT_STORE)
                    prepared.append(_prepared_rate(metadata, producer, maker, other.bucket, count))
        producer.close()
    ceiling = Ceiling(median(prepared), "prepared puts, without answers")
    return [_figure("puts", puts, count, ceiling), _figure("deletes", deletes, count, None)]


def _timed(metadata: ServiceAlone, bucket: Bucket, count: int, *, is_delete: bool) -> _Round:
    before = metadata.cpu_seconds()
    started, cpu_started = time.perf_counter(), time.process_time()
    with bucket.writer() as writer:
        for number in range(count):
            if is_delete:
                writer.delete(flat_name(number))
            else:
                writer.put(flat_name(number), size_bytes=KEY_BYTES)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    metadata_seconds = metadata.cpu_seconds() - before
    return _Round(count / seconds, count / max(cpu_seconds, 1e-9), count / max(metadata_seconds, 1e-9))


def _prepared_rate(
    metadata: ServiceAlone, producer: BulkProducer, maker: CommandMaker, bucket: str, count: int
) -> float:
    messages = list(maker.encoded(flat_puts(bucket, count)))
    applied = metadata.applied(METADATA_COMMANDS.name)
    started = time.perf_counter()
    producer.send(METADATA_COMMANDS.name, messages)
    samples = metadata.watch(METADATA_COMMANDS.name, int(applied.count if applied else 0) + count, lambda _: None)
    return count / (samples[-1].at_seconds - started)


def _figure(kind: str, rounds: Sequence[_Round], count: int, ceiling: Ceiling | None) -> Figure:
    details = {
        "keys": count,
        "client_keys_per_cpu_second": median(one.client_rate for one in rounds),
        "metadata_keys_per_cpu_second": median(one.metadata_rate for one in rounds),
    }
    return Figure(f"{NAME}/{kind}", median(one.rate for one in rounds), "keys/s", None, ceiling, details)
