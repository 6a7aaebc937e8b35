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
from services.metadata.collectors import NEVER_SET, own_state
from services.metadata.errors import CommandError, ErrorCode
from services.metadata.tables import BUCKET_ID_TABLE
from services.metadata.transaction import Transaction

_SET_BY_PEOPLE = (CollectorState.RUNNING, CollectorState.SHADOW, CollectorState.PAUSED)


def is_held_back(transaction: Transaction, bucket_id: int) -> bool:
    """Whether nothing of a bucket may be claimed at this place of the log."""
    stopped_because = transaction.counters.claims_stopped
    return not may_claim(transaction.collectors.state_of(transaction.work, bucket_id, stopped_because))


def set_collector(transaction: Transaction, command: SetCollector) -> Committed:
    """Pause or resume the collector for a bucket, or for all of the shard."""
    check_length("a reason", command.reason, MAX_REASON_LENGTH)
    if command.state not in _SET_BY_PEOPLE:
        raise CommandError(
            ErrorCode.INVALID_REQUEST, f"nobody sets {command.state.lower()}; pause the collector instead"
        )
    if command.ends_stop and (command.volume or command.bucket):
        raise CommandError(ErrorCode.INVALID_REQUEST, "claims were stopped for all of the shard: name no bucket")
    bucket_ids = named_buckets(transaction, command.volume, command.bucket)
    if command.ends_stop:  # behind all that may refuse the command: counters are not undone
        transaction.counters.claims_stopped = ""
    for bucket_id in bucket_ids:
        before = transaction.collectors.rows(transaction.work).get(bucket_id, NEVER_SET)
        row = replace(
            before,
            state=command.state,
            reason=command.reason,
            changed_by=transaction.user,
            changed_ms=transaction.log_time_ms,
            changed_txn=transaction.txn,
        )
        put_row(transaction, bucket_id, row)
    return Committed(bucket_ids[0])


def named_buckets(transaction: Transaction, volume: str, bucket: str) -> list[int]:
    """The bucket of a name, with those that had the name before, are deleted and are held back; or all of the shard.

    Raises:
        CommandError: there is none.
    """
    if bool(volume) != bool(bucket):
        raise CommandError(ErrorCode.INVALID_REQUEST, "name a volume and a bucket, or neither for all of the shard")
    if not volume:
        return [WHOLE_SHARD]
    identities = transaction.work.table(BUCKET_ID_TABLE)
    named = []
    for bucket_id, row in transaction.collectors.rows(transaction.work).items():
        identity = identities.get(bucket_id_key(bucket_id))
        is_named = identity is not None and (identity.volume, identity.bucket) == (volume, bucket)
        if is_named and not may_claim(own_state(row)):
            named.append(bucket_id)
    try:
        live = bucket_row(transaction.work, volume, bucket).object_id
    except CommandError:
        if not named:
            raise
        return sorted(named)
    return [live, *sorted(bucket_id for bucket_id in named if bucket_id != live)]


def put_row(transaction: Transaction, bucket_id: int, row: CollectorRow) -> None:
    """Change a row; the services are told of it with all that the command changes."""
    stopped_because = transaction.counters.claims_stopped if bucket_id == WHOLE_SHARD else ""
    transaction.collectors.put(transaction.work, bucket_id, row, stopped_because)


def stop_claims(transaction: Transaction, command: StopClaims) -> None:
    """Stop all claims of the shard, whatever else is said of the collector."""
    transaction.counters.claims_stopped = command.reason or "stopped"
    transaction.counters.txn = transaction.txn
    row = transaction.collectors.rows(transaction.work).get(WHOLE_SHARD, NEVER_SET)
    put_row(transaction, WHOLE_SHARD, replace(row, changed_txn=transaction.txn))
