"""The ids of dropped snapshots are known for as long as anybody can name them, and no longer."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.records import CaptureSnapshot, DropSnapshot, PutKey, SnapshotCaptured, SnapshotDropped
from schemas.topics import SNAPSHOT_CHAIN
from services.domain.table_keys import snapshot_id_key
from services.metadata.recovery.digest import digest_shard
from services.metadata.state.spent_ids import CAPTURE_EXPIRES_MS, FORGOTTEN_AT_ONCE, KEPT_MS
from services.metadata.state.tables import (
    DROPPED_ID_TABLE,
    SNAPSHOT_COUNT_TABLE,
    SNAPSHOT_LIST_TABLE,
    UNCAPTURED_TABLE,
)
from services.storage.tables import TableDefinition, TablesReader
from tests.unit.test_metadata import Shard


def capture(shard: Shard, snapshot_id: str, requested_ms: int) -> SnapshotCaptured:
    captured = shard.internal(CaptureSnapshot("vol", "flat", snapshot_id, requested_ms=requested_ms))
    assert isinstance(captured, SnapshotCaptured)
    return captured


def drop(shard: Shard, snapshot_id: str) -> SnapshotDropped:
    dropped = shard.internal(DropSnapshot(snapshot_id))
    assert isinstance(dropped, SnapshotDropped)
    return dropped


def count(shard: Shard, table: TableDefinition[Any]) -> int:
    return len(list(TablesReader(shard.store).table(table).scan(b"", b"\xff")))


@pytest.mark.parametrize("early_ms", [0, CAPTURE_EXPIRES_MS])
def test_a_capture_that_comes_again_never_makes_a_second_snapshot(early_ms: int) -> None:
    """It may come again as long as it is accepted at all, and its id is known for longer than that."""
    shard = Shard()
    requested_ms = shard.clock.now_ms() + early_ms  # by the clock of another broker
    first = capture(shard, "s1", requested_ms)
    assert not first.error
    drop(shard, "s1")
    while shard.clock.now_ms() - requested_ms <= CAPTURE_EXPIRES_MS:
        assert capture(shard, "s1", requested_ms) == first
        shard.clock.advance(CAPTURE_EXPIRES_MS // 4)
    shard.clock.advance(KEPT_MS)
    for n in range(2, 5):
        capture(shard, f"s{n}", shard.clock.now_ms())
    assert TablesReader(shard.store).table(SNAPSHOT_LIST_TABLE).get(snapshot_id_key("s1")) is None
    late = capture(shard, "s1", requested_ms)
    assert late.error == "INVALID_REQUEST"
    assert "more than a day away" in late.message
    assert [row.snapshot_id for _, row in TablesReader(shard.store).table(SNAPSHOT_LIST_TABLE).scan(b"/", b"0")] == [
        "s2",
        "s3",
        "s4",
    ]


@pytest.mark.parametrize("away_ms", [-CAPTURE_EXPIRES_MS, CAPTURE_EXPIRES_MS])
def test_a_capture_is_accepted_up_to_a_day_before_and_after_its_request(away_ms: int) -> None:
    shard = Shard()
    beyond_ms = away_ms + (1 if away_ms > 0 else -1)
    assert not capture(shard, "s1", shard.clock.now_ms() + away_ms).error
    assert capture(shard, "s2", shard.clock.now_ms() + beyond_ms).error == "INVALID_REQUEST"
    assert not capture(shard, "s3", 0).error


def test_an_id_is_known_for_two_days_after_its_drop_and_a_drop_may_come_again() -> None:
    shard = Shard()
    capture(shard, "s1", shard.clock.now_ms())
    version = drop(shard, "s1").chain_version
    shard.clock.advance(KEPT_MS)
    assert drop(shard, "s1").chain_version == version
    markers = len(shard.sent(SNAPSHOT_CHAIN))
    shard.clock.advance(1)
    assert drop(shard, "s1").snapshot_id == "s1"
    assert len(shard.sent(SNAPSHOT_CHAIN)) == markers
    assert TablesReader(shard.store).table(UNCAPTURED_TABLE).get(b"s1") is not None
    assert capture(shard, "s1", shard.clock.now_ms()).error == "INVALID_REQUEST"


def test_what_was_dropped_before_its_capture_is_forgotten_too() -> None:
    shard = Shard()
    drop(shard, "s1")
    drop(shard, "s1")
    assert (count(shard, UNCAPTURED_TABLE), count(shard, DROPPED_ID_TABLE)) == (1, 1)
    shard.clock.advance(KEPT_MS + 1)
    capture(shard, "s2", shard.clock.now_ms())
    assert (count(shard, UNCAPTURED_TABLE), count(shard, DROPPED_ID_TABLE)) == (0, 0)


def test_tables_hold_what_lives_and_what_was_dropped_in_two_days() -> None:
    shard = Shard()
    every_ms, kept = KEPT_MS // 20, 20
    for n in range(1, 201):
        shard.do(PutKey("vol", "flat", f"key-{n}", 1, ""))
        capture(shard, f"s{n}", shard.clock.now_ms())
        if n > 3:
            drop(shard, f"s{n - 3}")
        shard.clock.advance(every_ms)
    assert count(shard, SNAPSHOT_LIST_TABLE) == 3 + (3 + count(shard, DROPPED_ID_TABLE)), "by ordinal, and by id"
    assert count(shard, SNAPSHOT_COUNT_TABLE) == 1
    assert kept <= count(shard, DROPPED_ID_TABLE) <= kept + 2
    transaction = shard.runner.service._transaction  # type: ignore[attr-defined]
    live = transaction.snapshots.of(transaction.work, shard.bucket("flat").object_id)
    assert (len(live.rows), live.ever) == (3, 200)
    before = digest_shard(shard.store)
    shard.start()
    assert capture(shard, "s201", shard.clock.now_ms()).ordinal == 201
    assert digest_shard(shard.store) != before


def test_a_long_pause_is_caught_up_a_few_at_a_time() -> None:
    shard = Shard()
    for n in range(40):
        drop(shard, f"s{n}")
    shard.clock.advance(KEPT_MS + 1)
    left = [40]
    while left[-1]:
        capture(shard, f"t{len(left)}", shard.clock.now_ms())
        left.append(count(shard, DROPPED_ID_TABLE))
    assert left == list(range(40, -1, -FORGOTTEN_AT_ONCE))
