"""Records of metadata.commands and metadata.replies."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import field

from schemas.frozen import record
from schemas.records.shared import (
    Acl,
    AclObject,
    Barrier,
    BlockRun,
    BucketLayout,
    BucketVersioning,
    CollectionState,
    DeletedKind,
    Replication,
    RowName,
    RowNames,
    SecretRole,
)


@record
class AbandonKey:
    """Close an open key without a commit. Blocks that no sync has made part of a version are freed."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""
    session: int
    """Id of the open key, from the answer to OpenKey."""
    parent_id: int = 0
    """objectID of the directory in which the key was opened, as the listing of open keys has it, if the path no
    longer leads there; 0: the path leads there.
    """


@record
class AbortUpload:
    """End an upload and free its parts."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""
    upload_id: str
    """Id of the upload."""


@record
class AcceptLostTail:
    """Accept that the log has lost its newest commands: the shard skips every txn and chain version that may have
    been published. Sent by an operator.
    """

    offset: int
    """Offset of this command in the log. A copy at another offset is dead-lettered."""
    expected_txn: int
    """Last txn of metadata's database. metadata stops if its database has another one: that database was built
    without the lost commands.
    """
    expected_log_time_ms: int
    """Log time of metadata's database, compared like expected_txn."""
    epoch: int
    """Top bits of new objectIDs after this command."""
    txn: int
    """The next command gets the txn after this one. No published txn is higher."""
    chain_version: int
    """Chain version of the full chain that metadata publishes with this command. Every published chain version is
    lower.
    """
    reason: str = ""
    """Reason, as free text."""


@record
class AddAcl:
    """Add rights to the entry of the same name and scope, or a new entry."""

    object: AclObject
    """Kind of the object."""
    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket; empty for a volume. A link has a list of its own."""
    path: str
    """Path of the key or directory, or the prefix, which ends with a slash; empty for a volume or bucket."""
    acl: Acl
    """The entry."""


@record
class AllocateBlocks:
    """Allocate further blocks for an open key."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""
    session: int
    """Id of the open key, from the answer to OpenKey."""
    size_bytes: int
    """Bytes for which blocks are allocated."""


@record
class AnnounceSchema:
    """Allow commands by newer schemas from here on. A command by a schema that was not announced before it is
    dead-lettered, now and in each rebuild. Sent by an operator just before the schemas are published.
    """

    schema_id: int
    """Id of the newest schema of commands."""


@record
class AssignTenantAdmin:
    """Make an access id an administrator of its tenant, or end that."""

    access_id: str
    """The access id."""
    is_admin: bool
    """Whether its user may assign users to the tenant and revoke them."""
    is_delegated_admin: bool
    """Whether its user may make others administrators of the tenant, too; only with is_admin."""


@record
class AssignUserToTenant:
    """Give a user an access id of a tenant, and this a secret."""

    tenant: str
    """Name of the tenant."""
    user: str
    """Name of the user, the access id's principal."""
    access_id: str
    """The access id, by convention the tenant, a dollar sign and the user."""
    secret: bytes = field(repr=False)
    """Key of the signatures, 16 to 128 bytes."""


@record
class BreakerLimits:
    """How much of a bucket may be claimed within an hour of log time: a share of the bucket's size at the hour's
    beginning, or the floor, whichever is larger.
    """

    share_percent: int
    """Percent of the bucket's bytes, and of its keys and directories, live and deleted; 0: no limit."""
    floor_bytes: int
    """Bytes that may be claimed in each hour, however small the share is."""
    floor_versions: int
    """Versions that may be claimed in each hour, however small the share is."""


@record
class CancelDelegationToken:
    """End a token. Sent by its owner, its renewer or an administrator."""

    token_id: str
    """Id of the token."""


@record
class CaptureSnapshot:
    """Capture a snapshot: create its snapshot checkpoint, its list entry and its chain marker at one txn. Sent by
    snapshots.
    """

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    snapshot_id: str
    """Id of the snapshot, chosen by snapshots."""
    user: str = ""
    """User who requested the snapshot, and whose right metadata checks; empty when a retention policy requested it."""
    requested_ms: int = 0
    """Log time of the request; metadata refuses a capture that is applied more than a day away from it. 0: not
    known, never refused.
    """


@record
class ClaimRows:
    """Claim rows that no snapshot holds. A claimed version moves to reclaimTable; a rename entry or a directory row
    is removed. Sent by key_deletion.
    """

    task: int
    """The sender's number for this batch, returned in the answer."""
    chain_version: int
    """Chain version of the chain view with which the sender judged."""
    rows: tuple[RowNames, ...]
    """Rows to claim."""
    first_judge_version: int = 0
    """Oldest chain version with which streaming judged one of the rows; 0 when it is not known."""


@record
class CommitKey:
    """Make what was written of an open key the present version of the key, or of the part of its upload, and close
    it.
    """

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""
    session: int
    """Id of the open key, from the answer to OpenKey."""
    size_bytes: int
    """Size of the version, at least that of the last sync."""
    is_recovery: bool = False
    """Whether a client that has recovered the lease closes the key."""


@record
class KeysDeleted:
    """Result of DeleteKeys. Indexes count the keys of the command, from 0."""

    deleted: int
    """Number of deleted keys."""
    not_found: tuple[int, ...]
    """Indexes of the keys that DeleteKey would have refused with KEY_NOT_FOUND."""
    not_empty: tuple[int, ...]
    """Indexes of the keys that DeleteKey would have refused with DIRECTORY_NOT_EMPTY."""


@record
class KeysPut:
    """Result of PutKeys. Indexes count the keys of the command, from 0."""

    put: int
    """Number of committed versions."""
    refused: tuple[int, ...]
    """Indexes of the keys that PutKey would have refused."""
    errors: tuple[str, ...]
    """Error code of each of these keys."""
    container_id: int
    """Container of the blocks of all versions."""
    first_local_id: int
    """Id of the first block of the first key; that of each further key is 65,536 higher, whatever was refused. The
    blocks of a version follow one another.
    """


@record
class CompleteUpload:
    """Join parts of an upload to the present version of its key. Other parts are freed."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""
    upload_id: str
    """Id of the upload."""
    part_numbers: tuple[int, ...]
    """Numbers of the parts, ascending."""
    tag: str = ""
    """The client's label for the version."""


@record
class CreateBucket:
    """Create a bucket."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    layout: BucketLayout
    """Layout of the bucket."""


@record
class CreateBucketLink:
    """Create a bucket that is a link to another bucket of the same shard, which may not exist yet. Commands and
    reads of the link are those of the other bucket.
    """

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    source_volume: str
    """Volume of the other bucket."""
    source_bucket: str
    """Name of the other bucket."""


@record
class CreateTenant:
    """Create a tenant and its volume. Sent by administrators."""

    tenant: str
    """Name of the tenant."""
    volume: str
    """Name of the volume, which must not exist."""
    owner: str
    """Owner of the volume."""


@record
class CreateVolume:
    """Create a volume in the partition's shard."""

    volume: str
    """Name of the volume."""
    owner: str = ""
    """User who owns the volume."""


@record
class DeleteBucket:
    """Delete an empty bucket without snapshots."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""


@record
class DeleteDirectory:
    """Delete a directory."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    directory: str
    """Path of the directory."""
    is_recursive: bool = True
    """True: everything below the directory is deleted, too. False: a directory with children is refused."""


@record
class DeleteKey:
    """Delete a key, or in a tree an empty directory."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""


@record
class DeleteKeyVersion:
    """Delete one version of a key. In place of the current version the newest noncurrent one becomes current;
    without one the key is deleted.
    """

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""
    version: int
    """Id of the version: its birth."""


@record
class DeleteKeys:
    """Delete many keys of a bucket, each as DeleteKey does. A key that cannot be deleted does not stop the others,
    and the answer names it.
    """

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    keys: tuple[str, ...]
    """Paths of the keys in the bucket, 1 to 1,000, deleted in this order."""


@record
class DeleteTenant:
    """Delete a tenant without access ids. Its volume stays. Sent by administrators."""

    tenant: str
    """Name of the tenant."""


@record
class DeleteVolume:
    """Delete an empty volume."""

    volume: str
    """Name of the volume."""


@record
class DropSnapshot:
    """Drop a snapshot from its bucket's list at one txn. Sent by snapshots."""

    snapshot_id: str
    """Id of the snapshot. A snapshot that was never captured is answered like a dropped one."""


@record
class ExpandDirectory:
    """Move one page of a deleted directory's children to the garbage tables. Sent by directory_deletion."""

    bucket_id: int
    """objectID of the bucket."""
    object_id: int
    """objectID of the directory."""
    death: int
    """Death of the row to expand."""
    max_entries: int
    """Maximum children to move."""
    max_bytes: int
    """Maximum serialized bytes of the moved children; one child is always allowed."""


@record
class ExpireWrites:
    """Close open keys and abort uploads that nobody has continued for some time, one page of a table. Sent by
    key_deletion.
    """

    table: int
    """0 openKeyTable, 1 openFileTable, 2 multipartInfoTable."""
    start_key: bytes
    """First key of the page; empty: the first of the table."""
    max_rows: int
    """Maximum rows that the page reads."""
    open_key_age_ms: int
    """Open keys whose last command is at least this old are closed."""
    upload_age_ms: int
    """Uploads that were initiated at least this long ago are aborted."""


@record
class FinishRows:
    """Remove claimed rows whose blocks SCM has confirmed. Sent by key_deletion."""

    task: int
    """The sender's number for this batch, returned in the answer."""
    rows: tuple[RowNames, ...]
    """Rows to remove."""


@record
class GetDelegationToken:
    """Make a token that acts as the user who sends this."""

    renewer: str
    """User who may renew the token."""
    secret: bytes = field(repr=False)
    """Key of the signatures, 16 to 128 bytes."""


@record
class GrantContainer:
    """Use a new container for the blocks of later puts. Sent by mock_scm."""

    container_id: int
    """Id of the container; ignored unless it is above the present one."""


@record
class InitiateUpload:
    """Begin an upload in parts. Each part is opened, written and committed like a key."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""


@record
class MakeDirectory:
    """Create a directory and its missing parents. An existing directory is left unchanged."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    directory: str
    """Path of the directory."""


@record
class OpenKey:
    """Open a key for writing and allocate its first blocks. Nobody sees the key, and no snapshot holds its blocks,
    until it is synced or committed.
    """

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""
    size_bytes: int
    """Bytes for which blocks are allocated."""
    tag: str = ""
    """The client's label for the version."""
    block_size_bytes: int = 268435456
    """Size of a full block."""
    expected_generation: int = 0
    """update_id that the key must have; -1: there must be no such key; 0: no condition."""
    is_append: bool = False
    """Whether the client writes behind the end of the present version of the key, which must exist."""
    upload_id: str = ""
    """Upload of which this is a part; empty for a key."""
    part_number: int = 0
    """Number of the part, 1 to 10,000; 0 for a key."""


@record
class PublishFullChain:
    """Publish a full chain, at which a reader of the chain may start. Sent by an operator."""

    reason: str = ""
    """Reason, as free text."""


@record
class PutKey:
    """Commit a version of a key, new or in place of an older version."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""
    size_bytes: int
    """Size of the version; a version of 0 bytes has no blocks."""
    tag: str = ""
    """The client's label for this version, kept with it and shown in listings. It is not a snapshot tag."""
    block_size_bytes: int = 268435456
    """Size of a full block."""


@record
class PutKeyIf:
    """Commit a version of a key if the key is as expected."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""
    size_bytes: int
    """Size of the version; a version of 0 bytes has no blocks."""
    expected_generation: int
    """update_id that the key must have; -1: there must be no such key."""
    tag: str = ""
    """The client's label for this version."""
    block_size_bytes: int = 268435456
    """Size of a full block."""


@record
class PutKeys:
    """Commit a version of many keys of a bucket, each as PutKey does and at a txn of its own: the answer has the
    last one. A key that cannot be put does not stop the others, and the answer names it.
    """

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    keys: tuple[str, ...]
    """Paths of the keys in the bucket, 1 to 1,000, put in this order."""
    sizes_bytes: tuple[int, ...]
    """Size of each version; a version of 0 bytes has no blocks."""
    tags: tuple[str, ...] = ()
    """The client's label for each version; none of them has one if the list is empty."""
    block_size_bytes: int = 268435456
    """Size of a full block of all versions."""


@record
class RecoverLease:
    """End the right of the present writer of a synced key to write. The answer names the open key, which the sender
    commits.
    """

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""


@record
class RemoveAcl:
    """Take rights away from the entry of the same name and scope; an entry without rights is removed."""

    object: AclObject
    """Kind of the object."""
    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket; empty for a volume. A link has a list of its own."""
    path: str
    """Path of the key or directory, or the prefix, which ends with a slash; empty for a volume or bucket."""
    acl: Acl
    """The entry with the rights to take away."""


@record
class RemoveDirectories:
    """Remove the rows of deleted directories that are expanded, have no child rows and are held by no snapshot. Sent
    by directory_deletion.
    """

    chain_version: int
    """Chain version of the chain view with which the sender judged."""
    rows: tuple[RowName, ...]
    """Rows to remove."""


@record
class RenameDirectory:
    """Change the path of a directory."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    source: str
    """Present path."""
    target: str
    """New path; if it is an existing directory, the renamed one moves into it."""


@record
class RenameKey:
    """Change the path of a key, or in a tree of a directory."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    source: str
    """Present path."""
    target: str
    """New path; in a tree, if it is an existing directory, the renamed object moves into it."""


@record
class RenewDelegationToken:
    """Let a token be valid for another day. Sent by its renewer."""

    token_id: str
    """Id of the token."""


@record
class RepairQuota:
    """Correct what a bucket says is used, against which its quotas are checked, by what a recount has found. Sent by
    audit.
    """

    bucket_id: int
    """objectID of the bucket."""
    audited_txn: int
    """Last txn that metadata had applied at the audit. The differences are those of that moment; what later commands
    count is added as usual.
    """
    used_bytes: int
    """Recounted less stated value of used_bytes in the bucket's row."""
    used_namespace: int
    """The same of used_namespace."""
    snapshot_used_bytes: int
    """The same of snapshot_used_bytes."""
    snapshot_used_namespace: int
    """The same of snapshot_used_namespace."""
    upload_bytes: int
    """The same of upload_bytes."""
    spare_bytes: int
    """The same of spare_bytes."""
    block_rows: int
    """The same of block_rows."""
    used_redundancy_bytes: int = 0
    """The same of used_redundancy_bytes."""
    snapshot_used_redundancy_bytes: int = 0
    """The same of snapshot_used_redundancy_bytes."""
    upload_redundancy_bytes: int = 0
    """The same of upload_redundancy_bytes."""
    spare_redundancy_bytes: int = 0
    """The same of spare_redundancy_bytes."""


@record
class RequeueOrphans:
    """Give a garbage row to each run of blocks that an audit found orphaned, so that the run is judged, claimed and
    deleted like any other; all runs or none. Sent by audit.
    """

    bucket_id: int
    """objectID of the bucket to which the blocks belong in the block store."""
    audited_txn: int
    """Last txn that metadata had applied at the audit; blocks of later txns are refused."""
    blocks: tuple[BlockRun, ...]
    """The orphaned runs, at most 200."""
    max_rows: int
    """Maximum versions of the shard to search for an owner of the blocks; in a shard with more versions nothing is
    changed.
    """


@record
class ResetBreaker:
    """Resume claims where the breaker has tripped. A new hour begins, and the rows that wait may be claimed beyond
    its limits. Sent by the bucket's owner or an administrator; by an administrator only, if an administrator set the
    limits or if figures and rows disagree.
    """

    volume: str
    """Name of the volume; empty: every bucket of the shard, for administrators only."""
    bucket: str
    """Name of the bucket; empty with an empty volume."""
    reason: str
    """Reason, as free text."""
    bucket_id: int = 0
    """objectID of one bucket that has or had this name; 0: the live bucket of this name, and deleted ones whose
    claims are suspended.
    """


@record
class RevokeS3Secret:
    """Remove the secret of an access id, which can get another one."""

    access_id: str
    """The access id."""


@record
class RevokeUserFromTenant:
    """Remove an access id and its secret."""

    access_id: str
    """The access id."""


@record
class RollbackPage:
    """Carry out one page of a rollback; the first one sets the fence. Sent by snapshots."""

    rollback_id: str
    """Id of the rollback."""
    bucket_id: int
    """objectID of the bucket."""
    snapshot_id: str
    """Snapshot whose namespace becomes the active one."""
    page: int
    """Number of the page, from 1."""
    max_entries: int
    """Maximum rows that the page reads."""


@record
class SetAcl:
    """Replace all entries."""

    object: AclObject
    """Kind of the object."""
    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket; empty for a volume. A link has a list of its own."""
    path: str
    """Path of the key or directory, or the prefix, which ends with a slash; empty for a volume or bucket."""
    acls: tuple[Acl, ...]
    """The new entries; none: the object has no list any more."""


@record
class SetBucketReplication:
    """Set how blocks of a bucket are kept that are allocated from now on."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    replication: Replication
    """As in the row of the bucket."""


@record
class SetBucketVersioning:
    """Set whether a bucket keeps overwritten versions of keys."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    versioning: BucketVersioning
    """ENABLED or SUSPENDED: no bucket becomes UNVERSIONED again."""


@record
class SetCollection:
    """Set the collection state of one bucket, or of the whole shard. Sent by the bucket's owner or an administrator.
    A state other than RUNNING that an administrator has set can be changed by an administrator only.
    """

    volume: str
    """Name of the volume; empty: the whole shard, for administrators only."""
    bucket: str
    """Name of the bucket; empty with an empty volume."""
    state: CollectionState
    """RUNNING, SHADOW or PAUSED. Only the breaker sets TRIPPED, and only StopClaims sets STOPPED."""
    reason: str
    """Reason, as free text."""
    ends_stop: bool = False
    """Whether claims that StopClaims has stopped are resumed, too; only for the whole shard."""
    bucket_id: int = 0
    """objectID of one bucket that has or had this name; 0: the live bucket of this name, and deleted ones whose
    claims are suspended.
    """


@record
class SetDefaultReplication:
    """Set the replication of buckets that are created from now on. Sent by an administrator."""

    replication: Replication
    """As in the row of a bucket."""


@record
class SetFeatureLevel:
    """Raise the shard's feature level, which is never lowered. Sent by an operator when every part of the plane runs
    the newer program.
    """

    level: int
    """The new level."""
    confirmation: str
    """"feature level N is final", where N is the level. A command with another text is dead-lettered, because no
    older program can run the shard afterwards.
    """


@record
class SetGroups:
    """Set the groups of a user. Sent by administrators."""

    name: str
    """Name of the user, who has a secret."""
    groups: tuple[str, ...]
    """All groups of the user."""


@record
class SetOwner:
    """Give a volume or a bucket another owner."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket; empty: the owner of the volume."""
    owner: str
    """The new owner; empty: a bucket belongs to the volume's owner, and a volume to administrators only."""


@record
class SetQuota:
    """Set the quotas of a bucket or a volume."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket; empty: the quotas of the volume, for administrators only."""
    quota_bytes: int
    """As in the row of the bucket or volume."""
    quota_namespace: int
    """As in the row of the bucket or volume."""


@record
class SetS3Secret:
    """Change the secret of an access id. The previous one stays valid until the next change."""

    access_id: str
    """The access id."""
    secret: bytes = field(repr=False)
    """Key of the signatures, 16 to 128 bytes."""


@record
class SetSecret:
    """Set, change or remove the secret with which a user or a service signs commands. Sent by administrators."""

    name: str
    """Name of the user or service."""
    role: SecretRole
    """Role of the user or service."""
    secret: bytes = field(repr=False)
    """Key of the signatures, 16 to 128 bytes; empty: the name may not sign any more. The previous secret stays valid
    until the same secret is set again.
    """


@record
class StopClaims:
    """Stop every claim and every removal of directory rows, whatever the collection states are, until an operator
    resumes them. Sent by snapshots when its chain is corrupted.
    """

    reason: str
    """Reason, as free text."""


@record
class SweepPage:
    """Send one page of a garbage range's rows to the judges again. Sent by key_deletion."""

    sweep_id: int
    """The sender's number for this sweep."""
    page: int
    """Number of the page, from 1."""
    bucket_id: int
    """objectID of the bucket; 0: every bucket."""
    after_death: int
    """Only rows that died after this txn."""
    until_death: int
    """Only rows that died at or before this txn; 0: no limit."""
    after_birth: int
    """Only rows born after this txn."""
    until_birth: int
    """Only rows born at or before this txn; 0: no limit."""
    start_table: int
    """Table at which the page starts: 0 deletedTable, 1 deletedDirectoryTable, 2 snapshotRenamedTable, 3
    reclaimTable.
    """
    start_key: bytes
    """First key of the page in that table; empty: the first key of the range."""
    max_rows: int
    """Maximum rows of the page."""
    max_bytes: int
    """Maximum serialized bytes of the page; one row is always allowed."""
    with_claimed: bool = True
    """Whether the sweep reads reclaimTable, too."""


@record
class SyncKey:
    """Make what was written of an open key visible as the present version of the key. The key stays open (hsync)."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""
    session: int
    """Id of the open key, from the answer to OpenKey."""
    size_bytes: int
    """Size of the version from here on, at least that of the sync before."""


@record
class Undelete:
    """Undo the deletion of a version or directory that is not claimed yet. The object keeps its blocks."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    path: str
    """Path for the object: its own path or another one. Missing parent directories are created."""
    kind: DeletedKind
    """KEY, or DIRECTORY for a directory with everything below it."""
    object_id: int
    """objectID of the deleted version or directory."""
    birth: int
    """Birth of the object: the txn that committed the version, or that created the directory."""
    death: int
    """txn of the deletion."""


@record
class SetBreaker:
    """Set how much of one bucket, or of each bucket of a shard, may be claimed within an hour. Sent by the bucket's
    owner or an administrator. An owner's limits apply beside the shard's, and the lower ones count; an
    administrator's limits replace the shard's.
    """

    volume: str
    """Name of the volume; empty: the limits of the shard, for administrators only."""
    bucket: str
    """Name of the bucket; empty with an empty volume."""
    limits: BreakerLimits | None
    """The limits, from the bucket's next hour on; null removes them."""
    bucket_id: int = 0
    """objectID of one bucket that has or had this name; 0: the live bucket of this name, and deleted ones whose
    claims are suspended.
    """


@record
class Committed:
    """Facts about a change of the namespace, for the client."""

    object_id: int
    """objectID of the created or changed object; 0 when there is none."""
    blocks: BlockRun | None = None
    """Blocks of the version that a put committed; null when there are none."""
    keys: KeysDeleted | None = None
    """Result of DeleteKeys; null for other commands."""
    session: int = 0
    """Id of the key that a command has opened; 0 for other commands."""
    runs: tuple[BlockRun, ...] = ()
    """Blocks that the command has allocated for an open key, or all those of a version that was joined from parts."""
    upload_id: str = ""
    """Id of the upload that the command has initiated; empty for other commands."""
    token_id: str = ""
    """Id of the delegation token that the command has made; empty for other commands."""
    keys_put: KeysPut | None = None
    """Result of PutKeys; null for other commands."""


@record
class MetadataCommand:
    """A command to metadata. Topic metadata.commands, one partition per shard."""

    shard: int
    """Shard of the command; must be the number of the partition."""
    client_id: str
    """Id of the client, a new one at each start of the client; empty: a repeat of the command is not recognized."""
    number: int
    """Number of the command, rising with each command of the client; 0 with an empty client_id."""
    body: (
        CreateVolume
        | DeleteVolume
        | CreateBucket
        | DeleteBucket
        | PutKey
        | DeleteKey
        | RenameKey
        | MakeDirectory
        | DeleteDirectory
        | RenameDirectory
        | Undelete
        | CaptureSnapshot
        | DropSnapshot
        | RollbackPage
        | ClaimRows
        | FinishRows
        | ExpandDirectory
        | RemoveDirectories
        | SweepPage
        | GrantContainer
        | StopClaims
        | PublishFullChain
        | Barrier
        | RequeueOrphans
        | AcceptLostTail
        | SetSecret
        | SetCollection
        | SetBreaker
        | ResetBreaker
        | DeleteKeys
        | SetFeatureLevel
        | AnnounceSchema
        | PutKeyIf
        | OpenKey
        | AllocateBlocks
        | SyncKey
        | CommitKey
        | RecoverLease
        | AbandonKey
        | InitiateUpload
        | CompleteUpload
        | AbortUpload
        | ExpireWrites
        | SetQuota
        | CreateBucketLink
        | SetOwner
        | AddAcl
        | RemoveAcl
        | SetAcl
        | SetGroups
        | CreateTenant
        | DeleteTenant
        | AssignUserToTenant
        | RevokeUserFromTenant
        | AssignTenantAdmin
        | SetS3Secret
        | RevokeS3Secret
        | GetDelegationToken
        | RenewDelegationToken
        | CancelDelegationToken
        | RepairQuota
        | SetBucketVersioning
        | DeleteKeyVersion
        | SetBucketReplication
        | SetDefaultReplication
        | PutKeys
    )
    """The command."""
    sender: str = ""
    """Service that sends an internal command; empty for a command of a client."""
    wants_reply: bool = True
    """Whether an answer is sent to metadata.replies; an undelete is always answered."""
    user: str = ""
    """User who sends the command; empty for a service."""
    issued_at_ms: int = 0
    """Time at which the user signed the command, by the client's clock; 0 for a service."""
    signature: str = ""
    """HMAC-SHA256, in hexadecimal digits, over the name of the topic and the message up to this field, with the
    secret of the user or, without a user, of the sender; empty when the command is not signed. Must stay the last
    field.
    """


@record
class MetadataReply:
    """Answer to a client's command. Topic metadata.replies."""

    client_id: str
    """From the command."""
    number: int
    """From the command."""
    txn: int
    """txn at which the command was applied; 0 when it was refused."""
    error: str = ""
    """Code of the refusal, Ozone's where Ozone has one; empty on success."""
    message: str = ""
    """Text of the refusal; empty on success."""
    committed: Committed | None = None
    """Facts about the change; null when there are none."""
