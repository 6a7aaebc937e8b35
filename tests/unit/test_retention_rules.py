"""The expiry rules on the documented cases of Apache Paimon: snapshots 1..n made at t = 10 * id seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from schemas.records import ConsumerRow, RetentionPolicy, SnapshotInfo, SnapshotStatus, TagRow
from services.domain.retention import (
    LATEST_TIME_MS,
    MOST_EXPIRED_AT_ONCE,
    NEVER_MS,
    ExpiryDecision,
    InvalidPolicyError,
    KeepReason,
    ReasonWithFacts,
    check_policy,
    decide_expiry,
    due_tags,
    surplus_tags,
)

SECOND_MS = 1_000
INFINITE = 0


def snapshot(snapshot_id: str, txn: int, creation_time_ms: int) -> SnapshotInfo:
    active = SnapshotStatus.SNAPSHOT_ACTIVE
    return SnapshotInfo(snapshot_id, f"name-{txn}", "vol", "bucket", active, creation_time_ms, create_txn=txn)


def snapshots_of(ids: list[int]) -> list[SnapshotInfo]:
    return [snapshot(str(number), number, number * 10 * SECOND_MS) for number in ids]


def policy_of(
    *, maximum: int = INFINITE, minimum: int = 1, limit: int = 50, retained_s: int = 0, consumer_s: int = 0
) -> RetentionPolicy:
    return RetentionPolicy(
        minimum, maximum, retained_s * SECOND_MS, limit, consumer_expiration_ms=consumer_s * SECOND_MS
    )


def consumer_at(next_id: int, *, name: str = "reader", seen_s: int = 0) -> ConsumerRow:
    return ConsumerRow("vol", "bucket", name, 7, next_id, seen_s * SECOND_MS)


def tag_on(number: int, name: str = "keep", *, until_s: int | None = None, is_automatic: bool = False) -> TagRow:
    expiry_time_ms = NEVER_MS if until_s is None else until_s * SECOND_MS
    return TagRow("vol", "bucket", name, str(number), "", "", number * SECOND_MS, expiry_time_ms, is_automatic)


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    n: int
    now_s: int
    maximum: int
    minimum: int
    limit: int
    retained_s: int
    expires: int
    """1 up to this one expire, as far as they exist; 0: none."""
    consumer: int | None = None
    missing: frozenset[int] = field(default_factory=frozenset)


CASES = [
    Case("young: nothing old enough", 20, 200, INFINITE, 1, 50, 1000, 0),
    Case("all old: the minimum stays", 20, 10000, INFINITE, 10, 50, 60, 10),
    Case("limit counts from the earliest", 100, 10000, INFINITE, 10, 50, 60, 50),
    Case("limit of 5", 100, 10000, INFINITE, 10, 5, 60, 5),
    Case("maximum overrides age", 20, 200, 5, 1, 50, 1000, 15),
    Case("maximum, but the minimum protects", 20, 200, 5, 5, 50, 1000, 15),
    Case("age stops at the first whose next is young", 20, 200, INFINITE, 1, 50, 105, 8),
    Case("age exactly on the edge keeps", 20, 200, INFINITE, 1, 50, 100, 8),
    Case("a consumer at 7", 20, 10000, INFINITE, 1, 50, 60, 6, consumer=7),
    Case("a consumer at 1 blocks all", 20, 10000, INFINITE, 1, 50, 60, 0, consumer=1),
    Case("a consumer beyond the latest", 20, 10000, INFINITE, 3, 50, 60, 17, consumer=99),
    Case("holes in the ids", 20, 10000, INFINITE, 5, 50, 60, 15, missing=frozenset({3, 4, 9})),
    Case("fewer than the minimum", 4, 10000, INFINITE, 10, 50, 60, 0),
    Case("maximum with a consumer below it", 20, 200, 5, 1, 50, 1000, 9, consumer=10),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_documented_cases(case: Case) -> None:
    there = [number for number in range(1, case.n + 1) if number not in case.missing]
    policy = policy_of(maximum=case.maximum, minimum=case.minimum, limit=case.limit, retained_s=case.retained_s)
    consumers = [] if case.consumer is None else [consumer_at(case.consumer)]
    decision = decide_expiry(policy, snapshots_of(there), consumers, [], case.now_s * SECOND_MS)
    assert decision.expired == tuple(str(number) for number in there if number <= case.expires)
    assert list(decision.kept) == [str(number) for number in there if number > case.expires]


def reasons(decision: ExpiryDecision, number: int) -> tuple[ReasonWithFacts, ...]:
    return decision.kept[str(number)]


def test_every_reason_is_reported_with_its_facts() -> None:
    policy = policy_of(minimum=2, limit=4, retained_s=100)
    consumers = [consumer_at(5, name="late"), consumer_at(6, name="early")]
    tags = [tag_on(1, "audit"), tag_on(1, "year-end"), tag_on(4)]
    decision = decide_expiry(policy, snapshots_of([1, 2, 3, 4, 5, 6, 7, 8]), consumers, tags, 181 * SECOND_MS)
    age = ReasonWithFacts(KeepReason.AGE, until_ms=180 * SECOND_MS + 1)
    assert decision.expired == ("2", "3")
    assert reasons(decision, 1) == (ReasonWithFacts(KeepReason.TAG, names=("audit", "year-end")),)
    assert reasons(decision, 4) == (ReasonWithFacts(KeepReason.TAG, names=("keep",)),)
    assert reasons(decision, 5) == (
        ReasonWithFacts(KeepReason.CONSUMER, names=("late",)),
        ReasonWithFacts(KeepReason.LIMIT, bound=4),
    )
    assert reasons(decision, 7) == (
        ReasonWithFacts(KeepReason.MINIMUM, bound=2),
        ReasonWithFacts(KeepReason.CONSUMER, names=("early", "late")),
        ReasonWithFacts(KeepReason.LIMIT, bound=4),
    )
    assert reasons(decision, 8)[-1] == ReasonWithFacts(KeepReason.AGE, until_ms=NEVER_MS)
    earlier = decide_expiry(policy, snapshots_of([1, 2, 3, 4, 5, 6, 7, 8]), consumers, tags, 180 * SECOND_MS)
    assert reasons(earlier, 7)[-1] == age


def test_age_ends_at_the_reported_moment() -> None:
    policy, snapshots = policy_of(retained_s=100), snapshots_of([1, 2, 3])
    held = decide_expiry(policy, snapshots, [], [], 0)
    until_ms = reasons(held, 1)[-1].until_ms
    assert decide_expiry(policy, snapshots, [], [], until_ms - 1).expired == ()
    assert decide_expiry(policy, snapshots, [], [], until_ms).expired == ("1",)


def test_a_tagged_snapshot_is_passed_over_and_counts() -> None:
    """It is one of those that exist: for the limit, and for the minimum."""
    old = policy_of(minimum=2, limit=3)
    assert decide_expiry(old, snapshots_of([1, 2, 3, 4, 5, 6]), [], [tag_on(2)], 10**9).expired == ("1", "3")
    assert decide_expiry(old, snapshots_of([1, 2, 3]), [], [tag_on(3)], 10**9).expired == ("1",)


def test_a_tag_whose_time_is_over_holds_nothing() -> None:
    tags = [tag_on(1, "over", until_s=500), tag_on(2, "still", until_s=501)]
    decision = decide_expiry(policy_of(), snapshots_of([1, 2, 3, 4]), [], tags, 500 * SECOND_MS)
    assert decision.dropped_tags == ("over",)
    assert decision.expired == ("1", "3")


def test_a_consumer_that_is_not_heard_of_is_dropped_first() -> None:
    consumers = [consumer_at(1, name="gone", seen_s=100), consumer_at(3, name="here", seen_s=200)]
    policy = policy_of(consumer_s=300)
    at_the_edge = decide_expiry(policy, snapshots_of([1, 2, 3, 4]), consumers, [], 400 * SECOND_MS)
    assert (at_the_edge.dropped_consumers, at_the_edge.expired) == ((), ())
    decision = decide_expiry(policy, snapshots_of([1, 2, 3, 4]), consumers, [], 400 * SECOND_MS + 1)
    assert (decision.dropped_consumers, decision.expired) == (("gone",), ("1", "2"))
    patient = decide_expiry(policy_of(), snapshots_of([1, 2, 3, 4]), consumers, [], 10**9)
    assert patient.dropped_consumers == ()


def test_a_run_looks_at_no_more_than_it_can_tell() -> None:
    snapshots = snapshots_of(list(range(1, MOST_EXPIRED_AT_ONCE + 3)))
    decision = decide_expiry(policy_of(limit=10**9), snapshots, [], [], 10**12)
    assert len(decision.expired) == MOST_EXPIRED_AT_ONCE
    assert reasons(decision, MOST_EXPIRED_AT_ONCE + 1) == (
        ReasonWithFacts(KeepReason.LIMIT, bound=MOST_EXPIRED_AT_ONCE),
    )
    assert len(decide_expiry(policy_of(limit=10**9), snapshots[1:], [], [], 10**12).expired) == MOST_EXPIRED_AT_ONCE


def test_no_snapshots_no_decision() -> None:
    assert decide_expiry(policy_of(), [], [consumer_at(1)], [], 0) == ExpiryDecision((), {}, (), ())


@pytest.mark.parametrize(
    "policy",
    [
        RetentionPolicy(num_retained_min=0),
        RetentionPolicy(num_retained_min=5, num_retained_max=4),
        RetentionPolicy(num_retained_max=-1),
        RetentionPolicy(expire_limit=0),
        RetentionPolicy(time_retained_ms=-1),
        RetentionPolicy(consumer_expiration_ms=-1),
        RetentionPolicy(snapshot_every_ms=59_999),
        RetentionPolicy(tag_every_ms=-60_000),
        RetentionPolicy(tag_num_retained_max=-1),
        RetentionPolicy(tag_time_retained_ms=-1),
        RetentionPolicy(tag_time_retained_ms=LATEST_TIME_MS + 1),
    ],
)
def test_policies_that_contradict_themselves_are_refused(policy: RetentionPolicy) -> None:
    with pytest.raises(InvalidPolicyError, match=r"\d"):
        check_policy(policy)


def test_policies_at_the_edge_are_accepted() -> None:
    check_policy(RetentionPolicy())
    check_policy(RetentionPolicy(num_retained_min=1, num_retained_max=1, time_retained_ms=0, expire_limit=1))
    check_policy(RetentionPolicy(snapshot_every_ms=60_000, tag_every_ms=60_000))


def test_the_first_snapshot_of_each_period_is_tagged() -> None:
    policy = RetentionPolicy(tag_every_ms=60_000)
    made = snapshots_of([1, 5, 6, 7, 13])  # periods 0, 0, 1, 1, 2
    now_ms = made[-1].creation_time_ms
    assert due_tags(policy, made, -1, now_ms) == [(0, "1"), (1, "6"), (2, "13")]
    assert due_tags(policy, made, 1, now_ms) == [(2, "13")]
    assert due_tags(policy, made, -1, now_ms - 60_000) == [(0, "1"), (1, "6")], "one may be dated in the future"
    assert due_tags(RetentionPolicy(), made, -1, now_ms) == []


def test_surplus_automatic_tags_go_oldest_first() -> None:
    tags = [tag_on(3, "c", is_automatic=True), tag_on(1, "a", is_automatic=True), tag_on(2, "b", is_automatic=True)]
    tags.append(tag_on(0, "of-a-person"))
    assert surplus_tags(RetentionPolicy(tag_num_retained_max=2), tags) == ["a"]
    assert surplus_tags(RetentionPolicy(tag_num_retained_max=3), tags) == []
    assert surplus_tags(RetentionPolicy(tag_num_retained_max=3), tags, coming=1) == ["a"]
    assert surplus_tags(RetentionPolicy(), tags) == []
