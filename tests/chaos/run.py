"""Runs schedules on a plane and judges the end: what can be seen is what it is without faults, to the byte."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from schemas.records import BreakerCause
from schemas.topics import DEAD_LETTERS
from services.client import workload
from services.client.errors import UnreachableError
from services.client.kafka_plane import KafkaPlane
from services.client.namespace_model import NamespaceModel, OperationRefusedError
from services.client.replay import Replay
from services.plane.audit_run import Auditor
from services.plane.in_memory import InMemoryPlane
from services.plane.in_memory_client import InMemoryClient
from services.plane.stack import Stack
from tests.chaos.keeper import Keeper
from tests.chaos.schedule import Fault, Schedule

ANSWER_SECONDS, SETTLE_SECONDS = 240.0, 400.0
ATTEMPTS = 20


class ChaosError(AssertionError):
    """A schedule ended otherwise than it does without faults."""


def expected_lines(schedule: Schedule) -> list[Any]:
    """What the same workload writes without faults, on which the plane in memory and the model of plain sets agree."""
    lines = json.loads(json.dumps(list(Replay(InMemoryClient(InMemoryPlane(shards=2))).run(schedule.operations))))
    model, told = NamespaceModel(), []
    for number, operation in schedule.operations:
        try:
            model.apply(number, operation)
        except OperationRefusedError as refusal:
            told.append({"op": number, "error": refusal.code})
        if isinstance(operation, workload.Observe):
            told.append(json.loads(json.dumps(model.observe(number, operation.label))))
    if lines != told:
        raise ChaosError(f"without any fault the plane differs from the model: {_first_difference(lines, told)}")
    return list(lines)


def run_schedules(stack: Stack, keeper: Keeper, schedules: Sequence[Schedule]) -> None:
    """Run schedules beside one another, each on volumes of its own, and judge them when the last fault is over.

    Raises:
        ChaosError: one has not ended as it must.
    """
    with ExitStack() as clients:
        runs = [_Run(schedule, keeper, clients.enter_context(_client(stack, keeper))) for schedule in schedules]
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


def audit(stack: Stack) -> None:
    """Recount from tables and checkpoints, by a road that shares no rule with the judges.

    Raises:
        ChaosError: something is lost, leaked or counted wrong.
    """
    auditor = Auditor(stack.address, stack.home)
    for shard in range(stack.shards):
        report = auditor.audit(shard, "", lambda _percent, _doing: None).report
        if not report.is_clean:
            raise ChaosError(f"the audit of shard {shard} is not clean: {report}")


def _client(stack: Stack, keeper: Keeper) -> KafkaPlane:
    return KafkaPlane(stack.address, answer_seconds=ANSWER_SECONDS, settle_seconds=SETTLE_SECONDS, check=keeper.check)


def operate(replay: Replay, schedule: Schedule, number: int, found: list[Any]) -> int:
    """What an operator does before an operation; says how many breakers had tripped that he has reset.

    Refusals that are due are added to what was found.

    He looks for a trip once all that may be claimed was asked for, which is when a settle ends: it waits for nothing
    that is held back.
    """
    for hold in schedule.holds:
        if hold.operation == number:
            replay.hold(hold.volume, hold.bucket, hold.state)
    tripped = 0
    for limit in schedule.limits:
        if limit.operation == number:
            replay.limit(limit.volume, limit.bucket, limit.limits)
        if limit.last_operation == number:
            found += replay.collect()
            replay.settle()
            replay.limit(limit.volume, limit.bucket, None)
            trip = replay.reset_breaker(limit.volume, limit.bucket)
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
        with _Injector(self._keeper, self._schedule.faults) as injector:
            for number, operation in self._schedule.operations:
                injector.reached(number)
                self._keeper.counts.trips += operate(self._replay, self._schedule, number, found)
                if isinstance(operation, workload.Observe):
                    found += self._replay.collect()
                    injector.await_idle()
                    found.append(_observe(self._replay, self._keeper, number, operation.label))
                else:
                    found += self._replay.execute(number, operation)
            injector.await_idle()
        self._compare(found, self._expected, "under faults")

    def check_again(self) -> None:
        """What is seen when all faults are over."""
        self._replay.settle()
        number, operation = self._schedule.operations[-1]
        assert isinstance(operation, workload.Observe)
        again = _observe(self._replay, self._keeper, number, operation.label)
        self._compare([again], self._expected[-1:], "after all faults")

    def _compare(self, found: list[Any], expected: list[Any], when: str) -> None:
        found = json.loads(json.dumps(found))
        if found != expected:
            difference = _first_difference(found, expected)
            raise ChaosError(
                f"schedule {self._schedule.seed}: what is seen {when} differs from a run without faults: {difference}"
            )


def _observe(replay: Replay, keeper: Keeper, number: int, label: str) -> Any:
    """An observation; while a process is away it is made again."""
    for attempt in range(ATTEMPTS):
        keeper.await_ready()
        try:
            return replay.observe(number, label)
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
                return _first_difference(left, right, f"{path}[{index}]")
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


def _check_dead_letters(stack: Stack) -> None:
    """None of our faults makes a message that nobody can use."""
    consumer = Consumer({"bootstrap.servers": stack.address.bootstrap_servers, "group.id": "chaos"})
    try:
        for shard in range(stack.shards):
            _, end = consumer.get_watermark_offsets(TopicPartition(DEAD_LETTERS.name, shard), timeout=30)
            if end:
                raise ChaosError(f"shard {shard}: {end} messages were put aside: deepclean dead-letters list")
    finally:
        consumer.close()


class _Injector:
    """Strikes the faults of a schedule from a thread of its own, each when its operation is reached."""

    def __init__(self, keeper: Keeper, faults: list[Fault]) -> None:
        self._keeper = keeper
        self._faults: Iterator[Fault] = iter(faults)
        self._next = next(self._faults, None)
        self._due: SimpleQueue[Fault | None] = SimpleQueue()
        self._waiting = 0
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults")

    def __enter__(self) -> _Injector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._due.put(None)
        self._thread.join()

    def reached(self, number: int) -> None:
        """The workload has come to this operation."""
        while self._next is not None and self._next.operation <= number:
            with self._changed:
                self._waiting += 1
            self._due.put(self._next)
            self._next = next(self._faults, None)

    def await_idle(self) -> None:
        """Wait until all faults that are due have struck."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting)
        self._keeper.check()

    def _run(self) -> None:
        while (fault := self._due.get()) is not None:
            self._stop.wait(fault.delay_seconds)
            try:
                self._keeper.strike(fault)
            except Exception as error:  # a fault that cannot be struck fails the run
                self._keeper.give_up(error)
            finally:
                with self._changed:
                    self._waiting -= 1
                    self._changed.notify_all()
