"""Replay a shard's command log from its beginning: find the claimed versions and their holders from offsets alone.

The replay has to decide which commands are refused, since only the others get a txn. It uses none of the judges'
state: no chain view, no txn intervals, no garbage tables. A deleted tree dies at once here, although metadata expands
it later. Whether an undelete came too late is therefore read from metadata's answer and checked against this history.

The replay records each version that a claim names, with the snapshot that held it, if any. It does not decide whether
metadata granted the claim: the ledger row names the claim.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from schemas import records
from schemas.records import BlockRun, BucketLayout, DeletedKind, MetadataCommand, MetadataReply, RowNames
from services.domain.names import (
    MAX_CLIENT_ID_LENGTH,
    MAX_KEY_TAG_LENGTH,
    MAX_OWNER_LENGTH,
    InvalidNameError,
    check_bucket_name,
    check_key_path,
    check_length,
    check_volume_name,
    is_snapshot_id,
)
from services.domain.table_keys import local_id, local_id_shard, local_id_txn, object_id, object_txn
from services.verifier.history import Asked, Claim, Entry, History, Moment, Version
from services.verifier.report import Finding, FindingKind
from services.verifier.unauthorized_commands import COLLECTION_COMMANDS, Secrets, Signed

T = TypeVar("T")

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MAX_BYTES = 2**63 - 1
MAX_BLOCKS = 65_535
MAX_OBJECTS = 255
MAX_KEYS = 1_000
MAX_ORPHANS = 200


class UnknownCommandError(Exception):
    """The replay does not know a command, so that it cannot number the following txns."""


_PERSON = ""
_STEERING: Mapping[type[Any], tuple[str, ...]] = {
    records.Barrier: ("snapshots", "key_deletion", "directory_deletion"),
    records.GrantContainer: ("mock_scm",),
    records.StopClaims: ("snapshots", _PERSON),
    records.PublishFullChain: (_PERSON,),
    records.AcceptLostTail: (_PERSON,),
    records.SetFeatureLevel: (_PERSON,),
    records.AnnounceSchema: (_PERSON,),
}
"""Commands that control the shard itself, with their allowed senders."""

_BY_ANSWER = (records.Undelete, records.RequeueOrphans, *COLLECTION_COMMANDS)
"""Commands whose outcome is read from metadata's answer."""

Answers = Callable[[int], MetadataReply | None]
"""Return metadata's answer at a txn, or None when no answered command got this txn."""


class _RefusedError(Exception):
    """The command does nothing and gets no txn."""


class _DeadLetteredError(Exception):
    """The message is a dead letter."""


@dataclass(slots=True)
class _Bucket:
    """A bucket, and its live snapshots in log order: the offset, the txn and the id of each."""

    bucket_id: int
    is_tree: bool
    fence: str = ""
    is_deleted: bool = False
    offsets: list[int] = field(default_factory=list)
    txns: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Rollback:
    """A rollback: its last page and the txns of its pages so far."""

    page: int
    txns: list[int]
    is_finished: bool


class LogReplay:
    """Replays one shard, starting from an empty disk.

    ``rollback_ends`` holds the last page of each rollback, ``answers`` returns metadata's answers, and ``note`` is
    called with each finding about an undelete or requeued orphans.
    """

    def __init__(
        self,
        shard: int,
        history: History,
        rollback_ends: Mapping[str, int],
        answers: Answers = lambda txn: None,  # noqa: ARG005  enough for a log without commands of _BY_ANSWER
        note: Callable[[Finding], None] = lambda finding: None,  # noqa: ARG005
    ) -> None:
        self.history = history
        self._answers = answers
        self._note = note
        self.txn = 0
        self.commands = self.undeletes = 0
        self.lost_tail_offset: int | None = None
        self._shard = shard
        self._rollback_ends = rollback_ends
        self._log_time_ms = self._epoch = self._chain_version = self._container_id = 0
        self._stored_bytes = self._announced_schema_id = 0
        self._secrets = Secrets()
        self._volumes: dict[str, int] = {}
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._by_id: dict[int, _Bucket] = {}
        self._ids_of_names: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        self._snapshots: dict[str, _Bucket] = {}
        self._uncaptured: set[str] = set()
        """Snapshots that were dropped before they were captured. Later captures of them do nothing."""
        self._rollbacks: dict[tuple[int, str], _Rollback] = {}
        self._pages: dict[str, set[int]] = {}
        self._clients: dict[str, tuple[int, int]] = {}
        self._now = Moment(0, 0)
        self._time_ms = 0
        self._objects = 0
        self._client_commands: Mapping[type[Any], Callable[[Any], None]] = {
            records.CreateVolume: self._create_volume,
            records.DeleteVolume: self._delete_volume,
            records.CreateBucket: self._create_bucket,
            records.DeleteBucket: self._delete_bucket,
            records.PutKey: self._put_key,
            records.DeleteKey: self._delete_key,
            records.DeleteKeys: self._delete_keys,
            records.RenameKey: self._rename_key,
            records.MakeDirectory: self._make_directory,
            records.DeleteDirectory: self._delete_directory,
            records.RenameDirectory: self._rename_directory,
            records.SetSecret: self._set_secret,
        }
        self._service_commands: Mapping[type[Any], tuple[str, Callable[[Any], None]]] = {
            records.CaptureSnapshot: ("snapshots", self._capture),
            records.DropSnapshot: ("snapshots", self._drop),
            records.RollbackPage: ("snapshots", self._rollback_page),
            records.ClaimRows: ("key_deletion", self._claim),
            records.FinishRows: ("key_deletion", self._finish),
            records.SweepPage: ("key_deletion", self._nothing),
            records.ExpandDirectory: ("directory_deletion", self._nothing),
            records.RemoveDirectories: ("directory_deletion", self._nothing),
        }

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
        before_ms, self._time_ms = self._log_time_ms, max(self._log_time_ms, signed.timestamp_ms)
        self._now = Moment(offset, self.txn + 1)
        self._objects = 0
        try:
            if type(signed.command.body) in (*self._client_commands, *_BY_ANSWER):
                self._apply_client_command(signed)
            else:
                self._apply_internal_command(signed)
        except _DeadLetteredError:
            return
        self._log_time_ms = self._time_ms
        if self._time_ms // HOUR_MS != before_ms // HOUR_MS:
            oldest_ms = self._time_ms - HOUR_MS
            self._clients = {client: seen for client, seen in self._clients.items() if seen[1] >= oldest_ms}

    def _apply_client_command(self, signed: Signed) -> None:
        command = signed.command
        is_audit = command.sender == "audit" or not isinstance(command.body, records.RequeueOrphans)
        if len(command.client_id) > MAX_CLIENT_ID_LENGTH or not is_audit:
            raise _DeadLetteredError
        if self._secrets.are_asked_for and not self._secrets.allow_client(signed):
            return
        if command.number and not self._is_new(command):
            return
        if command.shard != self._shard:
            return
        if isinstance(command.body, _BY_ANSWER):
            self._apply_by_answer(command)
            return
        try:
            self._client_commands[type(command.body)](command.body)
        except (_RefusedError, InvalidNameError):
            return
        self.txn = self._now.txn

    def _apply_by_answer(self, command: MetadataCommand) -> None:
        answer, body = self._answers(self._now.txn), command.body
        if answer is None or (answer.client_id, answer.number) != (command.client_id, command.number):
            return
        if isinstance(body, records.RequeueOrphans):
            self._requeue_orphans(body, is_last=answer.committed is not None)
        elif answer.committed is None:
            return
        elif isinstance(body, records.Undelete):
            self._undelete(command, body, answer.committed.object_id)
        elif answer.committed.keys is None:
            self._send_collection(command, answer.committed.object_id)

    def _is_new(self, command: MetadataCommand) -> bool:
        """Record the number of a client's command. Return False when the client already sent this or a later one."""
        if command.number <= self._clients.get(command.client_id, (0, 0))[0]:
            return False
        self._clients[command.client_id] = (command.number, self._time_ms)
        return True

    def _apply_internal_command(self, signed: Signed) -> None:
        command, body = signed.command, signed.command.body
        is_allowed = not self._secrets.are_asked_for or self._secrets.allow_internal(signed)
        is_in_place = not isinstance(body, records.AcceptLostTail) or body.offset == self._now.offset
        if not is_in_place or not is_allowed or command.shard != self._shard:
            raise _DeadLetteredError
        if type(body) in self._service_commands:
            sender, carry_out = self._service_commands[type(body)]
            if command.sender != sender:
                raise _DeadLetteredError
            carry_out(body)
            self.txn = self._now.txn
        elif type(body) in _STEERING:
            if command.sender not in _STEERING[type(body)] or (command.user and not self._is_new(command)):
                raise _DeadLetteredError
            self._steer(body)
        else:
            raise UnknownCommandError(f"offset {self._now.offset} holds a {type(body).__name__}")

    def _steer(self, body: Any) -> None:
        """Apply a command that controls the shard itself."""
        if isinstance(body, records.GrantContainer):
            self._container_id = max(self._container_id, body.container_id)
        elif isinstance(body, records.StopClaims):
            self.txn = self._now.txn
        elif isinstance(body, records.AnnounceSchema):
            self._announced_schema_id = max(self._announced_schema_id, body.schema_id)
        elif isinstance(body, records.AcceptLostTail):
            # The effects of the lost commands are in metadata's database but in no log, so the replay ends here.
            self.lost_tail_offset = self._now.offset

    def _nothing(self, body: Any) -> None:
        """Do nothing: the command gets a txn, but changes neither live versions nor claims."""

    # Volumes and buckets

    def _new_object_id(self) -> int:
        self._objects += 1
        return object_id(self._epoch, self._now.txn, self._objects)

    def _create_volume(self, body: records.CreateVolume) -> None:
        check_volume_name(body.volume)
        check_length("an owner", body.owner, MAX_OWNER_LENGTH)
        _require(body.volume not in self._volumes)
        self._volumes[body.volume] = self._new_object_id()
        self._secrets.owners[body.volume] = body.owner

    def _delete_volume(self, body: records.DeleteVolume) -> None:
        _require(body.volume in self._volumes)
        _require(not any(volume == body.volume for volume, _ in self._buckets))
        del self._volumes[body.volume], self._secrets.owners[body.volume]

    def _create_bucket(self, body: records.CreateBucket) -> None:
        check_bucket_name(body.bucket)
        name = (body.volume, body.bucket)
        _require(body.volume in self._volumes and name not in self._buckets)
        bucket = _Bucket(self._new_object_id(), body.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED)
        self._buckets[name] = self._by_id[bucket.bucket_id] = bucket
        self._ids_of_names[name].add(bucket.bucket_id)

    def _delete_bucket(self, body: records.DeleteBucket) -> None:
        bucket = self._bucket(body)
        _require(not self.history.has_children(bucket.bucket_id) and not bucket.offsets)
        bucket.is_deleted = True
        del self._buckets[body.volume, body.bucket]

    def _bucket(self, body: Any) -> _Bucket:
        """Return the bucket that a command names. Refuse the command if it is missing or being rolled back."""
        bucket = _required(self._buckets.get((body.volume, body.bucket)))
        _require(not bucket.fence)
        return bucket

    def _tree(self, body: Any) -> _Bucket:
        bucket = self._bucket(body)
        _require(bucket.is_tree)
        return bucket

    # Keys and directories

    def _put_key(self, body: records.PutKey) -> None:
        bucket = self._bucket(body)
        check_key_path(body.key, is_tree=bucket.is_tree)
        check_length("a tag", body.tag, MAX_KEY_TAG_LENGTH)
        blocks = self._blocks(body)
        parent_id, missing, name = self._place(bucket, body.key)
        there = None if missing else self.history.find(parent_id, name)
        _require(there is None or not there.is_directory)
        _require(len(missing) + (there is None) <= MAX_OBJECTS)
        _require(self._stored_bytes + body.size_bytes <= MAX_BYTES)
        self._stored_bytes += body.size_bytes
        parent_id = self._add_directories(bucket, parent_id, missing)
        if there is not None:
            self.history.leave(parent_id, name, self._now)
            self.history.die(there.object_id, there.birth, self._now)
        written = Entry(there.object_id if there else self._new_object_id(), self._now.txn, is_directory=False)
        self.history.add(bucket.bucket_id, parent_id, name, written, self._now)
        self.history.write(bucket.bucket_id, written.object_id, written.birth, body.size_bytes, blocks, self._now)

    def _blocks(self, body: records.PutKey) -> BlockRun | None:
        _require(body.size_bytes >= 0 and body.block_size_bytes > 0)
        if not body.size_bytes:
            return None
        count = -(-body.size_bytes // body.block_size_bytes)
        _require(count <= MAX_BLOCKS)
        first = local_id(self._shard, self._now.txn, 0)
        return BlockRun(self._container_id, first, count, body.block_size_bytes, body.size_bytes)

    def _walk(self, bucket: _Bucket, path: str) -> tuple[int, list[str]]:
        """Return the id of the last existing directory on a path, and the names of the missing ones below it.

        Refuse the command if a file is on the path.
        """
        parent_id = bucket.bucket_id
        names = path.split("/") if path else []
        for place, name in enumerate(names):
            found = self.history.find(parent_id, name)
            if found is None:
                return parent_id, names[place:]
            _require(found.is_directory)
            parent_id = found.object_id
        return parent_id, []

    def _place(self, bucket: _Bucket, path: str) -> tuple[int, list[str], str]:
        """Return the id of the last existing directory above a path, the names of the missing ones, and its own."""
        if not bucket.is_tree:
            return bucket.bucket_id, [], path
        directory, _, name = path.rpartition("/")
        return *self._walk(bucket, directory), name

    def _add_directories(self, bucket: _Bucket, parent_id: int, names: list[str]) -> int:
        """Create directories one below the other. Return the id of the last one."""
        for name in names:
            made = Entry(self._new_object_id(), 0, is_directory=True)
            self.history.add(bucket.bucket_id, parent_id, name, made, self._now)
            parent_id = made.object_id
        return parent_id

    def _find(self, bucket: _Bucket, path: str) -> tuple[int, str, Entry | None]:
        """Return the parent id, name and entry of a path. The entry is None if missing or the root of a tree."""
        if not bucket.is_tree:
            return bucket.bucket_id, path, self.history.find(bucket.bucket_id, path)
        directory, slash, name = path.rpartition("/")
        parent_id, missing = self._walk(bucket, directory or slash)
        return parent_id, name, None if missing or not name else self.history.find(parent_id, name)

    def _delete_key(self, body: records.DeleteKey) -> None:
        self._delete(self._bucket(body), body.key, is_recursive=False)

    def _delete_keys(self, body: records.DeleteKeys) -> None:
        """Delete each key on its own: a key that cannot be deleted does not stop the others."""
        bucket = self._bucket(body)
        _require(1 <= len(body.keys) <= MAX_KEYS)
        for key in body.keys:
            with suppress(_RefusedError):
                self._delete(bucket, key, is_recursive=False)

    def _delete_directory(self, body: records.DeleteDirectory) -> None:
        self._delete(self._tree(body), body.directory, is_recursive=body.is_recursive)

    def _delete(self, bucket: _Bucket, path: str, *, is_recursive: bool) -> None:
        parent_id, name, there = self._find(bucket, path)
        found = _required(there)
        if found.is_directory:
            _require(is_recursive or not self.history.has_children(found.object_id))
            self.history.leave_tree(bucket.bucket_id, found.object_id, self._now)
        else:
            self.history.die(found.object_id, found.birth, self._now)
        self.history.leave(parent_id, name, self._now)

    def _rename_key(self, body: records.RenameKey) -> None:
        bucket = self._bucket(body)
        if bucket.is_tree:
            self._rename(bucket, body.source, body.target)
            return
        check_key_path(body.target, is_tree=False)
        found = _required(self.history.find(bucket.bucket_id, body.source))
        _require(self.history.find(bucket.bucket_id, body.target) is None)
        self._move(bucket, (bucket.bucket_id, body.source), (bucket.bucket_id, body.target), found)

    def _rename_directory(self, body: records.RenameDirectory) -> None:
        self._rename(self._tree(body), body.source, body.target)

    def _rename(self, bucket: _Bucket, source: str, target: str) -> None:
        parent_id, name, there = self._find(bucket, source)
        found = _required(there)
        check_key_path(target, is_tree=True)
        if source == target:
            _require(not found.is_directory)
            return
        onto = self._target_of(bucket, target)
        if onto is not None and onto.is_directory:
            target = f"{target}/{name}"
        _require(not (found.is_directory and target.startswith(f"{source}/")))
        new_parent_id, missing, new_name = self._place(bucket, target)
        _require(not missing and self.history.find(new_parent_id, new_name) is None)
        self._move(bucket, (parent_id, name), (new_parent_id, new_name), found)

    def _target_of(self, bucket: _Bucket, target: str) -> Entry | None:
        try:
            return self._find(bucket, target)[2]
        except _RefusedError:  # a file on the path: the target does not exist
            return None

    def _move(self, bucket: _Bucket, source: tuple[int, str], target: tuple[int, str], moved: Entry) -> None:
        self.history.leave(*source, self._now)
        self.history.add(bucket.bucket_id, *target, moved, self._now)

    def _make_directory(self, body: records.MakeDirectory) -> None:
        bucket = self._tree(body)
        check_key_path(body.directory, is_tree=True)
        parent_id, missing = self._walk(bucket, body.directory)
        _require(len(missing) <= MAX_OBJECTS)
        self._add_directories(bucket, parent_id, missing)

    def _requeue_orphans(self, body: records.RequeueOrphans, *, is_last: bool) -> None:
        """Apply the last page of an orphan search; earlier pages change nothing. The answer shows which is the last."""
        if is_last:
            try:
                self._require_orphans(body)
            except _RefusedError:
                reason = f"txn {self._now.txn}: blocks were given to the judges that are not orphaned"
                self._note(Finding(FindingKind.FREED_WHILE_LIVE, body.bucket_id, 0, 0, 0, 0, 0, reason))
            for run in body.blocks:
                orphan = self._new_object_id()
                self.history.write(body.bucket_id, orphan, self._now.txn - 1, run.size_bytes, run, self._now)
                self.history.die(orphan, self._now.txn - 1, self._now)
        self.txn = self._now.txn

    def _require_orphans(self, body: records.RequeueOrphans) -> None:
        """Refuse the blocks unless they are orphans according to this history, too."""
        bucket = self._by_id.get(body.bucket_id)
        runs, txn = body.blocks, self._now.txn
        _require(0 < len(runs) <= MAX_ORPHANS and len({run.first_local_id for run in runs}) == len(runs))
        _require(body.audited_txn < txn)
        for run in runs:
            _require(local_id_shard(run.first_local_id) == self._shard)
            _require(0 < local_id_txn(run.first_local_id) <= body.audited_txn)
            _require(min(run.block_count, run.block_size_bytes, run.size_bytes) > 0)
            _require(local_id_txn(run.first_local_id + run.block_count - 1) == local_id_txn(run.first_local_id))
        _require(bucket is not None and not bucket.fence and (not bucket.txns or bucket.txns[-1] != txn - 1))
        wanted = {local_id_txn(run.first_local_id) for run in runs}
        for (first_block,) in self.history.kept():
            _require(first_block is None or local_id_txn(first_block) not in wanted)

    # Collection commands

    def _send_collection(self, command: MetadataCommand, answered_id: int) -> None:
        """Advance the txn if the answer shows that the command got one. The collection state is not replayed."""
        body: Any = command.body
        named = self._ids_of_names[body.volume, body.bucket] if body.volume else {0}
        # A command without a number is matched to the answer by its object id.
        if command.number or answered_id in named:
            self.txn = self._now.txn

    # Undelete

    def _undelete(self, command: MetadataCommand, body: records.Undelete, answered_id: int) -> None:
        if answered_id != body.object_id and object_txn(answered_id) != self._now.txn:
            return  # the answer belongs to another command without a number
        try:
            bucket = self._bucket(body)
            if body.kind is DeletedKind.DIRECTORY:
                self._undelete_tree(bucket, body)
            else:
                self._undelete_key(bucket, body, answered_id)
        except (_RefusedError, InvalidNameError):
            if not command.number:
                return  # without a number the answer may belong to a later command, which then gets this txn
            there = self._buckets.get((body.volume, body.bucket))
            self._note_return(there, body, "was brought back, and was not there to come back, or its place was taken")
        self.undeletes += 1
        self.txn = self._now.txn

    def _undelete_key(self, bucket: _Bucket, body: records.Undelete, answered_id: int) -> None:
        version = _required(self._dead(bucket.bucket_id, body.object_id, body.birth, body.death))
        died = _required(version.died)
        _require(version.finish_txn is None)
        parent_id, name = self._free_place(bucket, body.path)
        if answered_id == body.object_id:
            if bucket.offsets and bucket.offsets[-1] > died:
                self._note_return(bucket, body, "was brought back as itself, though a snapshot was taken since it died")
            self.history.bring_back(version, self._now)
            entry = Entry(version.object_id, version.birth, is_directory=False)
        else:
            _require(answered_id == self._new_object_id())
            if bisect_left(bucket.offsets, version.born) < bisect_left(bucket.offsets, died):
                self._note_return(bucket, body, "was given another name, though a snapshot held it under its own")
            self.history.hand_over(version, answered_id, self._now)
            entry = Entry(answered_id, self._now.txn, is_directory=False)
        self.history.add(bucket.bucket_id, parent_id, name, entry, self._now)

    def _undelete_tree(self, bucket: _Bucket, body: records.Undelete) -> None:
        tree = _required(self.history.tree(body.object_id, body.death))
        _require(tree.bucket_id == bucket.bucket_id)
        parent_id, name = self._free_place(bucket, body.path)
        if bucket.offsets and bucket.offsets[-1] > tree.died:
            self._note_return(bucket, body, "was brought back, though a snapshot was taken since it died")
        self.history.bring_back_tree(body.object_id, body.death, tree, self._now)
        back = Entry(body.object_id, 0, is_directory=True)
        self.history.add(bucket.bucket_id, parent_id, name, back, self._now)

    def _free_place(self, bucket: _Bucket, path: str) -> tuple[int, str]:
        """Return the parent id and name for an undeleted entry, creating missing directories; refuse a taken path."""
        check_key_path(path, is_tree=bucket.is_tree)
        parent_id, missing, name = self._place(bucket, path)
        _require(bool(missing) or self.history.find(parent_id, name) is None)
        return self._add_directories(bucket, parent_id, missing), name

    def _note_return(self, bucket: _Bucket | None, body: records.Undelete, reason: str) -> None:
        bucket_id = bucket.bucket_id if bucket else 0
        name = (bucket_id, body.object_id, body.birth, body.death)
        self._note(Finding(FindingKind.BROUGHT_BACK, *name, 0, 0, f"txn {self._now.txn}: {body.path} {reason}"))

    def _set_secret(self, body: records.SetSecret) -> None:
        _require(self._secrets.set(body))

    # Snapshots

    def _capture(self, body: records.CaptureSnapshot) -> None:
        if not is_snapshot_id(body.snapshot_id):
            raise _DeadLetteredError
        bucket = self._buckets.get((body.volume, body.bucket))
        is_over = body.snapshot_id in self._snapshots or body.snapshot_id in self._uncaptured
        is_too_late = body.requested_ms and abs(self._time_ms - body.requested_ms) > DAY_MS
        if is_over or is_too_late or bucket is None or bucket.fence:
            return
        is_asked = self._secrets.are_asked_for and body.user
        if is_asked and not self._secrets.may_manage(body.user, body.volume):
            return
        self._snapshots[body.snapshot_id] = bucket
        bucket.offsets.append(self._now.offset)
        bucket.txns.append(self._now.txn)
        bucket.ids.append(body.snapshot_id)
        self._chain_version += 1

    def _drop(self, body: records.DropSnapshot) -> None:
        bucket = self._snapshots.get(body.snapshot_id)
        if bucket is None:
            self._uncaptured.add(body.snapshot_id)
        if bucket is None or body.snapshot_id not in bucket.ids:
            return
        if bucket.fence == body.snapshot_id:
            raise _DeadLetteredError
        place = bucket.ids.index(body.snapshot_id)
        del bucket.offsets[place], bucket.txns[place], bucket.ids[place]
        self._chain_version += 1

    def _rollback_page(self, body: records.RollbackPage) -> None:
        name = (body.bucket_id, body.rollback_id)
        rollback, bucket = self._rollbacks.get(name), self._by_id.get(body.bucket_id)
        if bucket is None:
            return
        if rollback is None:
            is_newest = bool(bucket.ids) and bucket.ids[-1] == body.snapshot_id
            if body.page != 1 or bucket.is_deleted or bucket.fence or not is_newest:
                return
            bucket.fence = body.snapshot_id
            rollback = self._rollbacks[name] = _Rollback(0, [], is_finished=False)
            self.history.roll_back(body.bucket_id, bucket.offsets[-1], body.rollback_id, self._now)
        elif rollback.is_finished or body.page != rollback.page + 1:
            return
        rollback.page = body.page
        self._pages.setdefault(body.rollback_id, set()).add(self._now.txn)
        if body.page == self._rollback_ends.get(body.rollback_id):
            rollback.is_finished, bucket.fence = True, ""

    # Claims

    def _claim(self, body: records.ClaimRows) -> None:
        _check_whole(body.rows)
        claim = Claim(
            self._now.txn,
            self._time_ms,
            self._chain_version,
            body.task,
            body.first_judge_version,
            body.chain_version,
        )
        self.history.note_claim(claim)
        for names in body.rows:
            if names.kind is DeletedKind.KEY:
                for named in zip(names.bucket_ids, names.object_ids, names.births, names.deaths, strict=True):
                    self._claim_one(*named)

    def _claim_one(self, bucket_id: int, named_id: int, birth: int, death: int) -> None:
        version, bucket = self._dead(bucket_id, named_id, birth, death), self._by_id.get(bucket_id)
        if version is None or bucket is None or version.died is None or version.claim_txn == self._now.txn:
            return
        after_birth = bisect_left(bucket.offsets, version.born)
        before_death = bisect_left(bucket.offsets, version.died)
        if after_birth < before_death:
            self.history.note_held(version, self._now.txn, bucket.txns[before_death - 1])
            return
        previous_txn = bucket.txns[before_death - 1] if before_death else 0
        next_txn = bucket.txns[after_birth] if after_birth < len(bucket.txns) else 0
        self.history.ask(version, Asked(self._now.txn, death, previous_txn, next_txn))

    def _dead(self, bucket_id: int, named_id: int, birth: int, death: int) -> Version | None:
        """Return the version with blocks that these names denote, or None.

        ``death`` must be the version's own, or the txn of a page of the rollback that deleted it.
        """
        version = self.history.version(named_id, birth)
        if version is None or version.bucket_id != bucket_id or version.first_local_id is None:
            return None
        # metadata rolls back page by page, this replay at once: any page's txn may be the death.
        pages = self._pages.get(version.rollback, set()) if version.rollback else set()
        return version if death == version.death or death in pages else None

    def _finish(self, body: records.FinishRows) -> None:
        _check_whole(body.rows)
        self.history.note_finish(self._now.txn, self._time_ms)
        for names in body.rows:
            for named in zip(names.bucket_ids, names.object_ids, names.births, names.deaths, strict=True):
                version = self._dead(*named)
                if version is not None and version.claim_txn is not None and version.finish_txn is None:
                    self.history.finish(version, self._now.txn)
                    self._stored_bytes -= version.size_bytes


def _require(is_so: bool) -> None:
    """Refuse the command unless the condition holds."""
    if not is_so:
        raise _RefusedError


def _required(found: T | None) -> T:
    """Return what a command needs. Refuse the command if it is missing."""
    if found is None:
        raise _RefusedError
    return found


def _check_whole(rows: tuple[RowNames, ...]) -> None:
    for names in rows:
        if len({len(names.bucket_ids), len(names.object_ids), len(names.births), len(names.deaths)}) > 1:
            raise _DeadLetteredError
