"""The metadata service of one shard: applies each command of its log at the next txn and answers it.

The outcome of a command depends only on the state and the log, so that a shard can be rebuilt from its log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from schemas import records
from schemas.codec import codec
from schemas.error_codes import ErrorCode
from schemas.records import Barrier, Committed, MetadataCommand, MetadataProgress, MetadataReply
from schemas.topics import METADATA_COMMANDS, METADATA_PROGRESS, METADATA_REPLIES
from services.domain.dead_letters import shortened
from services.domain.durations import HOUR_MS
from services.domain.errors import TROUBLE_OF_THE_MACHINE, HalfAppliedError, InvalidMessageError
from services.domain.names import MAX_CLIENT_ID_LENGTH, InvalidNameError
from services.domain.refusals import CommandError, NotDone
from services.metadata import bulk_puts
from services.metadata.applied import applied, send_changed_states
from services.metadata.checkpoints import capture_drop, lost_tail, rollback
from services.metadata.collecting import breaker, claims, collection_commands, expansion, orphans, sweeps, undelete
from services.metadata.namespace import (
    access,
    acls,
    bucket_replication,
    buckets,
    expired_writes,
    keys,
    owners,
    quotas,
    tenants,
    tokens,
    tree,
    uploads,
    versioning,
    writing,
)
from services.metadata.state import token_rows, upgrades
from services.metadata.state.changed_rows import UnneededChanges, unneeded_changes
from services.metadata.state.reclaim_clocks import FreedVersions
from services.metadata.state.tables import TABLES
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Message, Work
from services.storage.store import Store
from services.storage.tables import TablesReader

_CLIENT_HANDLERS: Mapping[type[Any], Callable[[Transaction, Any], Committed | NotDone]] = upgrades.from_their_levels_on(
    {
        records.CreateVolume: buckets.create_volume,
        records.DeleteVolume: buckets.delete_volume,
        records.CreateBucket: buckets.create_bucket,
        records.CreateBucketLink: buckets.create_bucket_link,
        records.DeleteBucket: buckets.delete_bucket,
        records.SetQuota: quotas.set_quota,
        records.SetBucketVersioning: versioning.set_bucket_versioning,
        records.SetBucketReplication: bucket_replication.set_bucket_replication,
        records.SetDefaultReplication: bucket_replication.set_default_replication,
        records.SetOwner: owners.set_owner,
        records.AddAcl: acls.add_acl,
        records.RemoveAcl: acls.remove_acl,
        records.SetAcl: acls.set_acl,
        records.SetGroups: access.set_groups,
        records.CreateTenant: tenants.create_tenant,
        records.DeleteTenant: tenants.delete_tenant,
        records.AssignUserToTenant: tenants.assign_user,
        records.RevokeUserFromTenant: tenants.revoke_user,
        records.AssignTenantAdmin: tenants.assign_admin,
        records.SetS3Secret: tenants.set_s3_secret,
        records.RevokeS3Secret: tenants.revoke_s3_secret,
        records.GetDelegationToken: tokens.get_token,
        records.RenewDelegationToken: tokens.renew_token,
        records.CancelDelegationToken: tokens.cancel_token,
        records.PutKey: keys.put_key,
        records.DeleteKey: keys.delete_key,
        records.DeleteKeys: keys.delete_keys,
        records.DeleteKeyVersion: versioning.delete_key_version,
        records.RenameKey: keys.rename_key,
        records.MakeDirectory: tree.make_directory,
        records.DeleteDirectory: tree.delete_directory,
        records.RenameDirectory: tree.rename_directory,
        records.PutKeyIf: keys.put_key_if,
        records.PutKeys: bulk_puts.put_keys,
        records.OpenKey: writing.open_a_key,
        records.AllocateBlocks: writing.allocate_blocks,
        records.SyncKey: writing.sync_key,
        records.CommitKey: writing.commit_key,
        records.RecoverLease: writing.recover_lease,
        records.AbandonKey: writing.abandon_key,
        records.InitiateUpload: uploads.initiate_upload,
        records.CompleteUpload: uploads.complete_upload,
        records.AbortUpload: uploads.abort_upload,
        records.Undelete: undelete.undelete,
        records.RequeueOrphans: orphans.requeue_orphans,
        records.RepairQuota: quotas.repair_quota,
        records.SetSecret: access.set_secret,
        records.SetCollection: collection_commands.set_collection,
        records.SetBreaker: breaker.set_breaker,
        records.ResetBreaker: breaker.reset_breaker,
    }
)
_NAMED_SENDERS: Mapping[type[Any], str] = dict.fromkeys((records.RequeueOrphans, records.RepairQuota), "audit")
"""Commands that are answered like a client's, but are accepted from one sender only."""
_SERVICE_HANDLERS: Mapping[type[Any], tuple[str, Callable[[Transaction, Any], Any]]] = {
    records.CaptureSnapshot: ("snapshots", capture_drop.capture_snapshot),
    records.DropSnapshot: ("snapshots", capture_drop.drop_snapshot),
    records.RollbackPage: ("snapshots", rollback.rollback_page),
    records.ClaimRows: ("key_deletion", claims.claim_rows),
    records.FinishRows: ("key_deletion", claims.finish_rows),
    records.SweepPage: ("key_deletion", sweeps.sweep_page),
    records.ExpireWrites: ("key_deletion", expired_writes.expire_writes),
    records.ExpandDirectory: ("directory_deletion", expansion.expand_directory),
    records.RemoveDirectories: ("directory_deletion", expansion.remove_directories),
}
_OF_RIGHTS = (
    *(records.SetOwner, records.AddAcl, records.RemoveAcl, records.SetAcl, records.SetGroups),
    *(records.CreateTenant, records.DeleteTenant, records.AssignUserToTenant, records.RevokeUserFromTenant),
    *(records.AssignTenantAdmin, records.SetS3Secret, records.RevokeS3Secret),
    *(records.GetDelegationToken, records.RenewDelegationToken, records.CancelDelegationToken),
)
_ALWAYS_ANSWERED = frozenset(
    {
        *(records.Undelete, records.SetCollection, records.SetBreaker, records.ResetBreaker, records.RequeueOrphans),
        *(records.SetQuota, records.RepairQuota, records.PutKeys),
        *_OF_RIGHTS,
    }
)
"""Commands that are always answered: a replay of the log needs the answer to know their outcome."""
_PERSON = ""
_CONTROL_SENDERS: Mapping[type[Any], tuple[str, ...]] = {
    Barrier: ("snapshots", "key_deletion", "directory_deletion"),
    records.GrantContainer: ("mock_scm",),
    records.StopClaims: ("snapshots", _PERSON),
    records.PublishFullChain: (_PERSON,),
    records.AcceptLostTail: (_PERSON,),
    records.SetFeatureLevel: (_PERSON,),
    records.AnnounceSchema: (_PERSON,),
}
_Refusal = CommandError | InvalidNameError
_REPLY = codec(MetadataReply)
_ALONE = frozenset({records.CaptureSnapshot, records.DropSnapshot, records.AcceptLostTail})


class MetadataService:
    """One shard of the metadata service."""

    name = "metadata"
    inputs = (METADATA_COMMANDS,)
    tables = TABLES

    def __init__(self) -> None:
        self._transaction = Transaction()
        self._batch: Work | None = None
        self._must_send_collection_states = True
        self._dropped: list[str] = []
        self.unneeded_changes = UnneededChanges()

    @property
    def freed(self) -> FreedVersions:
        """Versions that the last unit of work has finished, for metrics."""
        return self._transaction.freed

    def restore(self, tables: TablesReader) -> None:
        """Load the state that is kept in memory from the tables."""
        self._transaction.restore(tables)
        upgrades.check_known(self._transaction.counters)
        self._batch = None
        self._must_send_collection_states = True
        self._dropped.clear()
        self.unneeded_changes = UnneededChanges(unneeded_changes(tables))

    def stands_alone(self, message: Message) -> bool:
        """Return whether a message must be alone in its batch.

        A snapshot checkpoint contains all rows written before it, so a capture is alone in its batch. So is a drop.
        """
        return type(message.record.body) in _ALONE

    def apply(self, message: Message, work: Work) -> None:
        """Apply one command at the next txn, and answer it."""
        command: MetadataCommand = message.record
        kind = type(command.body)
        transaction = self._transaction
        if not message.value.startswith(upgrades.FIRST_FRAME):
            upgrades.check_announced(transaction.counters, message.value)
        log_time_ms = max(message.timestamp_ms, transaction.counters.log_time_ms)
        if work is not self._batch:
            self._batch = work
            transaction.freed.clear()  # nothing reads it during a rebuild
            keys.read_versions_ahead([one.record.body for one in work.inputs], work)
        transaction.begin(work, log_time_ms)
        try:
            if kind in _CLIENT_HANDLERS:
                self._apply_client_command(message, transaction)
            else:
                if isinstance(command.body, records.AcceptLostTail):
                    lost_tail.check_place(command.body, message.offset)
                if transaction.signers.is_on:
                    access.check_internal(transaction, message, command)
                self._apply_service_command(command, transaction)
        except BaseException as error:
            transaction.undo()
            is_of_message = isinstance(error, Exception) and not isinstance(error, TROUBLE_OF_THE_MACHINE)
            if transaction.has_parts and is_of_message:
                raise HalfAppliedError(f"{kind.__name__} failed when a part of it was applied: {error}") from error
            raise
        if log_time_ms != transaction.counters.log_time_ms:
            self._time_has_passed(transaction, log_time_ms)

    def _time_has_passed(self, transaction: Transaction, log_time_ms: int) -> None:
        """Advance the log time, and do the hourly work when an hour has passed."""
        work, counters = transaction.work, transaction.counters
        if log_time_ms // HOUR_MS != counters.log_time_ms // HOUR_MS:
            transaction.clients.forget(work, log_time_ms)
            transaction.orphans.forget_idle(work, log_time_ms)
            token_rows.forget_expired(work, log_time_ms)
            if transaction.collection_states.newest_txn(work):
                self._send_collection_states(work)
        counters.log_time_ms = log_time_ms

    def _apply_client_command(self, message: Message, transaction: Transaction) -> None:
        work, command = transaction.work, message.record
        kind = type(command.body)
        if len(command.client_id) > MAX_CLIENT_ID_LENGTH:
            raise InvalidMessageError(f"a client id has at most {MAX_CLIENT_ID_LENGTH} characters: use a UUID")
        expected = _NAMED_SENDERS.get(kind)
        if expected is not None and command.sender != expected:
            raise InvalidMessageError(f"{kind.__name__} comes from {expected}, not from {command.sender!r}")
        if transaction.signers.is_on and (denial := self._denial(message, transaction)):
            # Do not remember the number: an unauthorized sender could use up a client's numbers.
            if command.wants_reply:
                work.send_encoded(METADATA_REPLIES, _reply(command, 0, denial))
            return
        client = command.client_id.encode()
        if command.number:
            last, reply = transaction.clients.last(work, client)
            if command.number <= last:
                self._answer_again(command, last, reply, work)
                return
        outcome = self._carry_out(command, transaction)
        encoded = b""
        if command.wants_reply or kind in _ALWAYS_ANSWERED or transaction.is_answered:
            encoded = _reply(command, transaction.txn, outcome)
            work.send_encoded(METADATA_REPLIES, encoded)
        if command.number:
            transaction.clients.applied(client, command.number, transaction.log_time_ms, encoded)

    def _denial(self, message: Message, transaction: Transaction) -> CommandError | None:
        """Return the error if the client has no right to the command, else None."""
        try:
            access.check_client(transaction, message, message.record)
        except CommandError as error:
            return error
        return None

    def _answer_again(self, command: MetadataCommand, last: int, answer: bytes, work: Work) -> None:
        if not command.wants_reply:
            return
        if command.number < last:
            message = f"number {last} was applied already; number the commands in rising order"
            work.send_encoded(METADATA_REPLIES, _reply(command, 0, CommandError(ErrorCode.OLD_REQUEST, message)))
        elif answer:
            work.send_encoded(METADATA_REPLIES, answer)

    def _carry_out(self, command: MetadataCommand, transaction: Transaction) -> Committed | NotDone | _Refusal:
        """Apply a client's command as a whole or not at all. Return its outcome."""
        transaction.user = command.user
        try:
            if command.shard != transaction.shard:
                raise CommandError(
                    ErrorCode.WRONG_SHARD,
                    f"the command is for shard {command.shard} but is in partition {transaction.shard}; "
                    f"set the partition explicitly",
                )
            outcome = _CLIENT_HANDLERS[type(command.body)](transaction, command.body)
        except (CommandError, InvalidNameError) as error:
            transaction.work.undo_message()
            transaction.undo()
            return error
        applied(transaction)
        return outcome

    def _apply_service_command(self, command: MetadataCommand, transaction: Transaction) -> None:
        if command.shard != transaction.shard:
            raise InvalidMessageError(f"command for shard {command.shard} in partition {transaction.shard}")
        counters_before = replace(transaction.counters)
        try:
            if type(command.body) in _SERVICE_HANDLERS:
                self._answer_service(command, transaction)
            else:
                self._apply_control_command(command, transaction)
        except Exception:
            # The loop rolls back the tables; the state in memory must not stay ahead of them.
            transaction.counters = counters_before
            transaction.snapshots.clear()
            transaction.collection_states.clear()
            raise

    def _answer_service(self, command: MetadataCommand, transaction: Transaction) -> None:
        body = command.body
        sender, handler = _SERVICE_HANDLERS[type(body)]
        if command.sender != sender:
            raise InvalidMessageError(f"{type(body).__name__} comes from {sender}, not from {command.sender!r}")
        answer = handler(transaction, body)
        applied(transaction)
        level = transaction.counters.feature_level
        transaction.work.send(METADATA_PROGRESS, MetadataProgress(transaction.txn, answer, level))
        if isinstance(body, records.DropSnapshot):
            self._note_drop(body.snapshot_id, transaction)

    def _note_drop(self, dropped_id: str, transaction: Transaction) -> None:
        """Note the checkpoint and the changes to remove when the drop is written."""
        self._dropped.append(dropped_id)
        dropped = transaction.snapshots.find(transaction.work, dropped_id)
        if dropped is not None:
            snapshots = transaction.snapshots.of(transaction.work, dropped.bucket_id)
            oldest_live = snapshots.rows[0].ordinal if snapshots.rows else None
            self.unneeded_changes.add(dropped.bucket_id, oldest_live, snapshots.ever)

    def _apply_control_command(self, command: MetadataCommand, transaction: Transaction) -> None:
        """Apply a command that controls the shard itself, not its namespace."""
        body = command.body
        if command.sender not in _CONTROL_SENDERS.get(type(body), ()):
            raise InvalidMessageError(f"{type(body).__name__} does not come from {command.sender or 'a client'}")
        if command.user:
            self._count_once(command, transaction)
        if isinstance(body, Barrier):
            self._pass_barrier(body, transaction)
        elif isinstance(body, records.GrantContainer):
            transaction.counters.container_id = max(transaction.counters.container_id, body.container_id)
        elif isinstance(body, records.StopClaims):
            collection_commands.stop_claims(transaction, body)
            send_changed_states(transaction)
        elif isinstance(body, records.AcceptLostTail):
            lost_tail.accept(transaction, body)
            self._send_collection_states(transaction.work)
        elif isinstance(body, records.SetFeatureLevel):
            upgrades.set_feature_level(transaction, body)
        elif isinstance(body, records.AnnounceSchema):
            upgrades.announce_schema(transaction.counters, body)
        else:
            capture_drop.publish_full_chain(transaction)

    def _count_once(self, command: MetadataCommand, transaction: Transaction) -> None:
        """Refuse a repeat of an operator's signed command, whoever sends it again."""
        client = command.client_id.encode()
        if command.number <= transaction.clients.last(transaction.work, client)[0]:
            raise InvalidMessageError(f"number {command.number} of {command.user} was applied already")
        transaction.clients.applied(client, command.number, transaction.log_time_ms, b"")

    def _pass_barrier(self, barrier: Barrier, transaction: Transaction) -> None:
        """Forward a barrier after all earlier messages: to streaming, or back to the service that it comes from.

        The forwarded barrier has the txn of metadata's last collection change. If the sender knew only an older one,
        all collection states are published again.
        """
        work = transaction.work
        transaction.space.barrier()
        newest_txn = transaction.collection_states.newest_txn(work)
        if barrier.collection_txn < newest_txn:
            self._send_collection_states(work)
        passed = replace(barrier, collection_txn=newest_txn)
        if barrier.origin:
            counters = transaction.counters
            work.send(METADATA_PROGRESS, MetadataProgress(counters.txn, passed, counters.feature_level))
        else:
            transaction.entries.add_barrier(replace(passed, passed_txn=transaction.counters.txn))

    def _send_collection_states(self, work: Work) -> None:
        counters = self._transaction.counters
        states = self._transaction.collection_states
        states.send_all(work, counters.txn, counters.claims_stopped, counters.feature_level)

    def tick(self, now_ms: int, work: Work) -> None:  # noqa: ARG002 time affects the state only through commands in the log
        """Publish all collection states once after a start."""
        if self._must_send_collection_states:
            self._must_send_collection_states = False
            if self._transaction.collection_states.newest_txn(work):  # otherwise no service can have missed a change
                self._send_collection_states(work)

    def end_batch(self, work: Work) -> None:
        """Write and publish the changes of the batch."""
        self._transaction.end(work)

    def remove_unneeded(self, store: Store) -> None:
        """Remove what no read can reach, after a unit of work is written: the checkpoints of dropped snapshots, and a
        page of the changes before the oldest live snapshot.
        """
        for name in self._dropped:
            store.remove_checkpoint(name)
        self._dropped.clear()
        self.unneeded_changes.remove_page(store)


def _reply(command: MetadataCommand, txn: int, outcome: Committed | NotDone | _Refusal) -> bytes:
    """Return the message that answers a command. It is encoded without a record object: most commands get one."""
    error = message = ""
    committed = None
    if isinstance(outcome, Committed):
        committed = outcome
    elif isinstance(outcome, NotDone):
        error, message = str(outcome.code), shortened(outcome.message)
    else:
        txn, error, message = 0, str(outcome.code), shortened(str(outcome))
    fields = {
        "client_id": command.client_id,
        "number": command.number,
        "txn": txn,
        "error": error,
        "message": message,
        "committed": committed,
    }
    return _REPLY.message_of_fields(fields)
