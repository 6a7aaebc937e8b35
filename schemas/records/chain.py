"""Records of gc.snapshot-chain: which snapshots a bucket has and had."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChainCapture:
    """Marker of a captured snapshot."""

    bucket_id: int
    """objectID of the bucket."""
    snapshot_id: str
    """Id of the snapshot."""
    ordinal: int
    """Its number among all snapshots that the bucket ever had, from 1."""
    txn: int
    """txn at which it was captured."""


@dataclass(frozen=True, slots=True)
class ChainDrop:
    """Marker of a snapshot that was dropped."""

    bucket_id: int
    """objectID of the bucket."""
    snapshot_id: str
    """Id of the snapshot."""
    txn: int
    """txn at which the dropped snapshot was captured."""
    rows_held_alone: int
    """Garbage rows of all three tables that this snapshot alone held: 0 means that nothing became free."""


@dataclass(frozen=True, slots=True)
class ChainedSnapshot:
    """One snapshot of a bucket's list."""

    snapshot_id: str
    """Id of the snapshot."""
    ordinal: int
    """Its number among all snapshots that the bucket ever had, from 1."""
    txn: int
    """txn at which it was captured."""
    is_live: bool
    """Whether it is not dropped."""


@dataclass(frozen=True, slots=True)
class ChainedBucket:
    """The live snapshots of a bucket, and how far its list goes."""

    bucket_id: int
    """objectID of the bucket."""
    snapshots: tuple[ChainedSnapshot, ...]
    """In the order of their ordinals; ordinals that are left out are of dropped ones. An older writer names those,
    too, as not live.
    """
    snapshots_ever: int = 0
    """How many snapshots the bucket ever had; 0 from an older writer: as many as the last one's ordinal says."""
    newest_txn: int = 0
    """txn at which the newest of those was captured, live or dropped; 0 from an older writer."""


@dataclass(frozen=True, slots=True)
class FullChain:
    """The whole chain view, or a part of it: a reader may start at part 1, and has the view with the last part."""

    buckets: tuple[ChainedBucket, ...]
    """Buckets that ever had a snapshot, in the order of their ids; one may go on in the next part."""
    part: int = 1
    """Which part of the full chain this is, from 1."""
    parts: int = 1
    """How many parts the full chain has."""


@dataclass(frozen=True, slots=True)
class SnapshotChainRecord:
    """One step of a shard's snapshot chain. Topic gc.snapshot-chain, written by metadata; gapless."""

    version: int
    """Chain version after this record."""
    predecessor_version: int
    """Chain version before it; equal to version for a full chain."""
    body: ChainCapture | ChainDrop | FullChain
    """What changed."""
