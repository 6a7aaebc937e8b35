"""Write and read the bytes of a key, as a client of an object store does.

A client opens the key, which allocates blocks, and writes each block to every datanode of its container. When all
datanodes have confirmed all blocks, it commits: so a key that is visible has all its copies. If a datanode refuses or
is silent, nothing was committed; the client abandons the open key, whose blocks are freed, and begins again.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from schemas.block_checksums import checksums_of
from schemas.block_store import MAX_CHUNK_BYTES, BlockContents, ContainerPlace
from schemas.records import (
    AbandonKey,
    AllocateBlocks,
    BlockRun,
    CommitKey,
    Committed,
    KeyRow,
    MetadataReply,
    OpenKey,
)
from services.client.errors import PlaneError, UnreachableError
from services.client.plane import BlockStore, MetadataReads, NamespaceCommand, Plane, accepted
from services.domain.errors import DeepcleanError
from services.domain.replication import COPIES, replication_of

PLACE_SECONDS = 60.0
PLACE_POLL_SECONDS = 0.25
AGAIN_SECONDS = 90.0
"""Time in which a write is begun again: longer than mock_scm takes to close the containers of a dead datanode."""
BLOCKS_PER_ALLOCATION = 16
BEGIN_AGAIN = frozenset(
    {"CLOSED_CONTAINER_IO", "CONTAINER_NOT_FOUND", "BLOCK_DELETED", "CHECKSUM_MISMATCH", "UNAVAILABLE", "BUCKET_BUSY"}
)
"""Refusals after which a new attempt may be accepted: with other blocks, or when a rollback of the bucket is over."""


class Source(Protocol):
    """Bytes to write, such as an open file."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes: ``size`` of them, fewer only at the end."""

    def seekable(self) -> bool:
        """Return whether a write that failed can begin again."""

    def seek(self, offset: int, /) -> int:
        """Go to an offset."""

    def tell(self) -> int:
        """Return the offset of the next byte that ``read`` returns."""


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """A key of a bucket, with the shard of its volume."""

    shard: int
    volume: str
    bucket: str
    key: str

    @property
    def names(self) -> tuple[str, str, str]:
        """Names of volume, bucket and key."""
        return self.volume, self.bucket, self.key


@dataclass(frozen=True, slots=True)
class _Block:
    container_id: int
    local_id: int


def keeps_bytes(plane: Plane, shard: int) -> bool:
    """Return whether a plane has datanodes, which keep the bytes of keys."""
    try:
        return plane.block_store(shard).status().replication > 0
    except PlaneError as error:
        if error.code == "NOT_SUPPORTED_OPERATION":  # a plane within this process
            return False
        raise


def put_bytes(
    plane: Plane, place: KeyPlace, source: Source, *, block_size_bytes: int, tag: str = ""
) -> tuple[int, MetadataReply]:
    """Write all that a file has, from its position on, as a new version of a key. Return its size and the answer to
    the commit.

    The commit is sent once: if its outcome is unknown, a second version could overwrite what somebody put meanwhile.

    Raises:
        PlaneError: the plane or a datanode refused. The key is as it was before.
        UnreachableError: the plane or the datanodes did not answer in time; the key is as it was before, unless it is a
            ``NotDeliveredError`` that may be applied, or a ``PlaneTimeoutError``.
    """
    store = plane.block_store(place.shard)
    if not store.status().replication:
        raise PlaneError(
            "NOT_SUPPORTED_OPERATION", "this plane keeps no bytes: start it with datanodes (deepclean up --datanodes 3)"
        )
    deadline, pause = time.monotonic() + AGAIN_SECONDS, threading.Event()
    beginning = source.tell() if source.seekable() else None
    while True:
        writer = _Writer(plane, store, place, source, block_size_bytes, tag)
        try:
            size_bytes = writer.write()
        except (PlaneError, UnreachableError) as error:
            problem: DeepcleanError = error
        else:
            try:
                return size_bytes, writer.commit(size_bytes)
            except PlaneError as error:  # it was refused, so that another attempt commits once
                problem = error
        may_repeat = isinstance(problem, UnreachableError) or getattr(problem, "code", "") in BEGIN_AGAIN
        if not may_repeat or time.monotonic() > deadline or beginning is None:
            raise problem
        source.seek(beginning)
        pause.wait(PLACE_POLL_SECONDS)


class _Writer:
    """One attempt to write a key."""

    def __init__(
        self, plane: Plane, store: BlockStore, place: KeyPlace, source: Source, block_size_bytes: int, tag: str
    ) -> None:
        self._plane = plane
        self._store = store
        self._place = place
        self._source = source
        self._block_size_bytes = block_size_bytes
        self._tag = tag
        self._writer = uuid.uuid4().hex
        self._session = 0
        self._free: list[_Block] = []
        """Blocks that are allocated and not written, in their order."""

    def write(self) -> int:
        """Open the key and write its blocks; return its size. If that fails, abandon the open key."""
        first = self._read(self._block_size_bytes)
        size_bytes = self._block_size_bytes if first else 0
        opened = self._ask(OpenKey(*self._place.names, size_bytes, self._tag, self._block_size_bytes))
        self._session = opened.session
        try:
            self._allocated(opened)
            size_bytes = self._write_blocks(first)
        except BaseException:
            self._abandon()
            raise
        return size_bytes

    def commit(self, size_bytes: int) -> MetadataReply:
        """Commit what was written. If that is refused, abandon the open key."""
        reply = _answer(self._plane, self._place.shard, CommitKey(*self._place.names, self._session, size_bytes))
        try:
            return accepted(reply)
        except PlaneError:
            with suppress(DeepcleanError):  # it would hide the refusal; the open key expires
                self._abandon()
            raise

    def _abandon(self) -> None:
        _answer(self._plane, self._place.shard, AbandonKey(*self._place.names, self._session))

    def _ask(self, command: NamespaceCommand) -> Committed:
        committed = accepted(_answer(self._plane, self._place.shard, command)).committed
        if committed is None:
            raise UnreachableError("metadata of another version has answered: it named no blocks")
        return committed

    def _allocated(self, committed: Committed) -> None:
        if any(replication_of(run.container_id) not in COPIES for run in committed.runs):
            raise PlaneError(
                "NOT_SUPPORTED_OPERATION",
                "datanodes keep whole copies, and blocks of this bucket are erasure-coded: write to a bucket with the "
                "replication RATIS_ONE or RATIS_THREE (deepclean bucket set-replication)",
            )
        self._free += [
            _Block(run.container_id, run.first_local_id + n) for run in committed.runs for n in range(run.block_count)
        ]

    def _next_block(self) -> _Block:
        if not self._free:
            wanted = self._block_size_bytes * BLOCKS_PER_ALLOCATION
            self._allocated(self._ask(AllocateBlocks(*self._place.names, self._session, wanted)))
        return self._free.pop(0)

    def _write_blocks(self, chunk: bytes) -> int:
        size_bytes = 0
        while chunk:
            block = self._next_block()
            urls = _writable(self._store, block.container_id).urls
            checksums: list[int] = []
            block_bytes = 0
            while chunk and block_bytes < self._block_size_bytes:
                for url in urls:
                    self._store.write_chunk(url, block.container_id, block.local_id, self._writer, block_bytes, chunk)
                checksums += checksums_of(chunk)
                block_bytes += len(chunk)
                chunk = self._read(self._block_size_bytes - block_bytes or self._block_size_bytes)
            contents = BlockContents(block_bytes, tuple(checksums))
            for url in urls:
                self._store.put_block(url, block.container_id, block.local_id, self._writer, contents)
            size_bytes += block_bytes
        return size_bytes

    def _read(self, room_bytes: int) -> bytes:
        """Read the next chunk. No chunk is in two blocks, and only the last one of a block is short."""
        parts, left = [], min(MAX_CHUNK_BYTES, room_bytes)
        while left and (part := self._source.read(left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def _answer(plane: Plane, shard: int, command: NamespaceCommand) -> MetadataReply:
    return plane.answer(shard, plane.submit(shard, command))


def _writable(store: BlockStore, container_id: int) -> ContainerPlace:
    """Return the place of a container once its datanodes are ready.

    Raises:
        PlaneError: CLOSED_CONTAINER_IO, the container accepts no blocks any more; or no datanode is ready in time.
    """
    deadline, pause = time.monotonic() + PLACE_SECONDS, threading.Event()
    while not (place := store.place(container_id)).is_writable:
        if place.state != "OPEN":
            raise PlaneError("CLOSED_CONTAINER_IO", f"container {container_id} is {place.state}: open the key again")
        if time.monotonic() > deadline:
            raise PlaneError(
                "NO_REPLICA_FOUND",
                f"container {container_id} is on {len(place.urls)} datanodes after {PLACE_SECONDS:g} seconds: see "
                f"which run (deepclean blocks status)",
            )
        pause.wait(PLACE_POLL_SECONDS)
    return place


def runs_of_key(
    reads: MetadataReads, volume: str, bucket: str, key: str, *, snapshot_id: str = ""
) -> tuple[list[BlockRun], int]:
    """Return the runs of blocks of a key, and its size in bytes.

    Both are of one version, since the size is that of the runs: two reads would show two versions if the key is
    overwritten between them.

    Raises:
        PlaneError: KEY_NOT_FOUND; NOT_A_FILE, a directory is at the path.
    """
    try:
        runs = reads.key_blocks(volume, bucket, key, snapshot_id=snapshot_id)
    except PlaneError as error:
        if error.code != "KEY_NOT_FOUND":
            raise
        if isinstance(reads.stat(volume, bucket, key, snapshot_id=snapshot_id), KeyRow):
            raise  # it was put a moment ago
        raise PlaneError("NOT_A_FILE", f"{key} is a directory") from error
    return runs, sum(run.size_bytes for run in runs)


def read_bytes(store: BlockStore, runs: Sequence[BlockRun], size_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of a version from its runs of blocks. Each chunk is read from the first datanode that has it.

    Raises:
        PlaneError: NO_SUCH_BLOCK or CHECKSUM_MISMATCH, a block is on no datanode: it is lost, or the key was put
            without bytes.
    """
    return read_range(store, runs, 0, size_bytes)


def read_range(store: BlockStore, runs: Sequence[BlockRun], start: int, length: int) -> Iterator[bytes]:
    """Yield ``length`` bytes of a version from the offset ``start`` on; blocks outside of the range are not read.

    Raises:
        PlaneError: as ``read_bytes``.
    """
    end = start + length
    first = 0
    """Offset of the block in the version."""
    for block, block_bytes in chain.from_iterable(map(_blocks_of, runs)):
        if first >= end:
            return
        inner, inner_end = max(start - first, 0), min(end - first, block_bytes)
        if inner < inner_end:
            urls = store.place(block.container_id).urls
            for offset in range(inner, inner_end, MAX_CHUNK_BYTES):
                yield _read_chunk(store, urls, block, offset, min(MAX_CHUNK_BYTES, inner_end - offset))
        first += block_bytes


def _blocks_of(run: BlockRun) -> Iterator[tuple[_Block, int]]:
    left = run.size_bytes
    for number in range(run.block_count):
        yield _Block(run.container_id, run.first_local_id + number), min(run.block_size_bytes, left)
        left -= min(run.block_size_bytes, left)


def _read_chunk(store: BlockStore, urls: Sequence[str], block: _Block, offset: int, length: int) -> bytes:
    why: Exception = PlaneError("NO_REPLICA_FOUND", f"no datanode that is alive has container {block.container_id}")
    for url in urls:
        try:
            data = store.read(url, block.container_id, block.local_id, offset, length)
        except (PlaneError, UnreachableError) as error:
            why = error
            continue
        if len(data) == length:
            return data
        why = PlaneError("NO_SUCH_BLOCK", f"block {block.local_id} is shorter on {url} than metadata has it")
    raise why


def lost_blocks(store: BlockStore) -> Iterator[BlockRun]:
    """Yield, as runs of one block, each block with bytes that no datanode that is alive has whole.

    Raises:
        UnreachableError: a datanode that is alive does not answer, so that nothing can be said.
    """
    for run in store.stored_runs():
        ids = list(range(run.first_local_id, run.first_local_id + run.block_count))
        sizes = [size_bytes for _, size_bytes in _blocks_of(run)]
        found = [False] * len(ids)
        for url in store.place(run.container_id).urls:
            if not all(found):
                there = store.are_whole(url, run.container_id, ids)
                found = [before or now for before, now in zip(found, there, strict=True)]
        for local_id, size_bytes, is_found in zip(ids, sizes, found, strict=True):
            if not is_found:
                yield BlockRun(run.container_id, local_id, 1, run.block_size_bytes, size_bytes)
