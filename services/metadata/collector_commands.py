"""Pausing and resuming the collector: commands, so that log order alone decides between them and a claim.

A change is told to the services that claim and purge in the order of all that metadata tells them. What they had
asked for before they heard of it comes here behind it, and is held back here.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.records import CollectorRow, CollectorState, Committed, SetCollector, StopClaims
from services.domain.collector import WHOLE_SHARD, may_claim
from services.domain.names import MAX_REASON_LENGTH, check_length
from services.domain.table_keys import bucket_id_key
from services.metadata.buckets import bucket_row
from services.metadata.errors import CommandError, ErrorCode
from services.metadata.tables import BUCKET_ID_TABLE
from services.metadata.transaction import Transaction


def is_held_back(transaction: Transaction, bucket_id: int) -> bool:
    """Whether nothing of a bucket may be claimed at this place of the log."""
    stopped_because = transaction.counters.claims_stopped
    return not may_claim(transaction.collectors.state_of(transaction.work, bucket_id, stopped_because))


def set_collector(transaction: Transaction, command: SetCollector) -> Committed:
    """Pause or resume the collector for a bucket, or for all of the shard."""
    check_length("a reason", command.reason, MAX_REASON_LENGTH)
    if command.state is CollectorState.STOPPED:
        raise CommandError(ErrorCode.INVALID_REQUEST, "only StopClaims stops the collector; pause it instead")
    if bool(command.volume) != bool(command.bucket):
        raise CommandError(ErrorCode.INVALID_REQUEST, "name a volume and a bucket, or neither for all of the shard")
    if command.ends_stop and command.volume:
        raise CommandError(ErrorCode.INVALID_REQUEST, "claims were stopped for all of the shard: name no bucket")
    if not command.volume:
        if command.ends_stop:
            transaction.counters.claims_stopped = ""
        _set(transaction, WHOLE_SHARD, command)
        return Committed(WHOLE_SHARD)
    bucket_ids = _bucket_ids(transaction, command)
    for bucket_id in bucket_ids:
        _set(transaction, bucket_id, command)
    return Committed(bucket_ids[0])


def _bucket_ids(transaction: Transaction, command: SetCollector) -> list[int]:
    """The bucket of a name, and those that had the name before, are deleted and have left rows that wait."""
    identities = transaction.work.table(BUCKET_ID_TABLE)
    named = []
    for bucket_id, row in transaction.collectors.rows(transaction.work).items():
        identity = identities.get(bucket_id_key(bucket_id))
        is_named = identity is not None and (identity.volume, identity.bucket) == (command.volume, command.bucket)
        if is_named and row.state is not CollectorState.RUNNING:
            named.append(bucket_id)
    try:
        live = bucket_row(transaction.work, command.volume, command.bucket).object_id
    except CommandError:
        if not named:
            raise
        return sorted(named)
    return [live, *sorted(bucket_id for bucket_id in named if bucket_id != live)]


def _set(transaction: Transaction, bucket_id: int, command: SetCollector) -> None:
    row = CollectorRow(
        command.state, command.reason, transaction.user, transaction.log_time_ms, changed_txn=transaction.txn
    )
    stopped_because = transaction.counters.claims_stopped if bucket_id == WHOLE_SHARD else ""
    transaction.collectors.put(transaction.work, bucket_id, row, stopped_because)


def stop_claims(transaction: Transaction, command: StopClaims) -> None:
    """Stop all claims of the shard, whatever else is said of the collector."""
    transaction.counters.claims_stopped = command.reason or "stopped"
    row = transaction.collectors.rows(transaction.work).get(WHOLE_SHARD)
    if row is None:
        row = CollectorRow(CollectorState.RUNNING, "", "", transaction.log_time_ms, changed_txn=0)
    transaction.counters.txn = transaction.txn
    row = replace(row, changed_txn=transaction.txn)
    transaction.collectors.put(transaction.work, WHOLE_SHARD, row, transaction.counters.claims_stopped)
