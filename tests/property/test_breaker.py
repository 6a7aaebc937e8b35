"""The breaker: within an hour never more goes than may, whatever restarts and however claims are cut into commands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import (
    BreakerCause,
    BreakerLimits,
    CollectionState,
    DeleteKey,
    PutKey,
    ResetBreaker,
    RowName,
    SetBreaker,
    SpaceCellValue,
)
from schemas.stored_rows import row_codec
from services.domain.breaker import (
    NOTHING,
    Amount,
    HourCount,
    LimitsError,
    check_limits,
    most,
    new_hour,
    release,
)
from services.domain.durations import HOUR_MS
from services.domain.row_columns import row_names
from services.domain.space_matrix import NOBODY
from services.domain.table_keys import cell_key
from services.metadata.reads.collection_queries import collection_status
from services.metadata.recovery.digest import digest_shard
from services.metadata.state.tables import SPACE_TABLE
from services.storage.tables import TablesReader
from tests.shard_copies import rebuilt_digest
from tests.unit.test_metadata import Shard

sizes = st.integers(1, 2_000)


@given(st.integers(1, 100), st.integers(0, 10_000), st.integers(0, 20), st.lists(sizes, max_size=30))
def test_what_has_room_is_what_stays_below_both_limits(
    share: int, floor_bytes: int, floor_versions: int, claims: list[int]
) -> None:
    had = Amount(sum(claims), len(claims))
    limits = [BreakerLimits(share, floor_bytes, floor_versions)]
    hour = new_hour(0, limits, had)
    for size_bytes in claims:
        before, count = hour, HourCount(hour)
        is_admitted = count.admit(size_bytes, death=1)
        hour = count.hour()
        if not is_admitted:
            assert hour == before
            assert hour.claimed_bytes + size_bytes > max(floor_bytes, had.size_bytes * share // 100) or (
                hour.claimed_versions + 1 > max(floor_versions, had.versions * share // 100)
            )
        assert hour.claimed_bytes <= most(limits, had).size_bytes
        assert hour.claimed_versions <= most(limits, had).versions
    if share == 100:
        assert hour.claimed_bytes == had.size_bytes, "all of a bucket may go when its share is all"


@given(st.lists(st.tuples(sizes, st.integers(1, 20)), max_size=30), st.integers(1, 20), st.data())
def test_beyond_the_limits_only_released_rows_are_claimed(
    claims: list[tuple[int, int]], reset_txn: int, data: st.DataObject
) -> None:
    """Of what had died by the reset so much as waited, whatever else has died by then; of the rest what may go."""
    limits = [BreakerLimits(1, data.draw(st.integers(0, 3_000)), data.draw(st.integers(0, 6)))]
    seen = Amount(data.draw(st.integers(0, 10_000)), data.draw(st.integers(0, 10)))
    hour = release(new_hour(0, limits, NOTHING), reset_txn, seen)
    freed_before = freed_after = NOTHING
    for size_bytes, death in claims:
        if data.draw(st.booleans()):
            hour = new_hour(0, limits, NOTHING, hour)
            freed_after = NOTHING
        count = HourCount(hour)
        if count.admit(size_bytes, death):
            if count.hour().released_versions < hour.released_versions:
                assert death <= reset_txn
                freed_before = Amount(freed_before.size_bytes + size_bytes, freed_before.versions + 1)
            else:
                freed_after = Amount(freed_after.size_bytes + size_bytes, freed_after.versions + 1)
        hour = count.hour()
        for freed, may_go in ((freed_before, seen), (freed_after, most(limits, NOTHING))):
            assert freed.size_bytes <= may_go.size_bytes
            assert freed.versions <= may_go.versions


def test_of_limits_of_two_the_smaller_counts() -> None:
    owners, everybodys = BreakerLimits(50, 10, 0), BreakerLimits(10, 10, 30)
    assert most([owners, everybodys], Amount(1_000, 100)) == Amount(100, 30)


@pytest.mark.parametrize("limits", [(-1, 0, 0), (101, 0, 0), (50, -1, 0), (50, 0, -1)])
def test_limits_that_nobody_can_mean_are_refused(limits: tuple[int, int, int]) -> None:
    with pytest.raises(LimitsError):
        check_limits(BreakerLimits(*limits))


@dataclass
class Claimed:
    """What was claimed, held against the limits by a plain count."""

    shard: Shard
    limits: BreakerLimits
    waiting: dict[int, tuple[RowName, int]] = field(default_factory=dict)
    began_ms: int = -HOUR_MS
    amount: Amount = NOTHING
    may_go: Amount = NOTHING
    release: Amount = NOTHING
    reset_txn: int = 0
    is_tripped: bool = False

    def delete(self, number: int, size_bytes: int) -> None:
        self.shard.do(PutKey("vol", "flat", f"k{number}", size_bytes))
        self.shard.do(DeleteKey("vol", "flat", f"k{number}"))
        self.waiting[number] = self.shard.row(), size_bytes

    def claim(self, count: int) -> None:
        asked = list(self.waiting.items())[:count]
        if not asked:
            return
        now_ms = self.shard.clock.now_ms()
        if not self.is_tripped and now_ms - self.began_ms >= HOUR_MS:
            self.began_ms, self.amount, self.may_go = now_ms, NOTHING, most([self.limits], self.had())
        answer = self.shard.claim(*(row for _, (row, _) in asked))
        expected = []
        for number, (row, size_bytes) in asked:
            left = Amount(self.release.size_bytes - size_bytes, self.release.versions - 1)
            after = Amount(self.amount.size_bytes + size_bytes, self.amount.versions + 1)
            is_released = row.death <= self.reset_txn and min(left.size_bytes, left.versions) >= 0
            is_too_much = after.size_bytes > self.may_go.size_bytes or after.versions > self.may_go.versions
            self.is_tripped |= not is_released and is_too_much
            if self.is_tripped:
                expected.append(row)
                continue
            self.release, self.amount = (left, self.amount) if is_released else (self.release, after)
            del self.waiting[number]
        assert row_names(answer.suspended) == expected

    def reset(self) -> None:
        reset_txn = self.shard.do(ResetBreaker("vol", "flat", "meant")).txn
        if self.is_tripped:
            self.release = Amount(sum(size for _, size in self.waiting.values()), len(self.waiting))
            self.reset_txn, self.may_go = reset_txn, most([self.limits], self.had())
            self.is_tripped, self.began_ms, self.amount = False, self.shard.clock.now_ms(), NOTHING

    def had(self) -> Amount:
        bucket = self.shard.bucket("flat")
        return Amount(
            bucket.used_bytes + bucket.snapshot_used_bytes, bucket.used_namespace + bucket.snapshot_used_namespace
        )


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 60), st.integers(0, 3_000), st.integers(0, 6))
def test_within_an_hour_no_more_goes_than_may(
    data: st.DataObject, share: int, floor_bytes: int, floor_versions: int
) -> None:
    shard, limits = Shard(), BreakerLimits(share, floor_bytes, floor_versions)
    where = data.draw(st.sampled_from([("", ""), ("vol", "flat")]))
    shard.do(SetBreaker(*where, limits))
    model = Claimed(shard, limits)
    for number in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["delete", "delete", "claim", "claim", "restart", "wait", "reset"])):
            case "delete":
                model.delete(number, data.draw(sizes))
            case "claim":
                model.claim(data.draw(st.integers(1, 5)))
            case "restart":
                shard.start()
            case "wait":
                shard.clock.advance(data.draw(st.sampled_from([1, HOUR_MS // 2, HOUR_MS - 1, HOUR_MS])))
            case _:
                model.reset()
    (_, line) = collection_status(TablesReader(shard.store), "vol", "flat")
    assert (line.state is CollectionState.TRIPPED) is model.is_tripped
    assert line.pending_versions == len(model.waiting)
    if line.trip:
        assert line.trip.cause is BreakerCause.LIMITS
        assert Amount(line.trip.most_bytes, line.trip.most_versions) == model.may_go
        assert Amount(line.trip.claimed_bytes, line.trip.claimed_versions) == model.amount


def test_a_bucket_goes_by_its_own_limits_and_by_those_for_all_when_it_has_none() -> None:
    shard = Shard()
    shard.do(SetBreaker("", "", BreakerLimits(1, 10, 1)))
    shard.do(SetBreaker("vol", "flat", BreakerLimits(0, 0, 0)))
    model = Claimed(shard, BreakerLimits(100, 10**9, 10**9))
    for number in range(4):
        model.delete(number, 100)
    model.claim(3)
    assert len(model.waiting) == 1
    shard.do(SetBreaker("vol", "flat", None))
    (row, _) = model.waiting[3]
    assert row_names(shard.claim(row).suspended) == [row]


def test_rows_that_the_figures_do_not_know_are_suspended_instead_of_stopping_the_shard() -> None:
    shard = Shard()
    model = Claimed(shard, BreakerLimits(0, 0, 0))
    model.delete(1, 100)
    model.delete(2, 50)
    bucket_id = shard.bucket("flat").object_id
    key = cell_key(bucket_id, *NOBODY)
    cell = TablesReader(shard.store).table(SPACE_TABLE).get(key)
    assert cell is not None
    encoder = row_codec(SpaceCellValue)
    shard.store.write({SPACE_TABLE.name: {key: encoder.encode(replace(cell, bytes=100, versions=2))}})
    shard.start()
    first, second = model.waiting[1][0], model.waiting[2][0]
    answer = shard.claim(first, second)
    assert row_names(answer.suspended) == [second]
    (_, line) = collection_status(TablesReader(shard.store), "vol", "flat")
    assert line.trip is not None
    assert line.trip.cause is BreakerCause.FORECAST
    assert (line.trip.claimed_bytes, line.trip.most_bytes, line.trip.next_bytes) == (100, 100, 50)


def test_what_is_claimed_decides_and_not_how_the_log_was_cut_into_batches() -> None:
    shard = Shard()
    shard.do(SetBreaker("", "", BreakerLimits(30, 0, 0)))
    model = Claimed(shard, BreakerLimits(30, 0, 0))
    for number in range(10):
        model.delete(number, 100 + number)
    model.claim(5)
    assert model.is_tripped
    model.reset()
    model.claim(10)
    assert not model.waiting, "whoever reset it has seen all of them"
    lost = digest_shard(shard.store)
    for batch in (1, 3, 2_000):
        assert rebuilt_digest(shard.log, batch).differences(lost) == []
