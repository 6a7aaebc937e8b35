"""What mock_scm, datanodes and clients say to each other about blocks: JSON over HTTP, one frozen dataclass each.

A datanode sends a ``Heartbeat`` to each shard and gets ``NodeOrders``. Both are about the present state and can be
repeated: what was lost on the way is in the next one. Container ids are those of the shard in the path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from zlib import crc32

from schemas.records import ContainerState

MAX_CHUNK_BYTES = 1 << 20
"""Largest chunk of a block: one request writes or reads one chunk."""


class ReplicaState(StrEnum):
    """State of a datanode's copy of a container."""

    OPEN = "OPEN"
    CLOSED = "CLOSED"
    RECOVERING = "RECOVERING"
    """It is being copied from other datanodes, and is not complete."""


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A datanode's copy of one container."""

    container_id: int
    state: ReplicaState
    block_count: int
    used_bytes: int
    damaged_blocks: int = 0
    last_deletion_txn: int = 0
    """Highest delTxnId that the copy has had."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A datanode has stored a transaction durably, or has no copy of its container."""

    deletion_txn: int
    digest: int
    """``digest_of`` its blocks: a mock_scm that was made again from the log may give an id to other blocks."""
    is_stored: bool
    """False if the datanode has no copy of the container."""


def digest_of(container_id: int, first_local_ids: Sequence[int], block_counts: Sequence[int]) -> int:
    """Return a checksum of the blocks of a transaction."""
    return crc32(repr((container_id, list(first_local_ids), list(block_counts))).encode())


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """All that one datanode has of one shard."""

    node: str
    url: str
    started_ms: int
    """Start of the datanode's process."""
    number: int
    """Counts the heartbeats of the process to the shard: an older one that arrives later is ignored."""
    volumes: int
    """Disks that work."""
    replicas: tuple[ReplicaReport, ...] = ()
    acknowledged: tuple[Acknowledgement, ...] = ()
    """Transactions that the datanode got in the last answer."""


@dataclass(frozen=True, slots=True)
class DeletionOrder:
    """A transaction of the deletedBlocks log. The datanode stores it, acknowledges it and carries it out later."""

    deletion_txn: int
    container_id: int
    first_local_ids: tuple[int, ...]
    block_counts: tuple[int, ...]

    def acknowledgement(self, *, is_stored: bool) -> Acknowledgement:
        """Return what a datanode answers when it has stored the transaction, or has no copy of the container."""
        digest = digest_of(self.container_id, self.first_local_ids, self.block_counts)
        return Acknowledgement(self.deletion_txn, digest, is_stored)


@dataclass(frozen=True, slots=True)
class RepairOrder:
    """Make a copy of a container whole again: copy from other datanodes what is missing or damaged."""

    container_id: int
    sources: tuple[str, ...]
    """URLs of datanodes with complete copies."""


@dataclass(frozen=True, slots=True)
class RemoveOrder:
    """Remove a copy of a container."""

    container_id: int
    only_if_empty: bool
    """False for a copy that is not needed: others are complete."""


@dataclass(frozen=True, slots=True)
class NodeOrders:
    """All that a datanode has to do for one shard, carried out in the order of the fields."""

    create: tuple[int, ...] = ()
    """Open containers that the datanode is to have."""
    close: tuple[int, ...] = ()
    remove: tuple[RemoveOrder, ...] = ()
    delete: tuple[DeletionOrder, ...] = ()
    repair: tuple[RepairOrder, ...] = ()
    shards: int = 0
    """Number of shards of the block store: a datanode reports to all of them. 0: an older program, which does not say.
    """


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """Where a client reads and writes the blocks of a container."""

    container_id: int
    state: ContainerState
    is_writable: bool
    """Whether the container is open, and all datanodes that are to have it are ready."""
    urls: tuple[str, ...]
    """The datanodes that have a complete copy, and are alive."""


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """One block in the listing of a datanode's copy of a container."""

    local_id: int
    size_bytes: int
    checksums: tuple[int, ...]
    """CRC32 of each 16 KiB."""
    is_damaged: bool


@dataclass(frozen=True, slots=True)
class BlockContents:
    """What a client says of a block when it has written all chunks: the datanode compares."""

    size_bytes: int
    checksums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A datanode as mock_scm sees it."""

    node: str
    url: str
    is_alive: bool
    volumes: int
    containers: int
    used_bytes: int
    damaged_blocks: int
    waiting_transactions: int
    """Transactions of deletions that it has not acknowledged."""


@dataclass(frozen=True, slots=True)
class BlockStoreStatus:
    """The block store of one shard."""

    replication: int
    """Copies of each block that a client writes; 0 without datanodes."""
    nodes: tuple[NodeStatus, ...]
    containers: dict[str, int]
    """Number of containers by state."""
    under_replicated: int
    """Containers with fewer complete copies than they are to have."""
    lost_containers: int
    """Containers that had bytes and have no complete copy on a datanode that is alive."""
    waiting_transactions: int
    parked_transactions: int


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transaction of the deletedBlocks log that has not ended."""

    deletion_txn: int
    container_id: int
    block_count: int
    size_bytes: int
    retry_count: int
    """-1 if it is parked."""
    waits_for: tuple[str, ...]
    """Datanodes that have not acknowledged it."""
