"""The column families of one shard's key_deletion.

================= ======================== =======================================================================
table             key                      value
================= ======================== =======================================================================
taskTable         task                     a batch of rows in progress
waitingTable      number, in order         a purge request that may not be judged yet, or has no room
chainTable        /bucketId/txn and others the chain, see ``StoredChain``
garbageRangeTable snapshot id              a live snapshot's garbage range; it is clean when it has no sweep
sweepTable        /bucketId/snapshot id/n  the sweep of a garbage range: n is the number of one in progress, 0 for
                                           the queued one; the id is empty for the range of the active namespace
barrierTable      topic/barrier id         a barrier that waits for its counterpart from the other topic
writeExpiryTable  #EXPIRY                  the pass through open keys and uploads, and when the next one is due
collectionTable   #KNOWN                   the known collection states: all buckets whose state is not RUNNING
countTable        name                     the numbers given out, and the work done since the last barrier
================= ======================== =======================================================================

Numbers are 16 hex digits, so that the order of keys is the order of numbers.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from schemas import records
from schemas.topics import Topic
from services.runtime.parts.collection_follower import COLLECTION_TABLE
from services.runtime.parts.counts import COUNT_TABLE
from services.runtime.parts.stored_chain import CHAIN_TABLE
from services.storage.tables import TableDefinition

TASK_TABLE = TableDefinition("taskTable", records.TaskRow, is_cached=True, most_cached_rows=256)
"""A task of a thousand rows takes 0.3 MB when it is decoded. Few are in flight, but very many may wait for their retry
while the block store fails."""
WAITING_TABLE = TableDefinition("waitingTable", records.WaitingPurge)
GARBAGE_RANGE_TABLE = TableDefinition("garbageRangeTable", records.GarbageRangeRow)
SWEEP_TABLE = TableDefinition("sweepTable", records.SweepRow)
BARRIER_TABLE = TableDefinition("barrierTable", records.Barrier)
WRITE_EXPIRY_TABLE = TableDefinition("writeExpiryTable", records.WriteExpiryRow)

TABLES: tuple[TableDefinition[Any], ...] = (
    TASK_TABLE,
    WAITING_TABLE,
    CHAIN_TABLE,
    GARBAGE_RANGE_TABLE,
    SWEEP_TABLE,
    BARRIER_TABLE,
    WRITE_EXPIRY_TABLE,
    COLLECTION_TABLE,
    COUNT_TABLE,
)

TASK, PURGE, SWEEP = b"task", b"purge", b"sweep"
"""Keys in countTable: numbers given out."""
SWEEP_TURN, PURGE_TURN = b"sweepTurn", b"purgeTurn"
"""Keys in countTable: the turns of sweeps to request a page, and of the two queues of purge requests to be claimed."""
FEATURE_LEVEL_HEARD = b"featureLevel"
"""Key in countTable: the shard's feature level, as metadata has said it last."""
SAFETY_SWEEP_MS = b"safetySweepMs"
"""Key in countTable: when the next safety sweep is due."""


def number_key(number: int) -> bytes:
    """Return a key of taskTable or waitingTable."""
    return b"%016x" % number


def number_of_key(key: bytes) -> int:
    """Return the number in a key of taskTable or waitingTable."""
    return int(key, 16)


def sweep_key(bucket_id: int, snapshot_id: str, sweep_id: int) -> bytes:
    """Return a key of sweepTable."""
    return b"/%d/%s/%016x" % (bucket_id, snapshot_id.encode(), sweep_id)


def barrier_key(topic: Topic, barrier_id: str) -> bytes:
    """Return a key of barrierTable."""
    return f"{topic.name}/{barrier_id}".encode()


class TaskState(StrEnum):
    """The step of a task. Each step is described by the event that ends it."""

    CLAIMING = "CLAIMING"
    """metadata's answer to its claim."""
    DELETING = "DELETING"
    """SCM's answer to its deletion."""
    FAILED = "FAILED"
    """The end of its back-off, after SCM failed its groups."""
    FINISHING = "FINISHING"
    """metadata's answer that the rows are removed."""
