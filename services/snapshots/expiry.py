"""From rows to the rules of expiry: one way for a run and for its preview, so that the two agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schemas.records import ConsumerRow, RetentionPolicy, SnapshotInfo, TagRow
from services.domain.retention import (
    ExistingSnapshot,
    ExpiryDecision,
    InvalidPolicyError,
    check_policy,
    decide_expiry,
)
from services.snapshots.errors import CommandError, ErrorCode


def existing(chain: Sequence[SnapshotInfo]) -> list[ExistingSnapshot]:
    """What the rules ask of each snapshot."""
    return [ExistingSnapshot(row.snapshot_id, row.create_txn, row.creation_time_ms) for row in chain]


def decide(
    policy: RetentionPolicy,
    chain: Sequence[SnapshotInfo],
    consumers: Sequence[ConsumerRow],
    tags: Sequence[TagRow],
    now_ms: int,
) -> ExpiryDecision:
    """What expires among the readable snapshots of a bucket, in the order of its chain.

    Consumers of an earlier bucket of the same name read nothing of this one, and are dropped.
    """
    present = {row.bucket_id for row in chain}
    strangers = [consumer.consumer for consumer in consumers if present and consumer.bucket_id not in present]
    own = [consumer for consumer in consumers if consumer.consumer not in strangers]
    decision = decide_expiry(policy, existing(chain), own, tags, now_ms)
    return replace(decision, dropped_consumers=tuple(sorted((*decision.dropped_consumers, *strangers))))


def checked(policy: RetentionPolicy) -> RetentionPolicy:
    """The policy, when it does not contradict itself.

    Raises:
        CommandError: INVALID_REQUEST.
    """
    try:
        check_policy(policy)
    except InvalidPolicyError as error:
        raise CommandError(ErrorCode.INVALID_REQUEST, str(error)) from error
    return policy
