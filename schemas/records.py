"""One frozen dataclass for each record of ``schemas/avro``: same fields, order and defaults.

What a field means is said once, in the ``.avsc`` file; ``tests/contract`` holds the two together.
Records of fixed choices are enumerations whose members are also strings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class BucketLayout(StrEnum):
    """How a bucket names what it holds: flat keys, or a tree of directories."""

    OBJECT_STORE = "OBJECT_STORE"
    FILE_SYSTEM_OPTIMIZED = "FILE_SYSTEM_OPTIMIZED"
    LEGACY = "LEGACY"


class SecretRole(StrEnum):
    """What the holder of a secret is: a user, a user who may do everything, or a service."""

    USER = "USER"
    ADMINISTRATOR = "ADMINISTRATOR"
    SERVICE = "SERVICE"


class DeletedKind(StrEnum):
    """Which garbage table holds the row: deletedTable, deletedDirectoryTable or snapshotRenamedTable."""

    KEY = "KEY"
    DIRECTORY = "DIRECTORY"
    RENAME_ENTRY = "RENAME_ENTRY"


class ExpansionOutcome(StrEnum):
    """What became of one page of a directory's expansion."""

    EXPANDED = "EXPANDED"
    PARTLY = "PARTLY"
    GONE = "GONE"


class PurgeOutcome(StrEnum):
    """What became of a directory's own row."""

    PURGED = "PURGED"
    UNEXPANDED = "UNEXPANDED"
    HAS_CHILDREN = "HAS_CHILDREN"
    HELD = "HELD"
    GONE = "GONE"
    HELD_BACK = "HELD_BACK"


class CollectorState(StrEnum):
    """What the collector does for a bucket or a shard, from the loosest to the strictest; of a bucket's own and
    its shard's the stricter one counts.
    """

    RUNNING = "RUNNING"
    SHADOW = "SHADOW"
    TRIPPED = "TRIPPED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class BreakerCause(StrEnum):
    """Why the breaker trips: a claim would have exceeded the limits of the hour, or what the space matrix says that
    nobody holds; or rows and figures of the bucket disagree.
    """

    LIMITS = "LIMITS"
    FORECAST = "FORECAST"
    FIGURES = "FIGURES"


class RollbackOutcome(StrEnum):
    """What became of one page of a rollback."""

    PARTLY = "PARTLY"
    DONE = "DONE"
    REFUSED = "REFUSED"


class SnapshotStatus(StrEnum):
    """Life cycle of a snapshot; a purged one has no row."""

    SNAPSHOT_ACTIVE = "SNAPSHOT_ACTIVE"
    SNAPSHOT_DELETED = "SNAPSHOT_DELETED"


class ExecutionMode(StrEnum):
    """Whether a bucket's snapshots expire with the snapshot that is taken, or after it."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"


# Shared parts


@dataclass(frozen=True, slots=True)
class BlockRun:
    """The blocks of one committed version: consecutive local ids in one container."""

    container_id: int
    first_local_id: int
    block_count: int
    block_size_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RowName:
    """Names one row of a garbage table, within the partition's shard."""

    kind: DeletedKind
    bucket_id: int
    object_id: int
    birth: int
    death: int


@dataclass(frozen=True, slots=True)
class RowNames:
    """Names rows of one garbage table, within the partition's shard.

    Each row has its place in all four lists, which are as long as each other.
    """

    kind: DeletedKind
    bucket_ids: tuple[int, ...]
    object_ids: tuple[int, ...]
    births: tuple[int, ...]
    deaths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockGroups:
    """Claimed rows and their blocks; the blocks of a row are a group, deleted by SCM as a whole or not at all.

    Each has its place in all lists, which are as long as each other.
    """

    bucket_ids: tuple[int, ...]
    object_ids: tuple[int, ...]
    births: tuple[int, ...]
    deaths: tuple[int, ...]
    container_ids: tuple[int, ...]
    first_local_ids: tuple[int, ...]
    block_counts: tuple[int, ...]
    block_sizes_bytes: tuple[int, ...]
    sizes_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """A mark that passes through every topic behind all that was sent before it, and counts the work met
    on its way.
    """

    barrier_id: str
    round: int
    work: int
    origin: str
    collector_txn: int = 0
    passed_txn: int = 0


# Metadata.commands


@dataclass(frozen=True, slots=True)
class CreateVolume:
    """Make a volume in the partition's shard."""

    volume: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class DeleteVolume:
    """Remove an empty volume."""

    volume: str


@dataclass(frozen=True, slots=True)
class CreateBucket:
    """Make a bucket."""

    volume: str
    bucket: str
    layout: BucketLayout


@dataclass(frozen=True, slots=True)
class DeleteBucket:
    """Remove an empty bucket without snapshots."""

    volume: str
    bucket: str


@dataclass(frozen=True, slots=True)
class PutKey:
    """Commit a key, new or over an older version."""

    volume: str
    bucket: str
    key: str
    size_bytes: int
    tag: str = ""
    block_size_bytes: int = 268435456


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """Delete a key; in a tree also an empty directory."""

    volume: str
    bucket: str
    key: str


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """Delete many keys of a bucket at once, each as DeleteKey does; what cannot be deleted is left."""

    volume: str
    bucket: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenameKey:
    """Give a key (or, in a tree, a directory) another path."""

    volume: str
    bucket: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Make a directory and its missing parents; an existing one is left as it is."""

    volume: str
    bucket: str
    directory: str


@dataclass(frozen=True, slots=True)
class DeleteDirectory:
    """Delete a directory."""

    volume: str
    bucket: str
    directory: str
    is_recursive: bool = True


@dataclass(frozen=True, slots=True)
class RenameDirectory:
    """Give a directory another path."""

    volume: str
    bucket: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Undelete:
    """Bring a deleted version or directory back, with its blocks, unless it is claimed already."""

    volume: str
    bucket: str
    path: str
    kind: DeletedKind
    object_id: int
    birth: int
    death: int


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Take the checkpoint of a snapshot at one txn. Sent by snapshots."""

    volume: str
    bucket: str
    snapshot_id: str
    user: str = ""
    requested_ms: int = 0


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """Drop a snapshot from its bucket's list at one txn. Sent by snapshots."""

    snapshot_id: str


@dataclass(frozen=True, slots=True)
class RollbackPage:
    """Carry out one page of a rollback; the first one sets the fence. Sent by snapshots."""

    rollback_id: str
    bucket_id: int
    snapshot_id: str
    page: int
    max_entries: int


@dataclass(frozen=True, slots=True)
class ClaimRows:
    """Move rows that nobody holds out of reach. Sent by key_deletion."""

    task: int
    chain_version: int
    rows: tuple[RowNames, ...]
    first_judge_version: int = 0


@dataclass(frozen=True, slots=True)
class FinishRows:
    """Remove claimed rows whose blocks SCM has confirmed. Sent by key_deletion."""

    task: int
    rows: tuple[RowNames, ...]


@dataclass(frozen=True, slots=True)
class ExpandDirectory:
    """Move one page of a deleted directory's children to the garbage tables. Sent by directory_deletion."""

    bucket_id: int
    object_id: int
    death: int
    max_entries: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class PurgeDirectories:
    """Remove the rows of expanded, childless directories that nobody holds. Sent by directory_deletion."""

    chain_version: int
    rows: tuple[RowName, ...]


@dataclass(frozen=True, slots=True)
class SweepPage:
    """Send a page of a store's garbage rows through the judges again. Sent by key_deletion."""

    sweep_id: int
    page: int
    bucket_id: int
    after_death: int
    until_death: int
    after_birth: int
    until_birth: int
    start_table: int
    start_key: bytes
    max_rows: int
    max_bytes: int
    with_claimed: bool = True


@dataclass(frozen=True, slots=True)
class GrantContainer:
    """Use a new container for the blocks of later puts. Sent by mock_scm."""

    container_id: int


@dataclass(frozen=True, slots=True)
class StopClaims:
    """Hold back every claim and purge until a person says otherwise, whatever else is said of the collector.

    Sent by snapshots when its chain is corrupted.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class PublishFullChain:
    """Write a full-chain record, at which a reader of the chain may start. Sent by a person."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class AcceptLostTail:
    """The log has lost its newest commands, and a person accepts it: nothing that they may have named is named again.

    Sent by a person.
    """

    offset: int
    expected_txn: int
    expected_log_time_ms: int
    epoch: int
    txn: int
    chain_version: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RequeueOrphans:
    """Give blocks that an audit has found orphaned a garbage row each, so that they are judged, claimed and deleted
    as all others; as a whole or not at all. Sent by audit.
    """

    bucket_id: int
    audited_txn: int
    blocks: tuple[BlockRun, ...]
    max_rows: int


@dataclass(frozen=True, slots=True)
class SetSecret:
    """Make known, change or take away what somebody signs commands with. Administrators send it."""

    name: str
    role: SecretRole
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SetCollector:
    """Say what the collector does for one bucket, or for all of a shard.

    Its owner sends it, or an administrator; what an administrator has said only an administrator takes back.
    """

    volume: str
    bucket: str
    state: CollectorState
    reason: str
    ends_stop: bool = False
    bucket_id: int = 0


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """How much of a bucket may be claimed within an hour of log time: a share of what it had when the hour began, or
    the floor if that is more.
    """

    share_percent: int
    floor_bytes: int
    floor_versions: int


@dataclass(frozen=True, slots=True)
class SetBreaker:
    """Set how much of one bucket, or of each bucket of a shard, may be claimed within an hour.

    Its owner sends it, or an administrator; of what both have said the smaller counts.
    """

    volume: str
    bucket: str
    limits: BreakerLimits | None
    bucket_id: int = 0


@dataclass(frozen=True, slots=True)
class ResetBreaker:
    """Let the collector go on where the breaker has tripped; the hour begins anew, and what waits may go beside
    the limits. Its owner sends it, or an administrator, who alone may where the limits are an administrator's, or
    the figures disagree with the rows.
    """

    volume: str
    bucket: str
    reason: str
    bucket_id: int = 0


@dataclass(frozen=True, slots=True)
class MetadataCommand:
    """Something to do for the metadata service. Topic metadata.commands, one partition a shard."""

    shard: int
    client_id: str
    number: int
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
        | TakeSnapshot
        | DropSnapshot
        | RollbackPage
        | ClaimRows
        | FinishRows
        | ExpandDirectory
        | PurgeDirectories
        | SweepPage
        | GrantContainer
        | StopClaims
        | PublishFullChain
        | Barrier
        | RequeueOrphans
        | AcceptLostTail
        | SetSecret
        | SetCollector
        | SetBreaker
        | ResetBreaker
        | DeleteKeys
    )
    sender: str = ""
    wants_reply: bool = True
    user: str = ""
    issued_at_ms: int = 0
    signature: str = ""


# Metadata.replies


@dataclass(frozen=True, slots=True)
class KeysDeleted:
    """What DeleteKeys has done: how many keys it deleted, and the places in the command of those that it left."""

    deleted: int
    not_found: tuple[int, ...]
    not_empty: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """What a client may want to know of a command that changed the namespace."""

    object_id: int
    blocks: BlockRun | None = None
    keys: KeysDeleted | None = None


@dataclass(frozen=True, slots=True)
class MetadataReply:
    """Answer to a client's command. Topic metadata.replies."""

    client_id: str
    number: int
    txn: int
    error: str = ""
    message: str = ""
    committed: Committed | None = None


# Metadata.progress


@dataclass(frozen=True, slots=True)
class RowsClaimed:
    """Answer to ClaimRows."""

    task: int
    groups: BlockGroups
    removed: tuple[RowNames, ...]
    gone: tuple[RowNames, ...]
    refused: tuple[RowNames, ...]
    held_back: tuple[RowNames, ...]


@dataclass(frozen=True, slots=True)
class RowsFinished:
    """Answer to FinishRows."""

    task: int


@dataclass(frozen=True, slots=True)
class DirectoryExpanded:
    """Answer to ExpandDirectory."""

    bucket_id: int
    object_id: int
    death: int
    outcome: ExpansionOutcome
    moved_directories: int
    moved_files: int


@dataclass(frozen=True, slots=True)
class PurgedDirectory:
    """Outcome for one row of PurgeDirectories."""

    bucket_id: int
    object_id: int
    death: int
    parent_id: int
    outcome: PurgeOutcome


@dataclass(frozen=True, slots=True)
class DirectoriesPurged:
    """Answer to PurgeDirectories."""

    rows: tuple[PurgedDirectory, ...]


@dataclass(frozen=True, slots=True)
class SweepPageSent:
    """Answer to SweepPage."""

    sweep_id: int
    page: int
    rows: int
    unexpanded_directories: int
    next_table: int
    next_key: bytes


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """Answer to TakeSnapshot."""

    snapshot_id: str
    bucket_id: int
    volume_id: int
    ordinal: int
    snapshot_txn: int
    creation_time_ms: int
    chain_version: int
    referenced_bytes: int
    error: str = ""
    message: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotDropped:
    """Answer to DropSnapshot."""

    snapshot_id: str
    chain_version: int


@dataclass(frozen=True, slots=True)
class RollbackPageDone:
    """One page of a rollback was carried out, or refused."""

    rollback_id: str
    page: int
    outcome: RollbackOutcome
    message: str
    died: int
    revived: int


@dataclass(frozen=True, slots=True)
class BucketCollector:
    """What the collector does for one bucket, or for all of the shard."""

    bucket_id: int
    state: CollectorState


@dataclass(frozen=True, slots=True)
class CollectorChanged:
    """The collector does something else from this txn on, for some buckets or for all of the shard; or all
    that it does is told again.
    """

    states: tuple[BucketCollector, ...]
    txn: int
    previous_txn: int
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class MetadataProgress:
    """What happened to the services' commands.

    Topic metadata.progress, written by metadata, read by the services.
    """

    txn: int
    body: (
        RowsClaimed
        | RowsFinished
        | DirectoryExpanded
        | DirectoriesPurged
        | SweepPageSent
        | SnapshotTaken
        | SnapshotDropped
        | RollbackPageDone
        | Barrier
        | CollectorChanged
    )


# Gc.deleted-entries


@dataclass(frozen=True, slots=True)
class DeletedEntries:
    """What left the active namespace, or what a sweep looks at again.

    Snapshots may still hold it: candidates for reclaiming, not an order. Topic gc.deleted-entries, written
    by metadata, read by streaming.
    """

    chain_version: int
    rows: RowNames
    snapshots_before_death: tuple[int, ...]
    sweep_id: int = 0
    sweep_page: int = 0
    barrier: Barrier | None = None
    sweep_txn: int = 0
    sweep_part: int = 0


# Gc.ledger


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """Why rows could be claimed, and who asked: the same for all rows of a claim that lie between the same two
    snapshots.
    """

    claim_txn: int
    claim_time_ms: int
    chain_version: int
    previous_txn: int
    next_txn: int
    task: int
    first_judge_version: int
    second_judge_version: int


@dataclass(frozen=True, slots=True)
class LedgerRows:
    """Versions that were freed, and why that was safe: one message for each command that finished any.

    Topic gc.ledger, written by metadata, read by clients; nothing in it ever changes.
    """

    finish_txn: int
    finish_time_ms: int
    claims: tuple[ClaimFacts, ...]
    claim_places: tuple[int, ...]
    groups: BlockGroups


# Gc.snapshot-chain


@dataclass(frozen=True, slots=True)
class ChainedSnapshot:
    """One snapshot of a bucket's list."""

    snapshot_id: str
    ordinal: int
    txn: int
    is_live: bool


@dataclass(frozen=True, slots=True)
class ChainedBucket:
    """The live snapshots of a bucket, and how far its list goes."""

    bucket_id: int
    snapshots: tuple[ChainedSnapshot, ...]
    snapshots_ever: int = 0
    newest_txn: int = 0


@dataclass(frozen=True, slots=True)
class ChainTake:
    """Marker of a snapshot that was taken."""

    bucket_id: int
    snapshot_id: str
    ordinal: int
    txn: int


@dataclass(frozen=True, slots=True)
class ChainDrop:
    """Marker of a snapshot that was dropped."""

    bucket_id: int
    snapshot_id: str
    txn: int
    rows_held_alone: int


@dataclass(frozen=True, slots=True)
class FullChain:
    """The whole chain view, or a part of it: a reader may start at part 1, and has the view with the last part."""

    buckets: tuple[ChainedBucket, ...]
    part: int = 1
    parts: int = 1


@dataclass(frozen=True, slots=True)
class SnapshotChainRecord:
    """One step of a shard's snapshot chain. Topic gc.snapshot-chain, written by metadata; gapless."""

    version: int
    predecessor_version: int
    body: ChainTake | ChainDrop | FullChain


# Gc.space


@dataclass(frozen=True, slots=True)
class SpaceCellValue:
    """One cell of a bucket's space matrix, as an absolute value."""

    first_holder: int
    last_holder: int
    bytes: int
    versions: int
    key_rows: int
    directory_rows: int
    rename_rows: int


@dataclass(frozen=True, slots=True)
class SnapshotSize:
    """What one snapshot refers to."""

    snapshot_id: str
    referenced_bytes: int
    referenced_namespace: int


@dataclass(frozen=True, slots=True)
class SpaceUpdate:
    """Changed figures of one bucket, absolute. Topic gc.space, written by metadata."""

    txn: int
    bucket_id: int
    cells: tuple[SpaceCellValue, ...]
    snapshots: tuple[SnapshotSize, ...]
    oldest_unexpanded_death: int
    newest_unexpanded_death: int
    deleted_path: str = ""
    deleted_ms: int = 0


# Gc.purge-*


@dataclass(frozen=True, slots=True)
class PurgeKeys:
    """Rows of deletedTable or snapshotRenamedTable that nobody holds.

    Topic gc.purge-keys, written by streaming, read by key_deletion.
    """

    chain_version: int
    rows: RowNames
    snapshots_before_death: tuple[int, ...]
    barrier: Barrier | None = None
    is_sweep: bool = False


@dataclass(frozen=True, slots=True)
class JudgedDirectory:
    """A deleted directory and its verdict."""

    bucket_id: int
    object_id: int
    birth: int
    death: int
    snapshots_before_death: int
    is_reclaimable: bool


@dataclass(frozen=True, slots=True)
class PurgeDirectory:
    """Deleted directories with their verdicts.

    Each is to be expanded. Topic gc.purge-directories, written by streaming, read by directory_deletion.
    """

    chain_version: int
    directories: tuple[JudgedDirectory, ...]
    barrier: Barrier | None = None


@dataclass(frozen=True, slots=True)
class SweptParts:
    """Messages of a sweep's page, by columns.

    A txn and a number name a message for ever, however often it is sent or judged.
    """

    txns: tuple[int, ...]
    numbers: tuple[int, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Verdicts over a part of a sweep's page.

    Topic gc.sweep-results, written by streaming, read by key_deletion.
    """

    sweep_id: int
    sweep_page: int
    first_offset: int
    judged_rows: int
    reclaimable_rows: int
    reclaimable_directories: int
    chain_version: int
    barrier: Barrier | None = None
    parts: SweptParts | None = None


# Scm


@dataclass(frozen=True, slots=True)
class BlocksWritten:
    """Versions were committed: their blocks are in the store now. Sent by metadata.

    Each version has its place in all four lists; they are as long as each other.
    """

    bucket_id: int
    container_id: int
    first_local_ids: tuple[int, ...]
    block_counts: tuple[int, ...]
    block_sizes_bytes: tuple[int, ...]
    sizes_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeleteBlocks:
    """Delete these groups. Sent by key_deletion."""

    task: int
    attempt: int
    groups: BlockGroups


@dataclass(frozen=True, slots=True)
class ScmCommand:
    """Something to do for the storage container manager. Topic scm.commands."""

    body: BlocksWritten | DeleteBlocks | Barrier


@dataclass(frozen=True, slots=True)
class BlocksDeleted:
    """Answer to DeleteBlocks."""

    task: int
    attempt: int
    failed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScmReply:
    """What the storage container manager answers. Topic scm.replies."""

    body: BlocksDeleted | Barrier


# Snapshots


@dataclass(frozen=True, slots=True)
class CreateSnapshot:
    """Make a snapshot of a bucket."""

    volume: str
    bucket: str
    snapshot: str
    at_ms: int = -1


@dataclass(frozen=True, slots=True)
class DeleteSnapshot:
    """Delete a snapshot."""

    volume: str
    bucket: str
    snapshot: str


@dataclass(frozen=True, slots=True)
class RenameSnapshot:
    """Give a snapshot another name."""

    volume: str
    bucket: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class SetDeepClean:
    """A sweep found nothing left to do in a snapshot's store. Sent by key_deletion."""

    snapshot_id: str
    chain_version: int
    has_deep_cleaned_keys: bool
    has_deep_cleaned_directories: bool


@dataclass(frozen=True, slots=True)
class Settle:
    """Answer when there is nothing more that the plane can do."""

    barrier_id: str


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Which snapshots of a bucket expire, and what is made by the clock."""

    num_retained_min: int = 10
    num_retained_max: int = 0
    time_retained_ms: int = 3_600_000
    expire_limit: int = 50
    execution_mode: ExecutionMode = ExecutionMode.SYNC
    consumer_expiration_ms: int = 0
    snapshot_every_ms: int = 0
    tag_every_ms: int = 0
    tag_num_retained_max: int = 0
    tag_time_retained_ms: int = 0


@dataclass(frozen=True, slots=True)
class SetRetention:
    """Give a bucket a retention policy, in place of the one before."""

    volume: str
    bucket: str
    policy: RetentionPolicy


@dataclass(frozen=True, slots=True)
class UnsetRetention:
    """Take a bucket's retention policy away."""

    volume: str
    bucket: str


@dataclass(frozen=True, slots=True)
class CreateTag:
    """Hold a snapshot under a name: it neither expires nor can it be deleted."""

    volume: str
    bucket: str
    snapshot: str
    tag: str
    owner: str = ""
    reason: str = ""
    time_to_live_ms: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTag:
    """Let go of a snapshot."""

    volume: str
    bucket: str
    snapshot: str
    tag: str


@dataclass(frozen=True, slots=True)
class SetConsumer:
    """A named reader says where it is: what it has still to read does not expire."""

    volume: str
    bucket: str
    consumer: str
    snapshot: str
    is_behind: bool = False


@dataclass(frozen=True, slots=True)
class DeleteConsumer:
    """A named reader needs nothing any more."""

    volume: str
    bucket: str
    consumer: str


@dataclass(frozen=True, slots=True)
class ExpireSnapshots:
    """Expire what may go by the rules, now."""

    volume: str
    bucket: str
    policy: RetentionPolicy | None = None
    now_ms: int = -1


@dataclass(frozen=True, slots=True)
class SnapshotsExpired:
    """What a request to expire has done."""

    snapshots: tuple[str, ...]
    snapshot_ids: tuple[str, ...]
    previous_failure: str


@dataclass(frozen=True, slots=True)
class RollBackBucket:
    """Make a snapshot the active namespace of its bucket again; newer snapshots are dropped."""

    volume: str
    bucket: str
    snapshot: str
    tag: str = ""


class DeadLetterState(StrEnum):
    """Whether anybody has to look at a dead letter.

    OPEN: nobody has dealt with it. RETRIED: the message was sent again. DROPPED: somebody has said that it may stay
    undone.
    """

    OPEN = "OPEN"
    RETRIED = "RETRIED"
    DROPPED = "DROPPED"


@dataclass(frozen=True, slots=True)
class ResolveDeadLetter:
    """Somebody has dealt with a dead letter. The letter itself stays in its topic."""

    number: int
    state: DeadLetterState
    who: str
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotCommand:
    """Something to do for the snapshots service. Topic snapshots.commands, one partition a shard."""

    shard: int
    client_id: str
    number: int
    body: (
        CreateSnapshot
        | DeleteSnapshot
        | RenameSnapshot
        | SetDeepClean
        | Settle
        | SetRetention
        | UnsetRetention
        | CreateTag
        | DeleteTag
        | SetConsumer
        | DeleteConsumer
        | ExpireSnapshots
        | RollBackBucket
        | ResolveDeadLetter
        | SetSecret
    )
    sender: str = ""
    user: str = ""
    issued_at_ms: int = 0
    signature: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotReply:
    """Answer to a client's snapshot command. Topic snapshots.replies."""

    client_id: str
    number: int
    error: str = ""
    message: str = ""
    snapshot_id: str = ""
    rounds: int = 0
    expired: SnapshotsExpired | None = None


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot as an operator sees it. Topic snapshots.info and snapshotInfoTable, written by snapshots."""

    snapshot_id: str
    name: str
    volume: str
    bucket: str
    status: SnapshotStatus
    creation_time_ms: int
    deletion_time_ms: int = -1
    path_previous_snapshot_id: str = ""
    global_previous_snapshot_id: str = ""
    snapshot_path: str = ""
    has_deep_cleaned_keys: bool = False
    has_deep_cleaned_directories: bool = False
    sst_filtered: bool = False
    referenced_bytes: int = 0
    referenced_replicated_bytes: int = 0
    exclusive_bytes: int = 0
    exclusive_replicated_bytes: int = 0
    exclusive_delta_bytes: int = 0
    exclusive_delta_replicated_bytes: int = 0
    create_txn: int = 0
    last_txn: int = 0
    bucket_id: int = 0
    ordinal: int = 0
    is_referenced_exact: bool = True
    is_exclusive_exact: bool = True
    is_purged: bool = False
    chain_version_of_reset: int = 0
    owner: str = ""


# Dead letters


@dataclass(frozen=True, slots=True)
class MessageHeader:
    """One header of a message."""

    name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be read or applied, as it came. Topic dead-letters."""

    service: str
    topic: str
    partition: int
    offset: int
    error: str
    message: str
    fingerprint: bytes
    value: bytes
    size_bytes: int
    key: bytes
    headers: tuple[MessageHeader, ...]


# Tables of metadata


@dataclass(frozen=True, slots=True)
class VolumeRow:
    """volumeTable: a volume."""

    object_id: int
    volume: str
    owner: str
    creation_time_ms: int
    update_id: int


@dataclass(frozen=True, slots=True)
class BucketRow:
    """bucketTable: a bucket and its used figures."""

    volume_id: int
    object_id: int
    volume: str
    bucket: str
    layout: BucketLayout
    creation_time_ms: int
    update_id: int
    used_bytes: int
    used_namespace: int
    snapshot_used_bytes: int
    snapshot_used_namespace: int
    rollback_snapshot_id: str
    rolled_back_txn: int = 0


@dataclass(frozen=True, slots=True)
class SecretRow:
    """s3SecretTable: what a user or a service signs commands with."""

    name: str
    role: SecretRole
    secret: bytes = field(repr=False)
    previous_secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class BucketIdentity:
    """bucketIdTable: a bucket by its id, kept for ever."""

    volume_id: int
    bucket_id: int
    volume: str
    bucket: str
    layout: BucketLayout
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class KeyRow:
    """keyTable, fileTable: the live version of a key."""

    object_id: int
    birth: int
    size_bytes: int
    blocks: BlockRun | None
    parent_id: int
    name: str
    update_id: int
    rename_txn: int
    tag: str
    creation_time_ms: int
    modification_time_ms: int


@dataclass(frozen=True, slots=True)
class KeyStart:
    """The first fields of a KeyHead: all that the figures count of a version."""

    object_id: int
    birth: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class KeyHead:
    """The first fields of a KeyRow, and so of a DeletedKeyRow: all that a deletion looks at."""

    object_id: int
    birth: int
    size_bytes: int
    blocks: BlockRun | None


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The first fields of a KeyRow, and so of a DeletedKeyRow, up to its names: what deletedNameTable needs."""

    object_id: int
    birth: int
    size_bytes: int
    blocks: BlockRun | None
    parent_id: int
    name: str
    update_id: int
    rename_txn: int


@dataclass(frozen=True, slots=True)
class DirectoryRow:
    """directoryTable: a directory."""

    object_id: int
    parent_id: int
    name: str
    update_id: int
    rename_txn: int
    creation_time_ms: int
    modification_time_ms: int


@dataclass(frozen=True, slots=True)
class DeletedKeyRow:
    """deletedTable: a version that left the active namespace."""

    key: KeyRow
    death: int
    snapshots_before_death: int
    is_overwritten: bool = False
    deletion_time_ms: int = 0
    shadow_hour: int = 0


@dataclass(frozen=True, slots=True)
class DeletedDirectoryRow:
    """deletedDirectoryTable: a directory that left the active namespace."""

    directory: DirectoryRow
    death: int
    snapshots_before_death: int
    is_expanded: bool
    child_rows: int
    is_expansion_begun: bool = False
    deletion_time_ms: int = 0
    next_directory: str = ""
    next_file: str = ""


@dataclass(frozen=True, slots=True)
class RenameRow:
    """snapshotRenamedTable: where an object was at the newest snapshot before its first rename since."""

    object_id: int
    birth: int
    death: int
    snapshots_before_death: int
    db_key: str


@dataclass(frozen=True, slots=True)
class ClaimedRow:
    """reclaimTable: a version out of reach, until SCM has confirmed its blocks."""

    facts: bytes
    numbers: bytes
    version: DeletedKeyRow


@dataclass(frozen=True, slots=True)
class ClaimedHead:
    """The first fields of a ClaimedRow: all that finishing it looks at."""

    facts: bytes
    numbers: bytes


@dataclass(frozen=True, slots=True)
class RollbackRow:
    """rollbackTable: a rollback of a bucket, and how far it is; kept, so that it is never begun again."""

    snapshot_id: str
    snapshot_txn: int
    page: int
    phase: int
    next_key: bytes
    died: int
    revived: int


@dataclass(frozen=True, slots=True)
class OrphanSearchRow:
    """orphanSearchTable: the search for an owner of blocks that an audit has found orphaned, and how far it is."""

    command: RequeueOrphans
    table: int
    next_key: bytes
    rows: int
    owner: str
    log_time_ms: int


@dataclass(frozen=True, slots=True)
class RollbackNameRow:
    """rollbackNameTable: where an object is in the snapshot, while a rollback goes on."""

    db_key: str


@dataclass(frozen=True, slots=True)
class SnapshotListRow:
    """snapshotListTable, snapshotIdTable: one of the snapshots of a bucket."""

    snapshot_id: str
    bucket_id: int
    ordinal: int
    txn: int
    is_live: bool
    creation_time_ms: int
    referenced_bytes: int
    referenced_namespace: int
    chain_version: int
    dropped_chain_version: int


@dataclass(frozen=True, slots=True)
class ClientRow:
    """clientTable: a client's last command and its answer."""

    number: int
    log_time_ms: int
    reply: bytes


@dataclass(frozen=True, slots=True)
class BreakerTrip:
    """Why nothing more of a bucket is claimed until a person has looked."""

    cause: BreakerCause
    at_ms: int
    txn: int
    claimed_bytes: int
    claimed_versions: int
    most_bytes: int
    most_versions: int
    next_bytes: int


@dataclass(frozen=True, slots=True)
class PurgeHourRow:
    """purgeHourTable: what was claimed of a bucket in its present hour, of which the breaker watches the limits."""

    began_ms: int
    most_bytes: int
    most_versions: int
    claimed_bytes: int
    claimed_versions: int
    let_go_txn: int = 0
    let_go_bytes: int = 0
    let_go_versions: int = 0


@dataclass(frozen=True, slots=True)
class ShadowHourRow:
    """shadowTable: what of a bucket would have been claimed within an hour of log time, had the collector not been in
    its shadow, as far as it still waits; by hour 0 all that was before the hours that are kept.
    """

    versions: int
    bytes: int
    oldest_deletion_ms: int
    newest_deletion_ms: int


@dataclass(frozen=True, slots=True)
class CollectorRow:
    """collectorTable: what the collector does for one bucket, or for all of the shard."""

    state: CollectorState
    reason: str
    changed_by: str
    changed_ms: int
    changed_txn: int
    limits: BreakerLimits | None = None
    trip: BreakerTrip | None = None
    is_by_administrator: bool = False
    has_administrators_limits: bool = False


@dataclass(frozen=True, slots=True)
class ReclaimClockRow:
    """reclaimClockTable: since when what nobody holds of a bucket may be claimed. Nothing is decided by it."""

    drop_txns: tuple[int, ...]
    drop_times_ms: tuple[int, ...]
    forgotten_txn: int
    forgotten_time_ms: int
    running_since_ms: int


@dataclass(frozen=True, slots=True)
class ShardState:
    """transactionInfoTable: the shard's counters."""

    txn: int
    log_time_ms: int
    epoch: int
    chain_version: int
    container_id: int
    claims_stopped: str
    skipped_txns: int = 0
    stored_bytes: int = 0
    claims_stopped_ms: int = -1
    refused_rows: int = 0


@dataclass(frozen=True, slots=True)
class AccountRow:
    """accountTable: bytes and versions of one bucket by where they are."""

    claimed_bytes: int
    claimed_versions: int
    freed_bytes: int
    freed_versions: int


# Tables of every service


@dataclass(frozen=True, slots=True)
class OutboxRun:
    """Messages of an outbox row that follow each other on one topic."""

    topic: str
    fingerprint: bytes
    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """outbox: the messages of one unit of work, in order."""

    runs: tuple[OutboxRun, ...]


@dataclass(frozen=True, slots=True)
class RowChange:
    """What one row of a service's own tables has become."""

    table: str
    key: bytes
    is_removed: bool
    value: bytes


@dataclass(frozen=True, slots=True)
class StateChange:
    """What one unit of work has changed in a service's own tables, or a part of that."""

    start: str
    number: int
    previous: bytes
    part: int
    is_last: bool
    rows: tuple[RowChange, ...]
    messages: tuple[OutboxRun, ...]


@dataclass(frozen=True, slots=True)
class ChangelogRow:
    """changelog: how far a service has come with the topic that keeps what it changes; one row."""

    number: int
    digest: bytes
    topic_id: str
    base_offset: int
    base_number: int
    base_start: str


@dataclass(frozen=True, slots=True)
class LastRead:
    """The last message that was read of an input: by this a log that has lost it and has grown again is noticed."""

    timestamp_ms: int
    crc32: int


@dataclass(frozen=True, slots=True)
class PositionRow:
    """positions: where a service is in one of its inputs."""

    topic: str
    topic_id: str
    next_offset: int
    last_read: LastRead | None = None


# Tables of key_deletion


@dataclass(frozen=True, slots=True)
class TaskRow:
    """taskTable: a batch of rows on its way."""

    state: str
    attempt: int
    due_ms: int
    chain_version: int
    rows: tuple[RowNames, ...]
    groups: BlockGroups
    first_judge_version: int = 0


@dataclass(frozen=True, slots=True)
class WaitingPurge:
    """waitingTable: a purge that this judge may not yet decide, or has no room for."""

    chain_version: int
    rows: RowNames
    snapshots_before_death: tuple[int, ...]
    due_ms: int = 0
    is_sweep: bool = False


@dataclass(frozen=True, slots=True)
class KnownCollectorsRow:
    """collectorTable of the services that follow metadata: what they know of the collector."""

    states: tuple[BucketCollector, ...]
    heard_txn: int
    complete_txn: int


@dataclass(frozen=True, slots=True)
class ChainRow:
    """chainTable: a marker of the chain, or what a part of the chain comes to."""

    record: SnapshotChainRecord


@dataclass(frozen=True, slots=True)
class StoreRow:
    """storeTable: the store of one live snapshot.

    It is clean when sweepTable has no sweep of it.
    """

    snapshot_id: str
    bucket_id: int
    reset_version: int
    attempt: int


@dataclass(frozen=True, slots=True)
class OpenSweepPage:
    """A page of a sweep of which not every row was judged yet."""

    page: int
    start_table: int
    start_key: bytes
    sent_txn: int
    sent_rows: int
    judged: SweptParts


@dataclass(frozen=True, slots=True)
class SweepRow:
    """sweepTable: a sweep, queued or on its way."""

    sweep_id: int
    snapshot_id: str
    bucket_id: int
    after_death: int
    until_death: int
    after_birth: int
    until_birth: int
    page: int
    next_table: int
    next_key: bytes
    open_pages: tuple[OpenSweepPage, ...]
    reclaimable_rows: int
    unexpanded_directories: int
    turn: int
    is_inherited: bool
    pause_ms: int
    due_ms: int
    times_late: int


# Tables of directory_deletion


@dataclass(frozen=True, slots=True)
class TreeRow:
    """treeTable: a deleted directory on its way."""

    bucket_id: int
    object_id: int
    birth: int
    death: int
    snapshots_before_death: int
    chain_version: int
    is_reclaimable: bool
    state: str
    attempt: int
    due_ms: int


# Tables of mock_scm


@dataclass(frozen=True, slots=True)
class InventoryRow:
    """inventoryTable: a run of blocks that is in the store."""

    bucket_id: int
    blocks: BlockRun


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """containerTable: a container and what is in it."""

    container_id: int
    block_count: int
    used_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class DeletedBlocksRow:
    """deletedBlocksTable: a transaction of deletions for the datanodes."""

    deletion_txn: int
    container_id: int
    first_local_ids: tuple[int, ...]
    block_counts: tuple[int, ...]
    sizes_bytes: tuple[int, ...]
    retry_count: int


@dataclass(frozen=True, slots=True)
class WaitingDeletion:
    """waitingDeletionTable: a deletion of blocks that are not known yet."""

    until_local_id: int
    command: DeleteBlocks


@dataclass(frozen=True, slots=True)
class DelayedDeletion:
    """delayedDeletionTable: a deletion that is carried out later, while the store is slow."""

    due_ms: int
    command: DeleteBlocks


@dataclass(frozen=True, slots=True)
class ScmState:
    """scmStateTable: the counters of one shard's storage container manager."""

    mark_local_id: int
    container_id: int
    deletion_txn: int
    inventory_bytes: int
    inventory_blocks: int
    deleted_bytes: int
    deleted_blocks: int


# Tables of snapshots


@dataclass(frozen=True, slots=True)
class RollbackTaskRow:
    """rollbackTable of snapshots: a rollback on its way."""

    rollback_id: str
    volume: str
    bucket: str
    bucket_id: int
    snapshot_id: str
    client_id: str
    number: int
    page: int


@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """pendingTable: a snapshot half made or half dropped."""

    snapshot_id: str
    action: str
    client_id: str
    number: int
    since_ms: int
    at_ms: int = -1
    is_automatic: bool = False
    user: str = ""


@dataclass(frozen=True, slots=True)
class SettleRow:
    """settleTable: a request to settle on its way."""

    barrier_id: str
    client_id: str
    number: int
    round: int
    quiet_rounds: int
    work: int
    returned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetentionRow:
    """retentionTable: a bucket's policy, and where its runs are."""

    volume: str
    bucket: str
    policy: RetentionPolicy
    next_run_ms: int
    last_run_ms: int
    last_expired: int
    last_snapshot_period: int
    last_tag_period: int
    failure: str
    failure_time_ms: int
    is_failure_of_snapshot: bool
    set_ms: int = 0


@dataclass(frozen=True, slots=True)
class TagRow:
    """tagTable: a named hold on a snapshot."""

    volume: str
    bucket: str
    tag: str
    snapshot_id: str
    owner: str
    reason: str
    creation_time_ms: int
    expiry_time_ms: int
    is_automatic: bool


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """consumerTable: a named reader and its place in the bucket's snapshots."""

    volume: str
    bucket: str
    consumer: str
    bucket_id: int
    next_txn: int
    seen_time_ms: int


@dataclass(frozen=True, slots=True)
class ExpiryRow:
    """expiryTable: a request to expire that is answered when its snapshots are gone."""

    client_id: str
    number: int
    outcome: SnapshotsExpired


@dataclass(frozen=True, slots=True)
class GoneSnapshotRow:
    """goneTable: the last snapshot of a name, after it has gone."""

    snapshot_id: str
    bucket_id: int
    create_txn: int
    deletion_time_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """deadLetterTable: a dead letter without its bytes, and what was done about it."""

    number: int
    service: str
    topic: str
    partition: int
    offset: int
    error: str
    message: str
    size_bytes: int
    is_cut: bool
    time_ms: int
    attempts: int
    retry_of: int
    state: DeadLetterState = DeadLetterState.OPEN
    who: str = ""
    reason: str = ""
    resolved_time_ms: int = -1


# More tables of metadata


@dataclass(frozen=True, slots=True)
class SnapshotCountRow:
    """snapshotCountTable: how far the list of all snapshots goes that a bucket ever had."""

    snapshots_ever: int
    newest_txn: int


@dataclass(frozen=True, slots=True)
class CountRow:
    """untakenTable, overTable, unexpandedTable, countTable: a number."""

    count: int


@dataclass(frozen=True, slots=True)
class DeletedNameRow:
    """deletedNameTable: that something died under a name, or of an object; the key says all."""


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """changedTable: that a row of the namespace was changed between two snapshots; the key says which one."""

    snapshot_txn: int
