"""Runs schedules on a plane and judges the end: what can be seen is what it is without faults, to the byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import Consumer, TopicPartition

from schemas import records
from schemas.records import BreakerCause, BreakerTrip
from schemas.topics import DEAD_LETTERS
from services.client.errors import UnreachableError
from services.client.kafka_plane import KafkaPlane
from services.log.kafka import KafkaLog
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.upkeep.audits import Auditor
from services.verifier.run import compared_with_store, replay_shard
from services.workloads import workload
from services.workloads.names import physical_names
from services.workloads.replay import Replay
from tests.chaos.injector import Injector
from tests.chaos.keeper import Keeper
from tests.chaos.plane import ChaosPlane
from tests.chaos.schedule import Schedule
from tests.model_lines import lines_of

ANSWER_SECONDS, SETTLE_SECONDS = 240.0, 400.0
ATTEMPTS = 20
Answer = TypeVar("Answer")
ResetBreaker = Callable[[str, str], BreakerTrip | None]


class ChaosError(AssertionError):
    """A schedule ended otherwise than it does without faults."""


def expected_lines(schedule: Schedule) -> list[Any]:
    """What the same workload writes without faults, on which the plane in memory and the model of plain sets agree."""
    replay, found = Replay(InMemoryClient(InMemoryPlane(shards=2))), list[Any]()
    for number, operation in schedule.operations:
        hold(replay, schedule, number, is_alone=True)
        found += replay.execute(number, operation)
    found += replay.collect()
    lines = json.loads(json.dumps(found))
    modelled = lines_of(schedule.operations)
    if lines != modelled:
        raise ChaosError(f"without any fault the plane differs from the model: {_first_difference(lines, modelled)}")
    return list(lines)


def hold(replay: Replay, schedule: Schedule, number: int, *, is_alone: bool = False) -> None:
    """Have the collector do what it is to do from an operation on; ``is_alone``: only what the workload relies on."""
    for one in schedule.holds:
        if one.operation == number and (one.is_needed or not is_alone):
            _order(replay, records.SetCollection, one.volume, one.bucket, one.state, "as the workload was told")


def reset_breaker(replay: Replay, volume: str, bucket: str) -> BreakerTrip | None:
    """Reset the breaker of a bucket of the workload; the trip, or None where it had not tripped."""
    lines = replay.plane.metadata(replay.shards[volume]).collection(*physical_names(volume, bucket))
    trip = next(line.trip for line in lines if line.bucket and not line.is_deleted)
    _order(replay, records.ResetBreaker, volume, bucket, "as the workload was told")
    return trip


def _order(replay: Replay, kind: type[Any], volume: str, bucket: str, *fields: Any) -> None:
    """Have a command on a bucket of the workload carried out behind all that was sent before."""
    shard = replay.shards[volume]
    replay.plane.answer(shard, replay.plane.submit(shard, kind(*physical_names(volume, bucket), *fields)))


def run_schedules(stack: ChaosPlane, keeper: Keeper, schedules: Sequence[Schedule]) -> None:
    """Run schedules beside one another, each on volumes of its own, and judge them when the last fault is over.

    Raises:
        ChaosError: one has not ended as it must.
    """
    with ExitStack() as clients:
        runs = [_Run(schedule, keeper, clients.enter_context(client_of(stack, keeper))) for schedule in schedules]
        with ThreadPoolExecutor(len(runs)) as pool:
            try:
                for played in as_completed([pool.submit(run.play) for run in runs]):
                    played.result()
            except BaseException as error:
                keeper.give_up(error)  # or the others would go on for minutes
                raise
        keeper.heal()
        for run in runs:
            run.check_again()
        _check_accounts(runs[0].plane)
        _check_dead_letters(stack)
    keeper.counts.schedules += len(runs)


def audit(stack: ChaosPlane) -> None:
    """Recount from tables and checkpoints, and replay the log, by roads that share no rule with the judges.

    Raises:
        ChaosError: something is lost, leaked or counted wrong, or the ledger does not say what the log says.
    """
    auditor = Auditor(stack.address, stack.home)
    for shard in range(stack.shards):
        report = auditor.audit(shard, "", lambda _percent, _doing: None).report
        if not report.is_clean:
            raise ChaosError(f"the audit of shard {shard} is not clean: {report}")
    log = KafkaLog(stack.address.bootstrap_servers, "deepclean.verify")
    with KafkaPlane(stack.address, answer_seconds=ANSWER_SECONDS) as plane:
        for shard in range(stack.shards):
            replayed = compared_with_store(partial(replay_shard, log, shard), partial(_deleted_bytes, plane, shard))
            if not replayed.is_clean:
                raise ChaosError(f"shard {shard} is not verified: {replayed}")


def _deleted_bytes(plane: KafkaPlane, shard: int) -> int:
    return plane.scm(shard).totals().deleted_bytes


def client_of(stack: ChaosPlane, keeper: Keeper) -> KafkaPlane:
    """A client as patient as a plane under faults needs. It connects before there are any."""
    client = KafkaPlane(stack.address, answer_seconds=ANSWER_SECONDS, settle_seconds=SETTLE_SECONDS, check=keeper.check)
    client.connect()
    return client


def operate(
    replay: Replay, schedule: Schedule, number: int, found: list[Any], reset: ResetBreaker | None = None
) -> int:
    """What an operator does before an operation; says how many breakers had tripped that he has reset.

    Refusals that are due are added to what was found.

    He looks for a trip once all that may be claimed was asked for, which is when a settle ends: it waits for nothing
    that is held back.
    """
    hold(replay, schedule, number)
    tripped = 0
    for limit in schedule.limits:
        if limit.operation == number:
            _order(replay, records.SetBreaker, limit.volume, limit.bucket, limit.limits)
        if limit.last_operation == number:
            found += replay.collect()
            replay.settle()
            _order(replay, records.SetBreaker, limit.volume, limit.bucket, None)
            trip = (reset or partial(reset_breaker, replay))(limit.volume, limit.bucket)
            if trip is not None and trip.cause is not BreakerCause.LIMITS:
                raise ChaosError(f"schedule {schedule.seed}: rows and figures disagree: {trip}")
            tripped += trip is not None
    return tripped


class _Run:
    """One schedule with a client of its own."""

    def __init__(self, schedule: Schedule, keeper: Keeper, plane: KafkaPlane) -> None:
        self.plane = plane
        self._schedule = schedule
        self._keeper = keeper
        self._replay = Replay(plane)
        self._expected = expected_lines(schedule)

    def play(self) -> None:
        """The workload, its faults, and what it has shown meanwhile."""
        found: list[Any] = []
        with Injector(self._keeper, self._schedule.faults) as injector:
            for number, operation in self._schedule.operations:
                injector.reached(number)
                self._keeper.counts.trips += operate(self._replay, self._schedule, number, found, self._reset_breaker)
                if isinstance(operation, workload.Observe):
                    found += self._replay.collect()
                    injector.await_idle()
                    found.append(self._observe(number, operation.label))
                elif isinstance(operation, workload.UndeleteKey):  # which reads before it sends anything
                    found += self._replay.collect()
                    found += _once_reached(self._keeper, partial(self._execute, number, operation))
                else:
                    found += self._execute(number, operation)
            injector.await_idle()
        self._compare(found, self._expected, "under faults")

    def check_again(self) -> None:
        """What is seen when all faults are over."""
        self._replay.settle()
        number, operation = self._schedule.operations[-1]
        assert isinstance(operation, workload.Observe)
        again = self._observe(number, operation.label)
        self._compare([again], self._expected[-1:], "after all faults")

    def _reset_breaker(self, volume: str, bucket: str) -> BreakerTrip | None:
        return _once_reached(self._keeper, partial(reset_breaker, self._replay, volume, bucket))

    def _execute(self, number: int, operation: workload.Operation) -> list[Any]:
        return list(self._replay.execute(number, operation))

    def _observe(self, number: int, label: str) -> Any:
        return _once_reached(self._keeper, partial(self._replay.observe, number, label))

    def _compare(self, found: list[Any], expected: list[Any], when: str) -> None:
        found = json.loads(json.dumps(found))
        if found != expected:
            difference = _first_difference(found, expected)
            raise ChaosError(
                f"schedule {self._schedule.seed}: what is seen {when} differs from a run without faults: {difference}"
            )


def _once_reached(keeper: Keeper, ask: Callable[[], Answer]) -> Answer:
    """An answer; while a process is away it is asked for again."""
    for attempt in range(ATTEMPTS):
        keeper.await_ready()
        try:
            return ask()
        except UnreachableError:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError


def _first_difference(found: Any, expected: Any, path: str = "") -> str:
    """Where two answers differ first, by the way to it."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in sorted({*found, *expected}, key=str):
            if found.get(key) != expected.get(key):
                return _first_difference(found.get(key), expected.get(key), f"{path}.{key}")
    if isinstance(found, list) and isinstance(expected, list):
        for index, (left, right) in enumerate(zip(found, expected, strict=False)):
            if left != right:
                whole = "" if path else f", in {left}"
                return _first_difference(left, right, f"{path}[{index}]") + whole
        return f"{path}: {len(found)} instead of {len(expected)}: {set(map(str, found)) ^ set(map(str, expected))}"
    return f"{path}: {found!r} instead of {expected!r}"


def _check_accounts(plane: KafkaPlane) -> None:
    """SCM has what is referenced and what is held, of all schedules so far; nothing is on its way."""
    for shard in range(plane.shards):
        reads = plane.metadata(shard)
        spaces = [
            reads.space(volume.volume, bucket.bucket)
            for volume in reads.volumes()
            for bucket in reads.buckets(volume.volume)
        ]
        waiting = sum(space.pending_bytes + space.claimed_bytes for space in spaces)
        owned = sum(space.live_bytes + space.held_bytes for space in spaces)
        inventory = plane.scm(shard).totals().inventory_bytes
        if waiting or owned != inventory:
            raise ChaosError(
                f"shard {shard}: {owned} bytes are live or held and {waiting} on their way, SCM has {inventory}"
            )


def _check_dead_letters(stack: ChaosPlane) -> None:
    """None of our faults makes a message that nobody can use."""
    consumer = Consumer({"bootstrap.servers": stack.address.bootstrap_servers, "group.id": "chaos"})
    try:
        for shard in range(stack.shards):
            _, end = consumer.get_watermark_offsets(TopicPartition(DEAD_LETTERS.name, shard), timeout=30)
            if end:
                raise ChaosError(f"shard {shard}: {end} messages were put aside: deepclean dead-letters list")
    finally:
        consumer.close()
