"""Records of metadata.commands and metadata.replies."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.records.shared import (
    Barrier,
    BlockRun,
    BucketLayout,
    CollectionState,
    DeletedKind,
    RowName,
    RowNames,
    SecretRole,
)


@dataclass(frozen=True, slots=True)
class AcceptLostTail:
    """The log has lost its newest commands, and a person accepts it: nothing that they may have named is named
    again. Sent by a person.
    """

    offset: int
    """Offset of this very command: anywhere else it is not meant."""
    expected_txn: int
    """Last txn of the database that goes on; one that has another was built without the lost commands."""
    expected_log_time_ms: int
    """Log time of that database, for the same reason."""
    epoch: int
    """Top bits of new objectIDs from here on."""
    txn: int
    """The shard goes on behind this txn, which nobody has seen one above."""
    chain_version: int
    """Chain version of the whole chain that is written now; nobody has seen one above."""
    reason: str = ""
    """Why, for people."""


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """How much of a bucket may be claimed within an hour of log time: a share of what it had when the hour began, or
    the floor if that is more.
    """

    share_percent: int
    """Percent of the bytes, and of the keys and directories, live and deleted; 0 for no limit at all."""
    floor_bytes: int
    """Bytes that may always be claimed."""
    floor_versions: int
    """Versions that may always be claimed."""


@dataclass(frozen=True, slots=True)
class CaptureSnapshot:
    """Capture a snapshot at one txn: its checkpoint, its list entry and its chain marker. Sent by snapshots."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    snapshot_id: str
    """Id that snapshots has given it."""
    user: str = ""
    """User who asked for it, whose right metadata checks; empty when a retention policy asked."""
    requested_ms: int = 0
    """Log time of the request: one that is applied too long after it is refused. 0: not known, never refused."""


@dataclass(frozen=True, slots=True)
class ClaimRows:
    """Move rows that nobody holds out of reach. Sent by key_deletion."""

    task: int
    """The sender's number for this batch, returned in the answer."""
    chain_version: int
    """Chain version of the view with which the sender judged."""
    rows: tuple[RowNames, ...]
    """Rows to claim."""
    first_judge_version: int = 0
    """The oldest chain version with which streaming judged any of them; 0 when it is not known."""


@dataclass(frozen=True, slots=True)
class KeysDeleted:
    """What DeleteKeys has done: how many keys it deleted, and the places in the command of those that it left."""

    deleted: int
    """How many keys were deleted."""
    not_found: tuple[int, ...]
    """Places, from 0, of the keys that DeleteKey would have refused with KEY_NOT_FOUND."""
    not_empty: tuple[int, ...]
    """Places of those that it would have refused with DIRECTORY_NOT_EMPTY."""


@dataclass(frozen=True, slots=True)
class CreateBucket:
    """Make a bucket."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    layout: BucketLayout
    """How the bucket names what it holds."""


@dataclass(frozen=True, slots=True)
class CreateVolume:
    """Make a volume in the partition's shard."""

    volume: str
    """Name of the volume."""
    owner: str = ""
    """User who owns it."""


@dataclass(frozen=True, slots=True)
class DeleteBucket:
    """Remove an empty bucket without snapshots."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""


@dataclass(frozen=True, slots=True)
class DeleteDirectory:
    """Delete a directory."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    directory: str
    """Path of the directory."""
    is_recursive: bool = True
    """Whether what is below goes too; otherwise a directory with children is refused."""


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """Delete a key; in a tree also an empty directory."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """Delete many keys of a bucket at once, each as DeleteKey does; what cannot be deleted is left, and the answer
    says what.
    """

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    keys: tuple[str, ...]
    """Paths of the keys in the bucket, 1 to 1,000, deleted in this order."""


@dataclass(frozen=True, slots=True)
class DeleteVolume:
    """Remove an empty volume."""

    volume: str
    """Name of the volume."""


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """Drop a snapshot from its bucket's list at one txn. Sent by snapshots."""

    snapshot_id: str
    """Id of the snapshot; one that was never captured is answered as dropped."""


@dataclass(frozen=True, slots=True)
class ExpandDirectory:
    """Move one page of a deleted directory's children to the garbage tables. Sent by directory_deletion."""

    bucket_id: int
    """objectID of the bucket."""
    object_id: int
    """objectID of the directory."""
    death: int
    """Death of the row to expand."""
    max_entries: int
    """Most children to move."""
    max_bytes: int
    """Most serialized bytes of children to move; one child always fits."""


@dataclass(frozen=True, slots=True)
class FinishRows:
    """Remove claimed rows whose blocks SCM has confirmed. Sent by key_deletion."""

    task: int
    """The sender's number for this batch, returned in the answer."""
    rows: tuple[RowNames, ...]
    """Rows to finish."""


@dataclass(frozen=True, slots=True)
class GrantContainer:
    """Use a new container for the blocks of later puts. Sent by mock_scm."""

    container_id: int
    """The container; one that is not above the present one is ignored."""


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Make a directory and its missing parents; an existing one is left as it is."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    directory: str
    """Path of the directory."""


@dataclass(frozen=True, slots=True)
class PublishFullChain:
    """Write a full-chain record, at which a reader of the chain may start. Sent by a person."""

    reason: str = ""
    """Why, for people."""


@dataclass(frozen=True, slots=True)
class PutKey:
    """Commit a key, new or over an older version."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    key: str
    """Path of the key in the bucket."""
    size_bytes: int
    """Size of the version; 0 has no blocks."""
    tag: str = ""
    """The client's word for this version, kept with it and shown in listings."""
    block_size_bytes: int = 268435456
    """Size of a full block."""


@dataclass(frozen=True, slots=True)
class RemoveDirectories:
    """Remove the rows of expanded, childless directories that nobody holds. Sent by directory_deletion."""

    chain_version: int
    """Chain version of the view with which the sender judged."""
    rows: tuple[RowName, ...]
    """Rows to remove."""


@dataclass(frozen=True, slots=True)
class RenameDirectory:
    """Give a directory another path."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    source: str
    """Present path."""
    target: str
    """New path; an existing directory means into that directory."""


@dataclass(frozen=True, slots=True)
class RenameKey:
    """Give a key (or, in a tree, a directory) another path."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    source: str
    """Present path."""
    target: str
    """New path; in a tree an existing directory means into that directory."""


@dataclass(frozen=True, slots=True)
class RequeueOrphans:
    """Give blocks that an audit has found orphaned a garbage row each, so that they are judged, claimed and deleted
    as all others; as a whole or not at all. Sent by audit.
    """

    bucket_id: int
    """objectID of the bucket for which the block store keeps them."""
    audited_txn: int
    """What metadata had applied when the audit looked; blocks that were written later are refused."""
    blocks: tuple[BlockRun, ...]
    """The orphaned runs, at most 200."""
    max_rows: int
    """Versions of the shard that may be looked through for one that refers to them; in a shard with more nothing is
    done.
    """


@dataclass(frozen=True, slots=True)
class ResetBreaker:
    """Resume collection where the breaker has tripped. The hour begins again, and waiting rows may be claimed beyond
    the limits. The bucket's owner or an administrator sends it; only an administrator may where an administrator set
    the limits, or where figures and rows disagree.
    """

    volume: str
    """Volume; empty for every bucket of the shard, which is for administrators."""
    bucket: str
    """Bucket; empty likewise."""
    reason: str
    """Why, for people."""
    bucket_id: int = 0
    """Id of one bucket where several had this name, as a deleted one; 0 for the bucket of the name and the suspended
    ones before it.
    """


@dataclass(frozen=True, slots=True)
class RollbackPage:
    """Carry out one page of a rollback; the first one sets the fence. Sent by snapshots."""

    rollback_id: str
    """Names the rollback."""
    bucket_id: int
    """objectID of the bucket."""
    snapshot_id: str
    """Snapshot whose namespace becomes the active one."""
    page: int
    """Number of the page, from 1."""
    max_entries: int
    """Rows that the page may look at."""


@dataclass(frozen=True, slots=True)
class SetCollection:
    """Set the collection state of one bucket, or of all of a shard. The bucket's owner or an administrator sends it;
    only an administrator may undo what an administrator has set.
    """

    volume: str
    """Volume; empty for all of the shard, which is for administrators."""
    bucket: str
    """Bucket; empty for all of the shard."""
    state: CollectionState
    """RUNNING, SHADOW or PAUSED; TRIPPED is for the breaker alone, STOPPED for StopClaims."""
    reason: str
    """Why, for people."""
    ends_stop: bool = False
    """Whether stopped claims are resumed, too; for all of the shard alone."""
    bucket_id: int = 0
    """Id of one bucket where several had this name, as a deleted one; 0 for the bucket of the name and the suspended
    ones before it.
    """


@dataclass(frozen=True, slots=True)
class SetFeatureLevel:
    """Raise the shard's feature level: an upgrade is final. Sent by an operator when every part runs the newer
    program.
    """

    level: int
    """The new level."""
    confirmation: str
    """"feature level N is final", with the level as N: another text is dead-lettered, since no older program can go
    on with the shard.
    """


@dataclass(frozen=True, slots=True)
class SetSecret:
    """Set, change or remove the secret that a user or service signs commands with. Administrators send it."""

    name: str
    """Who signs: a user or a service."""
    role: SecretRole
    """What it is."""
    secret: bytes = field(repr=False)
    """Key of the signatures, 16 to 128 bytes; empty: the name may sign no more. The one before it stays good until
    the same secret is set again.
    """


@dataclass(frozen=True, slots=True)
class StopClaims:
    """Suspend every claim and every removal of directory rows until a person resumes them, whatever the collection
    states are. Sent by snapshots when its chain is corrupted.
    """

    reason: str
    """Why, for people."""


@dataclass(frozen=True, slots=True)
class SweepPage:
    """Send a page of a garbage range's rows through the judges again. Sent by key_deletion."""

    sweep_id: int
    """The sender's number for this sweep."""
    page: int
    """Number of the page, from 1."""
    bucket_id: int
    """objectID of the bucket; 0 means every bucket."""
    after_death: int
    """Only rows that died after this txn."""
    until_death: int
    """Only rows that died at or before this txn; 0 means no end."""
    after_birth: int
    """Only rows born after this txn."""
    until_birth: int
    """Only rows born at or before this txn; 0 means no end."""
    start_table: int
    """Where the page starts: 0 deletedTable, 1 deletedDirectoryTable, 2 snapshotRenamedTable, 3 reclaimTable."""
    start_key: bytes
    """First key of the page in that table; empty at its begin."""
    max_rows: int
    """Most rows of a page."""
    max_bytes: int
    """Most serialized bytes of a page; one row always fits."""
    with_claimed: bool = True
    """Whether it goes through reclaimTable too."""


@dataclass(frozen=True, slots=True)
class Undelete:
    """Bring a deleted version or directory back, with its blocks, unless it is claimed already."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    path: str
    """Where it goes: its own path or another one. Missing parent directories are made."""
    kind: DeletedKind
    """KEY, or DIRECTORY for one with all that is below it."""
    object_id: int
    """objectID of the deleted version or directory."""
    birth: int
    """Its birth: the txn that committed the version; of a directory, the txn that made it."""
    death: int
    """txn of its deletion."""


@dataclass(frozen=True, slots=True)
class SetBreaker:
    """Set how much of one bucket, or of each bucket of a shard, may be claimed within an hour. The bucket's owner or
    an administrator sends it; of both limits the smaller one counts.
    """

    volume: str
    """Volume; empty for each bucket that has no limits of its own, which is for administrators."""
    bucket: str
    """Bucket; empty likewise."""
    limits: BreakerLimits | None
    """The limits, from the bucket's next hour on; null for none of its own."""
    bucket_id: int = 0
    """Id of one bucket where several had this name, as a deleted one; 0 for the bucket of the name and the suspended
    ones before it.
    """


@dataclass(frozen=True, slots=True)
class Committed:
    """What a client may want to know of a command that changed the namespace."""

    object_id: int
    """objectID of what was made or changed; 0 where there is none."""
    blocks: BlockRun | None = None
    """Blocks of the version that a put committed."""
    keys: KeysDeleted | None = None
    """Of DeleteKeys alone: which keys it deleted."""


@dataclass(frozen=True, slots=True)
class MetadataCommand:
    """Something to do for the metadata service. Topic metadata.commands, one partition a shard."""

    shard: int
    """Shard that the sender means; must be the partition."""
    client_id: str
    """Who asks: new with each start of a client; empty when nothing is to be remembered."""
    number: int
    """The client's count of its commands, rising; 0 when nothing is to be remembered."""
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
    )
    """What to do."""
    sender: str = ""
    """Service that sends an internal command; empty for a client."""
    wants_reply: bool = True
    """Whether an answer goes to metadata.replies; an undelete is always answered."""
    user: str = ""
    """User who sends it; empty for a service."""
    issued_at_ms: int = 0
    """When a user signed it, by the clock of the client; 0 for a service."""
    signature: str = ""
    """HMAC-SHA256 of all before it, in hexadecimal letters, by the secret of the user or else of the sender; empty
    when not signed. Stays the last field.
    """


@dataclass(frozen=True, slots=True)
class MetadataReply:
    """Answer to a client's command. Topic metadata.replies."""

    client_id: str
    """From the command."""
    number: int
    """From the command."""
    txn: int
    """txn at which the command was applied; 0 when it was refused."""
    error: str = ""
    """Ozone's code of the refusal; empty on success."""
    message: str = ""
    """The refusal in words."""
    committed: Committed | None = None
    """Facts about what was committed."""
