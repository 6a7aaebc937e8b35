"""Applies the rules of expiry to rows. A run and its preview share this code, so that the two agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schemas.error_codes import ErrorCode
from schemas.records import ConsumerRow, RetentionPolicy, SnapshotInfo, TagRow
from services.domain.refusals import CommandError
from services.domain.retention import ExpiryDecision, InvalidPolicyError, check_policy, decide_expiry
from services.runtime.loop.service import Work
from services.snapshots.lifecycle.protections import Protections
from services.snapshots.lifecycle.snapshots import Lifecycle
from services.snapshots.state.rows import SnapshotRows


def decide(
    policy: RetentionPolicy,
    chain: Sequence[SnapshotInfo],
    consumers: Sequence[ConsumerRow],
    tags: Sequence[TagRow],
    now_ms: int,
) -> ExpiryDecision:
    """Decide which of the readable snapshots of a bucket expire, given in the order of its chain.

    Consumers of an earlier bucket of the same name read no snapshot of this bucket, and are dropped.
    """
    present = {row.bucket_id for row in chain}
    stale_consumers = [consumer.consumer for consumer in consumers if present and consumer.bucket_id not in present]
    own = [consumer for consumer in consumers if consumer.consumer not in stale_consumers]
    decision = decide_expiry(policy, chain, own, tags, now_ms)
    return replace(decision, dropped_consumers=tuple(sorted((*decision.dropped_consumers, *stale_consumers))))


def checked(policy: RetentionPolicy) -> RetentionPolicy:
    """Return the policy unchanged if it is consistent.

    Raises:
        CommandError: INVALID_REQUEST.
    """
    try:
        check_policy(policy)
    except InvalidPolicyError as error:
        raise CommandError(ErrorCode.INVALID_REQUEST, str(error)) from error
    return policy


@dataclass(eq=False)
class Expiry:
    """Decides which snapshots expire, and deletes them in the same unit of work."""

    _rows: SnapshotRows
    _lifecycle: Lifecycle
    _protections: Protections

    def carry_out(
        self, volume: str, bucket: str, policy: RetentionPolicy, now_ms: int, log_time_ms: int, work: Work
    ) -> list[SnapshotInfo]:
        """Remove consumers and tags that are over, delete the snapshots that expire, and return these in chain order.

        Ages are measured at ``now_ms``; ``log_time_ms`` is stored as the time of deletion.

        Raises:
            CommandError: BUCKET_BUSY.
        """
        self._lifecycle.check_bucket(volume, bucket)
        chain = self._rows.active_chain(volume, bucket)
        consumers, tags = self._protections.consumers_of(volume, bucket), self._protections.tags_of(volume, bucket)
        decision = decide(policy, chain, consumers, tags, now_ms)
        for consumer in decision.dropped_consumers:
            self._protections.remove_consumer(volume, bucket, consumer, work)
        for tag in decision.dropped_tags:
            self._protections.remove_tag(volume, bucket, tag, work)
        going = set(decision.expired)
        expired = [row for row in chain if row.snapshot_id in going]
        for row in expired:
            self._lifecycle.delete(row, log_time_ms, work)
        return expired
