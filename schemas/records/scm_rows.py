"""Rows that mock_scm keeps."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass

from schemas.records.scm import DeleteBlocks
from schemas.records.shared import BlockRun


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """containerTable: a container and what is in it."""

    container_id: int
    """Id of the container."""
    block_count: int
    """Blocks in it."""
    used_bytes: int
    """Bytes in it."""
    written_bytes: int
    """Bytes ever written to it: when it is full a new one is leased."""


@dataclass(frozen=True, slots=True)
class DelayedDeletion:
    """delayedDeletionTable: a deletion that is carried out later, while the block store is slow."""

    due_ms: int
    """When."""
    command: DeleteBlocks
    """The command."""


@dataclass(frozen=True, slots=True)
class DeletedBlocksRow:
    """deletedBlocksTable: a transaction of deletions for the datanodes."""

    deletion_txn: int
    """delTxnId."""
    container_id: int
    """Container of the blocks."""
    first_local_ids: tuple[int, ...]
    """Of each run of blocks the local id of the first one."""
    block_counts: tuple[int, ...]
    """Of each run how many blocks."""
    sizes_bytes: tuple[int, ...]
    """Of each run the size of all its blocks together."""
    retry_count: int
    """Tries so far."""


@dataclass(frozen=True, slots=True)
class InventoryRow:
    """inventoryTable: a run of blocks that is in the block store."""

    bucket_id: int
    """objectID of the bucket."""
    blocks: BlockRun
    """The blocks."""


@dataclass(frozen=True, slots=True)
class ScmState:
    """scmStateTable: the counters of one shard's storage container manager."""

    mark_local_id: int
    """Blocks written are known up to this local id."""
    container_id: int
    """Newest container."""
    deletion_txn: int
    """Last delTxnId."""
    inventory_bytes: int
    """Bytes in the block store."""
    inventory_blocks: int
    """Blocks in the block store."""
    deleted_bytes: int
    """Bytes deleted, ever."""
    deleted_blocks: int
    """Blocks deleted, ever."""


@dataclass(frozen=True, slots=True)
class WaitingDeletion:
    """waitingDeletionTable: a deletion of blocks that are not known yet."""

    until_local_id: int
    """Local id of the newest of its blocks."""
    command: DeleteBlocks
    """The command."""
