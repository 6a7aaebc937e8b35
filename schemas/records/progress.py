"""Records of metadata.progress: results of the services' commands."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from schemas.frozen import record
from schemas.records.shared import (
    Barrier,
    BlockGroups,
    CollectionState,
    ExpansionOutcome,
    RemovalOutcome,
    RollbackOutcome,
    RowNames,
)


@record
class BucketCollection:
    """The collection state of one bucket, or of the whole shard."""

    bucket_id: int
    """objectID of the bucket; 0 for the whole shard."""
    state: CollectionState
    """State that was set for this bucket, or for the shard."""


@record
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


@record
class DirectoryExpanded:
    """Answer to ExpandDirectory."""

    bucket_id: int
    """objectID of the bucket."""
    object_id: int
    """objectID of the directory."""
    death: int
    """Death of the row."""
    outcome: ExpansionOutcome
    """Outcome of the page."""
    moved_directories: int
    """Sub-directories moved by this page."""
    moved_files: int
    """Files moved by this page."""


@record
class RollbackPageDone:
    """Answer to RollbackPage: the page was carried out or refused."""

    rollback_id: str
    """From the command."""
    page: int
    """From the command."""
    outcome: RollbackOutcome
    """Outcome of the page."""
    message: str
    """Text of the refusal; empty on success."""
    died: int
    """Keys and directories that left the active namespace, over all pages."""
    restored: int
    """Keys and directories that were restored to the active namespace, over all pages."""


@record
class RowsClaimed:
    """Answer to ClaimRows."""

    task: int
    """From the command."""
    groups: BlockGroups
    """Claimed rows with their blocks."""
    removed: tuple[RowNames, ...]
    """Rows without blocks, removed by the claim."""
    missing: tuple[RowNames, ...]
    """Rows that do not exist any more: nothing is left to do."""
    refused: tuple[RowNames, ...]
    """Rows that exist and that a live snapshot holds. They are kept; an earlier judge was wrong."""
    suspended: tuple[RowNames, ...]
    """Rows that no snapshot holds and that may not be claimed at present. They stay in the garbage tables, and are
    swept when claims resume.
    """
    reported_local_id: int = 0
    """Local id of the last late report to SCM before the claim."""


@record
class RowsFinished:
    """Answer to FinishRows."""

    task: int
    """From the command."""


@record
class SnapshotCaptured:
    """Answer to CaptureSnapshot."""

    snapshot_id: str
    """From the command."""
    bucket_id: int
    """objectID of the bucket; 0 when refused."""
    volume_id: int
    """objectID of the volume; 0 when refused."""
    ordinal: int
    """Ordinal of the snapshot among all snapshots that the bucket ever had, from 1; 0 when refused."""
    snapshot_txn: int
    """txn at which the snapshot was captured; 0 when refused."""
    creation_time_ms: int
    """Log time of the snapshot."""
    chain_version: int
    """The shard's chain version after the capture."""
    referenced_bytes: int
    """Bytes that the snapshot references."""
    error: str = ""
    """Code of the refusal; empty on success."""
    message: str = ""
    """Text of the refusal; empty on success."""
    owner: str = ""
    """Owner of the volume, who may manage the bucket's snapshots."""
    referenced_redundancy_bytes: int = 0
    """Bytes that the blocks of referenced_bytes take beyond one copy of them."""


@record
class SnapshotDropped:
    """Answer to DropSnapshot."""

    snapshot_id: str
    """From the command."""
    chain_version: int
    """The shard's chain version after the drop."""


@record
class SweepPageSent:
    """Answer to SweepPage."""

    sweep_id: int
    """From the command."""
    page: int
    """From the command."""
    rows: int
    """Rows sent to the judges."""
    unexpanded_directories: int
    """Directories with a death in the sweep's range that are not expanded yet; counted up to 1,000."""
    next_table: int
    """Table at which the next page starts; 4 when there is none."""
    next_key: bytes
    """First key of the next page in that table."""


@record
class WritesExpired:
    """Answer to ExpireWrites."""

    table: int
    """From the command."""
    start_key: bytes
    """From the command."""
    next_key: bytes
    """First key of the next page; empty: the table is finished."""
    expired: int
    """Rows that were closed or aborted."""


@record
class CollectionChanged:
    """Collection states of buckets or of the whole shard have changed, or all states are sent again."""

    states: tuple[BucketCollection, ...]
    """The changed states; with is_whole, all states other than RUNNING."""
    txn: int
    """txn of the change; with is_whole, the txn at which the states are in force."""
    previous_txn: int
    """txn of the change before this one. A service whose states are older has missed that change."""
    is_whole: bool = False
    """Whether all states are sent: a bucket that is not named is RUNNING, whatever was sent before."""


@record
class DirectoriesRemoved:
    """Answer to RemoveDirectories."""

    rows: tuple[DirectoryRemoval, ...]
    """One outcome per row, in the order of the command."""


@record
class MetadataProgress:
    """Results of the services' commands. Topic metadata.progress, written by metadata, read by the services."""

    txn: int
    """The topic is complete up to this txn."""
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
        | WritesExpired
    )
    """The result."""
    feature_level: int = 1
    """Feature level of the shard: services must not write messages and rows of a higher level to it."""
