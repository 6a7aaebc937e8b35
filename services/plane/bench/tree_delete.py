"""How long the recursive delete of a large directory takes: its answer, and all that is below it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

from schemas.records import BucketLayout, DeleteDirectory, MakeDirectory
from services.client.plane import NamespaceCommand
from services.plane.bench.bulk import VOLUME, tree_puts
from services.plane.bench.ceilings import slowest
from services.plane.bench.conditions import Conditions
from services.plane.bench.figures import Figure, Target
from services.plane.bench.shared_plane import SharedPlane, shared_plane
from services.plane.errors import StackError

NAME = "tree-delete"
TOP = "tree"
PUT_AT_ONCE = 100_000
ANSWERED = Target(10, is_upper=True)
FREED = Target(20_000)


def measure_tree_delete(conditions: Conditions) -> Sequence[Figure]:
    """The recursive delete of a directory of 1 million files: milliseconds until its answer, files a second freed.

    The whole plane runs. The tree has 50 files a directory, each seven levels deep. The answer is timed by a client,
    from sending the command to reading the reply; the clock of what is freed runs on from there until the block store
    has deleted the last block.
    """
    ceiling = slowest(conditions)
    plane = shared_plane(conditions)
    plane.warm()
    bucket, count = plane.make_bucket(NAME, BucketLayout.FILE_SYSTEM_OPTIMIZED), conditions.sizes.tree_files
    puts, done = tree_puts(bucket, count, below=f"{TOP}/"), 0
    while chunk := list(islice(puts, PUT_AT_ONCE)):
        plane.send(chunk)
        done += len(chunk)
        conditions.say(f"{NAME}: {done:,} files put")
    plane.settle(NAME)
    _answer_seconds(plane, MakeDirectory(VOLUME, bucket, "another"))  # the client is connected
    before = plane.deleted_blocks()
    started = time.perf_counter()
    answer_seconds = _answer_seconds(plane, DeleteDirectory(VOLUME, bucket, TOP, is_recursive=True))
    plane.await_deleted(before + count, NAME)
    seconds = time.perf_counter() - started
    plane.settle(NAME)
    return [
        Figure(f"{NAME}/answer", answer_seconds * 1_000, "ms", ANSWERED, None, {"files": count}),
        Figure(f"{NAME}/freed", count / seconds, "files/s", FREED, ceiling, {"files": count, "seconds": seconds}),
    ]


def _answer_seconds(plane: SharedPlane, command: NamespaceCommand) -> float:
    started = time.perf_counter()
    reply = plane.client.answer(0, plane.client.submit(0, command))
    if reply.error:
        raise StackError(f"A command was refused ({reply.error}: {reply.message}).")
    return time.perf_counter() - started
