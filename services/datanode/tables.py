"""The column families of one disk of a datanode, as in Ozone's container schema V3: one database for all containers.

=========== ========================== ==========================================================
family      key                        value
=========== ========================== ==========================================================
block_data  container|localID          a block with its chunks and their checksums
metadata    container|#NAME            a figure of a container: ``Counter`` has the names
delete_txns container|delTxnId         blocks that are to be removed
=========== ========================== ==========================================================

``container`` is eight bytes, big-endian: ten bits of the shard, then the container's id in its shard. What follows the
bar is text; numbers have twenty digits.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from schemas import records
from services.storage.tables import TableDefinition

BLOCK_DATA = TableDefinition("block_data", records.BlockDataRow)
METADATA = TableDefinition("metadata", records.ContainerCounterRow, is_cached=True)
DELETE_TXNS = TableDefinition("delete_txns", records.DeleteTransactionRow)
TABLES: tuple[TableDefinition[Any], ...] = (BLOCK_DATA, METADATA, DELETE_TXNS)

SHARD_SHIFT = 54
PREFIX_BYTES = 9


class Counter(StrEnum):
    """The figures of a container."""

    BLOCK_COUNT = "#BLOCKCOUNT"
    BYTES_USED = "#BYTESUSED"
    PENDING_DELETE = "#PENDINGDELETEBLOCKCOUNT"
    DELETION_TXN = "#delTX"
    DAMAGED = "#DAMAGEDBLOCKCOUNT"
    STATE = "#STATE"
    """Number of the copy's state; a container without it is not on the disk."""
    CREATED = "#CREATED"
    """Time at which the copy was created, in milliseconds: of two copies on a datanode the newer one counts."""


def storage_id(shard: int, container_id: int) -> int:
    """Return the id under which a datanode keeps a container: those of different shards have the same numbers."""
    if not (0 <= shard < 1 << 10 and 0 <= container_id < 1 << SHARD_SHIFT):
        raise ValueError(f"shard {shard} has no container {container_id}")
    return shard << SHARD_SHIFT | container_id


def shard_and_container(storage: int) -> tuple[int, int]:
    """Return the shard and the id of a container in its shard."""
    return storage >> SHARD_SHIFT, storage & (1 << SHARD_SHIFT) - 1


def prefix(storage: int) -> bytes:
    """Return how the keys of a container begin."""
    return storage.to_bytes(8, "big") + b"|"


def prefix_end(storage: int) -> bytes:
    """Return the first key behind those of a container."""
    return storage.to_bytes(8, "big") + b"}"


def number_key(storage: int, number: int) -> bytes:
    """Return a key of block_data or delete_txns."""
    return prefix(storage) + b"%020d" % number


def counter_key(storage: int, counter: Counter) -> bytes:
    """Return a key of metadata."""
    return prefix(storage) + counter.encode()


def container_of(key: bytes) -> int:
    """Return the container in a key."""
    return int.from_bytes(key[:8], "big")
