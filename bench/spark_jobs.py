"""The measurements within Spark, each run as ``python -m bench.spark_jobs NAME OPTIONS``.

A measurement prints its result as JSON on the last line of standard output.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.functions import col, lit

from bench.followed_view import measure_following
from bench.rule_cost import BUCKET_ID, TXNS_PER_SNAPSHOT, chain_of
from services.domain.chain_view import ChainView
from streaming.reclaiming.checkpoint import LocalCheckpoint
from streaming.reclaiming.metrics import ReclaimMetrics
from streaming.reclaiming.outcome import BatchOutcome
from streaming.reclaiming.reclaim import ReclaimJob, ReclaimOptions
from streaming.reclaiming.rule import verdict, with_neighbours
from streaming.reclaiming.view_table import ViewTable
from streaming.spark.child_job import end_with_standard_input
from streaming.spark.session import SessionOptions, spark_session

WARM_ROUNDS = 1
RULE_ROUNDS = 5
STALLED_SECONDS = 300.0


class _BatchTimes(ReclaimMetrics):
    """Records when each batch of the job ended, and its number of entries."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.changed = threading.Condition()
        self.ends: list[tuple[float, int]] = []

    def batch_judged(self, outcome: BatchOutcome, seconds: float) -> None:
        """Record a finished batch."""
        super().batch_judged(outcome, seconds)
        with self.changed:
            self.ends.append((time.perf_counter(), outcome.entries))
            self.changed.notify_all()


def measure_verdicts(session: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    """Return the rates of the reclaim job and of a bare copy of the same entries, in turns after a warm-up round.

    Without a topic for the copy, only the job is measured.
    """
    directory, rates = Path(options["directory"]), {"judged": list[float](), "copied": list[float]()}
    for number in range(options["rounds"] + WARM_ROUNDS):
        judged = _judged_rate(session, options, directory / f"judge-{number}")
        copied = _copied_rate(session, options, directory / f"copy-{number}") if options["copy_topic"] else 0.0
        if number >= WARM_ROUNDS:
            rates["judged"].append(judged)
            rates["copied"].append(copied)
    return rates


def _judged_rate(session: SparkSession, options: dict[str, Any], checkpoint: Path) -> float:
    """Return the entries a second of the job, from the end of the first batch to the end of the last."""
    times = _BatchTimes()
    per_batch: int = options["messages_per_batch"]
    job = ReclaimJob(
        session,
        ReclaimOptions(options["bootstrap_servers"], 1, LocalCheckpoint(checkpoint), max_messages_per_batch=per_batch),
        times,
    )
    job.start()
    try:
        with times.changed:
            is_done = times.changed.wait_for(
                lambda: sum(n for _, n in times.ends) >= options["entries"], STALLED_SECONDS
            )
    finally:
        job.stop()
        job.close()
    if not is_done:
        raise TimeoutError(f"the job judged {times.ends} and then stood still")
    return _rate(times.ends)


def _copied_rate(session: SparkSession, options: dict[str, Any], checkpoint: Path) -> float:
    """Return the entries a second of a query that forwards every message unchanged; a message has one entry."""
    ends: list[tuple[float, int]] = []
    changed = threading.Condition()
    per_batch: int = options["entries_per_batch"]

    def copy(batch: DataFrame, _: int) -> None:
        sent = batch.select("partition", "value", "headers", lit(options["copy_topic"]).alias("topic")).write.format(
            "kafka"
        )
        sent.mode("append").option("kafka.bootstrap.servers", options["bootstrap_servers"]).save()
        with changed:
            ends.append((time.perf_counter(), per_batch))
            changed.notify_all()

    source = {
        "kafka.bootstrap.servers": options["bootstrap_servers"],
        "subscribe": options["entry_topic"],
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(per_batch),
        "kafka.fetch.max.wait.ms": "10",
    }
    entries = session.readStream.format("kafka").options(**source).load()
    query = entries.writeStream.foreachBatch(copy).option("checkpointLocation", str(checkpoint)).start()
    try:
        with changed:
            is_done = changed.wait_for(lambda: len(ends) * per_batch >= options["entries"], STALLED_SECONDS)
    finally:
        query.stop()
    if not is_done:
        raise TimeoutError(f"the copy made {len(ends)} batches and then stood still")
    return _rate(ends)


def _rate(ends: list[tuple[float, int]]) -> float:
    (first, _), *others = ends
    return sum(entries for _, entries in others) / (others[-1][0] - first)


def measure_rule(session: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    """Return the verdicts a second of the column alone, by number of snapshots."""
    plans = {count: _judged_rows(session, count, options["rows"]) for count in options["snapshot_counts"]}
    measured: dict[int, list[float]] = {count: [] for count in plans}
    for number in range(RULE_ROUNDS + WARM_ROUNDS):
        for count, plan in plans.items():
            started = time.perf_counter()
            plan.write.format("noop").mode("overwrite").save()
            if number >= WARM_ROUNDS:
                measured[count].append(options["rows"] / (time.perf_counter() - started))
    return {"rates": {count: median(rates) for count, rates in measured.items()}}


def _judged_rows(session: SparkSession, snapshots: int, rows: int) -> DataFrame:
    table = ViewTable(session)
    view = table.joined([chain_of(snapshots)], {(0, BUCKET_ID)})
    before = functions.pmod(functions.hash("id"), lit(snapshots + 1)).cast("long")
    made = session.range(rows).select(lit(0).alias("shard"), lit(BUCKET_ID).cast("long").alias("bucket_id"), "id")
    deaths = made.withColumn("snapshots_before_death", before).withColumn(
        "death", before * TXNS_PER_SNAPSHOT + TXNS_PER_SNAPSHOT // 2 + col("id") % (TXNS_PER_SNAPSHOT // 2)
    )
    births = functions.greatest(lit(1), col("death") - TXNS_PER_SNAPSHOT // 4 - col("id") % 2 * TXNS_PER_SNAPSHOT)
    joined = deaths.withColumn("birth", births).join(functions.broadcast(view.rows), ["shard", "bucket_id"], "left")
    return with_neighbours(joined, view.search_steps).select("id", verdict().alias("verdict"))


def measure_lifetimes(session: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    """Return the verdicts a second of the column alone over copies of a file's entries: the median of some rounds."""
    view, bucket_id = ChainView(), options["bucket_id"]
    for number, txn in enumerate(options["snapshot_txns"], start=1):
        view.capture(number, number - 1, bucket_id, f"snapshot-{number}", number, txn)
    cells = ViewTable(session).joined([view], {(0, bucket_id)})
    columns = "bucket_id long, birth long, death long, snapshots_before_death long"
    entries = session.read.csv(options["file"], schema=columns).withColumn("shard", lit(0)).cache()
    copied = session.range(options["copies"]).crossJoin(functions.broadcast(entries))
    joined = copied.join(functions.broadcast(cells.rows), ["shard", "bucket_id"], "left")
    plan, rows, rates = (
        with_neighbours(joined, cells.search_steps).select("id", verdict().alias("verdict")),
        options["entries"] * options["copies"],
        [],
    )
    for number in range(RULE_ROUNDS + WARM_ROUNDS):
        started = time.perf_counter()
        plan.write.format("noop").mode("overwrite").save()
        if number >= WARM_ROUNDS:
            rates.append(rows / (time.perf_counter() - started))
    return {"rate": median(rates)}


JOBS: dict[str, Callable[[SparkSession, dict[str, Any]], dict[str, Any]]] = {
    "verdicts": measure_verdicts,
    "rule": measure_rule,
    "follow": measure_following,
    "lifetimes": measure_lifetimes,
}


def main() -> None:
    """Run the measurement that the command line names."""
    end_with_standard_input()
    job, options = sys.argv[1], json.loads(sys.argv[2])
    chosen = SessionOptions(
        Path(options["jars_directory"]),
        master=options.get("master", ""),
        name=f"deepclean-bench-{job}",
        conf=tuple(options.get("conf", ())),
    )
    with spark_session(chosen) as session:
        print(json.dumps(JOBS[job](session, options)))


if __name__ == "__main__":
    main()
