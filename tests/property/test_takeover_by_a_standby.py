"""A standby of metadata follows at its own pace, and takes the place of the owner at any moment.

What is seen is what one process without a takeover shows; what was published before is not sent again.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.topics import METADATA_COMMANDS, METADATA_PROGRESS, METADATA_REPLIES
from services.metadata.recovery.digest import digest_shard
from services.metadata.recovery.start import FOLLOWED
from services.metadata.service import MetadataService
from services.metadata.state.tables import CHECKPOINTED
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.runtime.loop.probe import Point
from services.runtime.process.standby import Standby
from services.storage.memory import MemoryStore
from services.workloads.replay import Replay
from tests.chaos.run import hold
from tests.chaos.schedule import Schedule, draw_schedule
from tests.model_lines import lines_of

SHARDS = 2
ENDLESS_STEPS = 2_000
"""Ten times what a workload takes: services that ask each other for ever for what is lost are told from slow ones."""


class _Died(BaseException):
    """The owner is gone."""


@dataclass(slots=True)
class FollowedPlane(InMemoryPlane):
    """A plane whose shards of metadata have a standby each, which is not in step with the owner."""

    random: Random = field(default_factory=Random)
    standbys: dict[int, Standby] = field(default_factory=dict)
    takeovers: int = 0
    steps: int = 0
    repeats: int = 0
    """Most messages that a new owner has sent again."""

    def follow(self, shard: int, store: MemoryStore) -> None:
        service = MetadataService()
        after_write = partial(service.remove_unneeded, store)
        place = (FOLLOWED, service, shard, store, self.log, self.clock)
        self.standbys[shard] = Standby(*place, self.max_batch_messages, after_write=after_write)

    def step(self) -> int:
        self.steps += 1
        assert self.steps < ENDLESS_STEPS, "the plane does not come to rest"
        read = InMemoryPlane.step(self)
        for standby in self.standbys.values():
            if self.random.random() < 0.5:
                before = sum(map(len, self.log.partitions.values()))
                standby.step(0.0)
                assert sum(map(len, self.log.partitions.values())) == before, "a standby has published"
            if self.random.random() < 0.1:
                standby.leave_out_published()
        return read

    def _die_in_publishing(self, shard: int) -> None:
        """Let the owner go on until it has sent some messages of a unit of work, which are not flushed."""
        runner, left = self.processes["metadata", shard].runner, self.random.randint(1, 5)

        def probe(point: Point) -> None:
            nonlocal left
            left -= point is Point.MID_PUBLISH
            if not left:
                raise _Died

        runner._probe = runner._outbox._probe = probe
        with contextlib.suppress(_Died):
            while runner.step():
                pass

    def take_over(self, shard: int) -> None:
        """Have a standby run its shard, and one on the former owner's database follow it."""
        self._die_in_publishing(shard)
        standby, former = self.standbys[shard], self.processes["metadata", shard].store
        for _ in range(self.random.randint(0, 9)):
            standby.step(0.0)
        if is_warm := self.random.random() < 0.8:  # else its process has died, too, and is started again
            standby.leave_out_published()
        store = standby.runner.store
        assert isinstance(store, MemoryStore)
        before = self._sent(shard)
        self.start("metadata", shard, store)
        while self.processes["metadata", shard].runner.step() or self.processes["metadata", shard].runner.waiting():
            pass
        after = self._sent(shard)
        if is_warm:
            self.repeats = max(self.repeats, sum(after[value] - count for value, count in before.items()))
        self.takeovers += 1
        self.follow(shard, former if self.random.random() < 0.5 else MemoryStore(CHECKPOINTED))

    def _sent(self, shard: int) -> Counter[bytes]:
        topics = (METADATA_PROGRESS.name, METADATA_REPLIES.name)
        return Counter(record.value for topic in topics for record in self.log.records(topic, shard))

    def await_standbys(self) -> None:
        topic = METADATA_COMMANDS.name
        for shard, standby in self.standbys.items():
            while standby.runner.positions()[topic] < self.log.end_offset(topic, shard):
                standby.step(0.0)


def play(plane: FollowedPlane, schedule: Schedule, moments: Collection[float]) -> Iterator[dict[str, Any]]:
    """What is seen of a workload in which standbys take over before some operations."""
    replay = Replay(InMemoryClient(plane))
    for shard in range(SHARDS):
        plane.follow(shard, MemoryStore(CHECKPOINTED))
    numbers = [int(moment * len(schedule.operations)) for moment in moments]
    for number, operation in schedule.operations:
        for _ in range(numbers.count(number)):
            plane.take_over(plane.random.randrange(SHARDS))
        hold(replay, schedule, number, is_alone=True)
        yield from replay.execute(number, operation)
    yield from replay.collect()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**40), moments=st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_what_is_seen_is_what_one_process_shows(seed: int, moments: list[float]) -> None:
    schedule = draw_schedule(seed)
    plane = FollowedPlane(SHARDS, max_batch_messages=3, random=Random(seed))
    found = list(play(plane, schedule, moments))
    assert json.loads(json.dumps(found)) == lines_of(schedule.operations)
    plane.await_standbys()
    for shard, standby in plane.standbys.items():
        assert digest_shard(standby.runner.store) == digest_shard(plane.processes["metadata", shard].store)


@pytest.mark.parametrize("seed", range(5))
def test_what_was_published_is_not_sent_again(seed: int) -> None:
    """A message says that all before its own unit of work is published: at most two units are sent again."""
    schedule = draw_schedule(seed)
    plane = FollowedPlane(SHARDS, max_batch_messages=3, random=Random(seed))
    list(play(plane, schedule, [0.9]))
    assert plane.repeats <= 2 * plane.max_batch_messages, f"{plane.repeats} messages were sent again"
    assert plane.takeovers == 1
