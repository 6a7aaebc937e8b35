"""The column families of one shard's snapshots.

==================== ================== =====================================================================
table                key                value
==================== ================== =====================================================================
snapshotInfoTable    /volume/bucket/name a snapshot; create_txn 0 while it is being made
pendingTable         snapshot id        what is half made, half dropped or being undone
deepCleanTable       snapshot id        the newest clean flags that key_deletion has sent
snapshotSizeTable    snapshot id        what the snapshot refers to, as metadata counts it
spaceTable           /bucketId/first/last  bytes and rows by first and last holder, as metadata counts them
spaceProgressTable   /bucketId          the newest update of a bucket without its cells; /0: how far all are complete
settleTable          barrier id         a request to settle
returnedBarrierTable barrier id/origin  a barrier of the present round that is back
chainTable           version, 16 hex    a marker of the chain, as it came
clientTable          client id          last number and answer of a client
==================== ================== =====================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from schemas import records
from services.runtime.chain_follower import CHAIN_TABLE
from services.storage.tables import TableDefinition

SNAPSHOT_INFO_TABLE = TableDefinition("snapshotInfoTable", records.SnapshotInfo)
PENDING_TABLE = TableDefinition("pendingTable", records.PendingSnapshot)
DEEP_CLEAN_TABLE = TableDefinition("deepCleanTable", records.SetDeepClean)
SNAPSHOT_SIZE_TABLE = TableDefinition("snapshotSizeTable", records.SnapshotSize)
SPACE_TABLE = TableDefinition("spaceTable", records.SpaceCellValue)
SPACE_PROGRESS_TABLE = TableDefinition("spaceProgressTable", records.SpaceUpdate, is_cached=True)
SETTLE_TABLE = TableDefinition("settleTable", records.SettleRow)
RETURNED_BARRIER_TABLE = TableDefinition("returnedBarrierTable", records.MetadataProgress)
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
    CLIENT_TABLE,
)

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
FIRST, BEYOND = b"", b"\xff"
"""Bounds of a whole table: keys are UTF-8 or digits, which never have the byte 0xff."""


class ReadableTable(Protocol[V_co]):
    """A table, committed or as a unit of work has left it."""

    def get(self, key: bytes) -> V_co | None:
        """The row of a key, or None."""
        ...

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, V_co]]:
        """Every row with start <= key < end."""
        ...


class ReadableTables(Protocol):
    """All tables: what both ``TablesReader`` and a unit of work are."""

    def table(self, definition: TableDefinition[V]) -> ReadableTable[V]:
        """One table."""
        ...


def snapshot_key(volume: str, bucket: str, name: str) -> bytes:
    """snapshotInfoTable; with an empty name the prefix of the bucket."""
    return f"/{volume}/{bucket}/{name}".encode()


def returned_barrier_key(barrier_id: str, origin: str) -> bytes:
    """returnedBarrierTable."""
    return f"{barrier_id}/{origin}".encode()
