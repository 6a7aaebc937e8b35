"""A plan that is kept says of every batch what a plan made for that batch would say."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.functions import col

from services.domain.chain_view import ChainView
from streaming.reclaiming.batch_plans import PARTITIONS_OF_ONE_TASK, BatchPlans
from streaming.reclaiming.prepared_plan import (
    PreparedPlan,
    handed_in,
    partition_count,
    use_here,
    without_rows,
    worked_out_once,
)
from streaming.reclaiming.view_table import VersionTable, ViewTable
from tests.spark_session import SPARK_MARKS, started_session

pytestmark = [*SPARK_MARKS, pytest.mark.timeout(180), pytest.mark.long]

TYPE = "place int, weight bigint"
Batch = list[tuple[int, int]]
BATCHES: list[Batch] = [
    [(0, 1), (1, 2), (0, 3), (2, 4)],
    [],
    [(1, 10)],
    [(number % 3, number) for number in range(100)],
]
MESSAGE_TYPE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with started_session() as started:
        yield started


def frame(session: SparkSession, batch: Batch, partitions: int = 3) -> DataFrame:
    return session.createDataFrame(session.sparkContext.parallelize(batch, partitions), TYPE)


def sums(rows: DataFrame) -> DataFrame:
    """Joined with a table that is broadcast, shuffled, and exploded."""
    names = rows.sparkSession.createDataFrame([(0, "zero"), (1, "one")], "place int, name string")
    joined = rows.join(functions.broadcast(names), "place", "left")
    grouped = joined.groupBy("name").agg(functions.collect_list("weight").alias("weights"))
    return grouped.select("name", functions.explode("weights").alias("weight")).where(col("weight") != 2)


def said(of: DataFrame) -> list[tuple[str, int]]:
    return sorted((str(row["name"]), row["weight"]) for row in of.collect())


@pytest.mark.parametrize("is_coalesced", [True, False])
def test_a_kept_plan_says_what_a_new_one_says(session: SparkSession, is_coalesced: bool) -> None:
    like = without_rows(frame(session, []))
    plan = PreparedPlan(sums(like.coalesce(1) if is_coalesced else like))
    for batch in (*BATCHES, BATCHES[0]):
        rows = frame(session, batch)
        assert said(plan.over(rows)) == said(sums(rows))
    assert said(plan.over(rows)) == said(plan.over(rows)), "the rows of one frame, once more"


def test_a_plan_runs_over_the_rows_of_any_frame(session: SparkSession) -> None:
    plan = PreparedPlan(sums(without_rows(frame(session, []))))
    chosen = frame(session, BATCHES[-1]).where("place = 1")
    assert said(plan.over(handed_in(chosen))) == said(sums(chosen))


def test_a_plan_runs_in_any_thread_that_says_whose_session_it_is(session: SparkSession) -> None:
    plan = PreparedPlan(sums(without_rows(frame(session, []))))
    batch = frame(session, BATCHES[-1])
    found: list[list[tuple[str, int]]] = []

    def run() -> None:
        use_here(session)
        found.append(said(plan.over(batch)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [said(sums(batch))]


def test_rows_that_are_kept_are_worked_out_once_and_let_go(session: SparkSession) -> None:
    counted = session.sparkContext.accumulator(0)

    def count(row: tuple[int, int]) -> tuple[int, int]:
        counted.add(1)
        return row

    made = session.createDataFrame(session.sparkContext.parallelize(BATCHES[0], 3).map(count), TYPE)
    places = PreparedPlan(without_rows(made).select("place"))
    with worked_out_once(made) as kept:
        before = counted.value
        assert sorted(row["place"] for row in places.over(kept).collect()) == [0, 0, 1, 2]
        assert kept.where("weight > 1").count() == 3
        assert counted.value - before == len(BATCHES[0])
        assert stored(session) == 1
    assert stored(session) == 0


def stored(session: SparkSession) -> int:
    """How many frames Spark keeps."""
    java: Any = session.sparkContext._jsc
    return int(java.getPersistentRDDs().size())


@pytest.mark.parametrize("shards", [1, 64])
def test_no_stage_has_one_task_for_each_shard(session: SparkSession, shards: int) -> None:
    """Little is judged by one task; much by as many as there are cores, however many partitions were read."""
    plans, cores = BatchPlans(), session.sparkContext.defaultParallelism
    view = ViewTable(session).joined([ChainView() for _ in range(shards)], set())
    for partitions in (1, PARTITIONS_OF_ONE_TASK, PARTITIONS_OF_ONE_TASK + 1, 64):
        tasks = 1 if partitions <= PARTITIONS_OF_ONE_TASK else cores
        messages = session.createDataFrame(session.sparkContext.parallelize([], partitions), MESSAGE_TYPE)
        assert partition_count(messages) == partitions
        with plans.over(messages, view, VersionTable(session).frame([0] * shards)) as judged:
            assert partition_count(judged.to_send) == tasks
            counts = tasks_of_each_stage(session, judged.to_send)
        assert set(counts) == {tasks}
        assert len(counts) == (1 if tasks == 1 else 2), "messages are read, then grouped"


def tasks_of_each_stage(session: SparkSession, frame: DataFrame) -> list[int]:
    """The number of tasks of each stage that an action on a frame has run."""
    context: Any = session.sparkContext
    context.setJobGroup(group := str(uuid.uuid4()), "counted")
    try:
        frame.collect()
    finally:
        context._jsc.clearJobGroup()
    tracker = context.statusTracker()
    stages = {stage for job in tracker.getJobIdsForGroup(group) for stage in tracker.getJobInfo(job).stageIds}
    return [tracker.getStageInfo(stage).numTasks for stage in sorted(stages)]


def test_what_spark_makes_of_long_columns_is_compiled(session: SparkSession) -> None:
    """Else Java interprets it, and the job judges less than half as many entries a second."""
    jvm: Any = session._jvm
    diagnostics = jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
    options = jvm.java.lang.management.ManagementFactory.getPlatformMXBean(diagnostics)
    assert options.getVMOption("DontCompileHugeMethods").getValue() == "false"
