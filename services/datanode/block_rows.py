"""The rows of containers and blocks on one disk: how they are read and changed within a unit of work."""

from __future__ import annotations

from schemas.block_checksums import PIECE_BYTES
from schemas.block_store import MAX_CHUNK_BYTES, BlockContents, ReplicaState
from schemas.records import BlockDataRow, Chunk, ContainerCounterRow
from services.datanode.errors import BlockError, no_container
from services.datanode.tables import (
    BLOCK_DATA,
    DELETE_TXNS,
    METADATA,
    Counter,
    counter_key,
    number_key,
    prefix,
    prefix_end,
)
from services.storage.tables import UnitOfWork

STATES = (ReplicaState.OPEN, ReplicaState.CLOSED, ReplicaState.RECOVERING)
"""The states of a copy; the row has the place in this list."""
PIECES_PER_CHUNK = MAX_CHUNK_BYTES // PIECE_BYTES


def forget_block(work: UnitOfWork, storage: int, local_id: int, *, is_closed: bool) -> None:
    """Remove the row of a block; of a container that still gets blocks, keep a row that it was deleted."""
    key = number_key(storage, local_id)
    if is_closed:
        work.table(BLOCK_DATA).delete(key)
    else:
        work.table(BLOCK_DATA).put(key, BlockDataRow(local_id, 0, (), is_damaged=False, is_deleted=True))


def require_writable(work: UnitOfWork, storage: int, local_id: int, *, is_copy: bool) -> None:
    """Raise BlockError unless a block may be written: by a client, or into a copy that is being made."""
    state = state_of(work, storage)
    if state is None:
        raise no_container(storage)
    if state is not (ReplicaState.RECOVERING if is_copy else ReplicaState.OPEN):
        raise BlockError("CLOSED_CONTAINER_IO", f"container {storage} is {state}: get blocks in another one")
    row = work.table(BLOCK_DATA).get(number_key(storage, local_id))
    is_leaving = any(first <= local_id < end for first, end in leaving_runs(work, storage))
    if is_leaving or (row is not None and row.is_deleted):
        raise BlockError("BLOCK_DELETED", f"block {local_id} was deleted: open the key again")


def leaving_runs(work: UnitOfWork, storage: int) -> list[tuple[int, int]]:
    """Return the runs of blocks, first id and end, that stored transactions are going to remove."""
    if not figure(work, storage, Counter.PENDING_DELETE):
        return []
    rows = work.table(DELETE_TXNS).scan(prefix(storage), prefix_end(storage))
    return [
        (first, first + count)
        for _, row in rows
        for first, count in zip(row.first_local_ids, row.block_counts, strict=True)
    ]


def chunks_of(contents: BlockContents) -> tuple[Chunk, ...]:
    """Return the chunks of a block with their checksums."""
    return tuple(
        [
            Chunk(
                offset,
                min(MAX_CHUNK_BYTES, contents.size_bytes - offset),
                tuple(contents.checksums[offset // PIECE_BYTES : offset // PIECE_BYTES + PIECES_PER_CHUNK]),
            )
            for offset in range(0, contents.size_bytes, MAX_CHUNK_BYTES)
        ]
    )


def checksums_in(row: BlockDataRow) -> list[int]:
    """Return the checksums of all pieces of a block."""
    return [checksum for chunk in row.chunks for checksum in chunk.checksums]


def contents_of(row: BlockDataRow) -> BlockContents:
    """Return what the writer of a block has said of it."""
    return BlockContents(row.size_bytes, tuple(checksums_in(row)))


def is_there(row: BlockDataRow | None) -> bool:
    """Return whether a row is one of a block that is not deleted."""
    return row is not None and not row.is_deleted


def state_of(work: UnitOfWork, storage: int) -> ReplicaState | None:
    """Return the state of a copy; None if the container is not on the disk."""
    row = work.table(METADATA).get(counter_key(storage, Counter.STATE))
    return None if row is None else STATES[row.value]


def figure(work: UnitOfWork, storage: int, counter: Counter) -> int:
    """Return a figure of a container."""
    row = work.table(METADATA).get(counter_key(storage, counter))
    return row.value if row else 0


def put_figure(work: UnitOfWork, storage: int, counter: Counter, value: int) -> None:
    """Set a figure of a container."""
    work.table(METADATA).put(counter_key(storage, counter), ContainerCounterRow(value))


def add_to_figure(work: UnitOfWork, storage: int, counter: Counter, value: int) -> None:
    """Add to a figure of a container."""
    if value:
        put_figure(work, storage, counter, figure(work, storage, counter) + value)
