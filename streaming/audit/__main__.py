"""The audit job: computes for one shard, independently of the judges, which blocks are needed, pending and present.

``deepclean audit`` starts it, requests the copies and keeps them while the job runs. ``python -m streaming.audit
--help`` lists the arguments. The job prints its progress, one JSON object a line, and writes the report as JSON
(``schemas/audit_report.py``) to ``output``. It ends when its standard input ends.

1. The driver reads the directories of all states and computes which of them can be reached.
2. Tasks read the keys of all states together, the garbage tables and both inventories, one range each
   (``streaming.audit.fact_source``). SQL brings the facts of each run of blocks together and groups runs that the rule
   cannot tell apart (``streaming.audit.alike``).
3. The driver judges one run of each group (``streaming.audit.blocks``). Of runs with a finding, and of those whose
   facts do not agree, tasks read all facts again, with their keys.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import TypeAdapter
from pyspark import SparkContext
from pyspark.sql import SparkSession

from schemas.audit_report import AuditReport, FindingKind
from streaming.audit.alike import Alike, alike, ids_of, runs_of
from streaming.audit.blocks import Tally, judge_run
from streaming.audit.fact_source import ReadFacts, RunId, fact_of
from streaming.audit.facts import Fact, FactKind, FactTask, fact_tasks
from streaming.audit.result import Trees, report_of, trees_of
from streaming.audit.shard import AuditedCopies, AuditedShard, survey
from streaming.audit.states import StateGroup, groups_of, how_read
from streaming.rocksdb.checkpoint_rows import CheckpointRows
from streaming.spark.child_job import job_session, say
from streaming.spark.session import session_parser

PARTS_PER_CORE = 2
RUNS_PER_PART = 250_000
"""Runs of blocks that one task of SQL brings together, about 300 bytes each."""
MAX_PARTS = 4_000
ROWS_PER_TASK = 50_000
"""Rows of each table in one task, about: a task with fewer rows spends most of its time on opening the copies."""
WANTED_AT_ONCE = 100_000
"""Most runs of which all facts are read at once, about a kilobyte each. For each further so many, the tables are read
once more."""
WATCH_SECONDS = 0.5
_STARTED_PERCENT, _GROUPED_PERCENT, _READ_PERCENT, _DONE_PERCENT = 5, 8, 15, 95


Progress = Callable[[int, str], None]
"""Is told how much is done, in percent, and what is being done."""


def audit(session: SparkSession, copies: AuditedCopies, progress: Progress) -> AuditReport:
    """Audit a shard and return the report.

    Raises:
        InvariantError: the copies do not belong together.
    """
    shard = survey(copies, CheckpointRows)
    groups = groups_of(shard)
    doing = how_read(groups.values())
    progress(_GROUPED_PERCENT, doing)
    trees = trees_of(shard, groups)
    with _watched(session.sparkContext, lambda percent: progress(percent, doing)):
        tally = judge_shard(session, shard, groups, trees)
    return report_of(shard, trees, tally)


def judge_shard(
    session: SparkSession, shard: AuditedShard, groups: Mapping[int, Sequence[StateGroup]], trees: Trees
) -> Tally:
    """Judge all runs of a shard."""
    cores = session.sparkContext.defaultParallelism
    most = min(PARTS_PER_CORE * cores, 1 + shard.inventory_blocks // ROWS_PER_TASK)
    tasks = fact_tasks(shard, groups, trees.reach, most)
    parts = _parts(tasks, PARTS_PER_CORE * cores * 4)
    shuffled = max(cores, min(MAX_PARTS, shard.inventory_blocks // RUNS_PER_PART))
    session.conf.set("spark.sql.shuffle.partitions", shuffled)
    runs = runs_of(ReadFacts(shard, parts).frame(session), shard)
    tally, wanted, telling = Tally(), list[RunId](), list[Alike]()
    for group in alike(runs):
        if group.is_odd or not _judge_group(group, shard, tally):
            if group.run_id is None:
                telling.append(group)
            else:
                wanted.append(group.run_id)
    if telling:
        wanted += ids_of(runs, telling)
    for start in range(0, len(wanted), WANTED_AT_ONCE):
        some = frozenset(wanted[start : start + WANTED_AT_ONCE])
        _judge_one_by_one(session, ReadFacts(shard, parts, some), tally)
    return tally


def _parts(tasks: Sequence[FactTask], most: int) -> list[list[FactTask]]:
    """Group tasks into partitions: a bucket has several tasks, and a shard may have thousands of buckets."""
    return [list(tasks[part::most]) for part in range(min(most, len(tasks)))]


def _judge_group(group: Alike, shard: AuditedShard, tally: Tally) -> bool:
    """Judge runs that are alike; return False if there is something to report of them, for which their keys are needed.

    Nothing but its id is reported of an orphan.
    """
    if group.row.kind is not None:
        tally.count(FactKind(group.row.kind), group.row.bucket_id, group.row.extent)
        return True
    judged = Tally()
    judge_run(group.facts(shard), shard, judged, group.amount)
    if judged.findings.keys() - {FindingKind.ORPHANED}:
        return False
    tally.merge(judged)
    return True


def _judge_one_by_one(session: SparkSession, read: ReadFacts, tally: Tally) -> None:
    """Judge the wanted runs by all of their facts."""
    by_run: defaultdict[RunId, list[Fact]] = defaultdict(list)
    for row in read.frame(session).toLocalIterator(prefetchPartitions=True):
        fact = fact_of(row)
        by_run[fact[1], fact[2]].append(fact)
    for facts in by_run.values():
        judge_run(facts, read.shard, tally)


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
        say(progress=_STARTED_PERCENT, doing="looking at the copies")
        copies = AuditedCopies(**audited["copies"])
        report = audit(session, copies, lambda percent, doing: say(progress=percent, doing=doing))
    Path(audited["output"]).write_bytes(TypeAdapter(AuditReport).dump_json(report))
    say(progress=100, doing="reading the report")


if __name__ == "__main__":
    main()
