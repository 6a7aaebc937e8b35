"""Concurrent clients on a running plane: a thread and a connection each, and the history of what they saw."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from schemas.answers import ListedDeletion
from schemas.records import BucketLayout, CreateBucket, CreateVolume
from services.client.errors import PlaneError, PlaneTimeoutError, UnreachableError
from services.client.kafka_plane import KafkaPlane
from services.client.plane import Plane, SnapshotRequest
from tests.linearizability.calls import Chooser, Look, Place, Step, steps_of
from tests.linearizability.history import Call, History, ListKeys, Outcome

RETRIES_A_READ = 240
RETRY_SECONDS = 0.5
Answer = TypeVar("Answer")


@dataclass(slots=True)
class ThreadedClient:
    """One client, which has one call under way at most."""

    plane: KafkaPlane
    chooser: Chooser
    history: History
    check: Callable[[], None]
    """Raises when there is no use in going on."""

    def run(self, calls: int, done: Callable[[], None]) -> None:
        """Make so many calls; ``done`` is told of each end."""
        for _ in range(calls):
            call, deletion = self._read(self.chooser.next_call)
            self.call(call, deletion)
            done()

    def call(self, call: Call, deletion: ListedDeletion | None = None) -> None:
        """Carry out one call. One of which no answer comes stays open: it may take effect at any time, or never."""
        operation = self.history.invoke(self.chooser.client, call)
        steps = steps_of(call, self.chooser.place, deletion)
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._take(step)
                except PlaneError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            outcome: Outcome = end.value
            self.history.answer(operation, outcome)
        except (PlaneTimeoutError, UnreachableError):
            self.check()

    def _take(self, step: Step) -> object:
        shard = self.chooser.place.shard
        if isinstance(step, Look):
            return self._read(step.ask)
        if isinstance(step, SnapshotRequest):
            return self.plane.request(shard, step)
        return self.plane.answer(shard, self.plane.submit(shard, step))

    def _read(self, ask: Callable[[Plane], Answer]) -> Answer:
        """What a read says, asked again while a process is away."""
        pause = threading.Event()
        for _ in range(RETRIES_A_READ):
            self.check()
            try:
                return ask(self.plane)
            except UnreachableError:
                pause.wait(RETRY_SECONDS)
        return ask(self.plane)


@dataclass(frozen=True, slots=True)
class ClientsAtOnce:
    """Several clients on one new bucket, each by a way of its own."""

    planes: Sequence[KafkaPlane]
    seed: int
    calls: int
    """Of each client."""
    check: Callable[[], None]

    def run(self, reached: Callable[[int], None]) -> History:
        """Have all of them make their calls; ``reached`` is told after each how many there were in all."""
        random, history = Random(self.seed), History()
        layout = random.choice((BucketLayout.FILE_SYSTEM_OPTIMIZED, BucketLayout.OBJECT_STORE))
        place = self._new_bucket(layout)
        is_tree = layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
        clients = [
            ThreadedClient(plane, Chooser(number, place, Random(random.random()), is_tree), history, self.check)
            for number, plane in enumerate(self.planes)
        ]
        counting, ended = threading.Lock(), 0

        def one_more() -> None:
            nonlocal ended
            with counting:
                ended += 1
                reached(ended)

        with ThreadPoolExecutor(len(clients)) as pool:
            for played in as_completed([pool.submit(client.run, self.calls, one_more) for client in clients]):
                played.result()
        clients[0].call(ListKeys())  # when all is said, what was answered before must be seen
        return history

    def _new_bucket(self, layout: BucketLayout) -> Place:
        plane, volume = self.planes[0], f"shared-{self.seed}"
        place = Place(self.seed % plane.shards, volume, "bucket")
        for command in (CreateVolume(volume), CreateBucket(*place.names, layout)):
            reply = plane.answer(place.shard, plane.submit(place.shard, command))
            if reply.error:
                raise PlaneError(reply.error, reply.message)
        return place
