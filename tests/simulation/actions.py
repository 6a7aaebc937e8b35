"""What clients do in a run: seeded commands to metadata and requests to snapshots, some of them senseless."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from schemas import records
from schemas.records import BucketLayout, MetadataCommand, SnapshotCommand
from schemas.topics import METADATA_COMMANDS, SNAPSHOTS_COMMANDS, Topic
from services.log.memory import MemoryLog
from services.log.signing import Signer, signed_command
from tests.simulation.model import Incarnation, ShardModel
from tests.simulation.protections import some_policy
from tests.simulation.signing import enrolment

_DIRECTORIES = ("a", "b", "c")
_FILES = ("x", "y", "a")
_LABELS = ("one", "two", "three")
_SIZES = (0, 1, 100, 1_000, 1_024, 5_000)
BLOCK_BYTES = 1_024
_WEIGHTS = {
    "put": 30,
    "put_many": 4,
    "delete_key": 9,
    "delete_keys": 3,
    "rename": 9,
    "make_directory": 4,
    "delete_directory": 8,
    "undelete": 14,
    "create": 11,
    "drop": 10,
    "rename_snapshot": 2,
    "tag": 3,
    "untag": 3,
    "move_consumer": 2,
    "expire": 4,
    "roll_back": 8,
    "set_policy": 2,
    "unset_policy": 1,
    "empty_and_delete_bucket": 3,
    "create_bucket": 3,
    "delete_bucket": 1,
    "create_or_delete_volume": 1,
    "send_again": 3,
    "nonsense": 2,
}


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request to snapshots."""

    client_id: str
    number: int
    body: Any


@dataclass(slots=True)
class Actor:
    """The clients of one shard."""

    shard: int
    random: Random
    log: MemoryLog
    model: ShardModel
    list_snapshots: Callable[[str], list[str]]
    """Names of the snapshots of a bucket, as a client may read them."""
    signer: Signer | None = None
    """Who signs all that the clients send, if anybody."""
    volume: str = ""
    """The volume that they use; named by the shard if nobody says another one."""
    requests: list[SentRequest] = field(default_factory=list)
    """All requests to snapshots, in the order of the log."""
    list_deleted: Callable[[], list[records.Undelete]] = list
    """What may be brought back to where it was, as a client may read it."""
    weights: dict[str, float] = field(default_factory=dict)
    _seen_deleted: list[records.Undelete] = field(default_factory=list)
    _numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    _sent: dict[str, bytes] = field(default_factory=dict)
    """By client its last command to metadata."""
    _snapshot_names: int = 0

    def __post_init__(self) -> None:
        self.volume = self.volume or f"volume-{self.shard}"
        # Each run prefers other actions: some are all puts and snapshots, some all trees.
        self.weights = {name: weight * self.random.choice((0.2, 1, 1, 3)) for name, weight in _WEIGHTS.items()}
        for secret in enrolment() if self.signer else ():
            self.submit(secret)
            self.request(secret)
        self.submit(records.CreateVolume(self.volume))
        for bucket in ("bucket-a", "bucket-b"):
            self._create_bucket(bucket)

    # ---- sending

    def submit(self, body: Any, *, shard: int | None = None, sender: str = "") -> None:
        """Append a command to metadata's log; ``sender`` says for whom a person sends it."""
        client_id = self._client()
        number = self._next("metadata", client_id)
        command = MetadataCommand(self.shard if shard is None else shard, client_id, number, body, sender)
        self._sent[client_id] = self._encoded(METADATA_COMMANDS, command)
        self._append(METADATA_COMMANDS, self._sent[client_id])

    def append(self, command: MetadataCommand) -> None:
        """Append what a service says, in the runs in which nobody signs."""
        self._append(METADATA_COMMANDS, self._encoded(METADATA_COMMANDS, command))

    def _client(self) -> str:
        name = self.random.choice(("client-one", "client-two"))
        return f"{self.signer.user}/{name}" if self.signer else name

    def control(self, body: Any) -> None:
        """Append what a person says to the shard itself."""
        sender = ("", 0)
        if self.signer is not None:
            client_id = f"{self.signer.user}/control"
            sender = client_id, self._next("metadata", client_id)
        command = MetadataCommand(self.shard, *sender, body, wants_reply=False)
        self._append(METADATA_COMMANDS, self._encoded(METADATA_COMMANDS, command))

    def request(self, body: Any) -> SentRequest:
        """Append a request to the log of snapshots."""
        client_id = self._client()
        request = SentRequest(client_id, self._next("snapshots", client_id), body)
        command = SnapshotCommand(self.shard, client_id, request.number, body)
        self._append(SNAPSHOTS_COMMANDS, self._encoded(SNAPSHOTS_COMMANDS, command))
        self.requests.append(request)
        return request

    def _encoded(self, topic: Topic, command: Any) -> bytes:
        return signed_command(topic, command, self.signer, self.log.clock.now_ms())

    def _append(self, topic: Topic, value: bytes) -> None:
        self.log.append(topic.name, self.shard, value)

    def _next(self, service: str, client_id: str) -> int:
        self._numbers[service, client_id] = self._numbers.get((service, client_id), 0) + self.random.choice((1, 1, 7))
        return self._numbers[service, client_id]

    # ---- choosing

    def act(self) -> str:
        """Do one thing; says which."""
        name = self.random.choices(list(self.weights), list(self.weights.values()))[0]
        getattr(self, f"_{name}")()
        return name

    def _bucket(self) -> str:
        return self.random.choice(("bucket-a", "bucket-a", "bucket-b"))

    def _incarnation(self, bucket: str) -> Incarnation | None:
        return self.model.current(self.volume, bucket)

    def _path(self, *, is_directory: bool = False) -> str:
        depth = self.random.choice((0, 0, 1, 1, 2, 3))
        names = [self.random.choice(_DIRECTORIES) for _ in range(depth)]
        last = self.random.choice(_DIRECTORIES if is_directory else _FILES)
        return "/".join([*names, last])

    def _existing(self, bucket: str, *, is_directory: bool = False) -> str:
        """Mostly a path that is there, as far as the model knows by now."""
        incarnation = self._incarnation(bucket)
        if incarnation is not None and self.random.random() < 0.8:
            view = incarnation.bucket.view()
            paths = list(view.directories) if is_directory else list(view.keys)
            if paths:
                return self.random.choice(paths)
        return self._path(is_directory=is_directory)

    # ---- doing

    def _put(self) -> None:
        bucket = self._bucket()
        path = self._existing(bucket) if self.random.random() < 0.3 else self._path()
        tag = f"tag-{self.log.end_offset(METADATA_COMMANDS.name, self.shard)}"
        size_bytes = self.random.choice(_SIZES)
        self.submit(records.PutKey(self.volume, bucket, path, size_bytes, tag, BLOCK_BYTES))

    def _put_many(self) -> None:
        """Some at once: new and old, some twice, some that cannot be put; now and then lists that do not fit."""
        bucket, count = self._bucket(), self.random.choice((0, 1, 2, 3, 5, 8))
        keys = [self._existing(bucket) if self.random.random() < 0.4 else self._path() for _ in range(count)]
        sizes_bytes = [self.random.choice(_SIZES) for _ in range(count + (self.random.random() < 0.03))]
        end = self.log.end_offset(METADATA_COMMANDS.name, self.shard)
        tags = [f"tag-{end}-{place}" for place in range(count)] if self.random.random() < 0.8 else []
        put = records.PutKeys(self.volume, bucket, tuple(keys), tuple(sizes_bytes), tuple(tags), BLOCK_BYTES)
        self.submit(put)

    def _delete_key(self) -> None:
        bucket = self._bucket()
        path = self._existing(bucket, is_directory=self.random.random() < 0.1)
        self.submit(records.DeleteKey(self.volume, bucket, path))

    def _delete_keys(self) -> None:
        """Some at once: mostly there, some not, some twice, some a directory with all that is above or below it."""
        bucket, count = self._bucket(), self.random.choice((0, 1, 2, 2, 3, 5, 8))
        paths = [self._existing(bucket, is_directory=self.random.random() < 0.1) for _ in range(count)]
        incarnation = self._incarnation(bucket)
        if incarnation is not None and self.random.random() < 0.3:
            top, view = self._existing(bucket, is_directory=True), incarnation.bucket.view()
            below = [path for path in (*view.keys, *view.directories) if f"{path}/".startswith(f"{top}/")]
            paths += sorted(below, key=len, reverse=True)  # what is in a directory before the directory
        self.submit(records.DeleteKeys(self.volume, bucket, tuple(paths)))

    def _rename(self) -> None:
        bucket = self._bucket()
        is_directory = self.random.random() < 0.5
        source = self._existing(bucket, is_directory=is_directory)
        target = self._existing(bucket, is_directory=True) if self.random.random() < 0.3 else self._path()
        if target in (source, source.rpartition("/")[0]):
            return  # onto itself: planes may differ in what they answer
        kind = records.RenameDirectory if is_directory and self.random.random() < 0.7 else records.RenameKey
        self.submit(kind(self.volume, bucket, source, target))

    def _make_directory(self) -> None:
        self.submit(records.MakeDirectory(self.volume, self._bucket(), self._path(is_directory=True)))

    def _delete_directory(self) -> None:
        bucket = self._bucket()
        path = self._existing(bucket, is_directory=True)
        is_recursive = self.random.random() < 0.85
        self.submit(records.DeleteDirectory(self.volume, bucket, path, is_recursive))

    def _undelete(self) -> None:
        """Bring back what is deleted: at once, or what was listed some time ago; to its place or to another one."""
        listed = self.list_deleted()
        self._seen_deleted += listed
        if not self._seen_deleted:
            return
        is_late = not listed or self.random.random() < 0.2
        chosen = self.random.choice(self._seen_deleted if is_late else listed)
        if self.random.random() < 0.3:
            chosen = replace(chosen, path=self._path(is_directory=chosen.kind is records.DeletedKind.DIRECTORY))
        self.submit(chosen)

    def _create(self) -> None:
        if self.random.random() < 0.9:
            self._snapshot_names += 1
        at_ms = self.random.choice((-1, -1, -1, self.random.randrange(10**13)))
        self.request(records.CreateSnapshot(self.volume, self._bucket(), f"snap-{self._snapshot_names}", at_ms))

    def _known_snapshot(self) -> tuple[str, str]:
        """A bucket and the name of a snapshot that was asked for once."""
        made = [request.body for request in self.requests if isinstance(request.body, records.CreateSnapshot)]
        if not made or self.random.random() < 0.05:
            return self._bucket(), "snap-never"
        chosen = self.random.choice(made[-6:])
        return chosen.bucket, chosen.snapshot

    def _drop(self) -> None:
        bucket, name = self._known_snapshot()
        self.request(records.DeleteSnapshot(self.volume, bucket, name))

    def _rename_snapshot(self) -> None:
        bucket, name = self._known_snapshot()
        self._snapshot_names += self.random.choice((0, 1))
        self.request(records.RenameSnapshot(self.volume, bucket, name, f"snap-{self._snapshot_names}"))

    def _listed_snapshot(self) -> tuple[str, str]:
        """A bucket and the name of a snapshot that is there, mostly."""
        bucket = self._bucket()
        listed = self.list_snapshots(bucket) if self.random.random() < 0.9 else []
        return (bucket, self.random.choice(listed)) if listed else self._known_snapshot()

    def _tag(self) -> None:
        bucket, name = self._listed_snapshot()
        self.request(records.CreateTag(self.volume, bucket, name, self.random.choice(_LABELS)))

    def _untag(self) -> None:
        bucket, name = self._listed_snapshot()
        snapshot = name if self.random.random() < 0.3 else ""
        self.request(records.DeleteTag(self.volume, bucket, snapshot, self.random.choice(_LABELS)))

    def _move_consumer(self) -> None:
        bucket, name = self._listed_snapshot()
        consumer = self.random.choice(_LABELS)
        if self.random.random() < 0.3:
            self.request(records.DeleteConsumer(self.volume, bucket, consumer))
        else:
            is_behind = self.random.random() < 0.3
            self.request(records.SetConsumer(self.volume, bucket, consumer, name, is_behind))

    def _roll_back(self) -> None:
        bucket, name = self._listed_snapshot()
        by_tag = self.random.random() < 0.2
        names = ("", self.random.choice(_LABELS)) if by_tag else (name, "")
        self.request(records.RollBackBucket(self.volume, bucket, *names))

    def _set_policy(self) -> None:
        self.request(records.SetRetention(self.volume, self._bucket(), some_policy(self.random)))

    def _unset_policy(self) -> None:
        self.request(records.UnsetRetention(self.volume, self._bucket()))

    def unset_policies(self) -> list[SentRequest]:
        """From now on nothing expires by itself."""
        buckets = {request.body.bucket for request in self.requests if isinstance(request.body, records.SetRetention)}
        return [self.request(records.UnsetRetention(self.volume, bucket)) for bucket in sorted(buckets)]

    def create_some(self, bucket: str) -> list[SentRequest]:
        """Some snapshots more, made at times of their own."""
        requests = []
        for _ in range(self.random.randrange(6)):
            self._snapshot_names += 1
            at_ms = self.random.randrange(1_700_000_000_000, 1_700_000_900_000)
            body = records.CreateSnapshot(self.volume, bucket, f"snap-{self._snapshot_names}", at_ms)
            requests.append(self.request(body))
        return requests

    def protect_some(self, bucket: str) -> list[SentRequest]:
        """Tags and consumers at random places of what is listed."""
        listed, random = self.list_snapshots(bucket), self.random
        if not listed:
            return []
        bodies: list[Any] = [
            records.CreateTag(self.volume, bucket, random.choice(listed), label)
            for label in random.sample(_LABELS, random.randrange(3))
        ]
        bodies += [
            records.SetConsumer(self.volume, bucket, label, random.choice(listed), random.random() < 0.3)
            for label in random.sample(_LABELS, random.randrange(2))
        ]
        return [self.request(body) for body in bodies]

    def _expire(self) -> None:
        now_ms = self.random.choice((-1, -1, self.random.randrange(10**13)))
        policy = some_policy(self.random)
        self.request(records.ExpireSnapshots(self.volume, self._bucket(), policy, now_ms))

    def _create_bucket(self, bucket: str = "") -> None:
        layout = self.random.choice(
            (BucketLayout.FILE_SYSTEM_OPTIMIZED,) * 3 + (BucketLayout.OBJECT_STORE, BucketLayout.LEGACY)
        )
        self.submit(records.CreateBucket(self.volume, bucket or self._bucket(), layout))

    def _delete_bucket(self) -> None:
        self.submit(records.DeleteBucket(self.volume, self._bucket()))

    def _empty_and_delete_bucket(self) -> None:
        """Delete what is there as far as the model knows, the bucket with it, and make it anew."""
        bucket = self._bucket()
        incarnation = self._incarnation(bucket)
        if incarnation is not None:
            for label in _LABELS:
                self.request(records.DeleteTag(self.volume, bucket, "", label))
            for request in list(self.requests):
                body = request.body
                if isinstance(body, records.CreateSnapshot) and body.bucket == bucket:
                    self.request(records.DeleteSnapshot(self.volume, bucket, body.snapshot))
            view = incarnation.bucket.view()
            for directory in view.directories:
                if "/" not in directory:
                    self.submit(records.DeleteDirectory(self.volume, bucket, directory))
            for key in view.keys:
                self.submit(records.DeleteKey(self.volume, bucket, key))
        self.submit(records.DeleteBucket(self.volume, bucket))
        if self.random.random() < 0.7:
            self._create_bucket(bucket)

    def _create_or_delete_volume(self) -> None:
        if self.random.random() < 0.5:
            self.submit(records.DeleteVolume(self.volume))
        else:
            self.submit(records.CreateVolume(self.volume))

    def _send_again(self) -> None:
        """A client that did not hear an answer sends its last command again."""
        client_id = self.random.choice(list(self._sent))
        self._append(METADATA_COMMANDS, self._sent[client_id])

    def _nonsense(self) -> None:
        """Names that nothing has, and a shard that is another one."""
        bucket = self._bucket()
        what = self.random.randrange(4)
        if what == 0:
            self.submit(records.PutKey("volume-none", bucket, "x", 1))
        elif what == 1:
            self.submit(records.PutKey(self.volume, "bucket-none", "x", 1))
        elif what == 2:
            self.submit(records.PutKey(self.volume, bucket, "x", 1), shard=self.shard + 1)
        else:
            self.request(records.CreateSnapshot(self.volume, "bucket-none", "snap-none"))
