"""A plan that is kept says of every batch what a plan made for that batch would say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.functions import col

from streaming.batch_plans import PARTITIONS_OF_ONE_TASK, BatchPlans
from streaming.prepared_plan import PreparedPlan, partition_count, without_rows
from tests.spark_session import SPARK_MARKS, started_session

pytestmark = [*SPARK_MARKS, pytest.mark.timeout(180)]

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
    """Joined with a table that is broadcast, shuffled, observed, and exploded."""
    names = rows.sparkSession.createDataFrame([(0, "zero"), (1, "one")], "place int, name string")
    joined = rows.join(functions.broadcast(names), "place", "left")
    grouped = joined.groupBy("name").agg(functions.collect_list("weight").alias("weights"))
    observed = grouped.observe("outcome", functions.sum(functions.size("weights")).alias("rows"))
    return observed.select("name", functions.explode("weights").alias("weight")).where(col("weight") != 2)


def said(of: DataFrame) -> list[tuple[str, int]]:
    return sorted((str(row["name"]), row["weight"]) for row in of.collect())


@pytest.mark.parametrize("is_coalesced", [True, False])
def test_a_kept_plan_says_what_a_new_one_says(session: SparkSession, is_coalesced: bool) -> None:
    like = without_rows(frame(session, []))
    plan = PreparedPlan(sums(like.coalesce(1) if is_coalesced else like))
    for batch in (*BATCHES, *reversed(BATCHES)):
        rows = frame(session, batch)
        for _ in range(2):
            planned = plan.over(rows)
            assert said(planned.frame) == said(sums(rows))
            assert (planned.observed()["rows"] or 0) == len(batch)


def test_a_plan_that_observes_nothing_is_refused(session: SparkSession) -> None:
    with pytest.raises(ValueError, match="CollectMetrics"):
        PreparedPlan(frame(session, []).where("weight > 0"))


def test_little_is_read_by_one_task_and_much_by_many(session: SparkSession) -> None:
    plans = BatchPlans()
    view = session.createDataFrame(
        [], "shard int, bucket_id bigint, previous_cells array<bigint>, taken_cells array<bigint>"
    )
    for partitions, tasks in ((1, 1), (PARTITIONS_OF_ONE_TASK, 1), (PARTITIONS_OF_ONE_TASK + 1, 2)):
        messages = session.createDataFrame(session.sparkContext.parallelize([], partitions), MESSAGE_TYPE)
        assert partition_count(messages) == partitions
        assert partition_count(plans.over(messages, view, "array(0L)").frame) == tasks
