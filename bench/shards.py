"""Whether more shards do more: what one core is to one shard, measured with one and two, and a model for four.

The model has two numbers of this very run: what one shard does alone, and the processor time that a command costs, in
the shard's process and in the broker. With s shards on n cores that is

    min(s * rate of one alone, n / processor seconds of a command)

since shards share nothing but the broker and the cores. Two shards on this machine are measured and predicted: how well
the two agree says what the prediction for four on a larger machine is worth.
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
from services.plane.stack.settings import BROKER, STREAMING

NAME = "shards"
BUCKET = "flat"
KEYS_PER_SECOND = 10_000
SHARDS = 3
"""The first is measured alone, the other two beside each other."""
MODELLED = 4
LEAST_SHARE = 0.05
"""Of its commands each process has done before two are compared: it has started then."""
AS_PREDICTED = Target(0.8, is_of_ratio=True)
SEVERAL_CORES = frozenset({BROKER, STREAMING})
"""Processes with threads of their own for each partition; all others do a shard's work in one."""


def measure_shards(conditions: Conditions) -> Sequence[Figure]:
    """Commands a second of one metadata process and of two with a shard each, and what a model says of four shards.

    Puts and deletes lie in Kafka before the processes start; nothing else runs but the broker. The model's two numbers
    are measured here: see the module. Then the same for deletions of the whole plane, whose processor time by process
    is measured in a burst: a shard does as many as its busiest process of one thread lets it.
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
    """Commands a second of processes with a shard each, while all of them work; and processor seconds of a command."""
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
    """Sum of the rates between the moment when the last has started and that when the first has ended.

    When they were never at work together, it is the rate of one after the other.
    """
    started = [reached(one, LEAST_SHARE * count) for one in samples]
    ended = [reached(one, count) for one in samples]
    first, last = max(one.at_seconds for one in started), min(one.at_seconds for one in ended)
    if last <= first:
        first, last = min(one.at_seconds for one in started), max(one.at_seconds for one in ended)
    done = [count_at(one, last) - count_at(one, first) for one in samples]
    return sum(done) / max(last - first, 1e-9)


def count_at(samples: Sequence[Sample], at_seconds: float) -> float:
    """What was done at a moment, between two samples on a straight line."""
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
    """Deletions a second of four shards, where there are cores enough for them, and how many that are."""
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
