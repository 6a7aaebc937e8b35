"""Records of metadata.progress: what metadata has done, for the services."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass

from schemas.records.shared import (
    Barrier,
    BlockGroups,
    CollectionState,
    ExpansionOutcome,
    RemovalOutcome,
    RollbackOutcome,
    RowNames,
)


@dataclass(frozen=True, slots=True)
class BucketCollection:
    """The collection state of one bucket, or of all of the shard."""

    bucket_id: int
    """objectID of the bucket; 0 for all of the shard."""
    state: CollectionState
    """The state that is set for this bucket alone, or for the shard alone."""


@dataclass(frozen=True, slots=True)
class DirectoryRemoval:
    """Outcome for one row of RemoveDirectories."""

    bucket_id: int
    """objectID of the bucket."""
    object_id: int
    """objectID of the directory."""
    death: int
    """Death of the row."""
    parent_id: int
    """objectID of the parent; 0 when the row was missing."""
    outcome: RemovalOutcome
    """Outcome for the row."""


@dataclass(frozen=True, slots=True)
class DirectoryExpanded:
    """Answer to ExpandDirectory."""

    bucket_id: int
    """objectID of the bucket."""
    object_id: int
    """objectID of the directory."""
    death: int
    """Death of the row."""
    outcome: ExpansionOutcome
    """Whether more is to do."""
    moved_directories: int
    """Sub-directories moved by this page."""
    moved_files: int
    """Files moved by this page."""


@dataclass(frozen=True, slots=True)
class RollbackPageDone:
    """One page of a rollback was carried out, or refused."""

    rollback_id: str
    """From the command."""
    page: int
    """From the command."""
    outcome: RollbackOutcome
    """What became of it."""
    message: str
    """Why it was refused; empty otherwise."""
    died: int
    """Keys and directories that left the active namespace, over all pages."""
    restored: int
    """Keys and directories that came back, over all pages."""


@dataclass(frozen=True, slots=True)
class RowsClaimed:
    """Answer to ClaimRows."""

    task: int
    """From the command."""
    groups: BlockGroups
    """Rows that are claimed, with their blocks."""
    removed: tuple[RowNames, ...]
    """Rows without blocks that the claim has removed."""
    missing: tuple[RowNames, ...]
    """Rows that no longer exist: nothing to do."""
    refused: tuple[RowNames, ...]
    """Rows that exist and are held: a defect of an earlier judge; they are kept."""
    suspended: tuple[RowNames, ...]
    """Rows that no snapshot holds and that may not be claimed at present: they stay in the garbage tables, and are
    swept when claims are resumed.
    """


@dataclass(frozen=True, slots=True)
class RowsFinished:
    """Answer to FinishRows."""

    task: int
    """From the command."""


@dataclass(frozen=True, slots=True)
class SnapshotCaptured:
    """Answer to CaptureSnapshot."""

    snapshot_id: str
    """From the command."""
    bucket_id: int
    """objectID of the bucket; 0 when refused."""
    volume_id: int
    """objectID of the volume; 0 when refused."""
    ordinal: int
    """Which snapshot of its bucket this is, from 1; 0 when refused."""
    snapshot_txn: int
    """txn of the snapshot; 0 when refused."""
    creation_time_ms: int
    """Log time of the snapshot."""
    chain_version: int
    """The shard's chain version with this snapshot in it."""
    referenced_bytes: int
    """Bytes that the bucket used at that txn."""
    error: str = ""
    """Code of the refusal; empty on success."""
    message: str = ""
    """The refusal in words."""
    owner: str = ""
    """Owner of the volume, who may manage the bucket's snapshots."""


@dataclass(frozen=True, slots=True)
class SnapshotDropped:
    """Answer to DropSnapshot."""

    snapshot_id: str
    """From the command."""
    chain_version: int
    """The shard's chain version without this snapshot."""


@dataclass(frozen=True, slots=True)
class SweepPageSent:
    """Answer to SweepPage."""

    sweep_id: int
    """From the command."""
    page: int
    """From the command."""
    rows: int
    """Rows that went out to be judged."""
    unexpanded_directories: int
    """Directories with a death in the sweep's range that are not expanded yet; counted up to 1,000."""
    next_table: int
    """Table of the next page; 4 when there is none."""
    next_key: bytes
    """First key of the next page."""


@dataclass(frozen=True, slots=True)
class CollectionChanged:
    """Collection states change from this txn on, for some buckets or for all of the shard; or all states are sent
    again.
    """

    states: tuple[BucketCollection, ...]
    """The changed states; when all are sent, those of the buckets that are not RUNNING."""
    txn: int
    """txn of the change; when all are sent, the txn at which they are in force."""
    previous_txn: int
    """txn of the change before this one: a service that does not know that txn has missed it."""
    is_whole: bool = False
    """Whether all states are sent: a bucket that is not named is RUNNING, whatever was sent before."""


@dataclass(frozen=True, slots=True)
class DirectoriesRemoved:
    """Answer to RemoveDirectories."""

    rows: tuple[DirectoryRemoval, ...]
    """One outcome a row, in the order of the command."""


@dataclass(frozen=True, slots=True)
class MetadataProgress:
    """What happened to the services' commands. Topic metadata.progress, written by metadata, read by the services."""

    txn: int
    """This topic is complete up to this txn."""
    body: (
        RowsClaimed
        | RowsFinished
        | DirectoryExpanded
        | DirectoriesRemoved
        | SweepPageSent
        | SnapshotCaptured
        | SnapshotDropped
        | RollbackPageDone
        | Barrier
        | CollectionChanged
    )
    """What happened."""
    feature_level: int = 1
    """Feature level of the shard: what a higher one adds must not be written to it."""
