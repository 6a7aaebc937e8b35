"""Records of gc.snapshot-chain: captures and drops of snapshots."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from schemas.frozen import record


@record
class ChainCapture:
    """Marker: a snapshot was captured."""

    bucket_id: int
    """objectID of the bucket."""
    snapshot_id: str
    """Id of the snapshot."""
    ordinal: int
    """Ordinal of the snapshot among all snapshots that the bucket ever had, from 1."""
    txn: int
    """txn at which the snapshot was captured."""


@record
class ChainDrop:
    """Marker: a snapshot was dropped."""

    bucket_id: int
    """objectID of the bucket."""
    snapshot_id: str
    """Id of the snapshot."""
    txn: int
    """txn at which the dropped snapshot was captured."""
    rows_held_alone: int
    """Rows of all three garbage tables that only the dropped snapshot held; 0: the drop made no row reclaimable."""


@record
class ChainedSnapshot:
    """One snapshot of a bucket."""

    snapshot_id: str
    """Id of the snapshot."""
    ordinal: int
    """Ordinal of the snapshot among all snapshots that the bucket ever had, from 1."""
    txn: int
    """txn at which the snapshot was captured."""
    is_live: bool
    """Whether the snapshot is not dropped."""


@record
class ChainedBucket:
    """The live snapshots of a bucket, and the number of snapshots that it ever had."""

    bucket_id: int
    """objectID of the bucket."""
    snapshots: tuple[ChainedSnapshot, ...]
    """Live snapshots, by ordinal; a missing ordinal is that of a dropped snapshot. An older writer lists dropped
    snapshots, too, with is_live false.
    """
    snapshots_ever: int = 0
    """Number of snapshots that the bucket ever had; 0 from an older writer: the ordinal of the last listed snapshot."""
    newest_txn: int = 0
    """txn at which the bucket's newest snapshot, live or dropped, was captured; 0 from an older writer."""


@record
class FullChain:
    """The whole chain view, or one part of it. A reader may start at part 1; the chain view is complete after the
    last part.
    """

    buckets: tuple[ChainedBucket, ...]
    """Buckets that ever had a snapshot, by id; a bucket's snapshots may continue in the next part."""
    part: int = 1
    """Number of this part, from 1."""
    parts: int = 1
    """Number of parts of the full chain."""


@record
class SnapshotChainRecord:
    """One step of a shard's snapshot chain. Topic gc.snapshot-chain, written by metadata, without gaps."""

    version: int
    """Chain version after this record."""
    predecessor_version: int
    """Chain version before this record; equal to version for a full chain."""
    body: ChainCapture | ChainDrop | FullChain
    """The change, or the full chain."""
