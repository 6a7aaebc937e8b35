"""The breaker: a bucket of which too much is claimed, or more than the books say may go, is held back.

It is asked for each version that is about to be claimed, with sums that are read once for each command and bucket.
It decides from state and log alone: its limits are set by command, its hours are of log time.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.records import BreakerCause, BreakerLimits, BreakerTrip, Committed, PurgeHourRow, ResetBreaker, SetBreaker
from services.domain import breaker
from services.domain.breaker import NOTHING, Amount, LimitsError
from services.domain.collector import WHOLE_SHARD
from services.domain.names import MAX_REASON_LENGTH, check_length
from services.domain.space_matrix import NOBODY
from services.domain.table_keys import bucket_id_key
from services.metadata.collector_commands import named_buckets, put_row
from services.metadata.collectors import NEVER_SET
from services.metadata.errors import CommandError, ErrorCode
from services.metadata.tables import PURGE_HOUR_TABLE
from services.metadata.transaction import Transaction


class Gate:
    """What of one bucket one command may claim."""

    def __init__(self, transaction: Transaction, bucket_id: int) -> None:
        self._transaction = transaction
        self._bucket_id = bucket_id
        self._hour = _hour_of(transaction, bucket_id)
        self._forecast = _waiting(transaction, bucket_id)
        self._left_bytes, self._left_versions = self._forecast.size_bytes, self._forecast.versions
        if self._hour is not None:
            self._left_bytes = min(self._left_bytes, self._hour.most_bytes - self._hour.claimed_bytes)
            self._left_versions = min(self._left_versions, self._hour.most_versions - self._hour.claimed_versions)
        self._bytes = self._versions = 0

    def admit(self, size_bytes: int) -> bool:
        """Count one version more; False trips the breaker, and it is not to be claimed."""
        if self._bytes + size_bytes > self._left_bytes or self._versions >= self._left_versions:
            self._trip(size_bytes)
            return False
        self._bytes += size_bytes
        self._versions += 1
        return True

    def close(self) -> None:
        """Keep what was claimed."""
        if self._hour is not None and self._versions:
            hour = breaker.with_claimed(self._hour, Amount(self._bytes, self._versions))
            self._transaction.work.table(PURGE_HOUR_TABLE).put(bucket_id_key(self._bucket_id), hour)

    def _trip(self, next_bytes: int) -> None:
        cause, claimed, most = BreakerCause.FORECAST, Amount(self._bytes, self._versions), self._forecast
        if self._hour is not None:
            hour = breaker.with_claimed(self._hour, claimed)
            if not breaker.has_room(hour, next_bytes):
                cause, claimed = BreakerCause.LIMITS, Amount(hour.claimed_bytes, hour.claimed_versions)
                most = Amount(hour.most_bytes, hour.most_versions)
        transaction = self._transaction
        trip = BreakerTrip(
            cause,
            transaction.log_time_ms,
            transaction.txn,
            claimed.size_bytes,
            claimed.versions,
            most.size_bytes,
            most.versions,
            next_bytes,
        )
        row = transaction.collectors.rows(transaction.work).get(self._bucket_id, NEVER_SET)
        row = replace(row, trip=trip, changed_txn=transaction.txn)
        transaction.collectors.put(transaction.work, self._bucket_id, row)


def _hour_of(transaction: Transaction, bucket_id: int) -> PurgeHourRow | None:
    """The present hour of a bucket; None when nothing limits it."""
    limits = _limits_of(transaction, bucket_id)
    if limits is None:
        return None
    hour = transaction.work.table(PURGE_HOUR_TABLE).get(bucket_id_key(bucket_id))
    if hour is not None and not breaker.is_over(hour, transaction.log_time_ms):
        return hour
    return _new_hour(transaction, bucket_id, limits)


def _limits_of(transaction: Transaction, bucket_id: int) -> BreakerLimits | None:
    rows = transaction.collectors.rows(transaction.work)
    limits = rows.get(bucket_id, NEVER_SET).limits or rows.get(WHOLE_SHARD, NEVER_SET).limits
    return limits if limits is not None and limits.share_percent else None


def _new_hour(
    transaction: Transaction, bucket_id: int, limits: BreakerLimits, seen: Amount = NOTHING
) -> PurgeHourRow | None:
    had = transaction.figures.live_and_deleted(transaction.work, bucket_id)
    if had is None:
        return None  # the bucket was deleted: what is left of it is what its owner wanted to go
    return breaker.new_hour(transaction.log_time_ms, limits, Amount(*had), seen)


def _waiting(transaction: Transaction, bucket_id: int) -> Amount:
    """What nobody holds and nobody has claimed, as the space matrix counts it."""
    counts = transaction.space.counts(transaction.work, bucket_id, NOBODY)
    return Amount(counts[0], counts[1])


def set_breaker(transaction: Transaction, command: SetBreaker) -> Committed:
    """Set the limits of one bucket, or of all that have none of their own; they count from the next hour on."""
    if command.limits is not None:
        try:
            breaker.check_limits(command.limits)
        except LimitsError as error:
            raise CommandError(ErrorCode.INVALID_REQUEST, str(error)) from error
    bucket_ids = named_buckets(transaction, command.volume, command.bucket)
    for bucket_id in bucket_ids:
        row = transaction.collectors.rows(transaction.work).get(bucket_id, NEVER_SET)
        put_row(transaction, bucket_id, replace(row, limits=command.limits, changed_txn=transaction.txn))
    return Committed(bucket_ids[0])


def reset_breaker(transaction: Transaction, command: ResetBreaker) -> Committed:
    """Let the collector go on where the breaker has tripped, with an hour that begins anew.

    Whoever resets it has seen how much waits, and that may go in this hour beside the limits: otherwise a version that
    is larger than they are would never go.
    """
    check_length("a reason", command.reason, MAX_REASON_LENGTH)
    bucket_ids = named_buckets(transaction, command.volume, command.bucket)
    rows = transaction.collectors.rows(transaction.work)
    if bucket_ids == [WHOLE_SHARD]:
        bucket_ids = [WHOLE_SHARD, *sorted(bucket_id for bucket_id, row in rows.items() if row.trip)]
    for bucket_id in bucket_ids:
        row = rows.get(bucket_id)
        if row is None or row.trip is None:
            continue
        _begin_hour_anew(transaction, bucket_id)
        reset = replace(
            row,
            trip=None,
            reason=command.reason,
            changed_by=transaction.user,
            changed_ms=transaction.log_time_ms,
            changed_txn=transaction.txn,
        )
        put_row(transaction, bucket_id, reset)
    return Committed(bucket_ids[0])


def _begin_hour_anew(transaction: Transaction, bucket_id: int) -> None:
    table, key = transaction.work.table(PURGE_HOUR_TABLE), bucket_id_key(bucket_id)
    limits = _limits_of(transaction, bucket_id)
    hour = None if limits is None else _new_hour(transaction, bucket_id, limits, _waiting(transaction, bucket_id))
    if hour is None:
        table.delete(key)
    else:
        table.put(key, hour)
