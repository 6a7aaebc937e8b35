"""Rows in the tables of metadata."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import field

from schemas.frozen import record
from schemas.records.commands import BreakerLimits, RequeueOrphans
from schemas.records.shared import (
    Acl,
    BlockRun,
    BreakerCause,
    BucketLayout,
    BucketVersioning,
    CollectionState,
    Replication,
    SecretRole,
)


@record
class AccessIdRow:
    """tenantAccessIdTable: an access id."""

    access_id: str
    """The access id."""
    tenant: str
    """Its tenant."""
    user: str
    """The user who has it, its principal."""
    is_admin: bool
    """As in AssignTenantAdmin."""
    is_delegated_admin: bool
    """As in AssignTenantAdmin."""


@record
class AccountRow:
    """accountTable: claimed and freed bytes and versions of one bucket."""

    claimed_bytes: int
    """Bytes in reclaimTable."""
    claimed_versions: int
    """Versions in reclaimTable."""
    freed_bytes: int
    """Bytes whose deletion SCM has confirmed, ever."""
    freed_versions: int
    """Versions whose deletion SCM has confirmed, ever."""
    claimed_redundancy_bytes: int = 0
    """Bytes that the blocks of claimed_bytes take beyond one copy of them."""
    freed_redundancy_bytes: int = 0
    """The same of freed_bytes."""


@record
class AclRow:
    """aclTable, prefixTable: the access list of an object."""

    acls: tuple[Acl, ...]
    """At least one entry."""


@record
class BreakerTrip:
    """Why claims of a bucket are suspended until its breaker is reset."""

    cause: BreakerCause
    """Cause of the trip."""
    at_ms: int
    """Log time of the trip."""
    txn: int
    """txn of the trip."""
    claimed_bytes: int
    """LIMITS: bytes claimed in the present hour before the trip. FORECAST: bytes claimed by the same command before
    the trip. FIGURES: 0.
    """
    claimed_versions: int
    """Versions, counted like claimed_bytes."""
    most_bytes: int
    """LIMITS: bytes that may be claimed in the hour. FORECAST: bytes that no snapshot holds, by the space matrix.
    FIGURES: the wrong figure.
    """
    most_versions: int
    """Versions, counted like most_bytes."""
    next_bytes: int
    """Bytes of the version that would have exceeded most_bytes or most_versions; FIGURES: 0."""


@record
class BucketIdentity:
    """bucketIdTable: a bucket by its id. The row is never removed."""

    volume_id: int
    """objectID of the volume."""
    bucket_id: int
    """objectID of the bucket."""
    volume: str
    """Name of the volume at the bucket's creation."""
    bucket: str
    """Name of the bucket."""
    layout: BucketLayout
    """Layout of the bucket."""
    is_deleted: bool
    """Whether the bucket was deleted."""


@record
class BucketRow:
    """bucketTable: a bucket and its usage."""

    volume_id: int
    """objectID of the volume."""
    object_id: int
    """objectID of the bucket."""
    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    layout: BucketLayout
    """Layout of the bucket."""
    creation_time_ms: int
    """Log time of the bucket's creation."""
    update_id: int
    """txn of the last change."""
    used_bytes: int
    """Bytes of the blocks of live versions, including those below deleted directories that are not expanded, and of
    parts of uploads.
    """
    used_namespace: int
    """Live keys and directories, counted like used_bytes."""
    snapshot_used_bytes: int
    """Bytes of deleted versions whose rows are not removed yet."""
    snapshot_used_namespace: int
    """Deleted keys and directories whose rows are not removed yet."""
    rollback_snapshot_id: str
    """Snapshot to which the bucket is being rolled back; empty when no rollback is in progress."""
    rolled_back_txn: int = 0
    """txn at which the last rollback of the bucket ended; 0 when there was none."""
    quota_bytes: int = -1
    """Most bytes, live ones and deleted ones that are not freed yet; -1: no limit."""
    quota_namespace: int = -1
    """Most keys and directories, counted like quota_bytes; -1: no limit."""
    source_volume: str = ""
    """Volume of the bucket to which this one is a link; empty for a bucket of its own."""
    source_bucket: str = ""
    """Name of the bucket to which this one is a link; empty for a bucket of its own."""
    upload_bytes: int = 0
    """Bytes of parts of uploads: used_bytes contains them, no snapshot does."""
    owner: str = ""
    """User who owns the bucket; empty: the owner of the volume."""
    spare_bytes: int = 0
    """Bytes of blocks that never belonged to a version: snapshot_used_bytes contains them, quotas do not count them."""
    block_rows: int = 0
    """Rows of deletedTable that have blocks only, or noncurrent versions, and are no keys: snapshot_used_namespace
    contains them, quotas do not count them.
    """
    repaired_txn: int = 0
    """txn of the last RepairQuota; 0 when there was none."""
    versioning: BucketVersioning = BucketVersioning.UNVERSIONED
    """Whether overwritten versions of keys are kept."""
    replication: Replication = Replication.RATIS_ONE
    """How blocks are kept that are allocated from now on."""
    used_redundancy_bytes: int = 0
    """Bytes that the blocks of used_bytes take beyond one copy of them."""
    snapshot_used_redundancy_bytes: int = 0
    """The same of snapshot_used_bytes."""
    upload_redundancy_bytes: int = 0
    """The same of upload_bytes."""
    spare_redundancy_bytes: int = 0
    """The same of spare_bytes."""


@record
class ChangedRow:
    """changedTable: a row of the namespace was created, changed or removed between two snapshots. The key names the
    row.
    """

    snapshot_txn: int
    """txn of the bucket's newest snapshot, live or dropped, before the change."""


@record
class ClaimHourRow:
    """claimHourTable: the claims of a bucket in its present hour, and the breaker's limits for this hour."""

    began_ms: int
    """Log time of the first claim of the hour."""
    most_bytes: int
    """Bytes that may be claimed in the hour."""
    most_versions: int
    """Versions that may be claimed in the hour."""
    claimed_bytes: int
    """Bytes claimed so far, without those that a reset allows."""
    claimed_versions: int
    """Versions claimed so far, without those that a reset allows."""
    released_txn: int = 0
    """txn of the last reset of the breaker. Rows that had died by then and waited, expanded or not, may be claimed
    beside the limits.
    """
    released_bytes: int = 0
    """Bytes that may still be claimed beside the limits because of the reset."""
    released_versions: int = 0
    """Versions that may still be claimed beside the limits because of the reset."""


@record
class ClaimedHead:
    """The first fields of a ClaimedRow: the only ones that finishing a row reads."""

    facts: bytes
    """A ClaimFacts as a stored row, that is, with its version in front. Many rows of one claim have the same bytes."""
    numbers: bytes
    """The numbers that finishing the row needs, so that the version need not be read: birth, size_bytes, and of the
    blocks container_id, first_local_id, block_count, block_size_bytes and size_bytes; 8 bytes each, the most
    significant first.
    """


@record
class ClientRow:
    """clientTable: the last command of a client, and the answer to it."""

    number: int
    """Number of the last command."""
    log_time_ms: int
    """Log time of that command."""
    reply: bytes
    """The message of the answer, which is sent again as it is; empty when none was wanted."""


@record
class CountRow:
    """uncapturedTable, droppedIdTable, unexpandedTable, countTable: a number."""

    count: int
    """The number."""


@record
class DelegationTokenRow:
    """dTokenTable: a delegation token."""

    token_id: str
    """Id of the token: the shard and the txn of its creation."""
    owner: str
    """User as whom it acts."""
    renewer: str
    """User who may renew it."""
    secret: bytes = field(repr=False)
    """Key of the signatures."""
    issue_time_ms: int
    """Log time of its creation."""
    expiry_time_ms: int
    """Log time from which on it is not accepted, unless it is renewed."""
    max_time_ms: int
    """Log time behind which it cannot be renewed."""


@record
class DirectoryRow:
    """directoryTable: a directory."""

    object_id: int
    """objectID of the directory."""
    parent_id: int
    """objectID of the parent directory; the bucket's for a directory in the root."""
    name: str
    """Name in the parent."""
    update_id: int
    """txn of the last change."""
    rename_txn: int
    """txn of the last rename; 0 when there was none."""
    creation_time_ms: int
    """Log time of the directory's creation."""
    modification_time_ms: int
    """Log time of the last change of the directory's own attributes."""


@record
class KeyRow:
    """keyTable, fileTable: the live version of a key."""

    object_id: int
    """objectID of the key; an overwrite keeps it."""
    birth: int
    """txn that committed the version."""
    size_bytes: int
    """Size of the version."""
    blocks: BlockRun | None
    """Blocks of the version; null when it has no bytes."""
    parent_id: int
    """objectID of the directory; the bucket's for a key in the root; 0 in a flat bucket."""
    name: str
    """Name in the directory; the whole path in a flat bucket."""
    update_id: int
    """txn of the last change."""
    rename_txn: int
    """txn of the last rename; 0 when there was none."""
    tag: str
    """The client's label for this version. It is not a snapshot tag."""
    creation_time_ms: int
    """Log time of the key's creation."""
    modification_time_ms: int
    """Log time of the version."""
    is_versioned: bool = False
    """Whether the bucket kept versions when this one was written: an overwrite keeps it as a noncurrent version,
    also while versioning is suspended.
    """
    version_rows: int = 0
    """Number of rows of the key's noncurrent versions: one for each in keyVersionTable, and one for each of their
    further runs in keyPartTable. Must stay the last field but one: a deletion reads the end of the encoded row.
    """
    is_composed: bool = False
    """Whether the version has more runs of blocks, in keyPartTable, or ends before its blocks do. False: its blocks
    are those of this row, all of them. Must stay the last field: a deletion reads it at the end of the encoded row.
    """


@record
class DeletedNameRow:
    """deletedNameTable: a deletion, by name or by objectID. The key holds everything: the value is empty."""


@record
class KeyHead:
    """The first fields of a KeyRow, and so of a DeletedKeyRow: the only ones that a deletion reads."""

    object_id: int
    """objectID of the key; an overwrite keeps it."""
    birth: int
    """txn that committed the version."""
    size_bytes: int
    """Size of the version."""
    blocks: BlockRun | None
    """Blocks of the version; null when it has no bytes."""


@record
class KeyNames:
    """The first fields of a KeyRow, and so of a DeletedKeyRow, up to rename_txn: those of a KeyHead, and those that
    deletedNameTable needs.
    """

    object_id: int
    """objectID of the key; an overwrite keeps it."""
    birth: int
    """txn that committed the version."""
    size_bytes: int
    """Size of the version."""
    blocks: BlockRun | None
    """Blocks of the version; null when it has no bytes."""
    parent_id: int
    """objectID of the directory; the bucket's for a key in the root; 0 in a flat bucket."""
    name: str
    """Name in the directory; the whole path in a flat bucket."""
    update_id: int
    """txn of the last change."""
    rename_txn: int
    """txn of the last rename; 0 when there was none."""


@record
class KeyPartRow:
    """keyPartTable: a run of blocks of a live version behind its first one."""

    object_id: int
    """objectID of the run: the garbage row gets it when the version dies."""
    birth: int
    """txn at which the run became part of a version: snapshots captured since then hold it."""
    blocks: BlockRun
    """The blocks."""


@record
class KeyStart:
    """The first fields of a KeyHead: enough for the figures and for sweeps."""

    object_id: int
    """objectID of the key; an overwrite keeps it."""
    birth: int
    """txn that committed the version."""
    size_bytes: int
    """Size of the version."""


@record
class OpenRun:
    """Allocated blocks of an open key."""

    object_id: int
    """objectID of the run."""
    blocks: BlockRun
    """The blocks; their size is that of whole blocks."""


@record
class SyncedVersion:
    """The live version to which an open key adds blocks, as its last sync has left it. If the live version is
    another one by now, the open key can only be abandoned.
    """

    object_id: int
    """objectID of the key."""
    birth: int
    """Birth of the version."""
    size_bytes: int
    """Size of the version."""
    run_count: int
    """Number of its runs of blocks."""
    last_local_id: int
    """Local id of the first block of its last run; 0 when it has no blocks."""
    room_bytes: int
    """Bytes that still fit into its last block; 0 when the last block was written by another client."""


@record
class OrphanSearchRow:
    """orphanSearchTable: the search for an owner of blocks that an audit found orphaned, and its progress."""

    command: RequeueOrphans
    """Command to carry out if no owner is found."""
    table: int
    """Index of the table at which the search resumes: 0 keyTable, 1 fileTable, 2 deletedTable, 3 reclaimTable."""
    next_key: bytes
    """Key in that table at which the search resumes; empty: the table's beginning."""
    rows: int
    """Versions read so far."""
    owner: str
    """Table and key of a row that owns one of the blocks, written during the search; empty: none."""
    log_time_ms: int
    """Log time of the last page."""


@record
class PrincipalAccessIdRow:
    """principalToAccessIdsTable: one access id of a user."""

    access_id: str
    """The access id."""
    tenant: str
    """Its tenant."""


@record
class ReclaimClockRow:
    """reclaimClockTable: the times from which rows of a bucket could be claimed. They serve to measure how long
    freeing takes; no decision depends on them.
    """

    drop_txns: tuple[int, ...]
    """For each of the newest drops, oldest first, the txn at which the dropped snapshot was captured."""
    drop_times_ms: tuple[int, ...]
    """Log times of these drops."""
    forgotten_txn: int
    """Highest txn at which a snapshot was captured whose drop is not listed any more."""
    forgotten_time_ms: int
    """Log time of the newest drop that is not listed any more."""
    running_since_ms: int
    """Log time at which the last suspension ended; 0 when there was none."""


@record
class RenameRow:
    """snapshotRenamedTable: where an object was before its first rename since the newest snapshot."""

    object_id: int
    """objectID of the key or directory."""
    birth: int
    """txn of the object's creation."""
    death: int
    """txn of the rename."""
    snapshots_before_death: int
    """Number of snapshots that the bucket had ever had at that txn."""
    db_key: str
    """Key of the object's row before the rename."""


@record
class RollbackNameRow:
    """rollbackNameTable: the place of an object in the snapshot, during a rollback."""

    db_key: str
    """Key of the object's row in the snapshot; empty for a directory that is in its place already."""


@record
class RollbackRow:
    """rollbackTable: a rollback of a bucket, and its progress. The row is kept, so that the rollback never begins a
    second time.
    """

    snapshot_id: str
    """Snapshot whose namespace becomes the active one."""
    snapshot_txn: int
    """txn of the snapshot."""
    page: int
    """Last page that was carried out."""
    phase: int
    """Index of the phase with which the next page resumes."""
    next_key: bytes
    """Key at which the next page resumes; empty: the phase's beginning."""
    died: int
    """Keys and directories that left the active namespace."""
    restored: int
    """Keys and directories that were restored to the active namespace."""


@record
class SecretRow:
    """s3SecretTable: the secret with which a user or a service signs commands."""

    name: str
    """Name of the user or service."""
    role: SecretRole
    """Role of the user or service."""
    secret: bytes = field(repr=False)
    """Key of the signatures."""
    previous_secret: bytes = field(repr=False)
    """The previous key, which is still valid; empty when there is none."""
    groups: tuple[str, ...] = ()
    """Groups of a user, for access lists."""
    principal: str = ""
    """User as whom an access id acts; empty for users and services."""


@record
class ShadowHourRow:
    """shadowTable: the versions of a bucket that would have been claimed within one hour of log time without shadow
    mode, and that still wait. Hour 0 sums up all hours before the kept ones.
    """

    versions: int
    """Number of versions; each is counted once, at the first claim that all judges passed."""
    bytes: int
    """Bytes of the versions."""
    oldest_deletion_ms: int
    """Log time of the oldest deletion that was counted in the hour."""
    newest_deletion_ms: int
    """Log time of the newest deletion that was counted in the hour."""


@record
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
    """Why StopClaims stopped all claims; empty while they are not stopped."""
    skipped_txns: int = 0
    """Maximum by which a txn, less 1, may exceed the offset of its command; 0 until a lost tail of the log is
    accepted, or a command has several txns.
    """
    stored_bytes: int = 0
    """What all blocks take that were allocated and that SCM has not confirmed as deleted, with their redundancy; at
    most 2^63-1, so that every sum of sizes in the shard fits into 64 bits.
    """
    claims_stopped_ms: int = -1
    """Log time at which StopClaims stopped all claims; -1 while they are not stopped."""
    refused_rows: int = 0
    """Rows that two judges passed and that metadata kept because a live snapshot holds them, ever: must stay 0."""
    feature_level: int = 1
    """Feature level of the shard."""
    announced_schema_id: int = 0
    """Newest schema of commands that an operator has announced; 0 while none but the first is allowed."""
    reported_local_id: int = 0
    """Local id of the last late report to SCM: of blocks that were allocated by an earlier command. 0: none yet."""
    default_replication: Replication = Replication.RATIS_ONE
    """Replication of new buckets."""
    has_redundancy: bool = False
    """Whether any block of the shard may ever have taken more than its bytes. It stays true."""


@record
class SnapshotCountRow:
    """snapshotCountTable: the number of snapshots that a bucket ever had."""

    snapshots_ever: int
    """Number of snapshots that the bucket ever had, which is the ordinal of the newest one."""
    newest_txn: int
    """txn at which the newest snapshot, live or dropped, was captured."""


@record
class SnapshotListRow:
    """snapshotListTable: one snapshot of a bucket, by its ordinal and by its id."""

    snapshot_id: str
    """Id of the snapshot."""
    bucket_id: int
    """objectID of the bucket."""
    ordinal: int
    """Ordinal of the snapshot among all snapshots that the bucket ever had, from 1."""
    txn: int
    """txn at which the snapshot was captured."""
    is_live: bool
    """Whether the snapshot is not dropped."""
    creation_time_ms: int
    """Log time of the snapshot."""
    referenced_bytes: int
    """Bytes that the snapshot references."""
    referenced_namespace: int
    """Keys and directories that the snapshot references."""
    chain_version: int
    """Chain version of the capture."""
    dropped_chain_version: int
    """Chain version of the drop; 0 while the snapshot is live."""
    grown_bytes: int = 0
    """Bytes by which blocks that the snapshot shows have grown since: it holds them, and does not show them."""
    referenced_redundancy_bytes: int = 0
    """Bytes that the blocks of referenced_bytes take beyond one copy of them."""
    grown_redundancy_bytes: int = 0
    """The same of grown_bytes."""


@record
class TenantRow:
    """tenantStateTable: a tenant."""

    tenant: str
    """Name of the tenant."""
    volume: str
    """Name of its volume."""
    access_ids: int
    """Number of its access ids."""
    creation_time_ms: int
    """Log time of its creation."""


@record
class UploadRow:
    """multipartInfoTable: an upload in parts."""

    upload_id: str
    """Id of the upload."""
    volume_id: int
    """objectID of the volume."""
    bucket_id: int
    """objectID of the bucket."""
    key: str
    """Path of the key."""
    parent_id: int
    """objectID of the directory when the upload was initiated; 0 in a flat bucket."""
    name: str
    """Name in the directory; the whole path in a flat bucket."""
    creation_time_ms: int
    """Log time at which the upload was initiated."""
    run_count: int = 0
    """Number of runs of blocks of all its parts."""


@record
class UserVolumeRow:
    """userTable: one volume of a user. Ozone has one row for each user; rows of one volume each keep a command's
    work bounded.
    """

    user: str
    """User who owns the volume."""
    volume: str
    """Name of the volume."""


@record
class VolumeRow:
    """volumeTable: a volume."""

    object_id: int
    """objectID of the volume."""
    volume: str
    """Name of the volume."""
    owner: str
    """User who owns the volume."""
    creation_time_ms: int
    """Log time of the volume's creation."""
    update_id: int
    """txn of the last change."""
    quota_bytes: int = -1
    """Most bytes that the quotas of its buckets may add up to; -1: no limit."""
    quota_namespace: int = -1
    """Most buckets; -1: no limit."""
    tenant: str = ""
    """Tenant to whom the volume belongs; empty: none."""


@record
class CollectionRow:
    """collectionTable: the collection state of one bucket, or of the whole shard."""

    state: CollectionState
    """State that was set for this bucket, or for the shard."""
    reason: str
    """Reason, as free text."""
    changed_by: str
    """User who made the last change; empty when signatures were not required."""
    changed_ms: int
    """Log time of the last change."""
    changed_txn: int
    """txn of the last change."""
    limits: BreakerLimits | None = None
    """Limits of the breaker that were set for this bucket, or for the shard; null: none were set."""
    trip: BreakerTrip | None = None
    """Why the breaker has tripped; null when it has not."""
    is_by_administrator: bool = False
    """Whether an administrator set the state, or it was set while signatures were not required. Only an
    administrator may change such a state unless it is RUNNING.
    """
    has_administrators_limits: bool = False
    """Whether an administrator set the limits, or they were set while signatures were not required. Such limits
    replace the shard's, and only an administrator may change them.
    """


@record
class DeletedDirectoryRow:
    """deletedDirectoryTable: a directory that left the active namespace."""

    directory: DirectoryRow
    """The directory as it was."""
    death: int
    """txn that took the directory out of the active namespace."""
    snapshots_before_death: int
    """Number of snapshots that the bucket had ever had at the death."""
    is_expanded: bool
    """Whether all children have moved to the garbage tables."""
    child_rows: int
    """Number of sub-directories that died with this directory and whose rows are not removed yet."""
    is_expansion_begun: bool = False
    """Whether any child may have moved to the garbage tables; if so, the tree cannot be undeleted as a whole."""
    deletion_time_ms: int = 0
    """Log time at which the row was moved to this table."""
    next_directory: str = ""
    """During an expansion: no sub-directory is left before this key of directoryTable. Empty before an expansion."""
    next_file: str = ""
    """During an expansion: no file is left before this key of fileTable. Empty before an expansion."""


@record
class DeletedKeyRow:
    """deletedTable: a version that left the active namespace."""

    key: KeyRow
    """The version as it was."""
    death: int
    """txn that took the version out of the active namespace."""
    snapshots_before_death: int
    """Number of snapshots that the bucket had ever had at the death."""
    is_overwritten: bool = False
    """Whether a newer version of the same object replaced this one."""
    deletion_time_ms: int = 0
    """Log time at which the row was moved to this table."""
    shadow_hour: int = 0
    """Hour of log time, counted from 1970, in which shadow mode counted the version as one that would have been
    claimed; 0 when it did not.
    """
    part_of: int = 0
    """0 for a version. Otherwise the row holds blocks only: a further run of the version of this objectID that died
    at the same txn, or, if it is the objectID of the row itself, blocks that never belonged to a version.
    """
    part_ids: tuple[int, ...] = ()
    """objectIDs of the rows that hold the version's further runs, in the order of the content."""
    unread_bytes: int = 0
    """Bytes at the end of the last block behind the end of the version: written by an append that was rolled back."""
    version_of: int = 0
    """0, or the objectID of the key of which the row is a version that died as a noncurrent one, or whose key lived
    on. The objectID of the row is then that of the version.
    """


@record
class PartRow:
    """multipartPartsTable: the present version of a part of an upload."""

    part_number: int
    """Number of the part."""
    size_bytes: int
    """Size of the part."""
    tag: str
    """The client's label for the part."""
    runs: tuple[OpenRun, ...]
    """Blocks of the part, in the order of the content."""
    modification_time_ms: int
    """Log time of the commit of the part."""


@record
class OpenKeyRow:
    """openKeyTable, openFileTable: a key, or a part of an upload, that a client is writing."""

    session: int
    """Id of the open key: the txn that opened it."""
    volume_id: int
    """objectID of the volume."""
    bucket_id: int
    """objectID of the bucket."""
    key: str
    """Path of the key when it was opened."""
    parent_id: int
    """objectID of the directory; the bucket's for a key in the root; 0 in a flat bucket."""
    name: str
    """Name in the directory; the whole path in a flat bucket."""
    tag: str
    """The client's label for the version."""
    block_size_bytes: int
    """Size of a full block."""
    runs: tuple[OpenRun, ...]
    """Blocks that were allocated and do not belong to a version yet, in the order of the content."""
    creation_time_ms: int
    """Log time at which the key was opened."""
    update_time_ms: int
    """Log time of the last command of the client that writes."""
    expected_generation: int = 0
    """As in OpenKey."""
    synced: SyncedVersion | None = None
    """The version that the client has synced, or appends to; null when there is none yet."""
    is_recovered: bool = False
    """Whether the lease was recovered: only the commit of the recovery is accepted."""
    upload_id: str = ""
    """Upload of which this is a part; empty for a key."""
    part_number: int = 0
    """Number of the part; 0 for a key."""


@record
class ClaimedRow:
    """reclaimTable: a claimed version, until SCM has confirmed the deletion of its blocks."""

    facts: bytes
    """A ClaimFacts as a stored row, that is, with its version in front. Many rows of one claim have the same bytes."""
    numbers: bytes
    """The numbers that finishing the row needs, so that the version need not be read: birth, size_bytes, and of the
    blocks container_id, first_local_id, block_count, block_size_bytes and size_bytes; 8 bytes each, the most
    significant first.
    """
    version: DeletedKeyRow
    """The version as it was in deletedTable. Must stay the last field: a claim appends the encoded row of
    deletedTable unchanged.
    """
