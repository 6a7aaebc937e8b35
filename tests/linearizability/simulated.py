"""Concurrent clients in a simulated run: the real services under crashes, repeats and delays, and their history."""

from __future__ import annotations

from random import Random
from typing import Any

from schemas import records
from schemas.codec import codec
from schemas.records import BucketLayout, MetadataCommand, SnapshotCommand
from schemas.topics import METADATA_COMMANDS, METADATA_REPLIES, SNAPSHOTS_COMMANDS, SNAPSHOTS_REPLIES, Topic
from services.client.errors import PlaneError
from services.client.plane import SnapshotRequest
from services.metadata.reads.queries import list_buckets
from services.plane.in_memory.client import InMemoryClient
from tests.linearizability.calls import Chooser, Look, Place, Step, Steps, steps_of
from tests.linearizability.explained import check_history
from tests.linearizability.history import CreateSnapshot, History, ListKeys, Operation, Outcome
from tests.simulation.actions import SentRequest
from tests.simulation.errors import LivenessError
from tests.simulation.faults import Address, FaultMix
from tests.simulation.oracles import all_but
from tests.simulation.run_state import ShardRun
from tests.simulation.scheduler import Scheduler
from tests.simulation.simulator import Simulation
from tests.simulation.watchers import Watchers

REMEMBERED_MS = 50 * 60_000
"""A command is known again for an hour of the log: a client that heard nothing for so long does not send it again. The
client measures this time, as the library does, by a clock that is never set back."""
MAX_ROUNDS = 300
MAX_STEPS = 4_000
"""A run in which services have stopped for good ends all the same."""
LAYOUTS = (BucketLayout.FILE_SYSTEM_OPTIMIZED, BucketLayout.OBJECT_STORE)


class SimulatedClient:
    """One client, which has one call under way at most."""

    def __init__(self, run: Simulation, shard: ShardRun, chooser: Chooser, history: History) -> None:
        self.random = chooser.random
        self._run = run
        self._shard = shard
        self._chooser = chooser
        self._history = history
        self._reads = InMemoryClient(run.plane)
        self._id = f"client-{chooser.client}"
        self._numbers = {METADATA_COMMANDS.name: 0, SNAPSHOTS_COMMANDS.name: 0}
        self._steps: Steps | None = None
        self._operation: Operation | None = None
        self._look: Look | None = None
        self._sent: tuple[Topic, bytes, int] | None = None
        self._read_to = 0

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return self._steps is None

    def act(self) -> None:
        """Begin a call, or go on with the one that is under way as far as that is possible now."""
        if self._steps is None:
            call, deletion = self._chooser.next_call(self._reads)
            self._operation = self._history.invoke(self._chooser.client, call)
            self._steps = steps_of(call, self._chooser.place, deletion)
            self._finish_step(None)
        else:
            self.go_on()

    def go_on(self) -> None:
        """Read what is to be read, or fetch the answer if it is there; else perhaps send the command again."""
        if self._look is not None:
            look, self._look = self._look, None
            try:
                self._finish_step(look.ask(self._reads))
            except PlaneError as error:
                self._finish_step(None, error)
        elif self._sent is not None and (reply := self._reply()) is not None:
            self._sent = None
            self._finish_step(reply)
        elif self._sent is not None and self.random.random() < 0.3:
            topic, value, sent_ms = self._sent
            if self._monotonic_ms() - sent_ms < REMEMBERED_MS:
                self._run.plane.log.append(topic.name, self._chooser.place.shard, value)

    def _finish_step(self, value: Any, error: PlaneError | None = None) -> None:
        """Have the call go on to its next step, or end."""
        assert self._steps is not None
        assert self._operation is not None
        try:
            step = self._steps.throw(error) if error is not None else self._steps.send(value)
        except StopIteration as end:
            outcome: Outcome = end.value
            self._history.answer(self._operation, outcome)
            self._steps = None
        else:
            self._start(step)

    def _start(self, step: Step) -> None:
        if isinstance(step, Look):
            self._look = step
            return
        is_request = isinstance(step, SnapshotRequest)
        topic = SNAPSHOTS_COMMANDS if is_request else METADATA_COMMANDS
        number = self._numbers[topic.name] = self._numbers[topic.name] + 1
        shard = self._chooser.place.shard
        wrapped: Any = SnapshotCommand if is_request else MetadataCommand
        command = wrapped(shard, self._id, number, step)
        of = codec(type(command))
        replies = SNAPSHOTS_REPLIES if is_request else METADATA_REPLIES
        self._read_to = len(self._run.plane.log.records(replies.name, shard))
        self._sent = (topic, of.encode_message(command), self._monotonic_ms())
        self._run.plane.log.append(topic.name, shard, self._sent[1])
        if is_request:
            self._shard.actor.requests.append(SentRequest(self._id, number, step))

    def _monotonic_ms(self) -> int:
        return self._run.plane.clock.now_ms() + self._run.state.set_back_ms

    def _reply(self) -> Any:
        """The answer to the command that was sent, if it has come."""
        assert self._sent is not None
        topic = SNAPSHOTS_REPLIES if self._sent[0] is SNAPSHOTS_COMMANDS else METADATA_REPLIES
        records_there = self._run.plane.log.records(topic.name, self._chooser.place.shard)
        for record in records_there[self._read_to :]:
            reply: Any = codec(topic.record).decode_message(record.value)
            if (reply.client_id, reply.number) == (self._id, self._numbers[self._sent[0].name]):
                return reply
        self._read_to = len(records_there)
        return None


class _Nobody(Watchers):
    """Looks at nothing."""

    def watch(self, address: Address) -> None:
        """Let it pass."""


class ConcurrentRun(Simulation):
    """One run with several clients on one bucket; nobody but the checker of its history judges it."""

    def __init__(self, seed: int, mix: FaultMix) -> None:
        super().__init__(seed, mix=mix, without=all_but())
        self.scheduler = Scheduler(self.state, self.disturbances, _Nobody(self.state))
        random = Random(seed)
        self.history = History()
        shard = self.shards[0]
        layout = random.choice(LAYOUTS)
        place = Place(shard.model.shard, shard.actor.volume, "shared")
        shard.actor.submit(records.CreateBucket(*place.names, layout))
        is_tree = layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
        self.clients = [
            SimulatedClient(self, shard, Chooser(number, place, Random(random.random()), is_tree), self.history)
            for number in range(random.randint(2, 5))
        ]
        self._place, self._random = place, random
        self._calls = random.randint(20, 120)

    def _play(self) -> None:
        while not self._has_bucket() and self.state.steps < MAX_STEPS:
            self.move()
        while len(self.history.operations) < self._calls and self.state.steps < MAX_STEPS:
            self.move()
            self._random.choice(self.clients).act()
            for _ in range(self._random.randrange(self.state.most_moves + 1)):
                self.move()
        self.disturbances.heal()
        self._finish_calls()
        self._look_last()

    def _has_bucket(self) -> bool:
        tables = self.plane.tables("metadata", self._place.shard)
        return self._place.bucket in {row.bucket for row in list_buckets(tables, self._place.volume)}

    def _finish_calls(self) -> None:
        for _ in range(MAX_ROUNDS):
            for client in self.clients:
                if not client.is_idle:
                    client.go_on()
            if all(client.is_idle for client in self.clients):
                return
            for address in self.plane.addresses:
                self.scheduler.step(address)
            self.plane.clock.advance(1_000)

    def _look_last(self) -> None:
        """One more listing, when all is said: what was answered before must be seen."""
        operation = self.history.invoke(-1, ListKeys())
        steps = steps_of(ListKeys(), self._place)
        look = next(steps)
        assert isinstance(look, Look)
        try:
            steps.send(look.ask(InMemoryClient(self.plane)))
        except StopIteration as end:
            self.history.answer(operation, end.value)

    @property
    def snapshots_taken(self) -> int:
        """How many snapshots were made."""
        made = [one for one in self.history.operations if isinstance(one.call, CreateSnapshot)]
        return sum(one.outcome is not None and not one.outcome.error for one in made)


def check_run(seed: int, mix: FaultMix) -> ConcurrentRun:
    """Play a run, and see whether its history can be explained.

    Raises:
        NotLinearizableError: it cannot.
    """
    run = ConcurrentRun(seed, mix)
    run.run()
    check_history(run.history, seed)
    if unanswered := [one for one in run.history.operations if one.outcome is None]:
        raise LivenessError(f"seed {seed}: no answer after {MAX_ROUNDS} healthy rounds: {unanswered}")
    return run
