"""Clients of a run that write in steps: they open keys, sync, commit, append, upload in parts; some of it senseless.

They know of open keys and uploads what the model knows by now, which is less than metadata, or what was so long ago.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from schemas import records
from schemas.records import MetadataCommand
from services.workloads.judge.model_bucket import Directory, Version
from tests.simulation.actions import Actor
from tests.simulation.writes import Session, Upload

_WEIGHTS = {
    "put_if": 3,
    "open": 6,
    "append": 6,
    "allocate": 5,
    "sync": 16,
    "commit": 10,
    "recover": 3,
    "abandon": 2,
    "initiate": 3,
    "open_part": 8,
    "commit_part": 14,
    "complete": 6,
    "abort": 1,
}
_OF_KEYS = ("open", "append", "allocate", "sync", "commit")
_OF_UPLOADS = ("initiate", "open_part", "commit_part", "complete")
_BLOCK_SIZES = (64, 100, 1_024)
_SHARES = (0.0, 0.3, 1.0, 1.5, 2.5, 4.0)
"""Blocks that are asked for at once."""
_PART_NUMBERS = (1, 2, 3, 10_000)
_KEPT = 12
_MANY = 4


@dataclass(slots=True)
class Writer:
    """The writing clients of one shard. Their random numbers are their own: without them a run is what it was."""

    actor: Actor
    random: Random
    rate: float
    """How often they do something, for each action of the other clients."""
    weights: dict[str, float] = field(default_factory=dict)
    _sessions: list[Session] = field(default_factory=list)
    """Some that were open once."""
    _uploads: list[Upload] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.weights = {name: weight * self.random.choice((0.2, 1, 1, 3)) for name, weight in _WEIGHTS.items()}
        liked = self.random.choice((_OF_KEYS, _OF_UPLOADS, ()))
        self.weights |= {name: _WEIGHTS[name] * 4 for name in liked}

    def may_act(self) -> None:
        """Do nothing, one thing or some."""
        left = self.rate
        while left > 0:
            if self.random.random() < left:
                self.act()
            left -= 1

    def act(self) -> None:
        """Do one thing."""
        writes = self.actor.model.writes
        self._sessions = [*self._sessions, *writes.sessions.values()][-_KEPT:]
        self._uploads = [*self._uploads, *writes.uploads.values()][-_KEPT:]
        weights = {name: weight for name, weight in self.weights.items() if self._is_possible(name)}
        if len(writes.sessions) >= _MANY:
            weights["open"] = weights["append"] = 0.5
        if len(writes.uploads) >= _MANY:
            weights["initiate"] = 0.2
        name = self.random.choices(list(weights), list(weights.values()))[0]
        getattr(self, f"_{name}")()

    def _is_possible(self, name: str) -> bool:
        """Whether there is something to do it with."""
        writes = self.actor.model.writes
        if name in ("open_part", "complete", "abort"):
            return bool(writes.uploads)
        if name == "commit_part":
            return any(session.body.upload_id for session in writes.sessions.values())
        if name in ("allocate", "sync", "commit", "abandon", "recover"):
            return any(not session.body.upload_id for session in writes.sessions.values())
        return True

    # ---- choosing

    def _place(self, *, is_existing: bool) -> tuple[str, str]:
        """A bucket and a path, mostly of a key that is there or of one that is not."""
        bucket = self.random.choice(("bucket-a", "bucket-a", "bucket-b"))
        incarnation = self.actor.model.current(self.actor.volume, bucket)
        keys = list(incarnation.bucket.view().keys) if incarnation else []
        if keys and self.random.random() < (0.9 if is_existing else 0.3):
            return bucket, self.random.choice(keys)
        names = [self.random.choice("abc") for _ in range(self.random.choice((0, 0, 1, 2)))]
        return bucket, "/".join([*names, self.random.choice("xya")])

    def _generation(self, bucket: str, path: str) -> int:
        """What a command expects of a key: that it is as it is by now, or is missing, or something that is not so."""
        incarnation = self.actor.model.current(self.actor.volume, bucket)
        parts = path.split("/") if incarnation and incarnation.bucket.has_directories else [path]
        live = incarnation.bucket.find(parts) if incarnation else None
        present = self.actor.model.generations[live.number] if isinstance(live, Version) else -1
        return self.random.choice((present, present, present, -1, self.random.randint(1, 400)))

    def _tag(self) -> str:
        return f"written-{self.random.randrange(1 << 20)}"

    def _size(self, block_size_bytes: int) -> int:
        return int(self.random.choice(_SHARES) * block_size_bytes)

    def _open_session(self, *, is_part: bool | None = None) -> Session | None:
        """One that is open as far as anybody knows, or was once."""
        writes = self.actor.model.writes
        choice = [
            one
            for one in (writes.sessions.values() if self.random.random() < 0.93 else self._sessions)
            if is_part is None or bool(one.body.upload_id) == is_part
        ]
        good = [one for one in choice if writes.can_go_on(one)]
        if good and self.random.random() < 0.8:
            choice = good
        return self.random.choice(choice) if choice else None

    def _path(self, session: Session) -> tuple[str, str, str, int]:
        """Volume, bucket, path and id of an open key: where its directory is now, or was."""
        incarnation, path = session.incarnation, session.path
        if incarnation.bucket.has_directories and self.random.random() < 0.8:
            above = _path_of(incarnation.bucket.root, session.parent)
            path = path if above is None else f"{above}{session.name}"
        number = session.txn if self.random.random() < 0.98 else session.txn + 1
        return incarnation.volume, incarnation.name, path, number

    def _written(self, session: Session) -> int:
        """How large a key is to be: as far as its blocks go, within them, or a size that cannot be."""
        model = self.actor.model
        least = session.left.size_bytes if session.left else 0
        most = least + sum(piece.size_bytes for piece in session.pending)
        if session.left and session.left.pieces and session.owns_last_block:
            most += model.pieces.by_number[session.left.pieces[-1]].room_bytes
        sizes = (least, min(least + 1, most), most, most, *(self.random.randint(least, most) for _ in range(4)))
        if self.random.random() < 0.06:
            return self.random.choice((most + 1, least - 1, -1))
        return self.random.choice(sizes)

    # ---- keys

    def _put_if(self) -> None:
        bucket, path = self._place(is_existing=self.random.random() < 0.6)
        block = self.random.choice(_BLOCK_SIZES)
        self._submit(
            records.PutKeyIf(
                self.actor.volume, bucket, path, self._size(block), self._generation(bucket, path), self._tag(), block
            )
        )

    def _open(self) -> None:
        bucket, path = self._place(is_existing=self.random.random() < 0.4)
        block = self.random.choice(_BLOCK_SIZES)
        generation = self._generation(bucket, path) if self.random.random() < 0.2 else 0
        self._submit(
            records.OpenKey(self.actor.volume, bucket, path, self._size(block), self._tag(), block, generation)
        )

    def _append(self) -> None:
        bucket, path = self._place(is_existing=True)
        incarnation = self.actor.model.current(self.actor.volume, bucket)
        if self.random.random() < 0.9 and (incarnation is None or path not in incarnation.bucket.view().keys):
            return
        block = self.random.choice(_BLOCK_SIZES)
        body = records.OpenKey(
            self.actor.volume, bucket, path, self._size(block), self._tag(), block, 0, is_append=True
        )
        self._submit(body)

    def _allocate(self) -> None:
        session = self._open_session()
        if session is not None:
            self._submit(records.AllocateBlocks(*self._path(session), self._size(session.body.block_size_bytes)))

    def _sync(self) -> None:
        session = self._open_session(is_part=None if self.random.random() < 0.1 else False)
        if session is not None:
            self._submit(records.SyncKey(*self._path(session), self._written(session)))

    def _commit(self) -> None:
        session = self._open_session(is_part=False)
        if session is not None:
            is_recovery = session.is_recovered if self.random.random() < 0.9 else not session.is_recovered
            self._submit(records.CommitKey(*self._path(session), self._written(session), is_recovery))

    def _recover(self) -> None:
        session = self._open_session(is_part=False)
        if session is not None and self.random.random() < 0.7:
            volume, bucket, path, _ = self._path(session)
        else:
            volume, (bucket, path) = self.actor.volume, self._place(is_existing=True)
        self._submit(records.RecoverLease(volume, bucket, path))

    def _abandon(self) -> None:
        session = self._open_session()
        if session is not None:
            self._submit(records.AbandonKey(*self._path(session)))

    # ---- uploads

    def _upload(self) -> Upload | None:
        uploads = list(self.actor.model.writes.uploads.values()) if self.random.random() < 0.93 else self._uploads
        uploads = [one for one in uploads if one.parts] if self.random.random() < 0.5 else uploads
        return self.random.choice(uploads) if uploads else None

    def _initiate(self) -> None:
        bucket, path = self._place(is_existing=self.random.random() < 0.3)
        self._submit(records.InitiateUpload(self.actor.volume, bucket, path))

    def _open_part(self) -> None:
        upload = self._upload()
        if upload is None:
            return
        block = self.random.choice(_BLOCK_SIZES)
        number = self.random.choice(_PART_NUMBERS) if self.random.random() < 0.97 else self.random.choice((0, 10_001))
        place = upload.incarnation.volume, upload.incarnation.name, upload.path
        is_odd = self.random.random() < 0.03
        self._submit(
            records.OpenKey(
                *place, self._size(block), self._tag(), block, 0, is_odd, upload_id=upload.upload_id, part_number=number
            )
        )

    def _commit_part(self) -> None:
        session = self._open_session(is_part=True)
        if session is not None:
            self._submit(records.CommitKey(*self._path(session), self._written(session)))

    def _complete(self) -> None:
        upload = self._upload()
        if upload is None or (not upload.parts and self.random.random() < 0.8):
            return
        numbers = sorted(number for number in upload.parts if self.random.random() < 0.8)
        if self.random.random() < 0.1:
            numbers = self.random.choice(([], [2, 1], [1, 1], [7_000], [*numbers, 9_999]))
        place = upload.incarnation.volume, upload.incarnation.name, upload.path
        self._submit(records.CompleteUpload(*place, upload.upload_id, tuple(numbers), self._tag()))

    def _abort(self) -> None:
        upload = self._upload()
        if upload is not None:
            place = upload.incarnation.volume, upload.incarnation.name, upload.path
            self._submit(records.AbortUpload(*place, upload.upload_id))

    def _submit(self, body: Any) -> None:
        self.actor.submit(body)

    # ---- the end

    def close_everything(self) -> None:
        """Have everything closed as if nobody had continued it, by a service that is in a hurry."""
        for table in range(3):
            body = records.ExpireWrites(table, b"", 10_000, 0, 0)
            command = MetadataCommand(self.actor.shard, "", 0, body, sender="key_deletion", wants_reply=False)
            self.actor.append(command)


def _path_of(root: Directory, wanted: Directory) -> str | None:
    """Where a directory is, with what names in it begin with; None if it cannot be reached."""
    unread = [("", root)]
    while unread:
        prefix, directory = unread.pop()
        if directory is wanted:
            return prefix
        for name, child in directory.children.items():
            if isinstance(child, Directory):
                unread.append((f"{prefix}{name}/", child))
    return None
