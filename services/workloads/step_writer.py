"""The client of a workload that writes keys in steps: open keys by their handles, uploads by their labels.

Like Ozone's client, an open key reports a sync only if it is its first one or has begun another block. Up to the next
report, listings and snapshots show the size of the last one. A part is opened without blocks and gets them afterwards:
if that is refused, it stays open until it expires.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from schemas import records
from schemas.records import Committed, MetadataReply
from services.client.plane import NamespaceCommand, Plane
from services.workloads import workload
from services.workloads.stream_blocks import StreamBlocks, blocks_of
from services.workloads.workload import BLOCK_BYTES, WorkloadError

Names = tuple[str, str]
"""Names of a volume and a bucket on the plane."""
StepOperation = (
    workload.OpenKey
    | workload.SyncKey
    | workload.CommitKey
    | workload.AbandonKey
    | workload.InitiateUpload
    | workload.PutPart
    | workload.CompleteUpload
    | workload.AbortUpload
)


class RefusedError(Exception):
    """The plane has refused an operation, with this code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Written:
    """A version that has become visible: its label, and its generation."""

    tag: str
    generation: int


@dataclass(slots=True)
class _Stream:
    """An open key."""

    shard: int
    names: Names
    key: str
    handle: str
    session: int
    blocks: StreamBlocks
    synced_blocks: int = -1
    """Blocks at the last sync that was reported; -1 before the first."""
    is_alive: bool = True


@dataclass(frozen=True, slots=True)
class _Upload:
    shard: int
    names: Names
    key: str
    upload_id: str


@dataclass(slots=True)
class StepWriter:
    """Carries out the operations that write in steps."""

    plane: Plane
    names_of: Callable[[Any], Names]
    """Returns the names on the plane of an operation's bucket."""
    place_of: Callable[[Any], Names]
    """Returns the volume and bucket in which an operation works, also when it names a link."""
    written: list[StreamBlocks] = field(default_factory=list)
    """The blocks of every open key and part, in the order in which they were opened."""
    _streams: dict[str, _Stream] = field(default_factory=dict)
    _sessions: dict[tuple[int, int], _Stream] = field(default_factory=dict)
    """Open keys by shard and id."""
    _parts: dict[tuple[int, int], StreamBlocks] = field(default_factory=dict)
    """Parts whose commit was refused, in the same way."""
    _uploads: dict[str, _Upload] = field(default_factory=dict)

    def carry_out(self, number: int, shard: int, operation: StepOperation) -> Written | None:
        """Carry out an operation. Return the version that it has made visible, if any.

        Raises:
            RefusedError: the plane has refused it.
            WorkloadError: it names a handle or an upload that is not open.
        """
        written = None
        match operation:
            case workload.OpenKey():
                self._open(number, shard, operation)
            case workload.SyncKey() | workload.CommitKey():
                written = self._write_on(number, operation)
            case workload.AbandonKey():
                self._stream(number, operation.handle).is_alive = False
            case workload.InitiateUpload():
                self._initiate(shard, operation)
            case workload.PutPart():
                self._put_part(number, operation)
            case workload.CompleteUpload():
                written = self._complete(number, operation)
            case workload.AbortUpload():
                upload = self._upload(number, operation.upload)
                self._ask(upload.shard, records.AbortUpload(*upload.names, upload.key, upload.upload_id))
        return written

    def _ask(self, shard: int, command: NamespaceCommand) -> MetadataReply:
        reply = self.plane.answer(shard, self.plane.submit(shard, command))
        if reply.error:
            raise RefusedError(reply.error)
        return reply

    # ---- open keys

    def _stream(self, number: int, handle: str) -> _Stream:
        stream = self._streams.get(handle)
        if stream is None or not stream.is_alive:
            raise WorkloadError(
                number, f"the handle {handle!r} is not open: it was never opened, or closed or given up"
            )
        return stream

    def _open(self, number: int, shard: int, operation: workload.OpenKey) -> None:
        names = self.names_of(operation)
        command = records.OpenKey(*names, operation.key, operation.size_bytes, operation.tag, BLOCK_BYTES)
        opened = _committed(self._ask(shard, command))
        blocks = StreamBlocks(number, *self.place_of(operation), operation.tag)
        blocks.allocate(opened.runs)
        stream = _Stream(shard, names, operation.key, operation.handle, opened.session, blocks)
        self._streams[operation.handle] = self._sessions[shard, opened.session] = stream
        self.written.append(blocks)

    def _write_on(self, number: int, operation: workload.SyncKey | workload.CommitKey) -> Written | None:
        stream, size_bytes = self._stream(number, operation.handle), operation.size_bytes
        count, is_commit = blocks_of(size_bytes), isinstance(operation, workload.CommitKey)
        if not is_commit and count <= stream.synced_blocks:
            return None
        place = (*stream.names, stream.key, stream.session)
        had = list(stream.blocks.unused)
        try:
            if missing := max(0, count - stream.blocks.allocated_blocks):
                reply = self._ask(stream.shard, records.AllocateBlocks(*place, missing * BLOCK_BYTES))
                stream.blocks.allocate(_committed(reply).runs)
            command = records.CommitKey if is_commit else records.SyncKey
            reply = self._ask(stream.shard, command(*place, size_bytes))
        except RefusedError:
            stream.is_alive = False  # the client gives up
            stream.blocks.refuse([run for run in stream.blocks.unused if run not in had])
            raise
        stream.blocks.use_up_to(size_bytes)
        stream.synced_blocks = count
        if is_commit:
            self._forget(stream)
        return Written(stream.blocks.tag, reply.txn)

    def _forget(self, stream: _Stream) -> None:
        stream.blocks.is_open = False
        self._sessions.pop((stream.shard, stream.session))
        if self._streams.get(stream.handle) is stream:
            del self._streams[stream.handle]

    def expire_open_keys(self, shard: int, names: Names) -> None:
        """Abandon every open key of a bucket that no living stream owns."""
        for listed in self.plane.metadata(shard).open_keys(*names):
            row = listed.row
            stream = self._sessions.get((shard, row.session))
            if stream is not None and stream.is_alive:
                continue
            self._ask(shard, records.AbandonKey(*names, row.key, row.session, row.parent_id))
            if stream is not None:
                self._forget(stream)
            elif part := self._parts.pop((shard, row.session), None):
                part.is_open = False

    # ---- uploads

    def _upload(self, number: int, label: str) -> _Upload:
        if label not in self._uploads:
            raise WorkloadError(number, f"the upload {label!r} was never initiated")
        return self._uploads[label]

    def _initiate(self, shard: int, operation: workload.InitiateUpload) -> None:
        names = self.names_of(operation)
        reply = self._ask(shard, records.InitiateUpload(*names, operation.key))
        self._uploads[operation.upload] = _Upload(shard, names, operation.key, _committed(reply).upload_id)

    def _put_part(self, number: int, operation: workload.PutPart) -> None:
        upload = self._upload(number, operation.upload)
        place = (*upload.names, upload.key)
        part = (upload.upload_id, operation.part_number)
        opened = _committed(
            self._ask(upload.shard, records.OpenKey(*place, 0, operation.tag, BLOCK_BYTES, 0, False, *part))
        )
        blocks = StreamBlocks(number, *self.place_of(operation), operation.tag)
        self.written.append(blocks)
        try:
            if whole_bytes := blocks_of(operation.size_bytes) * BLOCK_BYTES:
                reply = self._ask(upload.shard, records.AllocateBlocks(*place, opened.session, whole_bytes))
                blocks.allocate(_committed(reply).runs)
            self._ask(upload.shard, records.CommitKey(*place, opened.session, operation.size_bytes))
        except RefusedError:
            blocks.refuse(blocks.unused)
            self._parts[upload.shard, opened.session] = blocks
            raise
        blocks.use_up_to(operation.size_bytes)
        blocks.is_open = False

    def _complete(self, number: int, operation: workload.CompleteUpload) -> Written:
        upload = self._upload(number, operation.upload)
        command = records.CompleteUpload(
            *upload.names, upload.key, upload.upload_id, operation.part_numbers, operation.tag
        )
        return Written(operation.tag, self._ask(upload.shard, command).txn)

    def expire_uploads(self, shard: int, names: Names) -> None:
        """Abort every upload of a bucket."""
        for row in self.plane.metadata(shard).uploads(*names):
            self._ask(shard, records.AbortUpload(*names, row.key, row.upload_id))

    # ---- observations

    def observe(self, shard: int, names: Names) -> dict[str, Any]:
        """Return what is being written in a bucket."""
        reads = self.plane.metadata(shard)
        opened = sorted(reads.open_keys(*names), key=lambda one: (one.row.key, one.row.session))
        labels = {(upload.shard, upload.upload_id): label for label, upload in self._uploads.items()}
        return {
            "open_keys": [
                {
                    "key": one.row.key,
                    "tag": one.row.tag,
                    "handle": stream.handle if (stream := self._sessions.get((shard, one.row.session))) else None,
                    **({"taken_away": True} if one.is_taken_away else {}),
                }
                for one in opened
            ],
            "uploads": {
                labels[shard, row.upload_id]: {
                    str(part.part_number): part.tag for part in reads.parts(*names, row.key, row.upload_id)
                }
                for row in reads.uploads(*names)
            },
        }


def _committed(reply: MetadataReply) -> Committed:
    if reply.committed is None:
        raise ValueError(f"the plane has answered without facts: {reply}")
    return reply.committed
