"""The interface of a running plane to a client: commands per shard, their answers, and reads.

Two planes implement it: the real one (commands over Kafka, reads over HTTP) and the one within this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from schemas.answers import (
    BucketSpace,
    CollectionStatus,
    DeadLetterBytes,
    DeadLetterCount,
    DiffJob,
    ListedDeletion,
    ListedEntry,
    ListedOpenKey,
    ListedToken,
    ListedVersion,
    RetentionPreview,
    ScmTotals,
    SnapshotConsumer,
    SnapshotTag,
)
from schemas.block_store import BlockContents, BlockStoreStatus, ContainerPlace, ListedTransaction
from schemas.records import (
    AbandonKey,
    AbortUpload,
    AccessIdRow,
    Acl,
    AclObject,
    AddAcl,
    AllocateBlocks,
    AssignTenantAdmin,
    AssignUserToTenant,
    BlockRun,
    BucketRow,
    CancelDelegationToken,
    CommitKey,
    CompleteUpload,
    CreateBucket,
    CreateBucketLink,
    CreateSnapshot,
    CreateTag,
    CreateTenant,
    CreateVolume,
    DeadLetterRow,
    DeleteBucket,
    DeleteConsumer,
    DeleteDirectory,
    DeleteKey,
    DeleteKeys,
    DeleteKeyVersion,
    DeleteSnapshot,
    DeleteTag,
    DeleteTenant,
    DeleteVolume,
    DirectoryRow,
    ExpireSnapshots,
    GetDelegationToken,
    InitiateUpload,
    KeyRow,
    MakeDirectory,
    MessageHeader,
    MetadataReply,
    OpenKey,
    PartRow,
    PutKey,
    PutKeyIf,
    PutKeys,
    RecoverLease,
    RemoveAcl,
    RenameDirectory,
    RenameKey,
    RenameSnapshot,
    RenewDelegationToken,
    RepairQuota,
    RequeueOrphans,
    ResetBreaker,
    ResolveDeadLetter,
    RetentionPolicy,
    RetentionRow,
    RevokeS3Secret,
    RevokeUserFromTenant,
    RollBackBucket,
    SetAcl,
    SetBreaker,
    SetBucketReplication,
    SetBucketVersioning,
    SetCollection,
    SetConsumer,
    SetDefaultReplication,
    SetGroups,
    SetOwner,
    SetQuota,
    SetRetention,
    SetS3Secret,
    SetSecret,
    Settle,
    ShardState,
    SnapshotInfo,
    SnapshotReply,
    SyncKey,
    TenantRow,
    Undelete,
    UnsetRetention,
    UploadRow,
    VolumeRow,
)
from schemas.space_answers import (
    BlockExplanation,
    FreedSpace,
    PathExplanation,
    PlanSpace,
    SnapshotSpaces,
    SpacePlan,
    WhatIf,
)
from services.client.errors import PlaneError
from services.domain.snapshot_diff import DiffEntry
from services.domain.volume_placement import ShardLoad

NamespaceCommand = (
    CreateVolume
    | DeleteVolume
    | CreateBucket
    | DeleteBucket
    | PutKey
    | DeleteKey
    | DeleteKeys
    | PutKeyIf
    | PutKeys
    | CreateBucketLink
    | SetBucketVersioning
    | SetBucketReplication
    | DeleteKeyVersion
    | SetQuota
    | SetOwner
    | AddAcl
    | RemoveAcl
    | SetAcl
    | SetGroups
    | SetDefaultReplication
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
    | OpenKey
    | AllocateBlocks
    | SyncKey
    | CommitKey
    | RecoverLease
    | AbandonKey
    | InitiateUpload
    | CompleteUpload
    | AbortUpload
    | RenameKey
    | MakeDirectory
    | DeleteDirectory
    | RenameDirectory
    | Undelete
    | RequeueOrphans
    | RepairQuota
    | SetSecret
    | SetCollection
    | SetBreaker
    | ResetBreaker
)
SENDERS: Mapping[type[Any], str] = {RequeueOrphans: "audit", RepairQuota: "audit"}
"""The sender that a command names, for commands that do not name a client only."""
BucketRequest = (
    CreateSnapshot
    | DeleteSnapshot
    | RenameSnapshot
    | SetRetention
    | UnsetRetention
    | CreateTag
    | DeleteTag
    | SetConsumer
    | DeleteConsumer
    | ExpireSnapshots
    | RollBackBucket
)
"""Requests that name a bucket."""
SnapshotRequest = BucketRequest | Settle | ResolveDeadLetter | SetSecret


class MetadataReads(Protocol):
    """Reads of one shard's metadata. ``snapshot_id`` empty means the active namespace.

    Refusals raise ``services.client.errors.PlaneError`` with Ozone's code.
    """

    def state(self) -> ShardState:
        """Return the shard's counters."""
        ...

    def volumes(self, *, user: str = "", start_after: str = "", limit: int | None = None) -> list[VolumeRow]:
        """Return the volumes by name, or those that a user owns: at most ``limit``, or all."""
        ...

    def acl(self, kind: AclObject, volume: str, bucket: str = "", path: str = "") -> list[Acl]:
        """Return the access list of an object."""
        ...

    def tenants(self, *, start_after: str = "", limit: int | None = None) -> list[TenantRow]:
        """Return the tenants by name."""
        ...

    def access_ids(
        self, tenant: str = "", user: str = "", *, start_after: str = "", limit: int | None = None
    ) -> list[AccessIdRow]:
        """Return all access ids, those of a tenant or those of a user."""
        ...

    def delegation_tokens(
        self, owner: str = "", *, start_after: str = "", limit: int | None = None
    ) -> list[ListedToken]:
        """Return all delegation tokens, or those of an owner, without their secrets."""
        ...

    def buckets(self, volume: str, *, start_after: str = "", limit: int | None = None) -> list[BucketRow]:
        """Return the buckets of a volume by name: at most ``limit``, or all."""
        ...

    def bucket(self, volume: str, bucket: str) -> BucketRow:
        """Return one bucket."""
        ...

    def entries(
        self,
        volume: str,
        bucket: str,
        *,
        snapshot_id: str = "",
        prefix: str = "",
        start_after: str = "",
        limit: int | None = None,
    ) -> list[ListedEntry]:
        """Return keys and directories behind a path in walk order: at most ``limit``, or all. Fewer mean the end."""
        ...

    def deleted(
        self, volume: str, bucket: str, *, start_after: str = "", limit: int | None = None
    ) -> list[ListedDeletion]:
        """Return unclaimed deletions, oldest death first, behind ``<death>:<objectID>``: at most ``limit``, or all."""
        ...

    def stat(
        self, volume: str, bucket: str, path: str, *, snapshot_id: str = "", version: int = 0
    ) -> KeyRow | DirectoryRow:
        """Return one key or directory, or one version of a key by its id."""
        ...

    def versions(self, volume: str, bucket: str, key: str, *, snapshot_id: str = "") -> list[ListedVersion]:
        """Return the versions of a key, oldest first; the last one is the current."""
        ...

    def key_blocks(self, volume: str, bucket: str, path: str, *, snapshot_id: str = "") -> list[BlockRun]:
        """Return all runs of blocks of a key, in the order of its contents."""
        ...

    def open_keys(
        self, volume: str, bucket: str, *, start_after: str = "", limit: int | None = None
    ) -> list[ListedOpenKey]:
        """Return the keys that clients are writing, behind ``wire.paging.open_key_position``: at most ``limit``, or
        all."""
        ...

    def uploads(self, volume: str, bucket: str, *, start_after: str = "", limit: int | None = None) -> list[UploadRow]:
        """Return the uploads of a bucket by key, behind ``<key>/<upload id>``: at most ``limit``, or all."""
        ...

    def parts(self, volume: str, bucket: str, key: str, upload_id: str) -> list[PartRow]:
        """Return the parts of an upload by number. Without one: NO_SUCH_MULTIPART_UPLOAD_ERROR."""
        ...

    def space(self, volume: str, bucket: str, *, start_after: str = "", limit: int = 1_000) -> BucketSpace:
        """Return the space of a bucket with a page of its cells, behind ``<first holder>:<last holder>``."""
        ...

    def collection(self, volume: str = "", bucket: str = "") -> list[CollectionStatus]:
        """Return the collection state of the shard, then that of one bucket or of all suspended buckets."""
        ...

    def ask_for_diff(
        self, volume: str, bucket: str, *, from_snapshot_id: str = "", to_snapshot_id: str = ""
    ) -> DiffJob:
        """Start a diff of two states of a bucket; ``services.client.tasks.diffs`` waits for it."""
        ...

    def diff_job(self, job_id: str, *, wait_seconds: int = 0) -> DiffJob:
        """Return the progress of a diff, at once or after a wait."""
        ...

    def diff_jobs(self, volume: str, bucket: str) -> list[DiffJob]:
        """Return the stored diffs of a bucket, oldest first."""
        ...

    def cancel_diff(self, job_id: str) -> DiffJob:
        """Stop a diff that has not ended."""
        ...

    def diff_entries(self, job_id: str, *, start_after: int = 0, limit: int) -> list[DiffEntry]:
        """Return a page of a finished diff; the last page has fewer than ``limit``. ``tasks.diffs`` fetches all."""
        ...


class SpaceReads(Protocol):
    """Reads of one shard's metadata about space; snapshots are named by their ids."""

    def snapshot_spaces(
        self, volume: str, bucket: str, *, start_after: int = 0, limit: int | None = None
    ) -> SnapshotSpaces:
        """Return live snapshots behind a txn, with referenced and shared bytes: at most ``limit``, or all."""
        ...

    def what_if(self, volume: str, bucket: str, question: WhatIf) -> FreedSpace:
        """Return the space that dropping a set of snapshots would free."""
        ...

    def plan(self, volume: str, bucket: str, question: PlanSpace) -> SpacePlan:
        """Return the smallest set of snapshots whose drop frees the requested bytes."""
        ...

    def explain_path(self, volume: str, bucket: str, path: str) -> PathExplanation:
        """Return every version of a path: in the namespace, in snapshots or in deletion."""
        ...

    def explain_block(self, local_id: int, *, volume: str = "", bucket: str = "", start: str = "") -> BlockExplanation:
        """Return the version that owns a block; search one bucket only if one is named."""
        ...


class SnapshotReads(Protocol):
    """Reads of one shard's snapshots."""

    def snapshots(self, volume: str, bucket: str, *, with_deleted: bool = False) -> list[SnapshotInfo]:
        """Return the snapshots of a bucket in chain order."""
        ...

    def snapshot(self, volume: str, bucket: str, name: str) -> SnapshotInfo:
        """Return one snapshot. A dropped one is refused: SNAPSHOT_EXPIRED, with the name of the next one."""
        ...

    def retention(self, volume: str, bucket: str) -> RetentionRow:
        """Return the retention policy of a bucket and the state of its runs. Without one: RETENTION_NOT_FOUND."""
        ...

    def retention_preview(
        self, volume: str, bucket: str, *, policy: RetentionPolicy | None = None, now_ms: int | None = None
    ) -> RetentionPreview:
        """Return the effect of a retention run by the bucket's policy or another one, now or at another time."""
        ...

    def tags(self, volume: str, bucket: str) -> list[SnapshotTag]:
        """Return the tags of a bucket, by name."""
        ...

    def consumers(self, volume: str, bucket: str) -> list[SnapshotConsumer]:
        """Return the consumers of a bucket, by name."""
        ...

    def dead_letters(
        self,
        *,
        service: str = "",
        topic: str = "",
        error: str = "",
        since_ms: int = 0,
        with_resolved: bool = False,
        start_after: int | None = None,
        limit: int | None = None,
    ) -> list[DeadLetterRow]:
        """Return the shard's dead letters before number ``start_after``, newest first: at most ``limit``, or all."""
        ...

    def dead_letter_counts(
        self, *, service: str = "", topic: str = "", error: str = "", since_ms: int = 0, with_resolved: bool = False
    ) -> list[DeadLetterCount]:
        """Return the number of dead letters of each kind."""
        ...

    def dead_letter(self, number: int) -> DeadLetterBytes:
        """Return one dead letter with its message. A missing one is refused with DEAD_LETTER_NOT_FOUND."""
        ...


class ScmReads(Protocol):
    """Reads of one shard's storage container manager."""

    def exist(self, runs: Sequence[BlockRun]) -> list[bool]:
        """Return for each run of blocks whether it is in the store."""
        ...

    def totals(self) -> ScmTotals:
        """Return the totals of the inventory."""
        ...


class BlockStore(Protocol):
    """The block store of one shard: containers and deletions at mock_scm, and blocks at the datanodes."""

    def status(self) -> BlockStoreStatus:
        """Return the datanodes, the containers and the log of deleted blocks in figures."""
        ...

    def place(self, container_id: int) -> ContainerPlace:
        """Return where the blocks of a container are."""
        ...

    def transactions(self, *, is_parked: bool, start: int = 0, limit: int = 1_000) -> list[ListedTransaction]:
        """Return transactions of the deletedBlocks log that have not ended, from a delTxnId on."""
        ...

    def retry(self, deletion_txns: Sequence[int] | None) -> int:
        """Send parked transactions to the datanodes again, some or all (None). Return their number."""
        ...

    def stored_runs(self) -> Iterator[BlockRun]:
        """Yield all runs of blocks whose bytes are on datanodes."""
        ...

    def write_chunk(self, url: str, container_id: int, local_id: int, writer: str, offset: int, data: bytes) -> None:
        """Write a chunk of a block to one datanode."""
        ...

    def put_block(self, url: str, container_id: int, local_id: int, writer: str, contents: BlockContents) -> None:
        """Make what was written the block, on one datanode."""
        ...

    def read(self, url: str, container_id: int, local_id: int, offset: int, length: int) -> bytes:
        """Return bytes of a block from one datanode."""
        ...

    def are_whole(self, url: str, container_id: int, local_ids: Sequence[int]) -> list[bool]:
        """Return for each block whether a datanode has it, and has not found it damaged."""
        ...


class Plane(Protocol):
    """A running plane."""

    shards: int
    """Their number, as far as this client knows; it grows when shards are added."""

    def learn_shards(self) -> int:
        """Ask how many shards the plane has now, and use all of them; return their number."""
        ...

    def load(self, shard: int) -> ShardLoad:
        """Return what a shard keeps and does."""
        ...

    def place_volume(self, volume: str, chosen: int) -> int:
        """Have the name of a new volume belong to a shard for ever. Return ``chosen``, or an earlier choice."""
        ...

    def submit(self, shard: int, command: NamespaceCommand) -> int:
        """Send a command without waiting. Return its number, which rises within each shard."""
        ...

    def answer(self, shard: int, number: int) -> MetadataReply:
        """Wait for the answer to a submitted command and return it."""
        ...

    def request(self, shard: int, request: SnapshotRequest) -> SnapshotReply:
        """Send a request to the snapshots service, wait for its answer and return it."""
        ...

    def send_again(
        self, topic: str, partition: int, value: bytes, key: bytes, headers: Sequence[MessageHeader]
    ) -> None:
        """Append a message unchanged to a partition of any topic; return when the log has it."""
        ...

    def metadata(self, shard: int) -> MetadataReads:
        """Return reads that include the effects of all commands answered so far."""
        ...

    def space(self, shard: int) -> SpaceReads:
        """Return reads about space that include the effects of all commands answered so far."""
        ...

    def snapshots(self, shard: int) -> SnapshotReads:
        """Return the reads of the snapshots service."""
        ...

    def scm(self, shard: int) -> ScmReads:
        """Return the reads of the storage container manager."""
        ...

    def block_store(self, shard: int) -> BlockStore:
        """Return the block store of a shard. Raise PlaneError if the plane can have no datanodes."""
        ...

    def close(self) -> None:
        """Close the connections to the plane."""
        ...


R = TypeVar("R", MetadataReply, SnapshotReply)


def accepted(reply: R) -> R:
    """Return an answer. Raise PlaneError if it is a refusal."""
    if reply.error:
        raise PlaneError(reply.error, reply.message)
    return reply
