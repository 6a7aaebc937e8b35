"""The column families of one shard's snapshots.

==================== ====================================== =========================================================
table                key                                    value
==================== ====================================== =========================================================
snapshotInfoTable    /volume/bucket/name                    a snapshot; create_txn 0 while it is being created
pendingTable         snapshot id                            an unfinished create, drop or undo
deepCleanTable       snapshot id                            the newest deep-clean flags of key_deletion
snapshotSizeTable    snapshot id                            the referenced size, as metadata counts it
spaceTable           /bucketId/first/last                   bytes and rows by first and last holder, from metadata
spaceProgressTable   /bucketId                              a bucket's newest update, without its cells
settleTable          barrier id                             a request to settle
returnedBarrierTable barrier id/origin                      a barrier of the current round that has returned
chainTable           /bucketId/txn and others               the chain, see ``StoredChain``
collectionTable      #KNOWN                                 the known collection states that are not RUNNING
retentionTable       /volume/bucket                         a retention policy, and the state of its runs
tagTable             /volume/bucket/tag                     a tag, which protects a snapshot
consumerTable        /volume/bucket/consumer                a consumer and its position
expiryTable          number/client id                       a request to expire whose snapshots are not removed yet
rollbackTable        /volume/bucket                         a rollback in progress
droppedSnapshotTable /volume/bucket/name                    the last dropped snapshot of a name
s3SecretTable        user or service                        the secret with which it signs commands
deadLetterTable      2^63-1 - number                        a dead letter without its bytes; newest first
letterTable          2^63-1 - number                        the letter itself, until it is resolved
deadLetterPlaceTable service/topic/partition/offset/SHA-256 number of the letter about that message
deadLetterCountTable service                                number of open letters of the service
clientTable          client id                              last number and answer of a client
==================== ====================================== =========================================================

Numbers are 16 hex digits. The row /0 of spaceProgressTable has the txn up to which all updates have arrived.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from schemas import records
from services.runtime.parts.collection_follower import COLLECTION_TABLE
from services.runtime.parts.stored_chain import CHAIN_TABLE
from services.storage.tables import TableDefinition

SNAPSHOT_INFO_TABLE = TableDefinition("snapshotInfoTable", records.SnapshotInfo)
PENDING_TABLE = TableDefinition("pendingTable", records.PendingSnapshot)
DEEP_CLEAN_TABLE = TableDefinition("deepCleanTable", records.SetDeepClean)
SNAPSHOT_SIZE_TABLE = TableDefinition("snapshotSizeTable", records.SnapshotSize)
SPACE_TABLE = TableDefinition("spaceTable", records.SpaceCellValue)
SPACE_PROGRESS_TABLE = TableDefinition("spaceProgressTable", records.SpaceUpdate, is_cached=True)
SETTLE_TABLE = TableDefinition("settleTable", records.SettleRow)
RETURNED_BARRIER_TABLE = TableDefinition("returnedBarrierTable", records.MetadataProgress)
RETENTION_TABLE = TableDefinition("retentionTable", records.RetentionRow)
TAG_TABLE = TableDefinition("tagTable", records.TagRow)
CONSUMER_TABLE = TableDefinition("consumerTable", records.ConsumerRow)
EXPIRY_TABLE = TableDefinition("expiryTable", records.ExpiryRow)
ROLLBACK_TABLE = TableDefinition("rollbackTable", records.RollbackTaskRow)
DROPPED_SNAPSHOT_TABLE = TableDefinition("droppedSnapshotTable", records.DroppedSnapshotRow)
SECRET_TABLE = TableDefinition("s3SecretTable", records.SecretRow)
DEAD_LETTER_TABLE = TableDefinition("deadLetterTable", records.DeadLetterRow)
LETTER_TABLE = TableDefinition("letterTable", records.DeadLetter)
DEAD_LETTER_PLACE_TABLE = TableDefinition("deadLetterPlaceTable", records.CountRow)
DEAD_LETTER_COUNT_TABLE = TableDefinition("deadLetterCountTable", records.CountRow, is_cached=True)
CLIENT_TABLE = TableDefinition("clientTable", records.ClientRow, is_cached=True)

TABLES: tuple[TableDefinition[Any], ...] = (
    SNAPSHOT_INFO_TABLE,
    PENDING_TABLE,
    DEEP_CLEAN_TABLE,
    SNAPSHOT_SIZE_TABLE,
    SPACE_TABLE,
    SPACE_PROGRESS_TABLE,
    SETTLE_TABLE,
    RETURNED_BARRIER_TABLE,
    CHAIN_TABLE,
    COLLECTION_TABLE,
    RETENTION_TABLE,
    TAG_TABLE,
    CONSUMER_TABLE,
    EXPIRY_TABLE,
    ROLLBACK_TABLE,
    DROPPED_SNAPSHOT_TABLE,
    SECRET_TABLE,
    DEAD_LETTER_TABLE,
    LETTER_TABLE,
    DEAD_LETTER_PLACE_TABLE,
    DEAD_LETTER_COUNT_TABLE,
    CLIENT_TABLE,
)

MAX_NUMBER = 2**63 - 1


def name_key(volume: str, bucket: str, name: str) -> bytes:
    """Return a key of the tables by volume, bucket and a name in it; with an empty name, the prefix of the bucket."""
    return f"/{volume}/{bucket}/{name}".encode()


def bucket_key(volume: str, bucket: str) -> bytes:
    """Return a key of retentionTable and rollbackTable."""
    return f"/{volume}/{bucket}".encode()


def expiry_key(client_id: str, number: int) -> bytes:
    """Return a key of expiryTable."""
    return f"{number:016x}/{client_id}".encode()


def returned_barrier_key(barrier_id: str, origin: str) -> bytes:
    """Return a key of returnedBarrierTable."""
    return f"{barrier_id}/{origin}".encode()


def dead_letter_key(number: int) -> bytes:
    """Return a key of deadLetterTable and letterTable: the newest sorts first. An impossible number has no row."""
    return b"%016x" % (MAX_NUMBER - min(max(number, -1), MAX_NUMBER))


def dead_letter_place_key(letter: records.DeadLetter) -> bytes:
    """Return a key of deadLetterPlaceTable."""
    value = sha256(letter.value).hexdigest()
    return f"{letter.service}/{letter.topic}/{letter.partition}/{letter.offset}/{value}".encode()
