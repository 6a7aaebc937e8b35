"""Measures judging on a standalone Spark cluster beside judging in ``local[2]``, in turns.

    python -m tests.judging_on_a_cluster --turns 5 --entries 4000000 --rounds 9

The cluster has two workers of one core each. Both masters judge the same entries, which are in Kafka already, with the
production job; each turn starts a session for each master and judges them again and again. Java compiles for the first
minutes, in three processes of the cluster and in one of ``local[2]``, so the first rounds say more about compilers than
about a job that runs for months: the median of the last third of the rounds counts. What counts is the ratio of the two
in each turn.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from bench.alone import bench_broker
from bench.conditions import Conditions
from bench.spark_process import run_spark
from bench.verdicts import write_entries
from streaming.reclaiming.reclaim import MESSAGES_PER_BATCH
from tests.spark_cluster import spark_cluster
from tests.spark_session import java_for_spark

ENTRIES_PER_MESSAGE, WORKERS = 1_000, 2
LOCAL = "local[2]"
EXECUTOR = ("spark.executor.memory=768m", "spark.executor.cores=1")


def main() -> int:
    """Measure, and print the rates and the ratio of each turn."""
    parser = argparse.ArgumentParser(prog="python -m tests.judging_on_a_cluster", description="Compare two masters.")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--entries", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch-messages", type=int, default=MESSAGES_PER_BATCH, help="default: %(default)s")
    options = parser.parse_args()
    batches = max(2, options.entries // ENTRIES_PER_MESSAGE // options.batch_messages)
    entries = batches * options.batch_messages * ENTRIES_PER_MESSAGE
    rounds_each = max(1, options.rounds)
    print(f"{entries:,} entries in {batches} batches, {rounds_each} rounds of each master", flush=True)
    with tempfile.TemporaryDirectory(prefix="deepclean-judging-") as scratch, java_for_spark() as java:
        conditions = Conditions(Path(scratch), say=print)
        with (
            bench_broker(conditions, "judging") as broker,
            spark_cluster(conditions.scratch("cluster"), java, WORKERS) as cluster,
        ):
            write_entries(broker, entries)
            asked = {
                "bootstrap_servers": broker.bootstrap_servers,
                "entries": entries,
                "messages_per_batch": options.batch_messages,
                "rounds": rounds_each,
                "copy_topic": "",
                "conf": EXECUTOR,
            }
            ratios = []
            for turn in range(options.turns):
                masters = [LOCAL, cluster.master] if turn % 2 else [cluster.master, LOCAL]
                rounds = {one: run_spark(conditions, "verdicts", {**asked, "master": one})["judged"] for one in masters}
                for one in masters:
                    print(f"{one}: {', '.join(f'{rate:,.0f}' for rate in rounds[one])}", flush=True)
                rates = {one: median(rounds[one][-max(1, rounds_each // 3) :]) for one in masters}
                ratios.append(rates[cluster.master] / rates[LOCAL])
                print(
                    f"turn {turn + 1}: cluster {rates[cluster.master]:,.0f}, {LOCAL} {rates[LOCAL]:,.0f} verdicts/s, "
                    f"ratio {ratios[-1]:.2f}",
                    flush=True,
                )
            print(f"median ratio {median(ratios):.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
