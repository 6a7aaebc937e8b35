"""Measures how long Spark takes to follow a marker of the snapshot chain, and what the view of the chain takes."""

from __future__ import annotations

from collections.abc import Sequence

from bench.conditions import Conditions
from bench.figures import Ceiling, Figure, Target
from bench.spark_process import run_spark

NAME = "chain-follow"
FEW_BUCKETS = 10
SNAPSHOTS_EVER = 1_000
SNAPSHOTS_LIVE = 10
MARKERS_PER_SECOND = 4
FOLLOWED = Target(1_000.0, is_upper=True)


def measure_chain_follow(conditions: Conditions) -> Sequence[Figure]:
    """Time from a marker to the rebuilt table, and to the end of a small batch judged with it; memory of the view.

    A view has 10 buckets, another one ``followed-buckets``; each bucket ever had 1,000 snapshots, ten of which are
    live. Markers of both arrive in turns. The batch has one message, and the table is broadcast with it. Medians.
    Memory is what the larger view adds: to the resident size of Python, and to the used heap of the JVM.
    """
    buckets = [FEW_BUCKETS, conditions.sizes.followed_buckets]
    options = {"buckets": buckets, "ever": SNAPSHOTS_EVER, "live": SNAPSHOTS_LIVE}
    conditions.say(f"{NAME}: markers of {buckets[0]} and of {buckets[1]:,} buckets")
    answer = run_spark(conditions, "follow", {**options, "markers": conditions.count(MARKERS_PER_SECOND, at_least=3)})
    figures = []
    for kind in ("table", "judged"):
        few, many = answer[kind]
        figures.append(Figure(f"{NAME}/{kind}", many, "ms", FOLLOWED, Ceiling(few, f"at {FEW_BUCKETS} buckets")))
    memory = [Figure(f"{NAME}/{kind}-memory", answer[kind] / 1e6, "MB") for kind in ("python", "heap")]
    return [*figures, *memory]
