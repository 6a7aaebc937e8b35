"""Two processes of one shard, each over a directory of its own: nobody keeps the second from starting.

The log fences the elder: it goes on, and ends when it publishes. What is seen is what one process shows.

Nothing but the answers of snapshots rests on the fence, which is seen by taking it away. What holds without it is what
a claim rests on: every row is given away at most once, in metadata's log, whoever asks. So nothing that can be seen
loses its blocks, and nothing stays: a second metadata says once more what the first one has said, two of key_deletion
ask for the same rows, and so on. Metadata's start sees that others know more than it has ever said, and refuses, when
the first process goes on meanwhile. Of snapshots the elder stops at its next start.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.answers import ListedEntry
from schemas.error_codes import ErrorCode
from services.client.errors import PlaneError
from services.domain.errors import FencedError
from services.metadata.recovery.start_check import LostCommandsError
from services.metadata.state.tables import CHECKPOINTED
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import Address, InMemoryPlane, Process
from services.plane.stack.process_names import SERVICES
from services.runtime.loop.changelog import LostChangesError
from services.runtime.loop.runner import owner_name
from services.storage.memory import MemoryStore
from services.workloads import observing
from services.workloads.replay import Replay
from tests.chaos.run import hold
from tests.chaos.schedule import Schedule, draw_schedule
from tests.model_lines import lines_of

pytestmark = pytest.mark.long

SHARDS = 2


@dataclass(slots=True)
class TwinPlane(InMemoryPlane):
    """A plane of which one service runs twice for a while; the second process is not in step with the first."""

    random: Random = field(default_factory=Random)
    is_fenced: bool = False
    twins: dict[Address, Process] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    """By service how many processes were fenced."""

    def __post_init__(self) -> None:
        InMemoryPlane.__post_init__(self)
        self.log.is_fencing = self.is_fenced

    def start_twin(self, name: str, shard: int) -> None:
        first = self.processes[name, shard]
        try:
            self.start(name, shard, MemoryStore(CHECKPOINTED if name == "metadata" else None))
            self.twins[name, shard] = self.processes[name, shard]
        finally:
            self.processes[name, shard] = first

    def step(self) -> int:
        try:
            read = InMemoryPlane.step(self)
        except FencedError as error:
            (address,) = [one for one in self.twins if owner_name(*one) in str(error)]
            self.processes[address] = self.twins.pop(address)
            self.ended[address[0]] += 1
            return 1
        return read + sum(self._step_twin(address) for address in list(self.twins))

    def end_twins(self) -> None:
        """End the second processes; when they own their shards, those are what is left."""
        if not self.is_fenced:
            self.twins.clear()

    def _step_twin(self, address: Address) -> int:
        if self.random.random() < 0.5:
            return 1  # it does not come to it now, and has still to be waited for
        try:
            return self.twins[address].runner.step()
        except LostCommandsError:
            del self.twins[address]  # it has refused
            return 0


def snapshots_that_can_be_read(patch: pytest.MonkeyPatch) -> None:
    """List nothing of a snapshot that one process shows and metadata has dropped for the other one."""
    original = observing.list_everything

    def list_everything(*asked: Any, **named: Any) -> list[ListedEntry]:
        try:
            return original(*asked, **named)
        except PlaneError as error:
            if error.code != ErrorCode.SNAPSHOT_EXPIRED:
                raise
            return []

    patch.setattr(observing, "list_everything", list_everything)


def play(plane: TwinPlane, schedule: Schedule, name: str, begin: int, end: int) -> Iterator[dict[str, Any]]:
    """What is seen of a workload during some of whose operations a service runs twice."""
    replay = Replay(InMemoryClient(plane))
    for number, operation in schedule.operations:
        if number == begin:
            for shard in range(SHARDS):
                plane.start_twin(name, shard)
        if number == end:
            plane.end_twins()
        hold(replay, schedule, number, is_alone=True)
        yield from replay.execute(number, operation)
    yield from replay.collect()


@pytest.mark.parametrize("name", SERVICES)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**40), moment=st.floats(0, 1))
@example(seed=240, moment=0.0)
def test_a_fenced_process_leaves_its_place_to_the_other(name: str, seed: int, moment: float) -> None:
    schedule, plane = draw_schedule(seed), TwinPlane(SHARDS, random=Random(seed), is_fenced=True)
    begin = int(moment * len(schedule.operations))
    found = list(play(plane, schedule, name, begin, len(schedule.operations)))
    assert json.loads(json.dumps(found)) == lines_of(schedule.operations)
    if begin == 0:
        assert plane.ended[name], "the elder has published nothing since"


def test_without_the_fence_two_snapshots_services_lose_a_snapshot() -> None:
    schedule = draw_schedule(240)
    with pytest.raises(PlaneError, match="has expired or was deleted"):
        list(play(TwinPlane(SHARDS, random=Random(240)), schedule, "snapshots", 0, len(schedule.operations)))


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in ("snapshots", "mock_scm")])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**40), moments=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_what_is_seen_without_a_fence_is_what_one_process_shows(
    name: str, seed: int, moments: tuple[float, float]
) -> None:
    schedule = draw_schedule(seed)
    begin, end = sorted(int(moment * len(schedule.operations)) for moment in moments)
    found = list(play(TwinPlane(SHARDS, random=Random(seed)), schedule, name, begin, end))
    assert json.loads(json.dumps(found)) == lines_of(schedule.operations)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**40), begin=st.floats(0, 1))
@example(seed=240, begin=0.0)
def test_of_two_snapshots_services_nothing_is_lost(seed: int, begin: float) -> None:
    """Clients may be refused what one alone would do; what can be read then has its blocks.

    What one of the two alone has acknowledged may be undone by the other (decision 0033). Seed 240: one creates a tag
    and refuses to delete the snapshot; the other one has refused the tag, and deletes it.
    """
    with pytest.MonkeyPatch.context() as patch:
        snapshots_that_can_be_read(patch)
        _check_what_is_listed(seed, begin)


def _check_what_is_listed(seed: int, begin: float) -> None:
    schedule = draw_schedule(seed)
    moment = int(begin * len(schedule.operations))
    lines = list(play(TwinPlane(SHARDS, random=Random(seed)), schedule, "snapshots", moment, len(schedule.operations)))
    observation = next(line for line in reversed(lines) if "label" in line)
    listings = [view for bucket in observation["buckets"].values() for view in bucket["listing"].values()]
    listed = {entry["tag"] for view in listings for entry in view.values()}
    assert not listed & set(observation["reclaimed"])


def test_the_elder_of_two_snapshots_services_does_not_start_again() -> None:
    schedule, plane = draw_schedule(3), TwinPlane(SHARDS, random=Random(3))
    list(play(plane, schedule, "snapshots", 10, len(schedule.operations)))
    with pytest.raises(LostChangesError, match="from an abandoned history"):
        plane.start("snapshots", 0)
