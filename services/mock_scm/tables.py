"""The column families of one shard's mock storage container manager.

==================== ========================== ==========================================================
table                key                        value
==================== ========================== ==========================================================
inventoryTable       containerId/firstLocalId   a run of blocks that is in the store
containerTable       containerId                a container and what is in it
deletedBlocksTable   delTxnId                   blocks that the datanodes have yet to remove
waitingDeletionTable untilLocalId/task/attempt  a deletion of blocks that are not known yet
delayedDeletionTable due/task/attempt           a deletion that is carried out later
scmStateTable        now, barrier               the counters, and their values when the last barrier passed
sequenceIdTable      name                       the last id of a kind that was given out
pipelineTable        pipelineId                 datanodes on which containers are created together
storedRunsTable      containerId/firstLocalId   a run of blocks whose bytes are on datanodes
==================== ========================== ==========================================================

All numbers are 16 hex digits, so that the order of keys is the order of numbers.
"""

from __future__ import annotations

from typing import Any

from schemas import records
from schemas.records import DeleteBlocks
from services.storage.tables import TableDefinition

INVENTORY_TABLE = TableDefinition("inventoryTable", records.InventoryRow)
CONTAINER_TABLE = TableDefinition("containerTable", records.ContainerRow, is_cached=True)
DELETED_BLOCKS_TABLE = TableDefinition("deletedBlocksTable", records.DeletedBlocksRow)
WAITING_DELETION_TABLE = TableDefinition("waitingDeletionTable", records.WaitingDeletion)
DELAYED_DELETION_TABLE = TableDefinition("delayedDeletionTable", records.DelayedDeletion)
SCM_STATE_TABLE = TableDefinition("scmStateTable", records.ScmState, is_cached=True)
SEQUENCE_ID_TABLE = TableDefinition("sequenceIdTable", records.SequenceRow, is_cached=True)
PIPELINE_TABLE = TableDefinition("pipelineTable", records.PipelineRow, is_cached=True)
STORED_RUNS_TABLE = TableDefinition("storedRunsTable", records.InventoryRow)

TABLES: tuple[TableDefinition[Any], ...] = (
    INVENTORY_TABLE,
    CONTAINER_TABLE,
    DELETED_BLOCKS_TABLE,
    WAITING_DELETION_TABLE,
    DELAYED_DELETION_TABLE,
    SCM_STATE_TABLE,
    SEQUENCE_ID_TABLE,
    PIPELINE_TABLE,
    STORED_RUNS_TABLE,
)

STATE_KEY = b"now"
BARRIER_STATE_KEY = b"barrier"


def number_key(number: int) -> bytes:
    """Return a key of containerTable, deletedBlocksTable or pipelineTable."""
    return b"%016x" % number


def inventory_key(container_id: int, first_local_id: int) -> bytes:
    """Return a key of inventoryTable."""
    return b"%016x/%016x" % (container_id, first_local_id)


def deletion_key(order: int, command: DeleteBlocks) -> bytes:
    """Return a key of waitingDeletionTable, with a local id as order, or of delayedDeletionTable, with a time."""
    return b"%016x/%016x/%08x" % (order, command.task, command.attempt)


def order_of_key(key: bytes) -> int:
    """Return the local id or time in a key of waitingDeletionTable or delayedDeletionTable."""
    return int(key[:16], 16)
