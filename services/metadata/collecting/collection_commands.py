"""Pausing and resuming collection by commands, so that log order decides between them and a claim.

A change is published to the services that claim and purge, in order with all other messages of metadata. Claims that
they sent before they knew of it come after it in the log, and are suspended here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from schemas.error_codes import ErrorCode
from schemas.records import (
    CollectionRow,
    CollectionState,
    Committed,
    ResetBreaker,
    SetBreaker,
    SetCollection,
    StopClaims,
)
from services.domain.collection import WHOLE_SHARD, may_claim
from services.domain.names import MAX_REASON_LENGTH, check_length
from services.domain.refusals import CommandError
from services.domain.table_keys import bucket_id_key, volume_key
from services.metadata.namespace import access
from services.metadata.namespace.buckets import bucket_row
from services.metadata.state.collection_states import own_state
from services.metadata.state.reclaim_clocks import note_running
from services.metadata.state.tables import BUCKET_ID_TABLE, VOLUME_TABLE
from services.metadata.state.transaction import Transaction

_SET_BY_PEOPLE = (CollectionState.RUNNING, CollectionState.SHADOW, CollectionState.PAUSED)


def is_suspended(transaction: Transaction, bucket_id: int) -> bool:
    """Return whether claims of a bucket are suspended at this position of the log."""
    stopped_because = transaction.counters.claims_stopped
    return not may_claim(transaction.collection_states.state_of(transaction.work, bucket_id, stopped_because))


def set_collection(transaction: Transaction, command: SetCollection) -> Committed:
    """Set the collection state of a bucket or of the whole shard."""
    check_length("a reason", command.reason, MAX_REASON_LENGTH)
    if command.state not in _SET_BY_PEOPLE:
        raise CommandError(
            ErrorCode.INVALID_REQUEST, f"state {command.state} cannot be set by a command; use pause, shadow or resume"
        )
    if command.ends_stop and (command.volume or command.bucket):
        raise CommandError(ErrorCode.INVALID_REQUEST, "claims are stopped for the whole shard: name no bucket")

    def why_not(row: CollectionRow) -> str:
        is_said = row.is_by_administrator and row.state is not CollectionState.RUNNING
        return f"has set it to {row.state.lower()}" if is_said else ""

    bucket_ids = named_buckets(transaction, command, why_not)
    if command.ends_stop and transaction.counters.claims_stopped:
        note_running(transaction.work, WHOLE_SHARD, transaction.log_time_ms)
    if command.ends_stop:  # after all checks that may refuse the command, because counters are not rolled back
        transaction.counters.claims_stopped, transaction.counters.claims_stopped_ms = "", -1
    is_administrator = access.is_administrator(transaction)
    for bucket_id in bucket_ids:
        row = with_story(transaction, bucket_id, command.reason)
        put_row(transaction, bucket_id, replace(row, state=command.state, is_by_administrator=is_administrator))
    return Committed(bucket_ids[0])


def with_story(transaction: Transaction, bucket_id: int, reason: str) -> CollectionRow:
    """Return the row of a bucket with the user, time and reason of its last change."""
    row = transaction.collection_states.row(transaction.work, bucket_id)
    return replace(row, reason=reason, changed_by=transaction.user, changed_ms=transaction.log_time_ms)


def named_buckets(
    transaction: Transaction,
    command: SetCollection | SetBreaker | ResetBreaker,
    why_not: Callable[[CollectionRow], str],
) -> list[int]:
    """Return the buckets that a command names and that its sender has the right to change.

    ``why_not`` returns the administrator's setting in a row that only an administrator may change, in words, or an
    empty string.

    Raises:
        CommandError: there is no such bucket, or the sender may not change the first one, which is the live one if any.
    """
    bucket_ids = _meant_buckets(transaction, command)
    if access.is_administrator(transaction):
        return bucket_ids
    may_change_deleted, live = access.manages_volume(transaction, command.volume), _live_bucket(transaction, command)
    allowed = []
    for bucket_id in bucket_ids:
        why = why_not(transaction.collection_states.row(transaction.work, bucket_id))
        if not may_change_deleted and bucket_id != live:
            why = "or the owner of its volume alone may change it, because it was deleted"
        if not _is_in_volume(transaction, bucket_id, command.volume):
            why = "alone may change it, because its volume was deleted and another one has that name"
        if not why:
            allowed.append(bucket_id)
        elif bucket_id == bucket_ids[0]:
            raise CommandError(
                ErrorCode.PERMISSION_DENIED,
                f"{command.volume}/{command.bucket} (id {bucket_id}): an administrator {why}; ask an administrator",
            )
    return allowed


def _meant_buckets(transaction: Transaction, command: SetCollection | SetBreaker | ResetBreaker) -> list[int]:
    """Return the ids of the buckets that a command names.

    A name means the live bucket, and deleted buckets that had the name and whose claims are suspended. An id means one
    of them. Without a name the command is about the whole shard.
    """
    volume, bucket = command.volume, command.bucket

    def has_name(bucket_id: int) -> bool:
        identity = transaction.work.table(BUCKET_ID_TABLE).get(bucket_id_key(bucket_id))
        return identity is not None and (identity.volume, identity.bucket) == (volume, bucket)

    if bool(volume) != bool(bucket) or (command.bucket_id and not volume):
        raise CommandError(ErrorCode.INVALID_REQUEST, "name a volume and a bucket, or neither for the whole shard")
    if not volume:
        return [WHOLE_SHARD]
    if command.bucket_id:
        if not has_name(command.bucket_id):
            raise CommandError(
                ErrorCode.BUCKET_NOT_FOUND,
                f"no bucket {volume}/{bucket} ever had the id {command.bucket_id}: deepclean gc status shows ids",
            )
        return [command.bucket_id]
    deleted = sorted(
        bucket_id
        for bucket_id, row in transaction.collection_states.rows(transaction.work).items()
        if not may_claim(own_state(row)) and has_name(bucket_id)
    )
    live = _live_bucket(transaction, command)
    if live is None:
        return deleted or [bucket_row(transaction.work, volume, bucket).object_id]  # it raises
    return [live, *(bucket_id for bucket_id in deleted if bucket_id != live)]


def _live_bucket(transaction: Transaction, command: SetCollection | SetBreaker | ResetBreaker) -> int | None:
    try:
        return bucket_row(transaction.work, command.volume, command.bucket).object_id
    except CommandError:
        return None


def _is_in_volume(transaction: Transaction, bucket_id: int, volume: str) -> bool:
    """Return whether a bucket is or was in the present volume of this name, not in a deleted one of the same name."""
    identity = transaction.work.table(BUCKET_ID_TABLE).get(bucket_id_key(bucket_id))
    row = transaction.work.table(VOLUME_TABLE).get(volume_key(volume))
    return identity is not None and row is not None and identity.volume_id == row.object_id


def put_row(transaction: Transaction, bucket_id: int, row: CollectionRow) -> None:
    """Change a row at the present txn. The change is published with all other changes of the command."""
    row = replace(row, changed_txn=transaction.txn)
    stopped_because = transaction.counters.claims_stopped if bucket_id == WHOLE_SHARD else ""
    before = own_state(transaction.collection_states.row(transaction.work, bucket_id))
    if may_claim(own_state(row)) and not may_claim(before):
        note_running(transaction.work, bucket_id, transaction.log_time_ms)
    transaction.collection_states.put(transaction.work, bucket_id, row, stopped_because)


def stop_claims(transaction: Transaction, command: StopClaims) -> None:
    """Stop all claims of the shard, whatever the collection states are."""
    if not transaction.counters.claims_stopped:  # the sender repeats the command at each of its starts
        transaction.counters.claims_stopped_ms = transaction.log_time_ms
    transaction.counters.claims_stopped = command.reason or "stopped"
    transaction.counters.txn = transaction.txn
    put_row(transaction, WHOLE_SHARD, transaction.collection_states.row(transaction.work, WHOLE_SHARD))
