"""Runs the parts of a verification one after the other in this process, as Spark runs them as tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from services.log.memory import MemoryLog
from services.verifier.report import VerifyReport
from services.verifier.run import ByParts, replay_shard
from services.verifier.survey import Keyed

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class InProcess:
    """An engine, and what has happened."""

    parts: int = 3
    stretch_messages: int = 7
    rounds: int = 0
    why_whole: list[str] = field(default_factory=list)
    """Why the log was replayed as one part."""

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


def by_parts_and_whole(log: MemoryLog, engine: InProcess, shard: int = 0) -> tuple[VerifyReport, VerifyReport]:
    """The reports of a shard, replayed by parts and as one part."""
    by_parts = ByParts(engine, lambda: log, engine.why_whole.append)
    return replay_shard(log, shard, by_parts=by_parts), replay_shard(log, shard)
