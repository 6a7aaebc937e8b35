"""The rule as Spark says it equals the rule as the domain says it, on whole and on broken histories."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from pyspark.sql import SparkSession, functions

from schemas.records import ChainCapture, ChainDrop, SnapshotChainRecord
from services.domain.chain_view import ChainView, UnknownDeathError
from services.domain.reclaimability import LifetimeError, Verdict, judge
from streaming.reclaiming.rule import HELD, RECLAIMABLE, verdict, with_neighbours
from streaming.reclaiming.view_table import ViewTable
from tests.spark_session import SPARK_MARKS, started_session

pytestmark = [*SPARK_MARKS, pytest.mark.timeout(180)]

Row = tuple[int, int | None, int | None, int | None]
"""Bucket, birth, death and snapshots before the death."""
ENTRY_TYPE = "bucket_id bigint, birth bigint, death bigint, snapshots_before_death bigint"
UNKNOWN_BUCKET = 999_999


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with started_session() as started:
        yield started


def spark_verdicts(session: SparkSession, view: ChainView, rows: list[Row]) -> list[str | None]:
    """What Spark says of each row, by way of the table that the job broadcasts."""
    table = ViewTable(session).joined([view], {(0, bucket_id) for bucket_id in view.bucket_ids()})
    numbered = [(place, *row) for place, row in enumerate(rows)]
    entries = session.createDataFrame(numbered, f"place int, {ENTRY_TYPE}")
    joined = entries.join(functions.broadcast(table.rows), "bucket_id", "left")
    judged = with_neighbours(joined, table.search_steps).select("place", verdict().alias("verdict"))
    return [row["verdict"] for row in sorted(judged.collect(), key=lambda row: row["place"])]


def pure_verdict(view: ChainView, row: Row) -> str | None:
    bucket_id, birth, death, snapshots_before_death = row
    if birth is None or death is None or snapshots_before_death is None:
        return None
    try:
        said = view.judge(bucket_id, birth, death, snapshots_before_death)
    except (LifetimeError, UnknownDeathError) as error:
        return type(error).__name__
    return RECLAIMABLE if said is Verdict.RECLAIMABLE else HELD


def history(random: Random, buckets: int, steps: int, drop_share: float) -> tuple[ChainView, dict[int, list[int]]]:
    """A chain in which snapshots were taken and dropped, and per bucket the txns of all that were taken."""
    view = ChainView()
    taken: dict[int, list[int]] = {bucket_id: [] for bucket_id in range(1, buckets + 1)}
    txn = 0
    for _ in range(steps):
        txn += random.randint(1, 5)
        bucket_id = random.randint(1, buckets)
        live = view.live(bucket_id)
        body: ChainCapture | ChainDrop
        if live and random.random() < drop_share:
            dropped = random.choice(live)
            body = ChainDrop(bucket_id, dropped.snapshot_id, dropped.txn, 1)
        else:
            taken[bucket_id].append(txn)
            body = ChainCapture(bucket_id, f"{bucket_id}/{txn}", len(taken[bucket_id]), txn)
        view.follow(SnapshotChainRecord(view.version + 1, view.version, body))
    return view, taken


def whole_rows(random: Random, taken: dict[int, list[int]], count: int) -> list[Row]:
    """Rows of real lifetimes: no txn is both a death and a snapshot."""
    rows: list[Row] = []
    last = max((txns[-1] for txns in taken.values() if txns), default=1) + 10
    while len(rows) < count:
        bucket_id = random.choice(list(taken))
        birth, death = sorted(random.sample(range(1, last + 2), 2))
        if death not in taken[bucket_id]:
            rows.append((bucket_id, birth, death, sum(txn < death for txn in taken[bucket_id])))
    return rows


def broken_row(random: Random, row: Row) -> Row:
    """The row with one thing changed, which may make it impossible."""
    bucket_id, birth, death, snapshots_before_death = row
    odd = random.choice([None, -1, 0, 1, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63), random.randint(0, 2_000)])
    return random.choice(
        [
            (UNKNOWN_BUCKET, birth, death, snapshots_before_death),
            (bucket_id, odd, death, snapshots_before_death),
            (bucket_id, birth, odd, snapshots_before_death),
            (bucket_id, birth, death, odd),
            (bucket_id, death, birth, snapshots_before_death),
        ]
    )


def differing(view: ChainView, rows: list[Row], said: list[str | None]) -> list[tuple[Row, str | None]]:
    """Each row of which Spark says other than the pure rule, and what it says."""
    return [(row, one) for row, one in zip(rows, said, strict=True) if one != pure_verdict(view, row)]


@pytest.mark.parametrize("drop_share", [0.0, 0.3, 0.5])
def test_small_histories(session: SparkSession, seed: int, drop_share: float) -> None:
    random = Random(seed)
    view, taken = history(random, buckets=200, steps=1_500, drop_share=drop_share)
    rows = whole_rows(random, taken, 5_000)
    said = spark_verdicts(session, view, rows)
    assert differing(view, rows, said) == []
    assert {RECLAIMABLE, HELD} == set(said)
    for (bucket_id, birth, death, _), one in zip(rows, said, strict=True):
        assert birth is not None
        assert death is not None
        live = [snapshot.txn for snapshot in view.live(bucket_id)]
        assert (judge(birth, death, live) is Verdict.RECLAIMABLE) == (one == RECLAIMABLE)


def test_broken_rows_are_never_reclaimable_by_accident(session: SparkSession, seed: int) -> None:
    random = Random(seed)
    view, taken = history(random, buckets=50, steps=600, drop_share=0.4)
    rows = [broken_row(random, row) for row in whole_rows(random, taken, 10_000)]
    said = spark_verdicts(session, view, rows)
    assert differing(view, rows, said) == []


@pytest.mark.parametrize(("steps", "drop_share", "is_searched"), [(2_000, 0.2, False), (4_000, 0.48, True)])
def test_a_thousand_snapshots(
    session: SparkSession, seed: int, steps: int, drop_share: float, is_searched: bool
) -> None:
    """Most of which are live, so that each has a page; or few of which are, so that a page has several."""
    random = Random(seed)
    view, taken = history(random, buckets=1, steps=steps, drop_share=drop_share)
    assert len(taken[1]) > 1_000
    assert (ViewTable(session).joined([view], {(0, 1)}).search_steps > 0) is is_searched
    rows = whole_rows(random, taken, 10_000)
    said = spark_verdicts(session, view, rows)
    assert differing(view, rows, said) == []
    assert {RECLAIMABLE, HELD} == set(said)


def test_without_any_snapshot(session: SparkSession) -> None:
    rows: list[Row] = [(1, 5, 9, 0), (1, 5, 9, 1), (1, 9, 9, 0), (1, 10, 9, 0), (1, None, 9, 0)]
    verdicts = [RECLAIMABLE, "UnknownDeathError", RECLAIMABLE, "LifetimeError", None]
    assert spark_verdicts(session, ChainView(), rows) == verdicts
