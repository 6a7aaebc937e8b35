"""Decides which snapshots of a bucket expire, and why each other one stays, by the expiry rules of Apache Paimon.

The rules count a snapshot's position among the existing ones, oldest first, and not its ordinal. So at least
``num_retained_min`` snapshots remain, however many users deleted in between. A decision changes nothing: the caller
applies it in the same unit of work, and a preview only decides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from schemas.records import ConsumerRow, RetentionPolicy, SnapshotInfo, TagRow

UNLIMITED = 0
NEVER_MS = -1
SHORTEST_PERIOD_MS = 60_000
LATEST_TIME_MS = 253_402_300_799_999
"""The end of the year 9999: later times cannot be formatted."""
MOST_EXPIRED_AT_ONCE = 5_000
"""Maximum snapshots that one run considers, whatever its limit: all that expire are published in one message, which
brokers limit to 1 MB."""


class InvalidPolicyError(ValueError):
    """A policy that contradicts itself."""

    code = "INVALID_REQUEST"


class KeepReason(StrEnum):
    """Why a snapshot stays. One reason is enough; a snapshot expires exactly if no reason applies."""

    MINIMUM = "MINIMUM"
    """It is one of the newest ``num_retained_min`` snapshots."""
    CONSUMER = "CONSUMER"
    """A consumer has not read it yet."""
    TAG = "TAG"
    """A tag protects it."""
    LIMIT = "LIMIT"
    """The run's limit is reached by older ones; a later run considers it."""
    AGE = "AGE"
    """The snapshot after it, or after an older one, is not old enough."""


@dataclass(frozen=True, slots=True)
class ReasonWithFacts:
    """One reason with its facts."""

    reason: KeepReason
    bound: int = 0
    """MINIMUM and LIMIT: the figure of the policy."""
    names: tuple[str, ...] = ()
    """CONSUMER and TAG: names of the consumers or tags."""
    until_ms: int = NEVER_MS
    """AGE: the time at which this reason ends; -1 when that depends on snapshots that do not exist yet."""


@dataclass(frozen=True, slots=True)
class ExpiryDecision:
    """The result of one run."""

    expired: tuple[str, ...]
    """Ids of the snapshots that expire, in the order of the chain."""
    kept: Mapping[str, tuple[ReasonWithFacts, ...]]
    """Every reason of each other snapshot, by its id, in the order of the chain."""
    dropped_consumers: tuple[str, ...]
    """Consumers that reported nothing for too long: they are removed first and protect nothing."""
    dropped_tags: tuple[str, ...]
    """Tags whose time to live has ended: they are removed first and protect nothing."""


def check_policy(policy: RetentionPolicy) -> None:
    """Refuse a policy that contradicts itself.

    Raises:
        InvalidPolicyError: a value is out of range; the message has the value and the allowed range.
    """
    if policy.num_retained_min < 1:
        raise InvalidPolicyError(f"num_retained_min is {policy.num_retained_min}; it must be at least 1")
    if policy.num_retained_max != UNLIMITED and policy.num_retained_max < policy.num_retained_min:
        raise InvalidPolicyError(
            f"num_retained_max is {policy.num_retained_max}; it must be 0, for no maximum, or at least "
            f"num_retained_min, which is {policy.num_retained_min}: raise the one or lower the other"
        )
    if policy.expire_limit < 1:
        raise InvalidPolicyError(f"expire_limit is {policy.expire_limit}; it must be at least 1")
    not_negative = {
        "time_retained_ms": policy.time_retained_ms,
        "consumer_expiration_ms": policy.consumer_expiration_ms,
        "tag_num_retained_max": policy.tag_num_retained_max,
        "tag_time_retained_ms": policy.tag_time_retained_ms,
    }
    for name, value in not_negative.items():
        if value < 0:
            raise InvalidPolicyError(f"{name} is {value}; it cannot be negative")
    if policy.tag_time_retained_ms > LATEST_TIME_MS:
        raise InvalidPolicyError(f"tag_time_retained_ms is {policy.tag_time_retained_ms}; 0 is for ever")
    for name, period_ms in (("snapshot_every_ms", policy.snapshot_every_ms), ("tag_every_ms", policy.tag_every_ms)):
        if period_ms and period_ms < SHORTEST_PERIOD_MS:
            raise InvalidPolicyError(f"{name} is {period_ms}; a period is at least {SHORTEST_PERIOD_MS} ms, 0 for none")


def decide_expiry(
    policy: RetentionPolicy,
    snapshots: Sequence[SnapshotInfo],
    consumers: Iterable[ConsumerRow],
    tags: Iterable[TagRow],
    now_ms: int,
) -> ExpiryDecision:
    """Return which snapshots expire at a moment, and why each other one stays.

    ``snapshots`` are all existing ones of the bucket, in the order of its chain, at positions 0, 1, … n - 1. A snapshot
    may expire if its position is below the lowest of these bounds:

    ========  ===================================================================================================
    MINIMUM   n - num_retained_min
    CONSUMER  the first snapshot that a consumer has not read yet
    LIMIT     expire_limit, at most ``MOST_EXPIRED_AT_ONCE``: counted from the oldest, tagged ones included
    AGE       the first, from n - num_retained_max on, whose *next* one is not older than time_retained
    ========  ===================================================================================================

    A tagged snapshot below the bound stays and counts as an existing one.
    """
    consumers, tags = list(consumers), list(tags)
    awake = [consumer for consumer in consumers if not is_forgotten(consumer, policy, now_ms)]
    holding = [tag for tag in tags if not is_over(tag, now_ms)]
    minimum_bound = len(snapshots) - policy.num_retained_min
    limit = min(policy.expire_limit, MOST_EXPIRED_AT_ONCE)
    positions = {consumer.consumer: _position(snapshots, consumer) for consumer in awake}
    age_bound = _age_bound(policy, snapshots, now_ms)
    due_times_ms = _due_times_ms(policy, snapshots)
    tags_of: dict[str, list[str]] = {}
    for tag in holding:
        tags_of.setdefault(tag.snapshot_id, []).append(tag.tag)
    expired: list[str] = []
    kept: dict[str, tuple[ReasonWithFacts, ...]] = {}
    for position, snapshot in enumerate(snapshots):
        reasons = []
        if position >= minimum_bound:
            reasons.append(ReasonWithFacts(KeepReason.MINIMUM, bound=policy.num_retained_min))
        readers = sorted(name for name, first_unread in positions.items() if position >= first_unread)
        if readers:
            reasons.append(ReasonWithFacts(KeepReason.CONSUMER, names=tuple(readers)))
        if snapshot.snapshot_id in tags_of:
            reasons.append(ReasonWithFacts(KeepReason.TAG, names=tuple(sorted(tags_of[snapshot.snapshot_id]))))
        if position >= limit:
            reasons.append(ReasonWithFacts(KeepReason.LIMIT, bound=limit))
        if position >= age_bound:
            reasons.append(ReasonWithFacts(KeepReason.AGE, until_ms=due_times_ms[position]))
        if reasons:
            kept[snapshot.snapshot_id] = tuple(reasons)
        else:
            expired.append(snapshot.snapshot_id)
    return ExpiryDecision(
        tuple(expired),
        kept,
        tuple(sorted(consumer.consumer for consumer in consumers if is_forgotten(consumer, policy, now_ms))),
        tuple(sorted(tag.tag for tag in tags if is_over(tag, now_ms))),
    )


def is_forgotten(consumer: ConsumerRow, policy: RetentionPolicy, now_ms: int) -> bool:
    """Return whether a consumer reported nothing for longer than the policy's consumer expiration."""
    return policy.consumer_expiration_ms > 0 and now_ms - consumer.seen_time_ms > policy.consumer_expiration_ms


def is_over(tag: TagRow, now_ms: int) -> bool:
    """Return whether a tag's time to live has ended."""
    return tag.expiry_time_ms != NEVER_MS and tag.expiry_time_ms <= now_ms


def _position(snapshots: Sequence[SnapshotInfo], consumer: ConsumerRow) -> int:
    """Return the position of the snapshot that a consumer reads next; behind the last one if it has read all."""
    return bisect_left(snapshots, consumer.next_txn, key=lambda snapshot: snapshot.create_txn)


def _is_old(policy: RetentionPolicy, snapshot: SnapshotInfo, now_ms: int) -> bool:
    return now_ms - snapshot.creation_time_ms > policy.time_retained_ms


def _first_aged(policy: RetentionPolicy, count: int) -> int:
    """Return the first position to which the age rule applies: snapshots before it exceed the maximum."""
    return 0 if policy.num_retained_max == UNLIMITED else max(0, count - policy.num_retained_max)


def _age_bound(policy: RetentionPolicy, snapshots: Sequence[SnapshotInfo], now_ms: int) -> int:
    """Return the first position whose next snapshot is missing or too young."""
    start = _first_aged(policy, len(snapshots))
    return next(
        (
            position
            for position in range(start, len(snapshots))
            if position + 1 == len(snapshots) or not _is_old(policy, snapshots[position + 1], now_ms)
        ),
        len(snapshots),
    )


def _due_times_ms(policy: RetentionPolicy, snapshots: Sequence[SnapshotInfo]) -> list[int]:
    """Return for each position the first moment at which age does not keep it: the latest one of all up to it."""
    due_times_ms = [0] * len(snapshots)
    slowest_ms = 0
    for position in range(_first_aged(policy, len(snapshots)), len(snapshots)):
        if position + 1 == len(snapshots):
            due_times_ms[position] = NEVER_MS
        else:
            slowest_ms = max(slowest_ms, snapshots[position + 1].creation_time_ms + policy.time_retained_ms + 1)
            due_times_ms[position] = slowest_ms
    return due_times_ms


def due_tags(
    policy: RetentionPolicy, snapshots: Sequence[SnapshotInfo], last_period: int, now_ms: int
) -> list[tuple[int, str]]:
    """Return each period after the last tagged one that has begun, and the id of the first snapshot created in it.

    Periods are numbered from the epoch. A snapshot may have been given a time to come.
    """
    if not policy.tag_every_ms:
        return []
    first: dict[int, str] = {}
    for snapshot in snapshots:
        period = snapshot.creation_time_ms // policy.tag_every_ms
        if last_period < period <= now_ms // policy.tag_every_ms:
            first.setdefault(period, snapshot.snapshot_id)
    return sorted(first.items())


def surplus_tags(policy: RetentionPolicy, tags: Iterable[TagRow], coming: int = 0) -> list[str]:
    """Return the automatic tags beyond the maximum, oldest first, if ``coming`` others are created. Tags created by
    users are not counted.
    """
    if policy.tag_num_retained_max == UNLIMITED:
        return []
    automatic = sorted((tag.creation_time_ms, tag.tag) for tag in tags if tag.is_automatic)
    return [name for _, name in automatic[: max(0, len(automatic) + coming - policy.tag_num_retained_max)]]
