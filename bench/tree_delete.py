"""Measures the recursive delete of a large directory: the time to its reply, and the rate at which files are freed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median

from bench.bulk import VOLUME, tree_puts
from bench.ceilings import slowest
from bench.conditions import Conditions
from bench.figures import Ceiling, Figure, Target
from bench.shared_plane import SharedPlane, shared_plane
from schemas.records import BucketLayout, DeleteDirectory, MakeDirectory
from services.client.plane import NamespaceCommand
from services.plane.machine.errors import StackError

NAME = "tree-delete"
PUT_AT_ONCE = 100_000
FEWEST_TREES = 3
ANSWERED = Target(10, is_upper=True)
FREED = Target(20_000)


def measure_tree_delete(conditions: Conditions) -> Sequence[Figure]:
    """The recursive delete of a directory of 1 million files: milliseconds until its answer, files a second freed.

    The whole plane runs. A tree has 50 files a directory, each seven levels deep. Trees are put and deleted one after
    another, at least three, until the seconds of freeing reach those of the run. A client times the answer, from
    sending the command to reading the reply; the median counts, because one answer in ten waits half as long again for
    other work of a quiet plane. The time of freeing runs from there until the block store has deleted the last block.
    """
    ceiling = slowest(conditions)
    plane = shared_plane(conditions)
    plane.warm()
    bucket, count = plane.make_bucket(NAME, BucketLayout.FILE_SYSTEM_OPTIMIZED), conditions.sizes.tree_files
    answers: list[float] = []
    seconds = 0.0
    while len(answers) < FEWEST_TREES or seconds < conditions.seconds:
        top = f"tree-{len(answers)}"
        for done in _put_tree(plane, bucket, top, count):
            conditions.say(f"{NAME}: {done:,} of {count:,} files put, tree {len(answers) + 1}")
        answer_seconds, freed_seconds = _delete_tree(plane, bucket, top, count)
        answers.append(answer_seconds)
        seconds += freed_seconds
    return tree_figures(answers, seconds, count, ceiling)


def tree_figures(answers: Sequence[float], seconds: float, count: int, ceiling: Ceiling) -> list[Figure]:
    """Return the median time to the reply, and the rate at which trees of ``count`` files each were freed."""
    details = {"files": count, "trees": len(answers)}
    answered = {**details, "slowest_ms": max(answers) * 1_000}
    freed = {**details, "seconds": seconds}
    return [
        Figure(f"{NAME}/answer", median(answers) * 1_000, "ms", ANSWERED, None, answered),
        Figure(f"{NAME}/freed", count * len(answers) / seconds, "files/s", FREED, ceiling, freed),
    ]


def _put_tree(plane: SharedPlane, bucket: str, top: str, count: int) -> Iterator[int]:
    """Put a tree; yield from time to time how many files it has."""
    puts, done = tree_puts(bucket, count, below=f"{top}/"), 0
    while chunk := list(islice(puts, PUT_AT_ONCE)):
        plane.send(chunk)
        done += len(chunk)
        yield done
    plane.settle(NAME)


def _delete_tree(plane: SharedPlane, bucket: str, top: str, count: int) -> tuple[float, float]:
    """Return the seconds until the reply to a tree's delete, and until its last block was deleted."""
    _answer_seconds(plane, MakeDirectory(VOLUME, bucket, f"beside-{top}"))  # the client is connected
    before = plane.deleted_blocks()
    started = time.perf_counter()
    answer_seconds = _answer_seconds(plane, DeleteDirectory(VOLUME, bucket, top, is_recursive=True))
    plane.await_deleted(before + count, NAME)
    seconds = time.perf_counter() - started
    plane.settle(NAME)
    return answer_seconds, seconds


def _answer_seconds(plane: SharedPlane, command: NamespaceCommand) -> float:
    started = time.perf_counter()
    reply = plane.client.answer(0, plane.client.submit(0, command))
    if reply.error:
        raise StackError(f"A command was refused ({reply.error}: {reply.message}).")
    return time.perf_counter() - started
