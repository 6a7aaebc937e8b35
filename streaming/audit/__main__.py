"""The audit job: computes for one shard, independently of the judges, which blocks are needed, pending and present.

``deepclean audit`` starts it, requests the copies and keeps them while the job runs. ``python -m streaming.audit
--help`` lists the arguments. The job prints its progress, one JSON object a line, and writes the report as JSON
(``schemas/audit_report.py``) to ``output``. It ends when its standard input ends.

1. Tasks read the directories of all states; the driver computes which of them can be reached.
2. Tasks read the keys of all states side by side, the garbage tables and both inventories, one range each.
3. Tasks collect all facts of each run of blocks and judge the run (``streaming.audit.blocks``).
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pyspark import SparkContext
from pyspark.sql import SparkSession

from schemas.audit_report import AuditReport
from services.domain.table_keys import local_id_txn
from streaming.audit.blocks import Tally, judge_all
from streaming.audit.facts import Fact, directories_of, directory_tasks, fact_tasks, facts_of
from streaming.audit.result import report_of, trees_of
from streaming.audit.shard import AuditedCopies, survey
from streaming.rocksdb.checkpoint_rows import CheckpointRows
from streaming.spark.child_job import job_session, say
from streaming.spark.session import session_parser

PARTS_PER_CORE = 8
RUNS_PER_PART = 100_000
"""Runs of blocks that one task judges at once, about 500 bytes each."""
MAX_PARTS = 4_000
ROWS_PER_TASK = 20_000
"""Rows of each table in one task, about: a task with fewer rows spends most of its time on opening the copies."""
FACTS_PER_CHUNK = 5_000
WATCH_SECONDS = 0.5
_READ_PERCENT, _DONE_PERCENT = 15, 95
Chunk = tuple[int, list[Fact]]


def audit(session: SparkSession, copies: AuditedCopies, progress: Callable[[int], None]) -> AuditReport:
    """Audit a shard and return the report; ``progress`` is called with percents.

    Raises:
        InvariantError: the copies do not belong together.
    """
    context = session.sparkContext
    shard = survey(copies, CheckpointRows)
    known = context.broadcast(shard)
    of_trees = directory_tasks(shard)
    directories = context.parallelize(of_trees, max(1, len(of_trees))).flatMap(
        lambda task: directories_of(known.value, task)
    )
    trees = trees_of(shard, directories.collect())
    progress(_READ_PERCENT)
    cuts = min(PARTS_PER_CORE * context.defaultParallelism, 1 + shard.inventory_blocks // ROWS_PER_TASK)
    tasks = fact_tasks(shard, cuts)
    reach = context.broadcast(trees.reach)
    parts = max(2 * context.defaultParallelism, min(MAX_PARTS, shard.inventory_blocks // RUNS_PER_PART))

    def read(some: Iterable[Any]) -> Iterator[Chunk]:
        for task in some:
            yield from _chunks(facts_of(known.value, task, reach.value), parts)

    def judge(some: Iterable[Chunk]) -> Iterator[Tally]:
        yield judge_all((fact for _, chunk in some for fact in chunk), known.value)

    # Small tasks share a partition: a bucket has several tasks, and a shard may have thousands of buckets.
    read_parts = min(len(tasks), PARTS_PER_CORE * context.defaultParallelism * 4)
    tally = Tally()
    with _watched(context, progress):
        chunks = context.parallelize(tasks, read_parts).mapPartitions(read)
        judged = chunks.partitionBy(parts, lambda part: part).mapPartitions(judge)
        for part in judged.collect():
            tally.merge(part)
    return report_of(shard, trees, tally)


def _chunks(facts: Iterable[Fact], parts: int) -> Iterator[Chunk]:
    """Group facts by the part that judges them, many in one chunk; all facts of a run go to the same part."""
    waiting: defaultdict[int, list[Fact]] = defaultdict(list)
    for fact in facts:
        part = local_id_txn(fact[2]) % parts
        waiting[part].append(fact)
        if len(waiting[part]) >= FACTS_PER_CHUNK:
            yield part, waiting.pop(part)
    yield from waiting.items()


@contextmanager
def _watched(context: SparkContext, progress: Callable[[int], None]) -> Iterator[None]:
    """Report the percentage of the known Spark tasks that are done, in a thread."""
    tracker, ended = context.statusTracker(), threading.Event()

    def watch() -> None:
        reported = _READ_PERCENT
        seen: dict[int, tuple[int, int]] = {}
        while not ended.wait(WATCH_SECONDS):
            for stage in tracker.getActiveStageIds():
                known = tracker.getStageInfo(stage)
                if known is not None:
                    seen[stage] = (known.numCompletedTasks, known.numTasks)
            done, tasks = (sum(counts) for counts in zip(*seen.values(), strict=True)) if seen else (0, 1)
            percent = _READ_PERCENT + (_DONE_PERCENT - _READ_PERCENT) * done // max(tasks, 1)
            if percent > reported:
                reported = percent
                progress(percent)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def main() -> None:
    """Audit the copies that a file names, and write the report."""
    parser = session_parser("streaming.audit", "Audit copies of one shard.")
    parser.add_argument("audited", type=Path, help="a JSON file: copies (fields of AuditedCopies) and output")
    options = parser.parse_args()
    audited = json.loads(options.audited.read_text("utf-8"))
    with job_session(options, "deepclean-audit") as session:
        say(progress=5)
        report = audit(session, AuditedCopies(**audited["copies"]), lambda percent: say(progress=percent))
    Path(audited["output"]).write_bytes(TypeAdapter(AuditReport).dump_json(report))
    say(progress=100)


if __name__ == "__main__":
    main()
