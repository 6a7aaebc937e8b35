"""Measures how throughput grows with shards: one and two shards are measured, four are predicted by a model.

The model has two parameters, measured in the same run: the rate of one shard alone, and the processor time of a command
in the shard's process and in the broker. The rate of s shards on n cores is

    min(s * rate of one alone, n / processor seconds of a command)

because shards share only the broker and the cores. For two shards on this machine the rate is both measured and
predicted: the difference shows how reliable the prediction for four shards on a larger machine is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain

from bench.alone import Sample, ServiceAlone, bench_broker, reached
from bench.bulk import BulkProducer, CommandMaker, flat_deletes, flat_puts, made_places
from bench.conditions import Conditions
from bench.deletions import KEYS_PER_SECOND as DELETIONS_PER_SECOND
from bench.figures import Ceiling, Figure, Target
from bench.process_figures import session_cpu_seconds
from bench.shared_plane import Burst, shared_plane
from schemas.records import BucketLayout
from schemas.topics import METADATA_COMMANDS
from services.client.plane import NamespaceCommand
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.stack.process_names import BROKER, STREAMING

NAME = "shards"
BUCKET = "flat"
KEYS_PER_SECOND = 10_000
SHARDS = 3
"""The first shard is measured alone, the other two at the same time."""
MODELLED = 4
LEAST_SHARE = 0.05
"""Share of its commands that a process has applied before two processes are compared, so that both have started."""
AS_PREDICTED = Target(0.8, is_of_ratio=True)
SEVERAL_CORES = frozenset({BROKER, STREAMING})
"""Processes with a thread for each partition; all other processes do the work of a shard in one thread."""


def measure_shards(conditions: Conditions) -> Sequence[Figure]:
    """Commands a second of one metadata process and of two with a shard each, and what a model says of four shards.

    Puts and deletes are in Kafka before the processes start; only the broker runs beside them. The two parameters of
    the model are measured here: see the module. The same model then predicts deletions of the whole plane, whose
    processor time by process is measured in a burst: the busiest process with one thread limits a shard.
    """
    count = conditions.count(KEYS_PER_SECOND)
    with bench_broker(conditions, NAME, shards=SHARDS) as broker:
        for shard in range(SHARDS):
            conditions.say(f"{NAME}: writing {2 * count:,} commands of shard {shard} into Kafka")
            _write(broker, shard, count)
        broker_cpu = _broker_clock(broker)
        one, one_cpu = _measured(conditions, broker, (0,), 2 * count, broker_cpu)
        two, two_cpu = _measured(conditions, broker, (1, 2), 2 * count, broker_cpu)
    cores = os.cpu_count() or 1
    predicted = min(2 * one, cores / one_cpu)
    ideal = Ceiling(2 * one, "twice one")
    details = {"cores": float(cores), "cpu_microseconds_per_command": two_cpu * 1e6}
    return [
        Figure(f"{NAME}/1-process", one, "commands/s", None, None, {"cpu_microseconds_per_command": one_cpu * 1e6}),
        Figure(f"{NAME}/2-processes", two, "commands/s", None, ideal, details),
        Figure(f"{NAME}/2-processes-beside-model", two, "commands/s", AS_PREDICTED, Ceiling(predicted, "by the model")),
        Figure(
            f"{NAME}/{MODELLED}-by-model",
            MODELLED * one,
            "commands/s",
            None,
            None,
            {"cores_needed": MODELLED * one * one_cpu},
        ),
        _deletions_by_model(conditions),
    ]


def _write(broker: EmbeddedBroker, shard: int, count: int) -> None:
    producer, maker = BulkProducer(broker.bootstrap_servers), CommandMaker(shard)
    places: Iterator[NamespaceCommand] = iter(made_places({BUCKET: BucketLayout.OBJECT_STORE}))
    try:
        producer.send_commands(maker, chain(places, flat_puts(BUCKET, count), flat_deletes(BUCKET, count)))
    finally:
        producer.close()


def _broker_clock(broker: EmbeddedBroker) -> Callable[[], float]:
    return lambda: session_cpu_seconds(broker.process_id or 0)


def _measured(
    conditions: Conditions, broker: EmbeddedBroker, shards: Sequence[int], count: int, broker_cpu: Callable[[], float]
) -> tuple[float, float]:
    """Return the commands a second of processes with one shard each, and the processor seconds of a command."""
    before = broker_cpu()
    with ExitStack() as running, ThreadPoolExecutor(len(shards)) as watching:
        services = [
            running.enter_context(
                ServiceAlone("metadata", conditions.scratch(f"{NAME}-{shard}"), broker, conditions, SHARDS, shard)
            )
            for shard in shards
        ]
        conditions.say(f"{NAME}: {len(shards)} processes")
        samples = list(watching.map(_watched, services, shards, [count] * len(shards)))
    cpu = broker_cpu() - before + sum(one[-1].cpu_seconds - one[0].cpu_seconds for one in samples)
    return rate_together(samples, count), cpu / (len(shards) * count)


def _watched(service: ServiceAlone, shard: int, count: int) -> list[Sample]:
    return service.watch(METADATA_COMMANDS.name, count, lambda _: None, shard)


def rate_together(samples: Sequence[list[Sample]], count: int) -> float:
    """Return the sum of the rates from the start of the last process to the end of the first.

    If the processes never worked at the same time, return the rate over the whole time.
    """
    started = [reached(one, LEAST_SHARE * count) for one in samples]
    ended = [reached(one, count) for one in samples]
    first, last = max(one.at_seconds for one in started), min(one.at_seconds for one in ended)
    if last <= first:
        first, last = min(one.at_seconds for one in started), max(one.at_seconds for one in ended)
    done = [count_at(one, last) - count_at(one, first) for one in samples]
    return sum(done) / max(last - first, 1e-9)


def count_at(samples: Sequence[Sample], at_seconds: float) -> float:
    """Return the count at a moment, interpolated between two samples."""
    before = samples[0]
    for sample in samples:
        if sample.at_seconds >= at_seconds:
            passed = sample.at_seconds - before.at_seconds
            share = (at_seconds - before.at_seconds) / passed if passed > 0 else 0.0
            return before.count + max(0.0, share) * (sample.count - before.count)
        before = sample
    return samples[-1].count


def _deletions_by_model(conditions: Conditions) -> Figure:
    plane = shared_plane(conditions)
    plane.warm()
    count = conditions.count(DELETIONS_PER_SECOND)
    bucket = plane.make_bucket(NAME)
    plane.send(flat_puts(bucket, count))
    plane.settle(NAME)
    return modelled_deletions(plane.burst(NAME, bucket, count))


def modelled_deletions(burst: Burst) -> Figure:
    """Return the deletions a second of four shards on enough cores, and the number of these cores."""
    each: Mapping[str, float] = {name: used / burst.keys for name, used in burst.cpu_seconds.items()}
    single = {name: used for name, used in each.items() if name not in SEVERAL_CORES}
    busiest = max(single, key=lambda name: single[name])
    of_one = 1 / max(single[busiest], 1e-9)
    details = {
        "measured_on_one_shard": burst.keys / burst.seconds,
        "cores_needed": MODELLED * of_one * sum(each.values()),
        **{f"{name}_cpu_microseconds": used * 1e6 for name, used in each.items()},
    }
    return Figure(f"{NAME}/{MODELLED}-deletions-by-model", MODELLED * of_one, "deletions/s", None, None, details)
