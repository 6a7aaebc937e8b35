"""The column families of one shard's directory_deletion.

=============== ======================== ===================================================================
table           key                      value
=============== ======================== ===================================================================
treeTable       /bucketId/death/objectId a deleted directory in progress
chainTable      /bucketId/txn and others the chain, see ``StoredChain``
collectionTable #KNOWN                   the known collection states: all buckets whose state is not RUNNING
countTable      done                     the work done since the last barrier
=============== ======================== ===================================================================

Death and objectId are 16 hex digits.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from schemas import records
from services.runtime.parts.collection_follower import COLLECTION_TABLE
from services.runtime.parts.counts import COUNT_TABLE
from services.runtime.parts.stored_chain import CHAIN_TABLE
from services.storage.tables import TableDefinition

TREE_TABLE = TableDefinition("treeTable", records.TreeRow, is_cached=True)

TABLES: tuple[TableDefinition[Any], ...] = (TREE_TABLE, CHAIN_TABLE, COLLECTION_TABLE, COUNT_TABLE)

_64_BITS = (1 << 64) - 1


def tree_row_key(bucket_id: int, death: int, object_id: int) -> bytes:
    """Return a key of treeTable."""
    return b"/%d/%016x/%016x" % (bucket_id, death, object_id & _64_BITS)


class TreeState(StrEnum):
    """The step of a deleted directory. Each step is described by the event that ends it."""

    WAITING = "WAITING"
    """Room to be expanded."""
    EXPANDING = "EXPANDING"
    """metadata's answer to a page of its expansion."""
    EXPANDED = "EXPANDED"
    """The chain version that its verdict needs, and room for the removal of its row."""
    REMOVING = "REMOVING"
    """metadata's answer to the removal of its row."""
    BLOCKED = "BLOCKED"
    """The removal of a child's row."""
    SUSPENDED = "SUSPENDED"
    """A change of the collection state that metadata knows and this service does not; or a retry after a pause."""
