"""The table that Spark joins follows the chain bucket by bucket, and equals one that is made anew."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from pyspark.sql import Row, SparkSession

from schemas.records import ChainCapture, ChainDrop, SnapshotChainRecord
from services.domain.chain_view import ChainView
from streaming.reclaiming import view_table
from streaming.reclaiming.view_table import ViewTable
from tests.spark_session import SPARK_MARKS, started_session

pytestmark = [*SPARK_MARKS, pytest.mark.timeout(180)]

BUCKETS = 40


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with started_session() as started:
        yield started


def next_marker(random: Random, view: ChainView) -> SnapshotChainRecord:
    bucket_id = random.randint(1, BUCKETS)
    live, ever = view.live(bucket_id), view.ever(bucket_id)
    body: ChainCapture | ChainDrop
    if live and random.random() < 0.5:
        dropped = random.choice(live)
        body = ChainDrop(bucket_id, dropped.snapshot_id, dropped.txn, 1)
    else:
        body = ChainCapture(bucket_id, f"{bucket_id}/{ever + 1}", ever + 1, view.newest_txn(bucket_id) + 7)
    return SnapshotChainRecord(view.version + 1, view.version, body)


def follow(random: Random, view: ChainView, shard: int, markers: int) -> set[tuple[int, int]]:
    changed = [view.follow(next_marker(random, view)) for _ in range(markers)]
    return {(shard, bucket_id) for some in changed for bucket_id in some or ()}


def all_buckets(views: list[ChainView]) -> set[tuple[int, int]]:
    return {(shard, bucket_id) for shard, view in enumerate(views) for bucket_id in view.bucket_ids()}


def rows(table: ViewTable, views: list[ChainView], changed: set[tuple[int, int]]) -> list[Row]:
    joined = table.joined(views, changed)
    return sorted(joined.rows.collect())


def test_a_marker_writes_the_row_of_its_bucket_alone(session: SparkSession, seed: int) -> None:
    random, view = Random(seed), ChainView()
    table = ViewTable(session)
    table.joined([view], follow(random, view, 0, 500))
    assert table.rows_written == len(view.bucket_ids()) == BUCKETS
    for number in range(1, 6):
        table.joined([view], follow(random, view, 0, 1))
        assert table.rows_written == BUCKETS + number
    kept = table.joined([view], set())
    assert kept is table.joined([view], set()), "the table of the batch before, which Spark has broadcast already"
    assert table.rows_written == BUCKETS + 5


def test_a_table_that_has_followed_equals_one_made_anew(
    session: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_table, "ROWS_PER_TEXT", 7)
    random, views = Random(seed), [ChainView(), ChainView()]
    table = ViewTable(session)
    assert rows(table, views, set()) == []
    for _ in range(8):
        changed = {
            one for shard, view in enumerate(views) for one in follow(random, view, shard, random.randint(1, 30))
        }
        followed = rows(table, views, changed)
        assert followed == rows(ViewTable(session), views, all_buckets(views))
        assert len(followed) == len(all_buckets(views))
    forgotten = {one for one in all_buckets(views) if one[0] == 1}
    views[1] = ChainView()
    assert rows(table, views, forgotten) == rows(ViewTable(session), views, all_buckets(views))
    gone, views[0] = all_buckets(views), ChainView()
    assert rows(table, views, gone) == []
