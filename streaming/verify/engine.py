"""Runs the tasks of a verification on Spark: each stretch of the log and each part is a task, on any machine.

Between the two Spark sorts what the stretches hold for the parts, in files where it does not fit into memory, so that a
part streams through its task however long it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

from services.verifier.survey import Keyed

COMMANDS_PER_PART = 250_000
"""At most so many, on average: the state of their replay then fits into the cache of its database."""
PARTS_PER_CORE = 2
MIN_STRETCH_MESSAGES = 100_000
"""A reader that is closed has read ahead: shorter stretches would read the log more than once."""
MAX_STRETCH_MESSAGES = 2_000_000
T = TypeVar("T")
R = TypeVar("R")


class SparkEngine:
    """Runs the tasks of one shard, whose log has about so many commands."""

    def __init__(self, session: SparkSession, commands: int) -> None:
        self._context = session.sparkContext
        cores = self._context.defaultParallelism
        self.parts = max(PARTS_PER_CORE * cores, -(-commands // COMMANDS_PER_PART))
        share = commands // (PARTS_PER_CORE * cores)
        self.stretch_messages = min(max(share, MIN_STRETCH_MESSAGES), MAX_STRETCH_MESSAGES)

    def each(self, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """Do some work for each task. Return the results in the order of the tasks."""
        if not tasks:
            return []
        found: list[R] = self._context.parallelize(tasks, len(tasks)).map(work).collect()
        return found

    def by_part(
        self,
        divide: Callable[[T], Iterator[Keyed]],
        tasks: Sequence[T],
        replay: Callable[[int, Iterable[bytes]], R],
    ) -> list[R]:
        """Divide the tasks' stretches into chunks for the parts, and have each part replay its chunks in order."""

        def replay_part(part: int, chunks: Iterable[Keyed]) -> list[R]:
            return [replay(part, (chunk for _, chunk in chunks))]

        divided = self._context.parallelize(tasks, len(tasks)).flatMap(divide)
        sorted_chunks = divided.repartitionAndSortWithinPartitions(self.parts, _part_of, keyfunc=_order_of)  # type: ignore[type-var]
        found: list[R] = sorted_chunks.mapPartitionsWithIndex(replay_part).collect()
        return found


def _part_of(key: tuple[int, int, int]) -> int:
    return key[0]


def _order_of(key: tuple[int, int, int]) -> tuple[int, int]:
    return key[1:]
