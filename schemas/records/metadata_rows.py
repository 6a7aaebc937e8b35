"""Rows that metadata keeps."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.records.commands import BreakerLimits, RequeueOrphans
from schemas.records.shared import BlockRun, BreakerCause, BucketLayout, CollectionState, SecretRole


@dataclass(frozen=True, slots=True)
class AccountRow:
    """accountTable: bytes and versions of one bucket by where they are."""

    claimed_bytes: int
    """Bytes in reclaimTable."""
    claimed_versions: int
    """Versions in reclaimTable."""
    freed_bytes: int
    """Bytes that SCM has confirmed, ever."""
    freed_versions: int
    """Versions that SCM has confirmed, ever."""


@dataclass(frozen=True, slots=True)
class BreakerTrip:
    """Why nothing more of a bucket is claimed until a person has looked."""

    cause: BreakerCause
    """What the claim would have exceeded."""
    at_ms: int
    """Log time of the claim."""
    txn: int
    """txn of the claim."""
    claimed_bytes: int
    """Bytes claimed within the hour before this; by a forecast, within the command."""
    claimed_versions: int
    """Versions, counted likewise."""
    most_bytes: int
    """Bytes that might be claimed at most."""
    most_versions: int
    """Versions that might be claimed at most."""
    next_bytes: int
    """Bytes of the version that was too much."""


@dataclass(frozen=True, slots=True)
class BucketIdentity:
    """bucketIdTable: a bucket by its id, kept for ever."""

    volume_id: int
    """objectID of the volume."""
    bucket_id: int
    """objectID of the bucket."""
    volume: str
    """Name of the volume at the bucket's creation."""
    bucket: str
    """Name of the bucket."""
    layout: BucketLayout
    """How it names what it holds."""
    is_deleted: bool
    """Whether the bucket was deleted."""


@dataclass(frozen=True, slots=True)
class BucketRow:
    """bucketTable: a bucket and its used figures."""

    volume_id: int
    """objectID of the volume."""
    object_id: int
    """objectID of the bucket."""
    volume: str
    """Name of the volume."""
    bucket: str
    """Name."""
    layout: BucketLayout
    """How it names what it holds."""
    creation_time_ms: int
    """Log time of its creation."""
    update_id: int
    """txn of the last change."""
    used_bytes: int
    """Bytes of live versions, with those below deleted directories that are not expanded."""
    used_namespace: int
    """Live keys and directories, counted likewise."""
    snapshot_used_bytes: int
    """Bytes of deleted versions whose rows are not removed."""
    snapshot_used_namespace: int
    """Deleted keys and directories whose rows are not removed."""
    rollback_snapshot_id: str
    """Snapshot that the bucket is being rolled back to; empty when it is not."""
    rolled_back_txn: int = 0
    """txn at which the last rollback of the bucket ended; 0 when there was none."""


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """changedTable: a row of the namespace was changed, made or removed between two snapshots. The key says which
    one.
    """

    snapshot_txn: int
    """txn of the snapshot that it was changed after: the newest one then, live or dropped."""


@dataclass(frozen=True, slots=True)
class ClaimHourRow:
    """claimHourTable: what was claimed of a bucket in its present hour, of which the breaker watches the limits."""

    began_ms: int
    """Log time of the first claim of the hour."""
    most_bytes: int
    """Bytes that may be claimed in it."""
    most_versions: int
    """Versions that may be claimed in it."""
    claimed_bytes: int
    """Bytes claimed so far."""
    claimed_versions: int
    """Versions claimed so far."""
    released_txn: int = 0
    """txn of the last reset: rows that had died by then and waited, expanded or not, are claimed beyond the limits."""
    released_bytes: int = 0
    """Bytes of that which are still to be claimed, beside the limits."""
    released_versions: int = 0
    """Versions of that which are still to be claimed."""


@dataclass(frozen=True, slots=True)
class ClaimedHead:
    """The first fields of a ClaimedRow: all that finishing it looks at."""

    facts: bytes
    """An encoded ClaimFacts: of one claim many rows have the same."""
    numbers: bytes
    """What finishing the row needs of the version: birth, size_bytes, and of its blocks container_id,
    first_local_id, block_count, block_size_bytes and size_bytes; 8 bytes each, the most significant first. So the
    version is not read again.
    """


@dataclass(frozen=True, slots=True)
class ClientRow:
    """clientTable: a client's last command and its answer."""

    number: int
    """Number of the last command."""
    log_time_ms: int
    """Log time of that command."""
    reply: bytes
    """The encoded answer; empty when none was wanted."""


@dataclass(frozen=True, slots=True)
class CountRow:
    """uncapturedTable, droppedIdTable, unexpandedTable, countTable: a number."""

    count: int
    """How many."""


@dataclass(frozen=True, slots=True)
class DirectoryRow:
    """directoryTable: a directory."""

    object_id: int
    """objectID of the directory."""
    parent_id: int
    """objectID of the parent; the bucket's for the root."""
    name: str
    """Name in the parent."""
    update_id: int
    """txn of the last change."""
    rename_txn: int
    """txn of the last rename; 0 when there was none."""
    creation_time_ms: int
    """Log time of its creation."""
    modification_time_ms: int
    """Log time of the last change of its own attributes."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """keyTable, fileTable: the live version of a key."""

    object_id: int
    """objectID of the key; an overwrite keeps it."""
    birth: int
    """txn that committed the version."""
    size_bytes: int
    """Size of the version."""
    blocks: BlockRun | None
    """Its blocks; none when it has no bytes."""
    parent_id: int
    """objectID of the directory; the bucket's for the root; 0 in a flat bucket."""
    name: str
    """Name in the directory; the whole path in a flat bucket."""
    update_id: int
    """txn of the last change."""
    rename_txn: int
    """txn of the last rename; 0 when there was none."""
    tag: str
    """The client's word for this version."""
    creation_time_ms: int
    """Log time of the key's creation."""
    modification_time_ms: int
    """Log time of the version."""


@dataclass(frozen=True, slots=True)
class DeletedNameRow:
    """deletedNameTable: something has died under a name, or of an object. The key says all: the value is empty."""


@dataclass(frozen=True, slots=True)
class KeyHead:
    """The first fields of a KeyRow, and so of a DeletedKeyRow: all that a deletion looks at."""

    object_id: int
    """objectID of the key; an overwrite keeps it."""
    birth: int
    """txn that committed the version."""
    size_bytes: int
    """Size of the version."""
    blocks: BlockRun | None
    """Its blocks; none when it has no bytes."""


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The first fields of a KeyRow, and so of a DeletedKeyRow, up to its names: what deletedNameTable needs beside a
    KeyHead.
    """

    object_id: int
    """objectID of the key; an overwrite keeps it."""
    birth: int
    """txn that committed the version."""
    size_bytes: int
    """Size of the version."""
    blocks: BlockRun | None
    """Its blocks; none when it has no bytes."""
    parent_id: int
    """objectID of the directory that it is in; 0 in a flat bucket."""
    name: str
    """Last name within its directory; in a flat bucket the path."""
    update_id: int
    """txn of its last change."""
    rename_txn: int
    """txn of its last rename; 0 for none."""


@dataclass(frozen=True, slots=True)
class KeyStart:
    """The first fields of a KeyHead: all that the figures count of a version."""

    object_id: int
    """objectID of the key; an overwrite keeps it."""
    birth: int
    """txn that committed the version."""
    size_bytes: int
    """Size of the version."""


@dataclass(frozen=True, slots=True)
class OrphanSearchRow:
    """orphanSearchTable: the search for an owner of blocks that an audit has found orphaned, and how far it is."""

    command: RequeueOrphans
    """What is to be done if there is none."""
    table: int
    """Where the search goes on: number of the table, in the order of deepclean's search."""
    next_key: bytes
    """Key in that table; empty for its beginning."""
    rows: int
    """Versions that were looked at so far."""
    owner: str
    """Who has moved meanwhile and owns one of the blocks; empty for nobody."""
    log_time_ms: int
    """Log time of the last page."""


@dataclass(frozen=True, slots=True)
class ReclaimClockRow:
    """reclaimClockTable: since when rows of a bucket that no snapshot holds may be claimed. It decides nothing: it
    measures how long rows take.
    """

    drop_txns: tuple[int, ...]
    """Of the newest drops, oldest first, the txn at which the dropped snapshot was captured."""
    drop_times_ms: tuple[int, ...]
    """Log times of these drops."""
    forgotten_txn: int
    """The highest such txn of older drops, which are not listed any more."""
    forgotten_time_ms: int
    """Log time of the newest of them."""
    running_since_ms: int
    """Log time at which the last suspension ended; 0 when there never was one."""


@dataclass(frozen=True, slots=True)
class RenameRow:
    """snapshotRenamedTable: where an object was at the newest snapshot before its first rename since."""

    object_id: int
    """objectID of the key or directory."""
    birth: int
    """txn of the object's creation."""
    death: int
    """txn of the rename."""
    snapshots_before_death: int
    """How many snapshots its bucket had ever had then."""
    db_key: str
    """Key of the object's row before the rename."""


@dataclass(frozen=True, slots=True)
class RollbackNameRow:
    """rollbackNameTable: where an object is in the snapshot, while a rollback is in progress."""

    db_key: str
    """Key of its row; empty for a directory that is where it is to be."""


@dataclass(frozen=True, slots=True)
class RollbackRow:
    """rollbackTable: a rollback of a bucket, and how far it is; kept, so that it is never begun again."""

    snapshot_id: str
    """Snapshot whose namespace becomes the active one."""
    snapshot_txn: int
    """txn of the snapshot."""
    page: int
    """Last page that was carried out."""
    phase: int
    """What the next page goes on with."""
    next_key: bytes
    """Where the next page goes on; empty for the beginning."""
    died: int
    """Keys and directories that left the active namespace."""
    restored: int
    """Keys and directories that came back."""


@dataclass(frozen=True, slots=True)
class SecretRow:
    """s3SecretTable: the secret that a user or a service signs commands with."""

    name: str
    """Who signs."""
    role: SecretRole
    """What it is."""
    secret: bytes = field(repr=False)
    """Key of its signatures."""
    previous_secret: bytes = field(repr=False)
    """The key before it, which is still good; empty when there is none."""


@dataclass(frozen=True, slots=True)
class ShadowHourRow:
    """shadowTable: the versions of a bucket that would have been claimed within an hour of log time, had collection
    not been in shadow mode, as far as they still wait; hour 0 has all from before the hours that are kept.
    """

    versions: int
    """Versions, each counted once, when all judges had first passed it."""
    bytes: int
    """Their bytes."""
    oldest_deletion_ms: int
    """Log time of the oldest deletion among them."""
    newest_deletion_ms: int
    """Log time of the newest deletion among them."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """transactionInfoTable: the shard's counters."""

    txn: int
    """Last txn."""
    log_time_ms: int
    """Log time of the last command; never goes back."""
    epoch: int
    """Top bits of new objectIDs."""
    chain_version: int
    """Chain version."""
    container_id: int
    """Container of new blocks."""
    claims_stopped: str
    """Why claims are refused; empty when they are not."""
    skipped_txns: int = 0
    """How far a txn, less one, may be ahead of its command's offset: 0 until a lost tail of the log is accepted."""
    stored_bytes: int = 0
    """Bytes of all versions that were put and whose blocks SCM has not confirmed as deleted: at most 2^63-1, so that
    no sum of sizes in the shard needs more than 64 bits.
    """
    claims_stopped_ms: int = -1
    """Log time since when claims are refused; -1 when they are not."""
    refused_rows: int = 0
    """Rows that two judges had passed and that were kept because a live snapshot holds them, ever: must stay 0."""
    feature_level: int = 1
    """Feature level of the shard."""


@dataclass(frozen=True, slots=True)
class SnapshotCountRow:
    """snapshotCountTable: how far the list of all snapshots goes that a bucket ever had."""

    snapshots_ever: int
    """How many snapshots the bucket ever had: the ordinal of the newest one."""
    newest_txn: int
    """txn at which that one was captured, live or dropped."""


@dataclass(frozen=True, slots=True)
class SnapshotListRow:
    """snapshotListTable, snapshotIdTable: one of the snapshots of a bucket."""

    snapshot_id: str
    """Id of the snapshot."""
    bucket_id: int
    """objectID of the bucket."""
    ordinal: int
    """Its number in the bucket, from 1."""
    txn: int
    """txn at which it was captured."""
    is_live: bool
    """Whether it is not dropped."""
    creation_time_ms: int
    """Log time of the snapshot."""
    referenced_bytes: int
    """Bytes that it lists."""
    referenced_namespace: int
    """Keys and directories that it lists."""
    chain_version: int
    """Chain version of its capture."""
    dropped_chain_version: int
    """Chain version of its drop; 0 while it is live."""


@dataclass(frozen=True, slots=True)
class VolumeRow:
    """volumeTable: a volume."""

    object_id: int
    """objectID of the volume."""
    volume: str
    """Name."""
    owner: str
    """User who owns it."""
    creation_time_ms: int
    """Log time of its creation."""
    update_id: int
    """txn of the last change."""


@dataclass(frozen=True, slots=True)
class CollectionRow:
    """collectionTable: the collection state of one bucket, or of all of the shard."""

    state: CollectionState
    """As it was set for this bucket, or for all."""
    reason: str
    """Why, for people."""
    changed_by: str
    """User who set it; empty when signatures were not required."""
    changed_ms: int
    """Log time of the last change."""
    changed_txn: int
    """txn of the last change."""
    limits: BreakerLimits | None = None
    """Limits of the breaker; null for those of the shard, and there for none."""
    trip: BreakerTrip | None = None
    """Why the breaker has tripped; null when it has not."""
    is_by_administrator: bool = False
    """Whether the state was set by an administrator, or when signatures were not required: only an administrator may
    change it while it suspends claims.
    """
    has_administrators_limits: bool = False
    """Whether the limits were set likewise: the shard's limits do not apply beside them, and only an administrator
    may change them.
    """


@dataclass(frozen=True, slots=True)
class DeletedDirectoryRow:
    """deletedDirectoryTable: a directory that left the active namespace."""

    directory: DirectoryRow
    """The directory as it was."""
    death: int
    """txn that took it out of the active namespace."""
    snapshots_before_death: int
    """How many snapshots its bucket had ever had then."""
    is_expanded: bool
    """Whether all its children have moved to the garbage tables."""
    child_rows: int
    """Sub-directories of this deletion whose rows are left."""
    is_expansion_begun: bool = False
    """Whether any child may have moved to the garbage tables: the tree cannot be restored as a whole then."""
    deletion_time_ms: int = 0
    """Log time at which the row came here."""
    next_directory: str = ""
    """Amid an expansion: no sub-directory is left before this key of directoryTable; empty before it."""
    next_file: str = ""
    """The same of fileTable."""


@dataclass(frozen=True, slots=True)
class DeletedKeyRow:
    """deletedTable: a version that left the active namespace."""

    key: KeyRow
    """The version as it was."""
    death: int
    """txn that took it out of the active namespace."""
    snapshots_before_death: int
    """How many snapshots its bucket had ever had then."""
    is_overwritten: bool = False
    """Whether a newer version of the same object took its place."""
    deletion_time_ms: int = 0
    """Log time at which the row came here."""
    shadow_hour: int = 0
    """Hour of log time, since 1970, in which it was counted as one that would have been claimed, while collection
    was in shadow mode; 0 when it was not.
    """


@dataclass(frozen=True, slots=True)
class ClaimedRow:
    """reclaimTable: a version out of reach, until SCM has confirmed its blocks."""

    facts: bytes
    """An encoded ClaimFacts: of one claim many rows have the same."""
    numbers: bytes
    """What finishing the row needs of the version: birth, size_bytes, and of its blocks container_id,
    first_local_id, block_count, block_size_bytes and size_bytes; 8 bytes each, the most significant first. So the
    version is not read again.
    """
    version: DeletedKeyRow
    """The version as it was in deletedTable. It stays the last field: a claim puts the others in front of it as it
    is.
    """
