"""The diff job: compares two snapshot checkpoints of a bucket, range by range, and writes the differences.

The process that keeps the snapshot checkpoints starts it; ``python -m streaming.diff --help`` lists the arguments. The
job prints its progress, one JSON object a line. It writes text files into the directory ``output``: read in the order
of their names, they hold the sorted differences, one JSON array a line: kind, path, old path. The job ends when its
standard input ends.

1. Tasks read the directories of both sides; the driver computes which of them can be reached.
2. Tasks read the keys of both sides side by side, one range each, and keep the keys that may differ.
3. Tasks group these keys by objectID and compare them (``services.domain.snapshot_diff``); Spark sorts the differences.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from services.domain.snapshot_diff import DiffEntry, DiffKind, NamespaceObject, PlacedObject, difference, reachable
from streaming.diff.rows import (
    AFTER,
    BEFORE,
    DIRECTORIES,
    ComparedBucket,
    DirectorySide,
    Range,
    directories_in,
    keys_that_may_differ,
)
from streaming.rocksdb.checkpoint_rows import ranges
from streaming.spark.child_job import job_session, say
from streaming.spark.session import session_parser

PARTS_PER_CORE = 4
_RANKS = {kind: rank for rank, kind in enumerate(DiffKind)}
_LINE = "rank INT NOT NULL, first STRING NOT NULL, second STRING NOT NULL, line STRING NOT NULL"
Keyed = tuple[int, tuple[int, PlacedObject]]
"""An objectID, and the side and the object."""


def compare(session: SparkSession, bucket: ComparedBucket, output: Path) -> None:
    """Write the differences of a bucket's two states to the directory ``output``."""
    context = session.sparkContext
    parts = PARTS_PER_CORE * context.defaultParallelism
    whole = _ranges(bucket, bucket.keys_family, parts)
    before, after = _directories(session, bucket, parts)
    say(progress=20)
    sides = context.broadcast((_side(bucket, before, after), _side(bucket, after, before)))

    def find(some: Iterable[Range]) -> Iterator[Keyed]:
        for part in some:
            for side, found in keys_that_may_differ(bucket, sides.value, part):
                yield found.row.object_id, (side, found)

    found = context.parallelize(whole, len(whole)).mapPartitions(find)
    judged = found.partitionBy(context.defaultParallelism).mapPartitions(_judge)
    of_directories = context.parallelize(list(_lines(difference(before, after))), 1)
    lines = session.createDataFrame(judged.union(of_directories), _LINE).persist()
    lines.count()
    say(progress=80)
    lines.orderBy("rank", "first", "second").select("line").write.mode("overwrite").text(str(output))
    lines.unpersist()


def _ranges(bucket: ComparedBucket, family: str, parts: int) -> list[Range]:
    """Return ranges that cut the rows of a column family into parts, the same for both sides."""
    cuts: set[bytes] = set()
    for side in (BEFORE, AFTER):
        with bucket.open(side) as rows:
            cuts |= rows.boundaries(family, *bucket.whole, parts)
    return ranges(cuts, *bucket.whole)


def _directories(
    session: SparkSession, bucket: ComparedBucket, parts: int
) -> tuple[list[PlacedObject], list[PlacedObject]]:
    """Return the directories of both sides that can be reached from the root."""
    if not bucket.is_tree:
        return [], []
    tasks = [(side, part) for part in _ranges(bucket, DIRECTORIES, parts) for side in (BEFORE, AFTER)]
    read = session.sparkContext.parallelize(tasks, len(tasks)).map(
        lambda task: (task[0], directories_in(bucket, task[0], task[1]))
    )
    found: tuple[list[NamespaceObject], list[NamespaceObject]] = ([], [])
    for side, directories in read.collect():
        found[side].extend(directories)
    before, after = (list(reachable(one_side, bucket.bucket_id)) for one_side in found)
    return before, after


def _side(bucket: ComparedBucket, here: list[PlacedObject], there: list[PlacedObject]) -> DirectorySide:
    """Return the paths of one side's directories, and the directories that only this side reaches."""
    paths = {one.row.object_id: f"{one.path}/" for one in here}
    lone = paths.keys() - {one.row.object_id for one in there}
    return DirectorySide({bucket.bucket_id: "", **paths}, frozenset(lone))


def _judge(some: Iterable[Keyed]) -> Iterator[tuple[int, str, str, str]]:
    """Return the lines of one partition, which contains both sides of each of its objects."""
    sides: tuple[list[PlacedObject], list[PlacedObject]] = ([], [])
    for _, (side, found) in some:
        sides[side].append(found)
    return _lines(difference(*sides))


def _lines(entries: Iterable[DiffEntry]) -> Iterator[tuple[int, str, str, str]]:
    """Yield each entry as a line of JSON, after the three values by which it is sorted."""
    for entry in entries:
        line = json.dumps([entry.kind.value, entry.path, entry.old_path], ensure_ascii=False)
        yield _RANKS[entry.kind], entry.old_path or entry.path, entry.path, line


def main() -> None:
    """Compare the two states that the command line names, and write the differences."""
    parser = session_parser("streaming.diff", "Compare two checkpoints.")
    parser.add_argument("compared", type=json.loads, help="JSON: bucket (fields of ComparedBucket) and output")
    options = parser.parse_args()
    fields: dict[str, Any] = options.compared["bucket"]
    bucket = ComparedBucket(**{**fields, "checkpoints": tuple(fields["checkpoints"])})
    with job_session(options, "deepclean-diff") as session:
        say(progress=5)
        compare(session, bucket, Path(options.compared["output"]))
    say(progress=100)


if __name__ == "__main__":
    main()
