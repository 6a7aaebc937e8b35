"""Rows in the tables of mock_scm."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from enum import StrEnum

from schemas.frozen import record
from schemas.records.scm import DeleteBlocks
from schemas.records.shared import BlockRun


@record
class ContainerReplica:
    """A datanode that is to have a copy of a container."""

    node: str
    """Name of the datanode."""
    is_complete: bool
    """Whether the datanode has reported the whole container. False while the copy is made."""


class ContainerState(StrEnum):
    """What happens to a container, in this order. Only an open one gets blocks of new keys."""

    OPEN = "OPEN"
    CLOSING = "CLOSING"
    CLOSED = "CLOSED"
    DELETING = "DELETING"
    DELETED = "DELETED"


@record
class DelayedDeletion:
    """delayedDeletionTable: a deletion that is delayed while the block store is slow."""

    due_ms: int
    """Time at which the deletion is carried out."""
    command: DeleteBlocks
    """The command."""


@record
class DeletedBlocksRow:
    """deletedBlocksTable: a transaction of block deletions for the datanodes."""

    deletion_txn: int
    """Number of the transaction, Ozone's delTxnId."""
    container_id: int
    """Container of the blocks."""
    first_local_ids: tuple[int, ...]
    """For each run of blocks, the local id of its first block."""
    block_counts: tuple[int, ...]
    """For each run, its number of blocks."""
    sizes_bytes: tuple[int, ...]
    """For each run, the size of all its blocks together."""
    retry_count: int
    """Intervals in which the datanodes got the transaction and not all have acknowledged it. -1: it was tried too
    often and is parked until an operator retries it.
    """
    acknowledged_by: tuple[str, ...] = ()
    """Datanodes that have stored the transaction durably."""


@record
class InventoryRow:
    """inventoryTable: a run of blocks in the block store."""

    bucket_id: int
    """objectID of the bucket."""
    blocks: BlockRun
    """The blocks."""


@record
class PipelineRow:
    """pipelineTable: datanodes on which containers are created together."""

    pipeline_id: int
    """Id of the pipeline."""
    nodes: tuple[str, ...]
    """Names of the datanodes."""
    is_open: bool
    """Whether new containers are created on it. A pipeline that has lost a datanode stays closed."""


@record
class ScmState:
    """scmStateTable: the counters of one shard's storage container manager."""

    mark_local_id: int
    """The inventory is complete up to this local id."""
    container_id: int
    """Id of the newest container."""
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


@record
class SequenceRow:
    """sequenceIdTable: the last id of one kind that was given out. It is written together with what has the id, so
    that no id is given twice.
    """

    last_id: int
    """The last id."""


@record
class WaitingDeletion:
    """waitingDeletionTable: a deletion that waits until the inventory is complete up to its newest block."""

    until_local_id: int
    """Local id of the newest of the blocks."""
    command: DeleteBlocks
    """The command."""


@record
class ContainerRow:
    """containerTable: a container and its contents."""

    container_id: int
    """Id of the container."""
    block_count: int
    """Blocks in the container."""
    used_bytes: int
    """Bytes in the container."""
    written_bytes: int
    """Bytes ever written to the container; when it is full, a new container is granted."""
    state: ContainerState = ContainerState.OPEN
    """State of the container. A container below the newest one is at least CLOSED, whatever an older program has
    written here.
    """
    pipeline_id: int = 0
    """Pipeline on which the container was created; 0 without datanodes."""
    replicas: tuple[ContainerReplica, ...] = ()
    """The datanodes that are to have a copy; none without datanodes."""
