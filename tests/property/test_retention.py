"""Expiry on any chain: what is promised of it, and the same range as the algorithm of Apache Paimon read literally."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import ConsumerRow, RetentionPolicy, SnapshotInfo, TagRow
from services.domain.retention import (
    NEVER_MS,
    KeepReason,
    decide_expiry,
    is_forgotten,
    is_over,
)
from tests.unit.test_retention_rules import snapshot


@dataclass(frozen=True)
class Situation:
    """One bucket at one moment."""

    policy: RetentionPolicy
    snapshots: list[SnapshotInfo]
    consumers: list[ConsumerRow]
    tags: list[TagRow]
    now_ms: int


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    txns = sorted(draw(st.sets(st.integers(1, 60), max_size=25)))
    times = draw(st.lists(st.integers(0, 100), min_size=len(txns), max_size=len(txns)))
    if draw(st.booleans()):
        times = sorted(times)
    snapshots = [snapshot(f"s{txn}", txn, time) for txn, time in zip(txns, times, strict=True)]
    minimum = draw(st.integers(1, 12))
    maximum = draw(st.sampled_from([0, minimum, minimum + 1, minimum + 5]))
    policy = RetentionPolicy(
        minimum,
        maximum,
        draw(st.integers(0, 60)),
        draw(st.integers(1, 30)),
        consumer_expiration_ms=draw(st.integers(0, 50)),
    )
    consumers = [
        ConsumerRow("v", "b", f"c{number}", 7, draw(st.integers(0, 62)), draw(st.integers(0, 100)))
        for number in range(draw(st.integers(0, 3)))
    ]
    tags = [
        TagRow("v", "b", f"t{number}", draw(st.sampled_from(snapshots)).snapshot_id, "", "", 0, ends, False)
        for number in range(draw(st.integers(0, 4)) if snapshots else 0)
        for ends in [draw(st.sampled_from([NEVER_MS, 40, 90]))]
    ]
    return Situation(policy, snapshots, consumers, tags, draw(st.integers(0, 160)))


def end_of_the_range(situation: Situation) -> int:
    """The steps as they are written down, over positions 1, 2, … in place of ids."""
    policy, now_ms, count = situation.policy, situation.now_ms, len(situation.snapshots)
    if not count:
        return 0
    earliest, latest = 1, count
    start = max(latest - policy.num_retained_max + 1, earliest) if policy.num_retained_max else earliest
    end = latest - policy.num_retained_min + 1
    for consumer in situation.consumers:
        if not is_forgotten(consumer, policy, now_ms):
            read = sum(snapshot.create_txn < consumer.next_txn for snapshot in situation.snapshots)
            end = min(end, read + 1)
    end = min(end, earliest + policy.expire_limit)
    for position in range(start, end):
        if now_ms - situation.snapshots[position].creation_time_ms <= policy.time_retained_ms:  # that of the next one
            return position - 1
    return max(end - 1, 0)


@settings(max_examples=1_000, deadline=None)
@given(situations())
def test_expiry_is_the_documented_range_without_the_tagged(situation: Situation) -> None:
    decision = decide_expiry(*_arguments(situation))
    tagged = {tag.snapshot_id for tag in situation.tags if not is_over(tag, situation.now_ms)}
    in_range = situation.snapshots[: end_of_the_range(situation)]
    assert decision.expired == tuple(s.snapshot_id for s in in_range if s.snapshot_id not in tagged)


@settings(max_examples=500, deadline=None)
@given(situations())
def test_what_expiry_promises(situation: Situation) -> None:
    policy, snapshots = situation.policy, situation.snapshots
    decision = decide_expiry(*_arguments(situation))
    kept = list(decision.kept)
    order = [snapshot.snapshot_id for snapshot in snapshots]
    assert sorted([*decision.expired, *kept], key=order.index) == order
    assert len(kept) >= min(policy.num_retained_min, len(snapshots))
    assert set(kept) >= set(order[-policy.num_retained_min :])
    assert len(decision.expired) <= policy.expire_limit
    for one in snapshots:
        if one.snapshot_id not in decision.expired:
            continue
        for tag in situation.tags:
            assert tag.snapshot_id != one.snapshot_id or tag.tag in decision.dropped_tags
        for consumer in situation.consumers:
            assert consumer.next_txn > one.create_txn or consumer.consumer in decision.dropped_consumers


@settings(max_examples=300, deadline=None)
@given(situations())
def test_each_reason_alone_keeps_a_snapshot_and_only_tags_make_holes(situation: Situation) -> None:
    decision = decide_expiry(*_arguments(situation))
    assert all(decision.kept.values())
    order = {snapshot.snapshot_id: position for position, snapshot in enumerate(situation.snapshots)}
    newest_expired = max((order[snapshot_id] for snapshot_id in decision.expired), default=-1)
    for snapshot_id, reasons in decision.kept.items():
        if order[snapshot_id] < newest_expired:
            assert {reason.reason for reason in reasons} == {KeepReason.TAG}


@settings(max_examples=300, deadline=None)
@given(situations())
def test_expiring_again_at_once_goes_on_only_behind_a_limit_or_a_tag(situation: Situation) -> None:
    """A decision that is carried out is complete: what the next one adds, the limit had held back."""
    decision = decide_expiry(*_arguments(situation))
    left = [s for s in situation.snapshots if s.snapshot_id not in decision.expired]
    again = decide_expiry(*_arguments(replace(situation, snapshots=left)))
    held_by_limit = {
        snapshot_id
        for snapshot_id, reasons in decision.kept.items()
        if KeepReason.LIMIT in [reason.reason for reason in reasons]
    }
    assert set(again.expired) <= held_by_limit


def _arguments(
    situation: Situation,
) -> tuple[RetentionPolicy, list[SnapshotInfo], list[ConsumerRow], list[TagRow], int]:
    return situation.policy, situation.snapshots, situation.consumers, situation.tags, situation.now_ms
