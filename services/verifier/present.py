"""The shard at the present command of a replay: its buckets, the ids that the command hands out, and its paths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from schemas.records import BlockRun, BucketVersioning, Replication
from services.domain.names import check_key_path
from services.domain.table_keys import LAST_TXN_WITH_BLOCKS, local_id, object_id
from services.verifier.history import Entry, History, Moment
from services.verifier.refusals import RefusedError, require, required

MAX_BYTES = 2**63 - 1
MAX_BLOCKS = 65_535
MAX_OBJECTS = 255
MAX_LINKS = 32
REPLICATIONS = tuple(Replication)
_NUMBERS = {replication: number for number, replication in enumerate(REPLICATIONS)}
CONTAINER_BITS = 48
"""Bits of a container's id below its replication."""

NO_CONDITION = 0
MUST_BE_ABSENT = -1


@dataclass(slots=True)
class Bucket:
    """A bucket, and its live snapshots in log order: the offset, the txn and the id of each."""

    bucket_id: int
    volume_id: int
    volume: str
    name: str
    is_tree: bool
    fence: str = ""
    is_deleted: bool = False
    has_quota: bool = False
    versioning: BucketVersioning = BucketVersioning.UNVERSIONED
    replication: Replication = Replication.RATIS_ONE
    offsets: list[int] = field(default_factory=list)
    txns: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)


class Present:
    """What the commands of a shard find and change, beside the history."""

    def __init__(self, shard: int, history: History) -> None:
        self.shard = shard
        self.history = history
        self.now = Moment(0, 0)
        self.time_ms = 0
        self.container_id = 0
        self.replication = Replication.RATIS_ONE
        """That of new buckets."""
        self.stored_bytes = 0
        """Bytes of blocks that were allocated and are not freed."""
        self.asked_bytes = 0
        """Bytes for which blocks were asked, whether they were allocated or not."""
        self.volumes: dict[str, int] = {}
        self.buckets: dict[tuple[str, str], Bucket] = {}
        self.links: dict[tuple[str, str], tuple[str, str]] = {}
        self.by_id: dict[int, Bucket] = {}
        self._epoch = self.objects = 0
        """``objects`` are those that the present command has created."""

    def begin(self, now: Moment) -> None:
        """Go on to the next command."""
        self.now = now
        self.objects = 0

    # Ids

    def new_object_id(self) -> int:
        """Return the next objectID of the command. Refuse a command that needs too many."""
        require(self.objects < MAX_OBJECTS)
        self.objects += 1
        return object_id(self._epoch, self.now.txn, self.objects)

    def new_blocks(self, bucket: Bucket, size_bytes: int, block_size_bytes: int) -> BlockRun | None:
        """Return the blocks that the command gets in a bucket for some bytes; None for no bytes."""
        require(size_bytes >= 0 and block_size_bytes > 0)
        if not size_bytes:
            return None
        count = -(-size_bytes // block_size_bytes)
        require(count <= MAX_BLOCKS and self.now.txn <= LAST_TXN_WITH_BLOCKS)
        first = local_id(self.shard, self.now.txn, 0)
        container_id = (_NUMBERS[bucket.replication] << CONTAINER_BITS) + self.container_id
        return BlockRun(container_id, first, count, block_size_bytes, size_bytes)

    def has_room(self, size_bytes: int) -> bool:
        """Return whether so many bytes can be counted as stored."""
        return self.stored_bytes + size_bytes <= MAX_BYTES

    def store(self, size_bytes: int) -> None:
        """Count bytes as stored. Refuse more than a shard can count."""
        self.asked_bytes += max(0, size_bytes)
        require(self.has_room(size_bytes))
        self.stored_bytes += size_bytes

    # Buckets

    def lead_to(self, volume: str, bucket: str) -> tuple[str, str]:
        """Return the name to which a name leads over links. Refuse links that go round in a circle."""
        name = (volume, bucket)
        if not self.links:
            return name
        for _ in range(MAX_LINKS + 1):
            if name not in self.links:
                return name
            name = self.links[name]
        raise RefusedError

    def bucket(self, body: Any) -> Bucket:
        """Return the bucket that a command names. Refuse the command if it is missing or being rolled back."""
        bucket = required(self.buckets.get(self.lead_to(body.volume, body.bucket)))
        require(not bucket.fence)
        return bucket

    def tree(self, body: Any) -> Bucket:
        """Return the bucket that a command names, which must be a tree."""
        bucket = self.bucket(body)
        require(bucket.is_tree)
        return bucket

    # Paths

    def walk(self, bucket: Bucket, path: str) -> tuple[int, list[str]]:
        """Return the id of the last existing directory on a path, and the names of the missing ones below it.

        Refuse the command if a file is on the path.
        """
        parent_id = bucket.bucket_id
        names = path.split("/") if path else []
        for place, name in enumerate(names):
            found = self.history.find(parent_id, name)
            if found is None:
                return parent_id, names[place:]
            require(found.is_directory)
            parent_id = found.object_id
        return parent_id, []

    def place(self, bucket: Bucket, path: str) -> tuple[int, list[str], str]:
        """Return the id of the last existing directory above a path, the names of the missing ones, and its own."""
        if not bucket.is_tree:
            return bucket.bucket_id, [], path
        directory, _, name = path.rpartition("/")
        return *self.walk(bucket, directory), name

    def place_in_directory(self, bucket: Bucket, path: str) -> tuple[int, str]:
        """Return the id of the directory of a path, which must exist, and the name there."""
        parent_id, missing, name = self.place(bucket, path)
        require(not missing)
        return parent_id, name

    def place_for_file(self, bucket: Bucket, path: str) -> tuple[int, list[str], str, Entry | None]:
        """Return the place for a file, as ``place`` does, and the file there. Refuse the path of a directory."""
        check_key_path(path, is_tree=bucket.is_tree)
        parent_id, missing, name = self.place(bucket, path)
        there = None if missing else self.history.find(parent_id, name)
        require(there is None or not there.is_directory)
        return parent_id, missing, name, there

    def add_directories(self, bucket: Bucket, parent_id: int, names: list[str]) -> int:
        """Create directories one below the other, or none if they are too many. Return the id of the last one."""
        made = [Entry(self.new_object_id(), 0, is_directory=True) for _ in names]
        for name, directory in zip(names, made, strict=True):
            self.history.add(bucket.bucket_id, parent_id, name, directory, self.now)
            parent_id = directory.object_id
        return parent_id

    def find(self, bucket: Bucket, path: str) -> tuple[int, str, Entry | None]:
        """Return the parent id, name and entry of a path. The entry is None if missing or the root of a tree."""
        if not bucket.is_tree:
            return bucket.bucket_id, path, self.history.find(bucket.bucket_id, path)
        directory, slash, name = path.rpartition("/")
        parent_id, missing = self.walk(bucket, directory or slash)
        return parent_id, name, None if missing or not name else self.history.find(parent_id, name)


def require_generation(live: Entry | None, expected: int) -> None:
    """Refuse a command whose condition the live version of its key does not meet."""
    if expected == MUST_BE_ABSENT:
        require(live is None)
    elif expected != NO_CONDITION:
        require(live is not None and live.generation == expected)
