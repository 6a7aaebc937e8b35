"""Writing as the model of a run knows it: open keys and uploads, and what becomes of their blocks.

A part of ``ShardModel``. Places are told by the directory that they are in, whatever that is called; versions by the
blocks that they have. An open key adds to a version only if that is as it has left it, block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from schemas import records
from schemas.records import BucketLayout, WritesExpired
from services.workloads.judge.model_bucket import Bucket, Directory, OperationRefusedError, Version
from tests.replicated_sizes import replicated_run, whole_blocks
from tests.simulation.errors import AnswerError
from tests.simulation.pieces import Piece

if TYPE_CHECKING:
    from tests.simulation.model import Incarnation, ShardModel

_ABSENT, _WHATEVER = -1, 0
"""Generations that a command may expect, beside one that a version has."""
FIRST_PART, LAST_PART = 1, 10_000


@dataclass(frozen=True, slots=True)
class Left:
    """A version as an open key has left it."""

    thing: tuple[str, int]
    birth: int
    size_bytes: int
    pieces: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Session:
    """An open key, or an open part of an upload."""

    txn: int
    incarnation: Incarnation
    path: str
    """When it was opened."""
    parent: Directory
    name: str
    body: records.OpenKey
    pending: list[Piece]
    """Blocks that nobody has seen, in the order of the content."""
    updated_ms: int
    left: Left | None = None
    """The version that it adds to."""
    owns_last_block: bool = False
    is_recovered: bool = False

    def is_at(self, incarnation: Incarnation, parent: Directory, name: str) -> bool:
        """Whether a path leads to it by now."""
        return self.incarnation is incarnation and self.parent is parent and self.name == name


@dataclass(slots=True)
class Part:
    """The present version of a part of an upload."""

    size_bytes: int
    pieces: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Upload:
    """An upload in parts."""

    upload_id: str
    incarnation: Incarnation
    path: str
    parent: Directory
    begun_ms: int
    parts: dict[int, Part] = field(default_factory=dict)


@dataclass(slots=True)
class Writes:
    """The open keys and uploads of a shard."""

    model: ShardModel
    sessions: dict[int, Session] = field(default_factory=dict)
    """By id: the txn that has opened each."""
    uploads: dict[str, Upload] = field(default_factory=dict)
    expired: int = 0
    """How many were closed because nobody continued them."""

    # ---- asking

    @property
    def pending(self) -> set[int]:
        """Blocks of open keys that nobody has seen."""
        return {piece.number for session in self.sessions.values() for piece in session.pending}

    @property
    def in_parts(self) -> set[int]:
        """Blocks of present parts."""
        return {number for upload in self.uploads.values() for number in _pieces_of(upload)}

    def in_parts_of(self, incarnation: Incarnation) -> set[int]:
        """Blocks of the present parts of a bucket's uploads."""
        mine = (upload for upload in self.uploads.values() if upload.incarnation is incarnation)
        return {number for upload in mine for number in _pieces_of(upload)}

    def can_go_on(self, session: Session) -> bool:
        """Whether a sync would find what it has left."""
        live = session.parent.children.get(session.name)
        if session.left is None:
            return not isinstance(live, Directory) and (not session.body.upload_id or self._upload_of(session))
        return isinstance(live, Version) and self._as_it_is(live) == session.left

    def _upload_of(self, session: Session) -> bool:
        return session.body.upload_id in self.uploads

    # ---- commands

    def handler(self, body: Any) -> Callable[[int, Any, int], None] | None:
        """What carries out a command; None for one that does not write in steps."""
        handlers: Mapping[type[Any], Callable[[int, Any, int], None]] = {
            records.OpenKey: self._open,
            records.AllocateBlocks: self._allocate,
            records.SyncKey: self._sync,
            records.CommitKey: self._commit,
            records.RecoverLease: self._recover,
            records.AbandonKey: self._abandon,
            records.InitiateUpload: self._initiate,
            records.CompleteUpload: self._complete,
            records.AbortUpload: self._abort,
        }
        return handlers.get(type(body))

    @property
    def _txn(self) -> int:
        """The txn of the present command."""
        return self.model.txn + 1

    def _bucket(self, body: Any) -> tuple[Incarnation, Bucket]:
        bucket = self.model.names._bucket(body.volume, body.bucket)
        incarnation = self.model.current(body.volume, body.bucket)
        assert incarnation is not None
        return incarnation, bucket

    def _open(self, _: int, body: records.OpenKey, log_time_ms: int) -> None:
        incarnation, bucket = self._bucket(body)
        parts = bucket.parts(body.key)
        if body.upload_id:
            parent = self._place_of_part(incarnation, bucket, body, parts)
            live: Version | None = None
        else:
            live = check_place(bucket, parts)
            existing = bucket.directory_above(parts)
        self.model.check_generation(live, body.expected_generation)
        if body.size_bytes < 0 or body.block_size_bytes <= 0:
            raise OperationRefusedError("INVALID_REQUEST", str(body.size_bytes))
        self.model.quotas.check_room(
            incarnation, whole_blocks(incarnation.replication, body.size_bytes, body.block_size_bytes), 0
        )
        missing = 0 if body.upload_id else bucket.missing_directories(parts[:-1])
        self.model.quotas.check_room(incarnation, 0, 1 + missing)
        left = None
        if body.is_append:
            left = self._appended_to(incarnation, existing, parts[-1], live)
        if not body.upload_id:
            parent = self._directories(bucket, parts[:-1])
        piece = self.model.pieces.allocate(
            self._txn, body.size_bytes, body.block_size_bytes, replication=incarnation.replication
        )
        pending = [piece] if piece else []
        self.sessions[self._txn] = Session(
            self._txn, incarnation, body.key, parent, parts[-1], body, pending, log_time_ms, left
        )

    def _directories(self, bucket: Bucket, path: list[str]) -> Directory:
        """The last directory of a path; those that are missing are made."""
        self.model.number_directories_of(bucket, path)
        return bucket.make_directories(path, code="NOT_A_FILE")

    def _place_of_part(
        self, incarnation: Incarnation, bucket: Bucket, body: records.OpenKey, parts: list[str]
    ) -> Directory:
        if body.is_append or body.expected_generation or not FIRST_PART <= body.part_number <= LAST_PART:
            raise OperationRefusedError("INVALID_REQUEST", body.key)
        upload = self._upload(incarnation, body.key, body.upload_id)
        above = bucket.directory_above(parts)
        if isinstance(bucket.find(parts), Directory):
            raise OperationRefusedError("NOT_A_FILE", body.key)
        bucket.require_directories(parts[:-1], code="NOT_A_FILE")
        if above is None or above is not upload.parent:
            raise OperationRefusedError("NO_SUCH_MULTIPART_UPLOAD_ERROR", body.key)
        return above

    def _appended_to(self, incarnation: Incarnation, parent: Directory | None, name: str, live: Version | None) -> Left:
        if live is None or parent is None:
            raise OperationRefusedError("KEY_NOT_FOUND", name)
        if self._writer_of(incarnation, parent, name, live):
            raise OperationRefusedError("KEY_UNDER_LEASE_RECOVERY", name)
        if self.model.pieces.bytes_of(frozenset(self.model.contents[live.number])) != live.size_bytes:
            raise OperationRefusedError("NOT_SUPPORTED_OPERATION", name)
        return self._as_it_is(live)

    def _as_it_is(self, live: Version) -> Left:
        model = self.model
        return Left(
            model.thing_of(live), model.version_births[live.number], live.size_bytes, model.contents[live.number]
        )

    def _writer_of(self, incarnation: Incarnation, parent: Directory, name: str, live: Version) -> Session | None:
        """Who adds to a live version; never two."""
        found = [
            session
            for session in self.sessions.values()
            if session.is_at(incarnation, parent, name)
            and session.left is not None
            and session.left == self._as_it_is(live)
        ]
        if len(found) > 1:
            raise AnswerError(f"two clients write one version: {[session.txn for session in found]}")
        return found[0] if found else None

    def _opened(self, body: Any) -> tuple[Session, Bucket]:
        incarnation, bucket = self._bucket(body)
        parts = bucket.parts(body.key)
        parent = bucket.directory_above(parts)
        if parent is None:
            raise OperationRefusedError("DIRECTORY_NOT_FOUND", body.key)
        session = self.sessions.get(body.session)
        if session is None or not session.is_at(incarnation, parent, parts[-1]):
            raise OperationRefusedError("KEY_NOT_FOUND", body.key)
        return session, bucket

    def _allocate(self, _: int, body: records.AllocateBlocks, log_time_ms: int) -> None:
        session, _bucket = self._opened(body)
        if session.is_recovered:
            raise OperationRefusedError("KEY_UNDER_LEASE_RECOVERY", body.key)
        if body.size_bytes < 0:
            raise OperationRefusedError("INVALID_REQUEST", str(body.size_bytes))
        unseen_bytes = sum(piece.replicated_bytes for piece in session.pending)
        replication = session.incarnation.replication
        more_bytes = whole_blocks(replication, body.size_bytes, session.body.block_size_bytes)
        self.model.quotas.check_room(session.incarnation, unseen_bytes + more_bytes if more_bytes else 0, 0)
        piece = self.model.pieces.allocate(
            self._txn, body.size_bytes, session.body.block_size_bytes, replication=session.incarnation.replication
        )
        session.pending += [piece] if piece else []
        session.updated_ms = log_time_ms

    def _sync(self, number: int, body: records.SyncKey, log_time_ms: int) -> None:
        session, bucket = self._opened(body)
        if session.body.upload_id:
            raise OperationRefusedError("NOT_SUPPORTED_OPERATION", body.key)
        if session.is_recovered:
            raise OperationRefusedError("KEY_UNDER_LEASE_RECOVERY", body.key)
        self._show(number, session, bucket, body.size_bytes)
        session.updated_ms = log_time_ms

    def _commit(self, number: int, body: records.CommitKey, _: int) -> None:
        session, bucket = self._opened(body)
        if session.is_recovered and not body.is_recovery:
            raise OperationRefusedError("KEY_UNDER_LEASE_RECOVERY", body.key)
        if body.is_recovery and not session.is_recovered:
            raise OperationRefusedError("INVALID_REQUEST", body.key)
        if session.body.upload_id:
            self._commit_part(session, body.size_bytes)
        else:
            self._show(number, session, bucket, body.size_bytes)
        self._close(session)

    def _commit_part(self, session: Session, size_bytes: int) -> None:
        body = session.body
        upload = self._upload(session.incarnation, session.path, body.upload_id)
        if size_bytes < 0:
            raise OperationRefusedError("INVALID_REQUEST", str(size_bytes))
        replaced = upload.parts.pop(body.part_number, None)  # it counts no more
        try:
            pieces = self._written(session, None, size_bytes)
        except OperationRefusedError:
            if replaced is not None:
                upload.parts[body.part_number] = replaced
            raise
        upload.parts[body.part_number] = Part(size_bytes, tuple(piece.number for piece in pieces))

    def _show(self, number: int, session: Session, bucket: Bucket, size_bytes: int) -> None:
        """Make what was written the content of the version that is at the place of an open key."""
        entry = session.parent.children.get(session.name)
        live = entry if isinstance(entry, Version) else None
        left = session.left
        if isinstance(entry, Directory) and left is None:
            raise OperationRefusedError("NOT_A_FILE", session.path)
        if left is None:
            self.model.check_generation(live, session.body.expected_generation)
        elif live is None or self._as_it_is(live) != left:
            raise OperationRefusedError("KEY_NOT_FOUND", session.path)
        grown_bytes = size_bytes - (left.size_bytes if left else 0)
        if grown_bytes < 0:
            raise OperationRefusedError("INVALID_REQUEST", f"{grown_bytes}")
        if left is None:
            pieces = self._written(session, None, grown_bytes, names=0 if live else 1)
            version = self._version(number, session.incarnation, session.path, session.body.tag, size_bytes)
            self.model.becomes_live(version, session.incarnation, session.parent, session.name, pieces)
        else:
            assert live is not None
            last = self.model.pieces.by_number[left.pieces[-1]] if left.pieces and session.owns_last_block else None
            pieces = self._written(session, last, grown_bytes)
            if pieces and not left.pieces:  # no snapshot that has seen it shows any of its blocks
                version = replace(live, number=number, size_bytes=size_bytes)
                place = (session.incarnation, session.parent, session.name)
                self.model.becomes_live(version, *place, pieces, grows=True)
            else:
                version = replace(live, size_bytes=size_bytes)
                self.model.grows(version, session.parent, session.name, pieces)
        session.owns_last_block |= bool(pieces)
        session.left = self._as_it_is(version)

    def _version(self, number: int, incarnation: Incarnation, path: str, tag: str, size_bytes: int) -> Version:
        return Version(number, incarnation.volume, incarnation.name, path, tag, size_bytes)

    def _written(self, session: Session, last: Piece | None, size_bytes: int, *, names: int = 0) -> list[Piece]:
        """Fill the last block and then as many others as it takes; says which pieces are new to whoever sees them."""
        room_bytes = last.room_bytes if last else 0
        if size_bytes > room_bytes + sum(piece.size_bytes for piece in session.pending):
            raise OperationRefusedError("INVALID_REQUEST", f"{size_bytes} bytes have no blocks")
        self.model.quotas.check_room(session.incarnation, _taken_on_disks(session, last, size_bytes), names)
        filled = min(size_bytes, room_bytes)
        if last is not None:
            last.size_bytes += filled
        left, new = size_bytes - filled, []
        while left:
            piece = session.pending.pop(0)
            count = -(-left // session.body.block_size_bytes)
            if count < piece.block_count:
                session.pending.insert(0, self.model.pieces.split(piece, count))
            piece.size_bytes = min(left, piece.size_bytes)
            left -= piece.size_bytes
            self._seen(session.incarnation, piece)
            new.append(piece)
        return new

    def _seen(self, incarnation: Incarnation, piece: Piece) -> None:
        """From now on a piece is in the block store, and must be freed one day."""
        piece.birth = self._txn
        incarnation.pieces.append(piece.number)

    def _close(self, session: Session) -> None:
        """What nobody has seen dies unseen."""
        del self.sessions[session.txn]
        for piece in session.pending:
            self._seen(session.incarnation, piece)

    def _abandon(self, _: int, body: records.AbandonKey, __: int) -> None:
        session, _bucket = self._opened(body)
        self._close(session)

    def _recover(self, _: int, body: records.RecoverLease, log_time_ms: int) -> None:
        incarnation, bucket = self._bucket(body)
        parts = bucket.parts(body.key)
        parent, live = bucket.directory_above(parts), bucket.find(parts)
        if parent is None or not isinstance(live, Version):
            raise OperationRefusedError("KEY_NOT_FOUND", body.key)
        session = self._writer_of(incarnation, parent, parts[-1], live)
        if session is None:
            raise OperationRefusedError("KEY_ALREADY_CLOSED", body.key)
        session.is_recovered, session.updated_ms = True, log_time_ms

    # ---- uploads

    def _initiate(self, _: int, body: records.InitiateUpload, log_time_ms: int) -> None:
        incarnation, bucket = self._bucket(body)
        parts = bucket.parts(body.key)
        check_place(bucket, parts)
        self.model.quotas.check_room(incarnation, 0, bucket.missing_directories(parts[:-1]))
        parent = self._directories(bucket, parts[:-1])
        upload_id = f"{self.model.shard}-{self._txn}"
        self.uploads[upload_id] = Upload(upload_id, incarnation, body.key, parent, log_time_ms)

    def _upload(self, incarnation: Incarnation, path: str, upload_id: str) -> Upload:
        upload = self.uploads.get(upload_id)
        if upload is None or upload.incarnation is not incarnation or upload.path != path:
            raise OperationRefusedError("NO_SUCH_MULTIPART_UPLOAD_ERROR", path)
        return upload

    def _complete(self, number: int, body: records.CompleteUpload, _: int) -> None:
        incarnation, bucket = self._bucket(body)
        upload, numbers = self._upload(incarnation, body.key, body.upload_id), body.part_numbers
        if not numbers or list(numbers) != sorted(set(numbers)):
            raise OperationRefusedError("INVALID_PART_ORDER", body.key)
        if not upload.parts.keys() >= set(numbers):
            raise OperationRefusedError("INVALID_PART", body.key)
        parts = bucket.parts(body.key)
        check_place(bucket, parts)
        self.model.quotas.check_room(incarnation, 0, 1 + bucket.missing_directories(parts[:-1]))
        parent = self._directories(bucket, parts[:-1])
        joined = [upload.parts[one] for one in numbers]
        pieces = [self.model.pieces.by_number[one] for part in joined for one in part.pieces]
        for piece in pieces:
            piece.birth = self._txn
        del self.uploads[body.upload_id]
        size_bytes = sum(part.size_bytes for part in joined)
        version = self._version(number, incarnation, body.key, body.tag, size_bytes)
        self.model.becomes_live(version, incarnation, parent, parts[-1], pieces)
        self.model.joins(pieces)

    def _abort(self, _: int, body: records.AbortUpload, __: int) -> None:
        incarnation, _bucket = self._bucket(body)
        del self.uploads[self._upload(incarnation, body.key, body.upload_id).upload_id]

    # ---- expiry

    def expire(self, body: records.ExpireWrites, log_time_ms: int, answer: Callable[[], WritesExpired | None]) -> None:
        """Close what nobody has continued for long enough: in one table, from a key on, as far as the answer goes."""
        old = {key: one for key, one in self._old(body, log_time_ms).items() if key >= body.start_key}
        if not old:
            return
        told = answer()
        if told is None:
            raise AnswerError(f"shard {self.model.shard}: nobody is told what has expired by {body}")
        if told.next_key and told.next_key <= body.start_key:
            raise AnswerError(f"shard {self.model.shard}: {body} comes no further: {told}")
        closed = [one for key, one in old.items() if not told.next_key or key < told.next_key]
        if told.expired != len(closed):
            raise AnswerError(f"shard {self.model.shard}: {len(closed)} are to expire, and {told} did by {body}")
        for one in closed:
            if isinstance(one, Session):
                self.model.txn -= 1  # the txn of this command is counted already
                self._close(one)
                self.model.txn += 1
            else:
                del self.uploads[one.upload_id]
        self.expired += len(closed)

    def _old(self, body: records.ExpireWrites, log_time_ms: int) -> dict[bytes, Session | Upload]:
        """What is in a table for long enough, by its key there."""
        if body.table == 2:
            last_ms = log_time_ms - body.upload_age_ms
            return {
                f"/{one.incarnation.volume}/{one.incarnation.name}/{one.path}/{one.upload_id}".encode(): one
                for one in self.uploads.values()
                if one.begun_ms <= last_ms
            }
        last_ms = log_time_ms - body.open_key_age_ms
        return {
            self._open_key(one): one
            for one in self.sessions.values()
            if one.updated_ms <= last_ms and one.incarnation.bucket.has_directories == (body.table == 1)
        }

    def _open_key(self, session: Session) -> bytes:
        one = session.incarnation
        if one.bucket.layout is not BucketLayout.FILE_SYSTEM_OPTIMIZED:
            return f"/{one.volume}/{one.name}/{session.path}/{session.txn}".encode()
        parent_id = self.model.directory_id(one, session.parent)
        return f"/{one.volume_id}/{one.made_id}/{parent_id}/{session.name}/{session.txn}".encode()


def check_place(bucket: Bucket, parts: list[str]) -> Version | None:
    """The file at a path, if any; refuses a directory there, and a file above it."""
    for depth in range(1, len(parts)):
        if isinstance(bucket.find(parts[:depth]), Version):
            raise OperationRefusedError("NOT_A_FILE", "/".join(parts))
    found = bucket.find(parts)
    if isinstance(found, Directory):
        raise OperationRefusedError("NOT_A_FILE", "/".join(parts))
    return found


def _taken_on_disks(session: Session, last: Piece | None, size_bytes: int) -> int:
    """What so many bytes take on disks that are written into the last block and the pending ones."""
    taken, left = 0, size_bytes
    if last is not None:
        filled = min(left, last.room_bytes)
        taken += last.replicated_bytes_with(filled) - last.replicated_bytes
        left -= filled
    for piece in session.pending:
        block_bytes = piece.allocation.block_size_bytes
        count = min(piece.block_count, -(-left // block_bytes))
        written = min(left, count * block_bytes)
        taken += replicated_run(piece.allocation.replication, count, block_bytes, written)
        left -= written
    return taken


def _pieces_of(upload: Upload) -> list[int]:
    return [number for part in upload.parts.values() for number in part.pieces]
