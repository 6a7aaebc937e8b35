"""Replay a shard's command log from its beginning: find the claimed versions and their holders from offsets alone.

The replay has to decide which commands are refused, since only the others get a txn. It uses none of the judges'
state: no chain view, no txn intervals, no garbage tables. A deleted tree dies at once here, although metadata expands
it later. Whether an undelete came too late is therefore read from metadata's answer and checked against this history.

The replay records each version that a claim names, with the snapshot that held it, if any. It does not decide whether
metadata granted the claim: the ledger row names the claim.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from schemas import records
from schemas.records import DeletedKind, MetadataCommand, MetadataReply, RowNames
from services.domain.names import MAX_CLIENT_ID_LENGTH, InvalidNameError, check_key_path, is_snapshot_id
from services.domain.table_keys import local_id_shard, local_id_txn, object_txn
from services.verifier.history import Asked, Claim, Entry, History, Moment, Version
from services.verifier.namespace import Namespace
from services.verifier.open_writes import OpenWrites
from services.verifier.present import Bucket, Present
from services.verifier.refusals import DeadLetteredError, RefusedError, require, required
from services.verifier.report import Finding, FindingKind
from services.verifier.rights import RIGHTS_COMMANDS, Rights
from services.verifier.taken_bytes import Blocks, taken_bytes
from services.verifier.txns import txns_of
from services.verifier.unauthorized_commands import COLLECTION_COMMANDS, Secrets, Signed
from services.verifier.uploads import Uploads
from services.verifier.writing import UPLOAD_TABLE, Page, Writing

DAY_MS = 24 * 3_600_000
HOUR_MS = 3_600_000
MAX_ORPHANS = 200


class UnknownCommandError(Exception):
    """The replay does not know a command, so that it cannot number the following txns."""


_PERSON = ""
STEERING: Mapping[type[Any], tuple[str, ...]] = {
    records.Barrier: ("snapshots", "key_deletion", "directory_deletion"),
    records.GrantContainer: ("mock_scm",),
    records.StopClaims: ("snapshots", _PERSON),
    records.PublishFullChain: (_PERSON,),
    records.AcceptLostTail: (_PERSON,),
    records.SetFeatureLevel: (_PERSON,),
    records.AnnounceSchema: (_PERSON,),
}
"""Commands that control the shard itself, with their allowed senders."""

_BY_AUDIT = (records.RequeueOrphans, records.RepairQuota)
BY_ANSWER = frozenset({records.Undelete, *_BY_AUDIT, records.SetQuota, *COLLECTION_COMMANDS, *RIGHTS_COMMANDS})
"""Commands whose outcome is read from metadata's answer."""
BY_ANSWER_WITH_A_QUOTA = frozenset(
    {
        *(records.PutKey, records.PutKeyIf, records.PutKeys, records.MakeDirectory, records.OpenKey),
        *(records.AllocateBlocks, records.SyncKey, records.CommitKey, records.InitiateUpload, records.CompleteUpload),
    }
)
"""Commands whose outcome is read from the answer, too, if their bucket has a quota: what is used of it depends on when
deleted directories were expanded, which is not replayed."""
_OF_LEVEL_2 = frozenset(
    {
        *(records.PutKeyIf, records.PutKeys, records.OpenKey, records.AllocateBlocks, records.SyncKey),
        *(records.CommitKey, records.RecoverLease, records.AbandonKey, records.InitiateUpload),
        *(records.CompleteUpload, records.AbortUpload),
        *(records.SetQuota, records.RepairQuota, records.CreateBucketLink),
        *(records.SetBucketVersioning, records.DeleteKeyVersion, records.SetBucketReplication),
        records.SetDefaultReplication,
        *RIGHTS_COMMANDS,
    }
)
"""Commands that are refused before the shard has feature level 2."""
_OF_THE_NAME = (records.CreateBucketLink, records.CreateBucket, records.DeleteBucket)
"""Commands on the name of a bucket, wherever it leads."""

CLIENT_COMMANDS = frozenset(
    {
        *(records.CreateVolume, records.DeleteVolume, records.CreateBucket, records.CreateBucketLink),
        *(records.DeleteBucket, records.PutKey, records.PutKeyIf, records.PutKeys, records.DeleteKey),
        *(records.DeleteKeys, records.DeleteKeyVersion, records.SetBucketVersioning, records.SetBucketReplication),
        *(records.SetDefaultReplication, records.RenameKey, records.MakeDirectory, records.DeleteDirectory),
        *(records.RenameDirectory, records.OpenKey, records.AllocateBlocks, records.SyncKey, records.CommitKey),
        *(records.RecoverLease, records.AbandonKey, records.InitiateUpload, records.CompleteUpload),
        *(records.AbortUpload, records.SetSecret),
        *BY_ANSWER,
    }
)
"""Commands of clients."""

Answers = Callable[[int], MetadataReply | None]
"""Return metadata's answer at a txn, or None when no answered command got this txn."""


class Place(NamedTuple):
    """Where a command stands in its shard: what the commands before it have left that all buckets share."""

    txn: int
    """That of the last command before it that has one."""
    log_time_ms: int
    is_repeat: bool
    """Whether its client has sent its number, or a later one, before."""


@dataclass(slots=True)
class _Rollback:
    """A rollback: its last page and the txns of its pages so far."""

    page: int
    txns: list[int]
    is_finished: bool


class LogReplay:
    """Replays one shard, starting from an empty disk.

    ``rollback_ends`` holds the last page of each rollback, ``answers`` returns metadata's answers, and ``note`` is
    called with each finding about an undelete or requeued orphans. ``end_keys`` says by the offsets of expiries where
    their pages end, if others replay a part of them.
    """

    def __init__(
        self,
        shard: int,
        history: History,
        rollback_ends: Mapping[str, int],
        answers: Answers = lambda txn: None,  # noqa: ARG005  enough for a log without commands of BY_ANSWER
        note: Callable[[Finding], None] = lambda finding: None,  # noqa: ARG005
        end_keys: Mapping[int, bytes] = MappingProxyType({}),
    ) -> None:
        self.history = history
        self._answers = answers
        self._note = note
        self.txn = 0
        self.commands = self.undeletes = 0
        self.lost_tail_offset: int | None = None
        self._rollback_ends = rollback_ends
        self._log_time_ms = self._chain_version = self._announced_schema_id = 0
        self._feature_level = 1
        self._secrets = Secrets()
        self._rights = Rights(self._secrets)
        self._present = present = Present(shard, history)
        self._namespace = Namespace(present, self._secrets.owners)
        self._writes = OpenWrites(history)
        uploads = Uploads(present, self._writes, self._namespace)
        self._writing = writing = Writing(present, self._writes, self._namespace, uploads)
        self._snapshots: dict[str, Bucket] = {}
        self._uncaptured: set[str] = set()
        """Snapshots that were dropped before they were captured. Later captures of them do nothing."""
        self._place: Place | None = None
        self.has_taken_number = False
        """Whether the number of the last command has counted as one of its client's."""
        self._end_keys = end_keys
        self.pages: dict[int, Page] = {}
        """By the offsets of the expiries that have met something."""
        self._rollbacks: dict[tuple[int, str], _Rollback] = {}
        self._pages: dict[str, set[int]] = {}
        self._clients: dict[str, tuple[int, int]] = {}
        self._client_commands: Mapping[type[Any], Callable[[Any], None]] = {
            **self._namespace.commands,
            **writing.commands,
            **uploads.commands,
            records.SetSecret: self._set_secret,
        }
        self._service_commands: Mapping[type[Any], tuple[str, Callable[[Any], None]]] = {
            records.CaptureSnapshot: ("snapshots", self._capture),
            records.DropSnapshot: ("snapshots", self._drop),
            records.RollbackPage: ("snapshots", self._rollback_page),
            records.ClaimRows: ("key_deletion", self._claim),
            records.FinishRows: ("key_deletion", self._finish),
            records.SweepPage: ("key_deletion", self._nothing),
            records.ExpireWrites: ("key_deletion", self._expire),
            records.ExpandDirectory: ("directory_deletion", self._nothing),
            records.RemoveDirectories: ("directory_deletion", self._nothing),
        }

    @property
    def log_time_ms(self) -> int:
        """The latest time of a message so far that is no dead letter."""
        return self._log_time_ms

    @property
    def asked_bytes(self) -> int:
        """The bytes that commands have asked for so far, whether they got them or not."""
        return self._present.asked_bytes

    def go_to(self, place: Place) -> None:
        """Pass over commands that others replay: the next command stands there."""
        self._place, self.txn, self._log_time_ms = place, place.txn, place.log_time_ms
        self.has_taken_number = False

    def apply(self, offset: int, signed: Signed | None) -> None:
        """Apply the next command; None is an unreadable one. Commands after an accepted lost tail are only counted.

        Raises:
            UnknownCommandError: the replay does not know the command.
        """
        self.commands += 1
        if signed is None or self.lost_tail_offset is not None:
            return
        if signed.later_schema_id > self._announced_schema_id:
            return  # metadata has dead-lettered it
        before_ms, self._present.time_ms = self._log_time_ms, max(self._log_time_ms, signed.timestamp_ms)
        self._present.begin(Moment(offset, self.txn + 1))
        try:
            if type(signed.command.body) in CLIENT_COMMANDS:
                self._apply_client_command(signed)
            else:
                self._apply_internal_command(signed)
        except DeadLetteredError:
            return
        self._log_time_ms = self._present.time_ms
        if self._present.time_ms // HOUR_MS != before_ms // HOUR_MS:
            oldest_ms = self._present.time_ms - HOUR_MS
            self._clients = {client: seen for client, seen in self._clients.items() if seen[1] >= oldest_ms}

    def _apply_client_command(self, signed: Signed) -> None:
        command = signed.command
        is_audit = command.sender == "audit" or not isinstance(command.body, _BY_AUDIT)
        if len(command.client_id) > MAX_CLIENT_ID_LENGTH or not is_audit:
            raise DeadLetteredError
        if self._secrets.are_asked_for and not self._may_send(signed):
            return
        if command.number and not self._is_new(command):
            return
        if command.shard != self._present.shard:
            return
        if self._feature_level < 2 and type(command.body) in _OF_LEVEL_2:
            return
        if type(command.body) in BY_ANSWER:
            self._apply_by_answer(command)
            return
        try:
            answer = required(self._answer_to(command)) if self._needs_answer(command.body) else None
            require(not self._is_of_a_tenant(command.body))
            if isinstance(command.body, records.PutKeys):
                done = answer.committed.keys_put if answer and answer.committed else None
                self._namespace.put_keys(command.body, frozenset(done.refused) if done else frozenset())
            else:
                self._client_commands[type(command.body)](command.body)
        except (RefusedError, InvalidNameError):
            return
        self.txn = self._present.now.txn
        self._rights.bucket_made(command)

    def _is_of_a_tenant(self, body: Any) -> bool:
        """Return whether a command would delete the volume of a tenant."""
        return isinstance(body, records.DeleteVolume) and body.volume in self._rights.tenants.values()

    def _may_send(self, signed: Signed) -> bool:
        """Return whether a command is authorized: by its sender, or, if its sender can have a right, by the answer."""
        is_owner = self._is_owner(signed)
        return is_owner or (self._rights.can_be_allowed(signed) and self._answer_to(signed.command) is not None)

    def _is_owner(self, signed: Signed) -> bool:
        """Return whether a user may send a command: to a link also by the right to the bucket to which it leads."""
        body: Any = signed.command.body
        if not self._secrets.allow_client(signed):
            return False
        if isinstance(body, _OF_THE_NAME) or not getattr(body, "bucket", ""):
            return True
        try:
            name = self._present.lead_to(body.volume, body.bucket)
        except RefusedError:
            return False
        is_elsewhere = name in self._present.buckets and name[0] != body.volume
        return not is_elsewhere or self._secrets.may_manage(signed.command.user, name[0])

    def _needs_answer(self, body: Any) -> bool:
        if not self._namespace.has_quotas:
            return False
        if type(body) not in BY_ANSWER_WITH_A_QUOTA:
            return False
        bucket = self._present.buckets.get(self._present.lead_to(body.volume, body.bucket))
        has_quota = bucket is not None and bucket.has_quota
        return has_quota and not (isinstance(body, records.AllocateBlocks) and body.size_bytes == 0)

    def _answer_to(self, command: MetadataCommand) -> MetadataReply | None:
        """Return metadata's answer to the command, if it got the present txn. An answer has the last of several."""
        answer = self._answers(self._present.now.txn + txns_of(command.body) - 1)
        is_its = answer is not None and (answer.client_id, answer.number) == (command.client_id, command.number)
        return answer if is_its else None

    def _apply_by_answer(self, command: MetadataCommand) -> None:
        answer, body = self._answer_to(command), command.body
        if answer is None:
            return
        if isinstance(body, records.RequeueOrphans):
            self._requeue_orphans(body, is_last=answer.committed is not None)
        elif answer.committed is None:
            return
        elif isinstance(body, records.Undelete):
            self._undelete(command, body, answer.committed.object_id)
        elif isinstance(body, records.RepairQuota):  # no version and no holder depends on it
            self.txn = self._present.now.txn
        elif isinstance(body, records.SetQuota):
            with suppress(RefusedError):
                self._namespace.set_quota(body)
                self.txn = self._present.now.txn
        elif isinstance(body, RIGHTS_COMMANDS):
            if isinstance(body, records.CreateTenant):
                self._client_commands[records.CreateVolume](records.CreateVolume(body.volume, body.owner))
            self._rights.change(command, answer.committed)
            self.txn = self._present.now.txn
        elif answer.committed.keys is None:
            self._send_collection(command, answer.committed.object_id)

    def _is_new(self, command: MetadataCommand) -> bool:
        """Record the number of a client's command. Return False when the client already sent this or a later one."""
        if self._place is not None:
            self.has_taken_number = True
            return not self._place.is_repeat
        if command.number <= self._clients.get(command.client_id, (0, 0))[0]:
            return False
        self._clients[command.client_id] = (command.number, self._present.time_ms)
        return True

    def _apply_internal_command(self, signed: Signed) -> None:
        command, body = signed.command, signed.command.body
        is_allowed = not self._secrets.are_asked_for or self._secrets.allow_internal(signed)
        is_in_place = not isinstance(body, records.AcceptLostTail) or body.offset == self._present.now.offset
        if not is_in_place or not is_allowed or command.shard != self._present.shard:
            raise DeadLetteredError
        if type(body) in self._service_commands:
            sender, carry_out = self._service_commands[type(body)]
            if command.sender != sender:
                raise DeadLetteredError
            carry_out(body)
            self.txn = self._present.now.txn
        elif type(body) in STEERING:
            if command.sender not in STEERING[type(body)] or (command.user and not self._is_new(command)):
                raise DeadLetteredError
            self._steer(body)
        else:
            raise UnknownCommandError(f"offset {self._present.now.offset} holds a {type(body).__name__}")

    def _steer(self, body: Any) -> None:
        """Apply a command that controls the shard itself."""
        if isinstance(body, records.GrantContainer):
            self._present.container_id = max(self._present.container_id, body.container_id)
        elif isinstance(body, records.StopClaims):
            self.txn = self._present.now.txn
        elif isinstance(body, records.AnnounceSchema):
            self._announced_schema_id = max(self._announced_schema_id, body.schema_id)
        elif isinstance(body, records.SetFeatureLevel):
            if body.confirmation == f"feature level {body.level} is final":
                self._feature_level = max(self._feature_level, body.level)
        elif isinstance(body, records.AcceptLostTail):
            # The effects of the lost commands are in metadata's database but in no log, so the replay ends here.
            self.lost_tail_offset = self._present.now.offset

    def _expire(self, body: records.ExpireWrites) -> None:
        if not 0 <= body.table <= UPLOAD_TABLE:
            raise DeadLetteredError
        offset = self._present.now.offset
        page = self._writing.expire(body, self._end_keys.get(offset, b""))
        if self._place is not None and (page.rows or page.has_rest):
            self.pages[offset] = page

    def _nothing(self, body: Any) -> None:
        """Do nothing: the command gets a txn, but changes neither live versions nor claims."""

    def _requeue_orphans(self, body: records.RequeueOrphans, *, is_last: bool) -> None:
        """Apply the last page of an orphan search; earlier pages change nothing. The answer shows which is the last."""
        if is_last:
            try:
                self._require_orphans(body)
            except RefusedError:
                reason = f"txn {self._present.now.txn}: blocks were given to the judges that are not orphaned"
                self._note(Finding(FindingKind.FREED_WHILE_LIVE, body.bucket_id, 0, 0, 0, 0, 0, reason))
            for run in body.blocks:
                orphan = self._present.new_object_id()
                self.history.write(
                    body.bucket_id, orphan, self._present.now.txn - 1, run.size_bytes, run, self._present.now
                )
                self.history.die(orphan, self._present.now.txn - 1, self._present.now)
        self.txn = self._present.now.txn

    def _require_orphans(self, body: records.RequeueOrphans) -> None:
        """Refuse the blocks unless they are orphans according to this history, too."""
        bucket = self._present.by_id.get(body.bucket_id)
        runs, txn = body.blocks, self._present.now.txn
        require(0 < len(runs) <= MAX_ORPHANS and len({run.first_local_id for run in runs}) == len(runs))
        require(body.audited_txn < txn)
        for run in runs:
            require(local_id_shard(run.first_local_id) == self._present.shard)
            require(0 < local_id_txn(run.first_local_id) <= body.audited_txn)
            require(min(run.block_count, run.block_size_bytes, run.size_bytes) > 0)
            require(local_id_txn(run.first_local_id + run.block_count - 1) == local_id_txn(run.first_local_id))
        require(bucket is not None and not bucket.fence and (not bucket.txns or bucket.txns[-1] != txn - 1))
        wanted = {local_id_txn(run.first_local_id) for run in runs}
        for first_block, _ in (*self.history.kept(), *self._writes.owned()):
            require(local_id_txn(first_block) not in wanted)

    # Collection commands

    def _send_collection(self, command: MetadataCommand, answered_id: int) -> None:
        """Advance the txn if the answer shows that the command got one. The collection state is not replayed."""
        body: Any = command.body
        named = self._ids_of(body.volume, body.bucket) if body.volume else {0}
        # A command without a number is matched to the answer by its object id.
        if command.number or answered_id in named:
            self.txn = self._present.now.txn

    def _ids_of(self, volume: str, bucket: str) -> set[int]:
        """Return the ids of all buckets that a name has ever led to."""
        with suppress(RefusedError):
            volume, bucket = self._present.lead_to(volume, bucket)
        return {one.bucket_id for one in self._present.by_id.values() if (one.volume, one.name) == (volume, bucket)}

    # Undelete

    def _undelete(self, command: MetadataCommand, body: records.Undelete, answered_id: int) -> None:
        if answered_id != body.object_id and object_txn(answered_id) != self._present.now.txn:
            return  # the answer belongs to another command without a number
        try:
            bucket = self._present.bucket(body)
            if body.kind is DeletedKind.DIRECTORY:
                self._undelete_tree(bucket, body)
            else:
                self._undelete_key(bucket, body, answered_id)
        except (RefusedError, InvalidNameError):
            if not command.number:
                return  # without a number the answer may belong to a later command, which then gets this txn
            there = self._present.buckets.get((body.volume, body.bucket))
            self._note_return(there, body, "was brought back, and was not there to come back, or its place was taken")
        self.undeletes += 1
        self.txn = self._present.now.txn

    def _undelete_key(self, bucket: Bucket, body: records.Undelete, answered_id: int) -> None:
        version = required(self._dead(bucket.bucket_id, body.object_id, body.birth, body.death))
        died = required(version.died)
        require(not version.is_further_run and not self.history.are_finished(version))
        if version.is_noncurrent and self._undelete_version(bucket, body, version, answered_id):
            return
        parent_id, name = self._free_place(bucket, body.path)
        if answered_id == body.object_id:
            if bucket.offsets and bucket.offsets[-1] > died:
                self._note_return(bucket, body, "was brought back as itself, though a snapshot was taken since it died")
            self.history.bring_back(version, self._present.now)
            came_back = version.name
        else:
            require(answered_id == self._present.new_object_id())
            if bisect_left(bucket.offsets, version.born) < bisect_left(bucket.offsets, died):
                self._note_return(bucket, body, "was given another name, though a snapshot held it under its own")
            self.history.hand_over(version, answered_id, self._present.now)
            came_back = (answered_id, self._present.now.txn)
        entry = Entry(*came_back, is_directory=False, generation=self._present.now.txn, length=version.length)
        self.history.add(bucket.bucket_id, parent_id, name, entry, self._present.now)

    def _undelete_version(self, bucket: Bucket, body: records.Undelete, version: Version, answered_id: int) -> bool:
        """Bring a noncurrent version back to its key, if that is live at the path. Return whether it is."""
        parent_id, name, there = self._present.find(bucket, body.path)
        if there is None or there.object_id != version.key_id:
            return False
        require(answered_id == body.object_id)
        if bucket.offsets and bucket.offsets[-1] > required(version.died):
            self._note_return(bucket, body, "was brought back to its key, though a snapshot was taken since it died")
        self.history.bring_back(version, self._present.now)
        if version.birth > there.birth:
            self.history.keep(there.object_id, there.birth)
            self.history.make_current(version)
            self.history.leave(parent_id, name, self._present.now)
            self._namespace.show(bucket, (parent_id, name), there.object_id, version)
        return True

    def _undelete_tree(self, bucket: Bucket, body: records.Undelete) -> None:
        tree = required(self.history.tree(body.object_id, body.death))
        require(tree.bucket_id == bucket.bucket_id)
        parent_id, name = self._free_place(bucket, body.path)
        if bucket.offsets and bucket.offsets[-1] > tree.died:
            self._note_return(bucket, body, "was brought back, though a snapshot was taken since it died")
        self.history.bring_back_tree(body.object_id, body.death, tree, self._present.now)
        back = Entry(body.object_id, 0, is_directory=True)
        self.history.add(bucket.bucket_id, parent_id, name, back, self._present.now)

    def _free_place(self, bucket: Bucket, path: str) -> tuple[int, str]:
        """Return the parent id and name for an undeleted entry, creating missing directories; refuse a taken path."""
        check_key_path(path, is_tree=bucket.is_tree)
        parent_id, missing, name = self._present.place(bucket, path)
        require(bool(missing) or self.history.find(parent_id, name) is None)
        return self._present.add_directories(bucket, parent_id, missing), name

    def _note_return(self, bucket: Bucket | None, body: records.Undelete, reason: str) -> None:
        bucket_id = bucket.bucket_id if bucket else 0
        name = (bucket_id, body.object_id, body.birth, body.death)
        self._note(Finding(FindingKind.BROUGHT_BACK, *name, 0, 0, f"txn {self._present.now.txn}: {body.path} {reason}"))

    def _set_secret(self, body: records.SetSecret) -> None:
        require(body.name not in self._rights.access_ids)
        require(self._secrets.set(body))

    # Snapshots

    def _capture(self, body: records.CaptureSnapshot) -> None:
        if not is_snapshot_id(body.snapshot_id):
            raise DeadLetteredError
        bucket = self._present.buckets.get((body.volume, body.bucket))
        is_over = body.snapshot_id in self._snapshots or body.snapshot_id in self._uncaptured
        is_too_late = body.requested_ms and abs(self._present.time_ms - body.requested_ms) > DAY_MS
        if is_over or is_too_late or bucket is None or bucket.fence:
            return
        is_asked = self._secrets.are_asked_for and body.user
        if is_asked and not self._may_capture(body):
            return
        self._snapshots[body.snapshot_id] = bucket
        bucket.offsets.append(self._present.now.offset)
        bucket.txns.append(self._present.now.txn)
        bucket.ids.append(body.snapshot_id)
        self._chain_version += 1

    def _may_capture(self, body: records.CaptureSnapshot) -> bool:
        """Return whether the user who asks for a snapshot owns the bucket or its volume."""
        return self._secrets.may_manage(body.user, body.volume) or self._rights.owns_bucket(body.user, body)

    def _drop(self, body: records.DropSnapshot) -> None:
        bucket = self._snapshots.get(body.snapshot_id)
        if bucket is None:
            self._uncaptured.add(body.snapshot_id)
        if bucket is None or body.snapshot_id not in bucket.ids:
            return
        if bucket.fence == body.snapshot_id:
            raise DeadLetteredError
        place = bucket.ids.index(body.snapshot_id)
        del bucket.offsets[place], bucket.txns[place], bucket.ids[place]
        self._chain_version += 1

    def _rollback_page(self, body: records.RollbackPage) -> None:
        name = (body.bucket_id, body.rollback_id)
        rollback, bucket = self._rollbacks.get(name), self._present.by_id.get(body.bucket_id)
        if bucket is None:
            return
        if rollback is None:
            is_newest = bool(bucket.ids) and bucket.ids[-1] == body.snapshot_id
            if body.page != 1 or bucket.is_deleted or bucket.fence or not is_newest:
                return
            bucket.fence = body.snapshot_id
            rollback = self._rollbacks[name] = _Rollback(0, [], is_finished=False)
            self.history.roll_back(body.bucket_id, bucket.offsets[-1], body.rollback_id, self._present.now)
        elif rollback.is_finished or body.page != rollback.page + 1:
            return
        rollback.page = body.page
        self._pages.setdefault(body.rollback_id, set()).add(self._present.now.txn)
        if body.page == self._rollback_ends.get(body.rollback_id):
            rollback.is_finished, bucket.fence = True, ""

    # Claims

    def _claim(self, body: records.ClaimRows) -> None:
        _check_whole(body.rows)
        claim = Claim(
            self._present.now.txn,
            self._present.time_ms,
            self._chain_version,
            body.task,
            body.first_judge_version,
            body.chain_version,
        )
        self.history.note_claim(claim)
        for names in body.rows:
            if names.kind is DeletedKind.KEY:
                asked = dict[tuple[int, int], Asked]()
                for bucket_id, version, death in self._dead_among(names):
                    self._claim_one(bucket_id, version, death, asked)
                self.history.ask_all(asked)

    def _claim_one(self, bucket_id: int, version: Version, death: int, asked: dict[tuple[int, int], Asked]) -> None:
        bucket = self._present.by_id.get(bucket_id)
        is_asked = version.claim_txn == self._present.now.txn or version.name in asked
        if bucket is None or version.died is None or is_asked:
            return
        after_birth = bisect_left(bucket.offsets, version.born)
        before_death = bisect_left(bucket.offsets, version.died)
        if after_birth < before_death:
            self.history.note_held(version, self._present.now.txn, bucket.txns[before_death - 1])
            return
        previous_txn = bucket.txns[before_death - 1] if before_death else 0
        next_txn = bucket.txns[after_birth] if after_birth < len(bucket.txns) else 0
        facts = Asked(self._present.now.txn, death, previous_txn, next_txn)
        if version.claim_txn is None:
            asked[version.name] = facts
        else:
            self.history.ask_again(version, facts)

    def _dead_among(self, names: RowNames) -> Iterator[tuple[int, Version, int]]:
        """Yield the versions with blocks that these names denote, each with the bucket and the death of its name."""
        versions = self.history.versions(list(zip(names.object_ids, names.births, strict=True)))
        for bucket_id, *name, death in zip(names.bucket_ids, names.object_ids, names.births, names.deaths, strict=True):
            version = self._denoted(versions.get((name[0], name[1])), bucket_id, death)
            if version is not None:
                yield bucket_id, version, death

    def _dead(self, bucket_id: int, named_id: int, birth: int, death: int) -> Version | None:
        """Return the version with blocks that these names denote, or None."""
        return self._denoted(self.history.version(named_id, birth), bucket_id, death)

    def _denoted(self, version: Version | None, bucket_id: int, death: int) -> Version | None:
        """Return a version if it has blocks and died in this bucket at this txn.

        ``death`` must be the version's own, or the txn of a page of the rollback that deleted it.
        """
        if version is None or version.bucket_id != bucket_id or version.first_local_id is None:
            return None
        # metadata rolls back page by page, this replay at once: any page's txn may be the death.
        pages = self._pages.get(version.rollback, set()) if version.rollback else set()
        return version if death == version.death or death in pages else None

    def _finish(self, body: records.FinishRows) -> None:
        _check_whole(body.rows)
        self.history.note_finish(self._present.now.txn, self._present.time_ms)
        for names in body.rows:
            finished = set[tuple[int, int]]()
            for _, version, _ in self._dead_among(names):
                if version.claim_txn is not None and version.finish_txn is None and version.name not in finished:
                    finished.add(version.name)
                    self._present.stored_bytes -= _taken_bytes(version)
            self.history.finish_all(finished, self._present.now.txn)


def _taken_bytes(version: Version) -> int:
    shape = required(version.container_id), required(version.block_count), required(version.block_size_bytes)
    return taken_bytes(Blocks(*shape, version.size_bytes))


def _check_whole(rows: tuple[RowNames, ...]) -> None:
    for names in rows:
        if len({len(names.bucket_ids), len(names.object_ids), len(names.births), len(names.deaths)}) > 1:
            raise DeadLetteredError
