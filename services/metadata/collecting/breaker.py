"""The circuit breaker: suspends claims of a bucket if they exceed its limits or its figures.

It checks each version before the claim, with sums that are read once for each command and bucket. It decides from
state and log alone: its limits are set by command, and its hours are hours of log time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from schemas.error_codes import ErrorCode
from schemas.records import (
    BreakerCause,
    BreakerLimits,
    BreakerTrip,
    ClaimHourRow,
    CollectionRow,
    Committed,
    ResetBreaker,
    SetBreaker,
)
from services.domain import breaker
from services.domain.breaker import NOTHING, Amount, HourCount, LimitsError
from services.domain.collection import WHOLE_SHARD
from services.domain.names import MAX_REASON_LENGTH, check_length
from services.domain.refusals import CommandError
from services.domain.space_matrix import NOBODY
from services.domain.table_keys import bucket_id_key
from services.metadata.collecting.collection_commands import named_buckets, put_row, with_story
from services.metadata.namespace import access
from services.metadata.state.tables import CLAIM_HOUR_TABLE
from services.metadata.state.transaction import Transaction


class Gate:
    """Limits the claims of one command on one bucket."""

    def __init__(self, transaction: Transaction, bucket_id: int) -> None:
        self._transaction = transaction
        self._bucket_id = bucket_id
        self._forecast = _waiting(transaction, bucket_id)
        hour = _hour_of(transaction, bucket_id)
        self._hour = None if hour is None else HourCount(hour)
        self._bytes = self._versions = 0

    def admit(self, size_bytes: int, death: int) -> bool:
        """Count one more version and return True; or trip the breaker and return False: the version is not claimed."""
        waiting = self._forecast
        if self._bytes + size_bytes > waiting.size_bytes or self._versions >= waiting.versions:
            claimed = Amount(self._bytes, self._versions)
            _trip(self._transaction, self._bucket_id, BreakerCause.FORECAST, claimed, waiting, size_bytes)
            return False
        if self._hour is not None and not self._hour.admit(size_bytes, death):
            hour = self._hour.hour()
            claimed, most = (
                Amount(hour.claimed_bytes, hour.claimed_versions),
                Amount(hour.most_bytes, hour.most_versions),
            )
            _trip(self._transaction, self._bucket_id, BreakerCause.LIMITS, claimed, most, size_bytes)
            return False
        self._bytes += size_bytes
        self._versions += 1
        return True

    def close(self) -> None:
        """Store the hour with the claimed versions."""
        if self._hour is not None and self._versions:
            self._transaction.work.table(CLAIM_HOUR_TABLE).put(bucket_id_key(self._bucket_id), self._hour.hour())


def _trip(
    transaction: Transaction, bucket_id: int, cause: BreakerCause, claimed: Amount, most: Amount, next_bytes: int
) -> None:
    now = (transaction.log_time_ms, transaction.txn)
    amounts = (claimed.size_bytes, claimed.versions, most.size_bytes, most.versions)
    row = transaction.collection_states.row(transaction.work, bucket_id)
    put_row(transaction, bucket_id, replace(row, trip=BreakerTrip(cause, *now, *amounts, next_bytes)))


def trip_where_figures_disagree(transaction: Transaction) -> None:
    """Trip the breaker of each bucket whose rows and figures disagree after the present command.

    Its claims stop until an administrator has looked. Its reads and writes continue, and so do all other buckets.
    """
    for bucket_id, counts in transaction.space.disagreeing(transaction.work).items():
        trip = transaction.collection_states.row(transaction.work, bucket_id).trip
        if trip is None or trip.cause is BreakerCause.LIMITS:
            _trip(transaction, bucket_id, BreakerCause.FIGURES, NOTHING, Amount(*counts[:2]), 0)


@contextmanager
def expanding(transaction: Transaction, bucket_id: int, death: int) -> Iterator[None]:
    """Add the versions that an expansion finds within the context, and that no snapshot holds, to a reset's allowance,
    if the reset covers the deleted tree.
    """
    table, key = transaction.work.table(CLAIM_HOUR_TABLE), bucket_id_key(bucket_id)
    hour = table.get(key)
    if hour is None or death > hour.released_txn:
        yield
        return
    before = _waiting(transaction, bucket_id)
    yield
    after = _waiting(transaction, bucket_id)
    found = Amount(after.size_bytes - before.size_bytes, after.versions - before.versions)
    table.put(key, breaker.release_more(hour, found))


def _hour_of(transaction: Transaction, bucket_id: int) -> ClaimHourRow | None:
    """Return the present hour of a bucket; None without limits."""
    limits = _limits_of(transaction, bucket_id)
    if not limits:
        return None
    hour = transaction.work.table(CLAIM_HOUR_TABLE).get(bucket_id_key(bucket_id))
    if hour is not None and not breaker.is_over(hour, transaction.log_time_ms):
        return hour
    return breaker.new_hour(transaction.log_time_ms, limits, _had(transaction, bucket_id), hour)


def _limits_of(transaction: Transaction, bucket_id: int) -> list[BreakerLimits]:
    """Return the limits that apply. A bucket's own limits replace the shard's if an administrator has set them; limits
    set by its owner apply beside the shard's.
    """
    states, work = transaction.collection_states, transaction.work
    own, everybodys = states.row(work, bucket_id), states.row(work, WHOLE_SHARD).limits
    counting = [own.limits] if own.limits and own.has_administrators_limits else [own.limits, everybodys]
    return [limits for limits in counting if limits is not None and limits.share_percent]


def _had(transaction: Transaction, bucket_id: int) -> Amount:
    """Return the live and deleted amount of a bucket; of a deleted bucket only the amount that waits."""
    had = transaction.figures.live_and_deleted(transaction.work, bucket_id)
    return _waiting(transaction, bucket_id) if had is None else Amount(*had)


def _waiting(transaction: Transaction, bucket_id: int) -> Amount:
    """Return the amount that no snapshot holds and that is not claimed, by the space matrix."""
    counts = transaction.space.counts(transaction.work, bucket_id, NOBODY)
    return Amount(counts[0], counts[1])


def set_breaker(transaction: Transaction, command: SetBreaker) -> Committed:
    """Set the limits of one bucket, or of all buckets without their own. They apply from the next hour on."""
    if command.limits is not None:
        try:
            breaker.check_limits(command.limits)
        except LimitsError as error:
            raise CommandError(ErrorCode.INVALID_REQUEST, str(error)) from error
    is_administrator = access.is_administrator(transaction)

    def why_not(row: CollectionRow) -> str:
        return "has set its limits" if row.limits is not None and row.has_administrators_limits else ""

    bucket_ids = named_buckets(transaction, command, why_not)
    for bucket_id in bucket_ids:
        row = transaction.collection_states.row(transaction.work, bucket_id)
        put_row(
            transaction,
            bucket_id,
            replace(row, limits=command.limits, has_administrators_limits=is_administrator),
        )
    return Committed(bucket_ids[0])


def reset_breaker(transaction: Transaction, command: ResetBreaker) -> Committed:
    """Resume claims where the breaker has tripped, with a new hour.

    The operator has seen how much waits. So that amount is allowed beside the limits, with the files below trees that
    were deleted before. Otherwise a version larger than the limits could never be claimed, and a large tree would need
    many resets.
    """
    check_length("a reason", command.reason, MAX_REASON_LENGTH)

    def why_not(row: CollectionRow) -> str:
        if row.trip is None:
            return ""
        if row.trip.cause is not BreakerCause.LIMITS:
            return "has to find out why rows and figures disagree"
        everybodys = transaction.collection_states.row(transaction.work, WHOLE_SHARD).limits
        has_administrators = row.limits is not None and row.has_administrators_limits
        return "has set its limits" if has_administrators or (everybodys and everybodys.share_percent) else ""

    bucket_ids = named_buckets(transaction, command, why_not)
    if bucket_ids == [WHOLE_SHARD]:
        rows = transaction.collection_states.rows(transaction.work)
        bucket_ids = [WHOLE_SHARD, *sorted(bucket_id for bucket_id, row in rows.items() if row.trip)]
    for bucket_id in bucket_ids:
        if transaction.collection_states.row(transaction.work, bucket_id).trip is None:
            continue
        _begin_new_hour(transaction, bucket_id)
        put_row(transaction, bucket_id, replace(with_story(transaction, bucket_id, command.reason), trip=None))
    return Committed(bucket_ids[0])


def _begin_new_hour(transaction: Transaction, bucket_id: int) -> None:
    table, key = transaction.work.table(CLAIM_HOUR_TABLE), bucket_id_key(bucket_id)
    limits = _limits_of(transaction, bucket_id)
    if not limits:
        table.delete(key)
        return
    hour = breaker.new_hour(transaction.log_time_ms, limits, _had(transaction, bucket_id))
    table.put(key, breaker.release(hour, transaction.txn, _waiting(transaction, bucket_id)))
