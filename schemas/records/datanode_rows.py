"""Rows in the tables of a datanode's disk."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from schemas.frozen import record


@record
class Chunk:
    """A piece of a block. Its name is that of the block with its number, <localID>_chunk_<n>; all chunks of a block
    are in one file.
    """

    offset_bytes: int
    """Place of its first byte in the block."""
    length_bytes: int
    """Its length; at most 1 MiB."""
    checksums: tuple[int, ...]
    """CRC32 of each 16 KiB, the last one of the rest."""


@record
class ContainerCounterRow:
    """metadata: one figure of a container on this disk."""

    value: int
    """The figure."""


@record
class DeleteTransactionRow:
    """delete_txns: a transaction of mock_scm that this disk has acknowledged and has yet to carry out."""

    deletion_txn: int
    """delTxnId of the transaction."""
    first_local_ids: tuple[int, ...]
    """For each run of blocks, the local id of its first block."""
    block_counts: tuple[int, ...]
    """For each run, its number of blocks."""


@record
class BlockDataRow:
    """block_data: a block of a container on this disk."""

    local_id: int
    """localID of the block."""
    size_bytes: int
    """Bytes of the block."""
    chunks: tuple[Chunk, ...]
    """Its chunks, in order."""
    is_damaged: bool
    """Whether its file is missing, or was found to differ from the checksums."""
    is_deleted: bool
    """Whether the block was deleted from a container that still gets blocks: what a slow client writes to it later
    is refused. The row goes when the container is closed.
    """
