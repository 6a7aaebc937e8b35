"""Measures the cost of a verdict as a bucket's chain of snapshots grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from statistics import median

from bench.conditions import Conditions
from bench.figures import Ceiling, Figure, Target
from bench.spark_process import run_spark
from services.domain.chain_view import ChainView

NAME = "rule-cost"
SNAPSHOT_COUNTS = (10, 1_000, 10_000)
BUCKET_ID = 256
TXNS_PER_SNAPSHOT = 1_000
VERDICTS_PER_ROUND = 20_000
ROUNDS_PER_SECOND = 2
LEAST_ROUNDS = 3
SPARK_ROWS_PER_SECOND = 200_000
FLAT = Target(0.8, is_of_ratio=True)
Question = tuple[int, int, int]
"""Birth, death, snapshots before the death."""


def measure_rule_cost(conditions: Conditions) -> Sequence[Figure]:
    """Verdicts a second at 10, 1,000 and 10,000 snapshots a bucket: by the services' rule, and by Spark's column.

    The services' rule is ChainView.judge in one thread; Spark's is its column over rows that Spark makes itself,
    joined with the broadcast view as in the job, with nothing read or sent. Deaths are random in the chain. The
    services' rule is timed by its thread's own processor time. Rounds of all three sizes run in turns; the median
    counts, as a ratio to the median at 10 snapshots.
    """
    conditions.say(f"{NAME}: the services' rule")
    rounds = max(LEAST_ROUNDS, int(ROUNDS_PER_SECOND * conditions.seconds))
    pure = judge_rates(rounds, VERDICTS_PER_ROUND)
    conditions.say(f"{NAME}: Spark's column")
    rows = conditions.count(SPARK_ROWS_PER_SECOND, at_least=1_000)
    answer = run_spark(conditions, "rule", {"rows": rows, "snapshot_counts": list(SNAPSHOT_COUNTS)})
    spark = {int(count): rate for count, rate in answer["rates"].items()}
    return [*flat_figures("judge", pure), *flat_figures("spark", spark)]


def judge_rates(rounds: int, verdicts: int) -> dict[int, float]:
    """Return the verdicts a second of the services' rule by number of snapshots: the median of the rounds."""
    asked = {count: (chain_of(count), questions(count, verdicts)) for count in SNAPSHOT_COUNTS}
    measured: dict[int, list[float]] = {count: [] for count in SNAPSHOT_COUNTS}
    for _ in range(rounds):
        for count, (view, asking) in asked.items():
            measured[count].append(len(asking) / _seconds(view, asking, time.thread_time))
    return {count: median(rates) for count, rates in measured.items()}


def _seconds(view: ChainView, asking: Sequence[Question], clock: Callable[[], float]) -> float:
    judge = view.judge
    started = clock()
    for birth, death, before in asking:
        judge(BUCKET_ID, birth, death, before)
    return clock() - started


def chain_of(snapshots: int) -> ChainView:
    """Return the view of a bucket that had ``snapshots`` snapshots, every tenth of which is dropped."""
    view = ChainView()
    for number in range(1, snapshots + 1):
        view.capture(
            view.version + 1, view.version, BUCKET_ID, f"snapshot-{number}", number, number * TXNS_PER_SNAPSHOT
        )
    for number in range(5, snapshots + 1, 10):
        view.drop(view.version + 1, view.version, BUCKET_ID, f"snapshot-{number}")
    return view


def questions(snapshots: int, count: int) -> list[Question]:
    """Return lifetimes that end anywhere in the chain; half of them are too short for any snapshot."""
    random = Random(snapshots)  # noqa: S311  the same at each run
    asked = []
    for number in range(count):
        before = random.randint(0, snapshots)
        death = before * TXNS_PER_SNAPSHOT + random.randint(TXNS_PER_SNAPSHOT // 2, TXNS_PER_SNAPSHOT - 1)
        birth = death - TXNS_PER_SNAPSHOT // 4 if number % 2 else random.randint(1, death - 1)
        asked.append((birth, death, before))
    return asked


def flat_figures(kind: str, rates: dict[int, float]) -> list[Figure]:
    """Return the rates as figures; the first rate is the ceiling of all others."""
    first, *others = sorted(rates)
    ceiling = Ceiling(rates[first], f"at {first} snapshots")
    return [
        Figure(f"{NAME}/{kind}-at-{first}-snapshots", rates[first], "verdicts/s"),
        *(Figure(f"{NAME}/{kind}-at-{one}-snapshots", rates[one], "verdicts/s", FLAT, ceiling) for one in others),
    ]
