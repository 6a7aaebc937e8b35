"""A log that is replayed by parts gives the same report as in one part, whatever it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from services.plane.in_memory.plane import InMemoryPlane
from services.verifier.report import VerifyReport
from services.verifier.run import ByParts, replay_shard
from services.verifier.survey import Keyed
from tests.property.test_ledger import played

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class InProcess:
    """Runs the tasks of a verification one after the other."""

    parts: int = 3
    stretch_messages: int = 7
    rounds: int = 0
    why: list[str] = field(default_factory=list)

    def each(self, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """As the engine says."""
        return [work(task) for task in tasks]

    def by_part(
        self,
        divide: Callable[[T], Iterator[Keyed]],
        tasks: Sequence[T],
        replay: Callable[[int, Iterable[bytes]], R],
    ) -> list[R]:
        """As the engine says."""
        self.rounds += 1
        chunks = sorted(chunk for task in tasks for chunk in divide(task))
        return [replay(part, [chunk for key, chunk in chunks if key[0] == part]) for part in range(self.parts)]


def both(plane: InMemoryPlane, engine: InProcess) -> tuple[VerifyReport, VerifyReport]:
    """The reports of the plane's only shard by parts and in one part."""
    by_parts = replay_shard(plane.log, 0, by_parts=ByParts(engine, lambda: plane.log, engine.why.append))
    return by_parts, replay_shard(plane.log, 0)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_report_is_the_same_by_parts(seed: int) -> None:
    plane = played(seed)
    by_parts, whole = both(plane, InProcess())
    assert by_parts == whole
