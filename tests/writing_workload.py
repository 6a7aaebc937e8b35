"""A random workload of clients that write keys in steps: open, allocate, sync, append, commit, and uploads in parts.

Beside them keys are put, deleted, renamed, restored and rolled back, and snapshots come and go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from schemas.answers import Returning
from schemas.codec import codec
from schemas.records import (
    AbandonKey,
    AbortUpload,
    AllocateBlocks,
    BucketLayout,
    BucketRow,
    BucketVersioning,
    CommitKey,
    CompleteUpload,
    CreateBucket,
    CreateBucketLink,
    CreateSnapshot,
    CreateVolume,
    DeleteDirectory,
    DeleteKey,
    DeleteKeyVersion,
    DeleteSnapshot,
    DirectoryRow,
    ExpireWrites,
    InitiateUpload,
    KeyRow,
    MakeDirectory,
    MetadataCommand,
    MetadataReply,
    OpenKey,
    PutKey,
    PutKeyIf,
    PutKeys,
    RecoverLease,
    RenameDirectory,
    RenameKey,
    RollBackBucket,
    SetBucketVersioning,
    SetQuota,
    Settle,
    SyncKey,
    Undelete,
)
from schemas.topics import METADATA_COMMANDS
from services.domain.refusals import CommandError
from services.metadata.namespace.key_versions import versions_of
from services.metadata.reads.queries import get_bucket, stat
from services.metadata.state.tables import FILE_TABLE, KEY_TABLE, OPEN_FILE_TABLE
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.snapshots.settings import SnapshotsSettings
from services.storage.tables import TablesReader

BLOCK = 10
VOLUME, BUCKET, LINK = "vol", "bucket", "link"
_NAMES = ("a", "b", "c")
_CRASHING = ("metadata", "key_deletion", "mock_scm", "snapshots")
_WEIGHTS = {
    "open": 16,
    "append": 10,
    "allocate": 8,
    "sync": 18,
    "commit": 16,
    "abandon": 3,
    "recover": 3,
    "initiate": 6,
    "part": 14,
    "complete": 7,
    "abort": 2,
    "expire": 2,
    "put": 8,
    "put_many": 4,
    "put_if": 5,
    "delete": 8,
    "versioning": 3,
    "delete_version": 8,
    "rename": 5,
    "make_directory": 3,
    "delete_directory": 4,
    "snapshot": 8,
    "drop": 4,
    "roll_back": 5,
    "undelete": 14,
    "quota": 1,
    "settle": 3,
    "crash": 3,
}


def _ids(bucket: BucketRow) -> tuple[int, int]:
    return bucket.volume_id, bucket.object_id


def rows_at(tables: TablesReader, bucket: BucketRow, path: str) -> list[KeyRow | DirectoryRow]:
    """What is at a path, if anything."""
    try:
        return [stat(tables, bucket, path)]
    except CommandError:
        return []


@dataclass(slots=True)
class Written:
    """What a client knows of a key that it has opened."""

    key: str
    session: int
    size_bytes: int
    room_bytes: int
    is_recovered: bool = False


@dataclass(slots=True)
class Writers:
    """Clients of one bucket of a plane in memory, which is flat or a tree."""

    plane: InMemoryPlane
    random: Random
    client: InMemoryClient = field(init=False)
    is_tree: bool = field(init=False)
    opened: list[Written] = field(default_factory=list)
    uploads: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    """Numbers of the parts of each upload, which has a key and an id."""
    snapshots: list[str] = field(default_factory=list)
    number: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = InMemoryClient(self.plane)
        self.is_tree = self.random.random() < 0.5
        layout = BucketLayout.FILE_SYSTEM_OPTIMIZED if self.is_tree else BucketLayout.OBJECT_STORE
        for body in (
            CreateVolume(VOLUME),
            CreateBucket(VOLUME, BUCKET, layout),
            CreateBucketLink(VOLUME, LINK, VOLUME, BUCKET),
        ):
            reply = self.do(body)
            assert not reply.error, reply.message
        if self.random.random() < 0.5:
            self.do(SetBucketVersioning(VOLUME, BUCKET, BucketVersioning.ENABLED))

    def do(self, body: Any) -> MetadataReply:
        """Send a command and wait for its answer."""
        reply = self.client.answer(0, self.client.submit(0, body))
        counts, name = (self.refusals, reply.error) if reply.error else (self.done, type(body).__name__)
        counts[name] = counts.get(name, 0) + 1
        return reply

    def step(self) -> None:
        """Do one thing."""
        self.number += 1
        kind = self.random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        getattr(self, f"_{kind}")()

    def settle(self) -> None:
        """Wait until nothing is left to do."""
        self.client.request(0, Settle(f"settle-{self.number}-{self.random.random()}"))

    @property
    def _place(self) -> tuple[str, str]:
        return VOLUME, BUCKET if self.random.random() < 0.9 else LINK

    def _path(self) -> str:
        return "/".join(self.random.choice(_NAMES) for _ in range(self.random.choice((1, 1, 2, 3))))

    def _there(self) -> str:
        """The path of something that is there, mostly."""
        listed = self.client.metadata(0).entries(VOLUME, BUCKET) if self.random.random() < 0.8 else []
        return self.random.choice(listed).path if listed else self._path()

    def _size(self) -> int:
        return self.random.choice((0, 1, 5, BLOCK, BLOCK + 3, 3 * BLOCK, 5 * BLOCK - 1))

    # Open keys

    def _open(self, **more: Any) -> None:
        key, size = more.pop("key", None) or self._path(), self._size()
        if self.random.random() < 0.1 and not more:
            more["expected_generation"] = self.random.choice((-1, 7))
        reply = self.do(OpenKey(*self._place, key, size, f"t{self.number}", BLOCK, **more))
        if reply.committed is not None:
            begin = self._length(key) if more.get("is_append") else 0
            room = sum(run.size_bytes for run in reply.committed.runs)
            self.opened.append(Written(key, reply.committed.session, begin, room))

    def _append(self) -> None:
        self._open(key=self._there(), is_append=True)

    @property
    def _tables(self) -> TablesReader:
        return TablesReader(self.plane.processes["metadata", 0].store)

    def _length(self, key: str) -> int:
        return self.client.metadata(0).stat(VOLUME, BUCKET, key).size_bytes  # type: ignore[union-attr]

    def _chosen(self) -> Written:
        """An open key, the last one mostly; or one that nobody knows."""
        if not self.opened:
            return Written(self._path(), 1, 0, 0)
        return self.opened[-1] if self.random.random() < 0.5 else self.random.choice(self.opened)

    def _refused(self, one: Written, reply: MetadataReply) -> None:
        """Forget what cannot be continued, mostly."""
        if (
            reply.error in ("KEY_NOT_FOUND", "DIRECTORY_NOT_FOUND")
            and one in self.opened
            and self.random.random() < 0.6
        ):
            self.opened.remove(one)

    def _allocate(self) -> None:
        one, size = self._chosen(), self._size()
        reply = self.do(AllocateBlocks(*self._place, one.key, one.session, size))
        if reply.committed is not None:
            one.room_bytes += sum(run.size_bytes for run in reply.committed.runs)

    def _more(self, one: Written) -> int:
        """A size to which a key is written: mostly one for which there are blocks."""
        most = one.room_bytes + (BLOCK if self.random.random() < 0.1 else 0)
        return one.size_bytes + self.random.choice((0, most, self.random.randint(0, most), min(most, 3)))

    def _sync(self) -> None:
        one = self._chosen()
        size = self._more(one)
        reply = self.do(SyncKey(*self._place, one.key, one.session, size))
        self._refused(one, reply)
        if reply.committed:
            one.room_bytes -= size - one.size_bytes
            one.size_bytes = size

    def _commit(self) -> None:
        one = self._chosen()
        command = CommitKey(*self._place, one.key, one.session, self._more(one), one.is_recovered)
        reply = self.do(command)
        self._refused(one, reply)
        if reply.committed and one in self.opened:
            self.opened.remove(one)

    def _abandon(self) -> None:
        one = self._chosen()
        rows = [row for _, row in self._tables.table(OPEN_FILE_TABLE).scan() if row.session == one.session]
        parent_id = rows[0].parent_id if rows and self.random.random() < 0.5 else 0
        if self.do(AbandonKey(*self._place, one.key, one.session, parent_id)).committed and one in self.opened:
            self.opened.remove(one)

    def _recover(self) -> None:
        reply = self.do(RecoverLease(*self._place, self._chosen().key))
        for one in self.opened:
            if reply.committed is not None and one.session == reply.committed.session:
                one.is_recovered = self.random.random() < 0.8

    def _expire(self) -> None:
        start = b"" if self.random.random() < 0.7 else b"/vol/bucket/b"
        body = ExpireWrites(
            self.random.choice((0, 1, 2, 2)),
            start,
            self.random.choice((1, 3, 100)),
            self.random.choice((0, 300, 1_000)),
            self.random.choice((300, 1_000, 1 << 40)),
        )
        encoded = codec(MetadataCommand).encode_message(MetadataCommand(0, "", 0, body, "key_deletion"))
        self.plane.log.append(METADATA_COMMANDS.name, 0, encoded)
        self.plane.step()

    # Uploads

    def _initiate(self) -> None:
        key = self._path()
        reply = self.do(InitiateUpload(*self._place, key))
        if reply.committed is not None:
            self.uploads[key, reply.committed.upload_id] = set()

    def _upload(self) -> tuple[str, str]:
        return self.random.choice([*self.uploads] or [("a", "none")])

    def _part(self) -> None:
        upload, number = self._upload(), self.random.randint(1, 3)
        before = len(self.opened)
        self._open(key=upload[0], upload_id=upload[1], part_number=number)
        if self.random.random() < 0.9 and len(self.opened) > before:
            one = self.opened[-1]
            if self.do(CommitKey(*self._place, one.key, one.session, self._more(one))).committed:
                self.opened.pop()
                self.uploads[upload].add(number)

    def _complete(self) -> None:
        upload = self._upload()
        there = sorted(self.uploads.get(upload, ()))
        numbers = self.random.choice([tuple(there), tuple(there[1:]), (1, 3), (2, 1)])
        reply = self.do(CompleteUpload(*self._place, *upload, numbers, f"t{self.number}"))
        self._end_upload(upload, reply)

    def _abort(self) -> None:
        upload = self._upload()
        self._end_upload(upload, self.do(AbortUpload(*self._place, *upload)))

    def _end_upload(self, upload: tuple[str, str], reply: MetadataReply) -> None:
        if reply.error in ("", "NO_SUCH_MULTIPART_UPLOAD_ERROR"):
            self.uploads.pop(upload, None)

    # The rest of the namespace

    def _put(self) -> None:
        self.do(PutKey(*self._place, self._path(), self._size(), f"t{self.number}", BLOCK))

    def _put_many(self) -> None:
        keys = tuple(self._path() for _ in range(self.random.randrange(4)))
        sizes_bytes = tuple(self._size() for _ in keys)
        self.do(PutKeys(*self._place, keys, sizes_bytes, tuple(f"t{self.number}" for _ in keys), BLOCK))

    def _put_if(self) -> None:
        table = self._tables.table(FILE_TABLE if self.is_tree else KEY_TABLE)
        generations = [row.update_id for _, row in table.scan()]
        expected = self.random.choice([-1, 0, *generations])
        self.do(PutKeyIf(*self._place, self._there(), self._size(), expected, f"t{self.number}", BLOCK))

    def _delete(self) -> None:
        self.do(DeleteKey(*self._place, self._there()))

    def _versioning(self) -> None:
        is_enabled = self.random.random() < 0.7
        versioning = BucketVersioning.ENABLED if is_enabled else BucketVersioning.SUSPENDED
        self.do(SetBucketVersioning(*self._place, versioning))

    def _delete_version(self) -> None:
        tables, key = self._tables, self._there()
        bucket = get_bucket(tables, VOLUME, BUCKET)
        found = [row for row in rows_at(tables, bucket, key) if isinstance(row, KeyRow)]
        births = [version.birth for row in found for version in (row, *versions_of(tables, _ids(bucket), row))]
        self.do(DeleteKeyVersion(*self._place, key, self.random.choice(births or [7])))

    def _rename(self) -> None:
        kind = RenameDirectory if self.is_tree and self.random.random() < 0.5 else RenameKey
        self.do(kind(*self._place, self._there(), self._path()))

    def _make_directory(self) -> None:
        self.do(MakeDirectory(*self._place, self._path()))

    def _delete_directory(self) -> None:
        self.do(DeleteDirectory(*self._place, self._there(), is_recursive=True))

    def _undelete(self) -> None:
        listed = self.client.metadata(0).deleted(VOLUME, BUCKET)
        if not listed:
            return
        likely = [one for one in listed if one.returning is Returning.ITSELF and one.path]
        one = self.random.choice(likely if likely and self.random.random() < 0.5 else listed)
        path = self.random.choice((self._path(), f"new{self.number}", one.path or "k", one.path or "k"))
        self.do(Undelete(*self._place, path, one.kind, one.object_id, one.birth, one.death))

    def _quota(self) -> None:
        self.do(SetQuota(VOLUME, BUCKET, self.random.choice((-1, -1, 1_000)), self.random.choice((-1, 30))))

    # Snapshots and faults

    def _snapshot(self) -> None:
        self.snapshots.append(f"snap{self.number}")
        self.client.request(0, CreateSnapshot(VOLUME, BUCKET, self.snapshots[-1]))

    def _drop(self) -> None:
        if self.snapshots:
            self.client.request(0, DeleteSnapshot(VOLUME, BUCKET, self.random.choice(self.snapshots)))

    def _roll_back(self) -> None:
        if self.snapshots:
            self.client.request(0, RollBackBucket(VOLUME, BUCKET, self.random.choice(self.snapshots[-2:])))

    def _settle(self) -> None:
        self.settle()

    def _crash(self) -> None:
        self.plane.start(self.random.choice(_CRASHING), 0)


def writers(seed: int, steps: int) -> Writers:
    """Clients that have done so many things."""
    random = Random(seed)
    page = random.choice((1, 3, 10, 2_000))
    plane = InMemoryPlane(
        snapshots_settings=SnapshotsSettings(max_rollback_page_entries=page),
        max_batch_messages=random.choice((1, 2, 2_000)),
    )
    made = Writers(plane, random)
    for _ in range(steps):
        made.step()
    return made
