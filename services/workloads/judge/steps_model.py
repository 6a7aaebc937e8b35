"""What is written in steps, in the brute-force model: open keys, uploads, and the blocks of all versions.

A block is in a version or a part, or it is in none. A snapshot shows the blocks of the versions that it lists, and
holds them; nothing else does. Who holds a block is looked up in full copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from services.workloads.judge.model_bucket import Block, Bucket, Directory, OperationRefusedError, Version
from services.workloads.judge.quotas_model import whole_blocks
from services.workloads.workload import (
    BLOCK_BYTES,
    AbandonKey,
    AbortUpload,
    CommitKey,
    CompleteUpload,
    ExpireOpenKeys,
    ExpireUploads,
    InitiateUpload,
    OpenKey,
    PutKey,
    PutPart,
    SyncKey,
)

CheckRoom = Callable[[Bucket, int, int], None]
"""Refuses bytes and names for which a bucket's quotas have no room."""
StepOperation = OpenKey | SyncKey | CommitKey | AbandonKey | InitiateUpload | PutPart | CompleteUpload | AbortUpload
_MOST_PARTS = 10_000


@dataclass(slots=True)
class Writer:
    """A stream of blocks: an open key or a part."""

    number: int
    tag: str
    allocated: int = 0
    used: int = 0
    """The first so many blocks are or were part of a version or of a part."""
    refused: int = 0
    """The last so many were allocated for an operation that was then refused."""
    is_open: bool = True


@dataclass(slots=True)
class _Stream:
    """An open key."""

    opened: OpenKey
    writer: Writer
    parent_id: int
    root_id: int
    version: Version | None = None
    """The version as the last sync has left it."""
    is_alive: bool = True


@dataclass(slots=True)
class _Upload:
    initiated: InitiateUpload
    parent_id: int
    root_id: int
    parts: dict[int, Version] = field(default_factory=dict)
    """Each part as if it were a version of its own."""


@dataclass(frozen=True, slots=True)
class _RefusedPart:
    """A part that was opened, and whose blocks were refused."""

    key: str
    tag: str
    root_id: int


def blocks_of(size_bytes: int) -> int:
    """Return how many blocks a number of bytes fills or begins."""
    return -(-size_bytes // BLOCK_BYTES)


class StepsModel:
    """Applies operations that write in steps, and knows the length of every block."""

    def __init__(self, versions: dict[int, Version], check_room: CheckRoom) -> None:
        self._versions = versions
        """Every version by the number of the operation that has begun it; those of the model."""
        self._check_room = check_room
        self.writers: dict[int, Writer] = {}
        self._generations: dict[tuple[str, str, str], int] = {}
        """Generation of the newest version with a tag, by volume, bucket and tag."""
        self._lengths: dict[Block, int] = {}
        self._streams: dict[str, _Stream] = {}
        self._uploads: dict[str, _Upload] = {}
        self._refused_parts: dict[int, _RefusedPart] = {}
        """By the number of the operation that has opened them."""

    def apply(self, bucket: Bucket, number: int, operation: StepOperation) -> None:
        """Apply an operation.

        Raises:
            OperationRefusedError: the plane must refuse the operation.
        """
        match operation:
            case OpenKey():
                self._open(bucket, number, operation)
            case SyncKey() | CommitKey():
                self._write_on(bucket, number, operation)
            case AbandonKey():
                self._streams[operation.handle].is_alive = False
            case InitiateUpload():
                parent, _ = self._place_with_room(bucket, operation.key, 0, 0)
                self._uploads[operation.upload] = _Upload(operation, parent.id, bucket.root.id)
            case PutPart():
                self._put_part(bucket, number, operation)
            case CompleteUpload():
                self._complete(bucket, number, operation)
            case AbortUpload():
                self._upload(bucket, operation.upload)
                del self._uploads[operation.upload]

    # ---- open keys

    def _open(self, bucket: Bucket, number: int, operation: OpenKey) -> None:
        parent, _ = self._place_with_room(bucket, operation.key, whole_blocks(operation.size_bytes), 1)
        writer = self.writers[number] = Writer(number, operation.tag, blocks_of(operation.size_bytes))
        self._streams[operation.handle] = _Stream(operation, writer, parent.id, bucket.root.id)

    def _write_on(self, bucket: Bucket, number: int, operation: SyncKey | CommitKey) -> None:
        stream = self._streams[operation.handle]
        writer, count = stream.writer, blocks_of(operation.size_bytes)
        known = -1 if stream.version is None else blocks_of(stream.version.size_bytes)
        if isinstance(operation, SyncKey) and count <= known:
            return  # the client does not report it
        missing = max(0, count - writer.allocated)
        try:
            parent, name = _place_of(bucket, stream)
            if missing:
                unseen = writer.allocated - (writer.used if stream.version else 0)
                self._check_room(bucket, (unseen + missing) * BLOCK_BYTES, 0)
        except OperationRefusedError:
            stream.is_alive = False
            raise
        writer.allocated += missing
        try:
            before = _version_to_grow(parent, name, stream)
            is_new = before is None and name not in parent.children
            grown_bytes = operation.size_bytes - (before.size_bytes if before else 0)
            self._check_room(bucket, grown_bytes, int(is_new))
        except OperationRefusedError:
            writer.refused, stream.is_alive = missing, False
            raise
        grown = self._grown(stream, number, operation.size_bytes)
        if before is None:
            older = bucket.replaced(number, stream.opened.key)
            stream.version = replace(grown, older=older, is_versioned=bool(bucket.keeps_versions))
        else:
            stream.version = replace(grown, older=before.older)
        parent.children[name] = stream.version
        if isinstance(operation, CommitKey):
            writer.is_open = False
            del self._streams[operation.handle]

    def _grown(self, stream: _Stream, number: int, size_bytes: int) -> Version:
        """Return the version of a stream with a size."""
        writer, opened, count = stream.writer, stream.opened, blocks_of(size_bytes)
        writer.used = count
        blocks = self._fill(writer.number, size_bytes)
        version = stream.version or Version(writer.number, opened.volume, opened.bucket, opened.key, opened.tag, 0)
        grown = replace(version, size_bytes=size_bytes, own_blocks=blocks, generation=number)
        self.note_version(grown)
        return grown

    def _fill(self, number: int, size_bytes: int) -> tuple[Block, ...]:
        """Write the first bytes of a stream. Return the blocks that have them."""
        blocks = tuple([(number, place) for place in range(blocks_of(size_bytes))])
        for block in blocks:
            self._lengths[block] = min(BLOCK_BYTES, size_bytes - block[1] * BLOCK_BYTES)
        return blocks

    def expire(self, operation: ExpireOpenKeys | ExpireUploads) -> None:
        """Close every open key that no client holds, or abort every upload."""
        if isinstance(operation, ExpireUploads):
            self._uploads.clear()
            return
        self._refused_parts.clear()
        for handle in [handle for handle, stream in self._streams.items() if not stream.is_alive]:
            self._streams.pop(handle).writer.is_open = False

    # ---- uploads

    def _upload(self, bucket: Bucket, label: str) -> _Upload:
        upload = self._uploads.get(label)
        if upload is None or upload.root_id != bucket.root.id:
            raise OperationRefusedError("NO_SUCH_MULTIPART_UPLOAD_ERROR", label)
        return upload

    def _put_part(self, bucket: Bucket, number: int, operation: PutPart) -> None:
        if not 1 <= operation.part_number <= _MOST_PARTS:
            raise OperationRefusedError("INVALID_REQUEST", f"part {operation.part_number}")
        upload = self._upload(bucket, operation.upload)
        key = upload.initiated.key
        if isinstance(bucket.find(bucket.parts(key)), Directory):
            raise OperationRefusedError("NOT_A_FILE", key)
        bucket.require_directories(bucket.parts(key)[:-1], code="NOT_A_FILE")
        parent = bucket.directory_above(bucket.parts(key))
        if parent is None or parent.id != upload.parent_id:
            raise OperationRefusedError("NO_SUCH_MULTIPART_UPLOAD_ERROR", key)
        count = blocks_of(operation.size_bytes)
        self._check_room(bucket, 0, 1)
        try:
            self._check_room(bucket, whole_blocks(operation.size_bytes), 0)
        except OperationRefusedError:
            self._refused_parts[number] = _RefusedPart(key, operation.tag, upload.root_id)
            raise
        self.writers[number] = Writer(number, operation.tag, count, count, is_open=False)
        place = (operation.volume, operation.bucket, key, operation.tag)
        blocks = self._fill(number, operation.size_bytes)
        upload.parts[operation.part_number] = Version(number, *place, operation.size_bytes, blocks)

    def _complete(self, bucket: Bucket, number: int, operation: CompleteUpload) -> None:
        upload, numbers = self._upload(bucket, operation.upload), operation.part_numbers
        if not numbers or any(first >= second for first, second in pairwise(numbers)):
            raise OperationRefusedError("INVALID_PART_ORDER", str(numbers))
        if missing := [one for one in numbers if one not in upload.parts]:
            raise OperationRefusedError("INVALID_PART", str(missing[0]))
        key = upload.initiated.key
        parent, name = self._place_with_room(bucket, key, 0, 1)
        older = bucket.replaced(number, key)
        parts = [upload.parts[one] for one in numbers]
        joined = tuple([block for part in parts for block in part.blocks])
        size_bytes = sum(part.size_bytes for part in parts)
        place = (operation.volume, operation.bucket, key, operation.tag)
        version = Version(number, *place, size_bytes, joined, generation=number, older=older)
        parent.children[name] = version = replace(version, is_versioned=bool(bucket.keeps_versions))
        self.note_version(version)
        del self._uploads[operation.upload]

    # ---- versions

    def _place_with_room(self, bucket: Bucket, path: str, size_bytes: int, names: int) -> tuple[Directory, str]:
        """Return the directory and the name of a path. If there is room, create missing directories above it."""
        parts = bucket.parts(path)
        if isinstance(bucket.find(parts), Directory):
            raise OperationRefusedError("NOT_A_FILE", path)
        bucket.require_directories(parts[:-1], code="NOT_A_FILE")
        self._check_room(bucket, size_bytes, names + bucket.missing_directories(parts[:-1]))
        return bucket.make_directories(parts[:-1], code="NOT_A_FILE"), parts[-1]

    def note_version(self, version: Version) -> None:
        """Note a version that was written, with its generation."""
        self._versions[version.number] = version
        self._generations[version.volume, version.bucket, version.tag] = version.generation

    def check_condition(self, put: PutKey, live: Version | None) -> None:
        """Refuse a put whose condition the live version does not meet."""
        if put.if_absent and live is not None:
            raise OperationRefusedError("KEY_ALREADY_EXISTS", put.key)
        if put.if_generation:
            wanted = self._generations.get((put.volume, put.bucket, put.if_generation))
            if live is None or live.generation != wanted:
                raise OperationRefusedError("KEY_NOT_FOUND", put.key)

    # ---- queries

    def length(self, block: Block) -> int:
        """Return the bytes that were written to a block, however many of them a version still shows."""
        if block in self._lengths:
            return self._lengths[block]
        return self._versions[block[0]].size_bytes

    def parts(self, bucket: Bucket | None = None) -> Iterator[Version]:
        """Yield the present parts of all uploads, or of those of one bucket."""
        for upload in self._uploads.values():
            if bucket is None or upload.root_id == bucket.root.id:
                yield from upload.parts.values()

    def reclaimed(self, held: frozenset[Block]) -> list[str]:
        """Return the labels of all blocks that a settled plane has freed, in the order of their first writing."""
        found = list[str]()
        for number in sorted(self.writers.keys() | self._versions.keys()):
            if number in self.writers:
                found += _freed_labels(self.writers[number], held)
            elif self._versions[number].own_blocks is None:
                version = self._versions[number]
                found += [version.tag] if version.blocks and held.isdisjoint(version.blocks) else []
        return found

    def living_handles(self) -> list[str]:
        """Return the handles that their clients hold: neither closed nor abandoned nor given up."""
        return [handle for handle, stream in self._streams.items() if stream.is_alive]

    def part_numbers(self) -> dict[str, list[int]]:
        """Return the numbers of the present parts of each upload that is neither completed nor aborted, by label."""
        return {label: sorted(upload.parts) for label, upload in self._uploads.items()}

    def observe(self, bucket: Bucket) -> dict[str, object]:
        """Return the open keys and uploads of a bucket as an observation shows them."""
        opened: list[tuple[str, int, str, str | None, bool]] = [
            (one.opened.key, one.writer.number, one.opened.tag, one.opened.handle, _is_taken_away(bucket, one))
            for one in self._streams.values()
            if one.root_id == bucket.root.id
        ]
        opened += [
            (one.key, number, one.tag, None, False)
            for number, one in self._refused_parts.items()
            if one.root_id == bucket.root.id
        ]
        uploads = {label: one for label, one in self._uploads.items() if one.root_id == bucket.root.id}
        return {
            "open_keys": [
                {"key": key, "tag": tag, "handle": handle, **({"taken_away": True} if is_taken_away else {})}
                for key, _, tag, handle, is_taken_away in sorted(opened, key=lambda one: one[:2])
            ],
            "uploads": {
                label: {str(number): upload.parts[number].tag for number in sorted(upload.parts)}
                for label, upload in uploads.items()
            },
        }


def _place_of(bucket: Bucket, stream: _Stream) -> tuple[Directory, str]:
    """Return the directory and the name of an open key, if its path still leads there."""
    parts = bucket.parts(stream.opened.key)
    parent = bucket.directory_above(parts)
    if parent is None:
        raise OperationRefusedError("DIRECTORY_NOT_FOUND", stream.opened.key)
    if parent.id != stream.parent_id:
        raise OperationRefusedError("KEY_NOT_FOUND", stream.opened.key)
    return parent, parts[-1]


def _version_to_grow(parent: Directory, name: str, stream: _Stream) -> Version | None:
    """Return the live version to which a stream adds; None if it is about to make its first one."""
    live = parent.children.get(name)
    if stream.version is None:
        if isinstance(live, Directory):
            raise OperationRefusedError("NOT_A_FILE", stream.opened.key)
        return None
    if live != stream.version:
        raise OperationRefusedError("KEY_NOT_FOUND", stream.opened.key)
    return live


def _is_taken_away(bucket: Bucket, stream: _Stream) -> bool:
    """Return whether the version that a stream has synced is not the live one at its place any more."""
    if stream.version is None:
        return False
    parent = bucket.directory_with(stream.parent_id)
    name = bucket.parts(stream.opened.key)[-1]
    return parent is None or parent.children.get(name) != stream.version


def _freed_labels(writer: Writer, held: frozenset[Block]) -> Iterator[str]:
    used = frozenset((writer.number, place) for place in range(writer.used))
    others = writer.allocated - writer.refused - writer.used
    is_own_freed = held.isdisjoint(used) if used else not writer.is_open and others > 0
    if is_own_freed:
        yield writer.tag
    if not writer.is_open and (writer.refused or (used and others)):
        yield f"{writer.tag}+spare"
