"""The column families of one shard's directory_deletion.

=============== =========================== =========================================================
table           key                         value
=============== =========================== =========================================================
treeTable       /bucketId/death/objectId    a deleted directory in progress
chainTable      see ``StoredChain``         the chain: its version, its buckets, its live snapshots
collectionTable #KNOWN                      the known collection states: all buckets whose state is not RUNNING
countTable      done                        the work done since the last barrier
=============== =========================== =========================================================

Death and objectId are 16 hex digits.
"""

from __future__ import annotations

from typing import Any

from schemas import records
from services.runtime.loop.service import Work
from services.runtime.parts.collection_follower import COLLECTION_TABLE
from services.runtime.parts.counts import COUNT_TABLE
from services.runtime.parts.stored_chain import CHAIN_TABLE
from services.storage.tables import TableDefinition, TablesReader

Tables = Work | TablesReader
"""Tables to read: their committed rows, or those of a unit of work."""

TREE_TABLE = TableDefinition("treeTable", records.TreeRow, is_cached=True)

TABLES: tuple[TableDefinition[Any], ...] = (TREE_TABLE, CHAIN_TABLE, COLLECTION_TABLE, COUNT_TABLE)

_64_BITS = (1 << 64) - 1


def tree_row_key(bucket_id: int, death: int, object_id: int) -> bytes:
    """Return a key of treeTable."""
    return b"/%d/%016x/%016x" % (bucket_id, death, object_id & _64_BITS)
