"""A running plane as a client sees it: commands go in by shard, answers come back, figures are read.

Two planes have this shape: the real one (commands over Kafka, reads over HTTP) and the one within this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from schemas.answers import (
    BucketSpace,
    CollectionStatus,
    DeadLetterBytes,
    DeadLetterCount,
    DiffJob,
    ListedDeletion,
    ListedEntry,
    RetentionPreview,
    ScmTotals,
    SnapshotConsumer,
    SnapshotTag,
)
from schemas.records import (
    BlockRun,
    BucketRow,
    CreateBucket,
    CreateSnapshot,
    CreateTag,
    CreateVolume,
    DeadLetterRow,
    DeleteBucket,
    DeleteConsumer,
    DeleteDirectory,
    DeleteKey,
    DeleteKeys,
    DeleteSnapshot,
    DeleteTag,
    DeleteVolume,
    DirectoryRow,
    ExpireSnapshots,
    KeyRow,
    MakeDirectory,
    MessageHeader,
    MetadataReply,
    PutKey,
    RenameDirectory,
    RenameKey,
    RenameSnapshot,
    RequeueOrphans,
    ResetBreaker,
    ResolveDeadLetter,
    RetentionPolicy,
    RetentionRow,
    RollBackBucket,
    SetBreaker,
    SetCollection,
    SetConsumer,
    SetRetention,
    SetSecret,
    Settle,
    SnapshotInfo,
    SnapshotReply,
    Undelete,
    UnsetRetention,
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
from services.domain.snapshot_diff import DiffEntry

NamespaceCommand = (
    CreateVolume
    | DeleteVolume
    | CreateBucket
    | DeleteBucket
    | PutKey
    | DeleteKey
    | DeleteKeys
    | RenameKey
    | MakeDirectory
    | DeleteDirectory
    | RenameDirectory
    | Undelete
    | RequeueOrphans
    | SetSecret
    | SetCollection
    | SetBreaker
    | ResetBreaker
)
SENDERS: Mapping[type[Any], str] = {RequeueOrphans: "audit"}
"""Who a command says it comes from, where that is not just a client."""
SnapshotRequest = (
    CreateSnapshot
    | DeleteSnapshot
    | RenameSnapshot
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


class MetadataReads(Protocol):
    """Reads of one shard's metadata. ``snapshot_id`` empty means the active namespace.

    Refusals raise ``services.client.errors.PlaneError`` with Ozone's code.
    """

    def volumes(self, *, start_after: str = "", limit: int | None = None) -> list[VolumeRow]:
        """Volumes by name: a page of so many, or all of them."""
        ...

    def buckets(self, volume: str, *, start_after: str = "", limit: int | None = None) -> list[BucketRow]:
        """Buckets of a volume by name: a page of so many, or all of them."""
        ...

    def bucket(self, volume: str, bucket: str) -> BucketRow:
        """One bucket."""
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
        """Keys and directories behind a path, in the order of the walk: all, or so many, and fewer at the end."""
        ...

    def deleted(
        self, volume: str, bucket: str, *, start_after: str = "", limit: int | None = None
    ) -> list[ListedDeletion]:
        """What was deleted and is not claimed, oldest death first, behind ``<death>:<objectID>``: so many, or all."""
        ...

    def stat(self, volume: str, bucket: str, path: str, *, snapshot_id: str = "") -> KeyRow | DirectoryRow:
        """One key or directory."""
        ...

    def space(self, volume: str, bucket: str, *, start_after: str = "", limit: int = 1_000) -> BucketSpace:
        """Where the bytes of a bucket are, with a page of its cells, behind ``<first holder>:<last holder>``."""
        ...

    def collection(self, volume: str = "", bucket: str = "") -> list[CollectionStatus]:
        """What the collector does: for all of the shard, then for one bucket or for all that are held back."""
        ...

    def ask_for_diff(
        self, volume: str, bucket: str, *, from_snapshot_id: str = "", to_snapshot_id: str = ""
    ) -> DiffJob:
        """Have the differences of two states of a bucket found; ``services.client.tasks.diffs`` waits for them."""
        ...

    def diff_job(self, job_id: str, *, wait_seconds: int = 0) -> DiffJob:
        """How far a diff has come, now or a while later."""
        ...

    def diff_jobs(self, volume: str, bucket: str) -> list[DiffJob]:
        """The diffs of a bucket that are kept, oldest first."""
        ...

    def cancel_diff(self, job_id: str) -> DiffJob:
        """Stop a diff that has not ended."""
        ...

    def diff_entries(self, job_id: str, *, start_after: int = 0, limit: int) -> list[DiffEntry]:
        """A page of a finished diff; the last page has fewer than the limit. ``tasks.diffs`` fetches all."""
        ...


class SpaceReads(Protocol):
    """Reads of one shard's metadata about space; snapshots are named by their ids."""

    def snapshot_spaces(
        self, volume: str, bucket: str, *, start_after: int = 0, limit: int | None = None
    ) -> SnapshotSpaces:
        """Live snapshots, behind the one taken at a txn, with what each refers to and shares: so many, or all."""
        ...

    def what_if(self, volume: str, bucket: str, question: WhatIf) -> FreedSpace:
        """What dropping a set of snapshots would free."""
        ...

    def plan(self, volume: str, bucket: str, question: PlanSpace) -> SpacePlan:
        """The least set of snapshots whose drop frees so many bytes."""
        ...

    def explain_path(self, volume: str, bucket: str, path: str) -> PathExplanation:
        """Every version that a path has, in the namespace, in snapshots or on its way out."""
        ...

    def explain_block(self, local_id: int, *, volume: str = "", bucket: str = "", start: str = "") -> BlockExplanation:
        """The version that owns a block; looked for in one bucket if one is named."""
        ...


class SnapshotReads(Protocol):
    """Reads of one shard's snapshots."""

    def snapshots(self, volume: str, bucket: str, *, with_deleted: bool = False) -> list[SnapshotInfo]:
        """Snapshots of a bucket in the order of its chain."""
        ...

    def snapshot(self, volume: str, bucket: str, name: str) -> SnapshotInfo:
        """One snapshot; one that has gone is refused with SNAPSHOT_EXPIRED and the name of the next one."""
        ...

    def retention(self, volume: str, bucket: str) -> RetentionRow:
        """The policy of a bucket and where its runs are; RETENTION_NOT_FOUND when it has none."""
        ...

    def retention_preview(
        self, volume: str, bucket: str, *, policy: RetentionPolicy | None = None, now_ms: int | None = None
    ) -> RetentionPreview:
        """What a run would do, by the bucket's policy or another one, now or at another moment."""
        ...

    def tags(self, volume: str, bucket: str) -> list[SnapshotTag]:
        """Tags of a bucket, by name."""
        ...

    def consumers(self, volume: str, bucket: str) -> list[SnapshotConsumer]:
        """Consumers of a bucket, by name."""
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
        """The shard's dead letters, newest first, older than the one numbered ``start_after``: so many, or all."""
        ...

    def dead_letter_counts(
        self, *, service: str = "", topic: str = "", error: str = "", since_ms: int = 0, with_resolved: bool = False
    ) -> list[DeadLetterCount]:
        """How many dead letters there are of each kind."""
        ...

    def dead_letter(self, number: int) -> DeadLetterBytes:
        """One dead letter with the message that it is about; refused with DEAD_LETTER_NOT_FOUND."""
        ...


class ScmReads(Protocol):
    """Reads of one shard's storage container manager."""

    def exist(self, runs: Sequence[BlockRun]) -> list[bool]:
        """For each run of blocks whether it is in the store."""
        ...

    def totals(self) -> ScmTotals:
        """Sums over the inventory."""
        ...


class Plane(Protocol):
    """A running plane."""

    shards: int

    def submit(self, shard: int, command: NamespaceCommand) -> int:
        """Send a command without waiting; says its number, rising in each shard."""
        ...

    def answer(self, shard: int, number: int) -> MetadataReply:
        """Wait for the answer to a command that was submitted."""
        ...

    def request(self, shard: int, request: SnapshotRequest) -> SnapshotReply:
        """Send a request to the snapshots service and wait for its answer."""
        ...

    def send_again(
        self, topic: str, partition: int, value: bytes, key: bytes, headers: Sequence[MessageHeader]
    ) -> None:
        """Append a message to a partition of any topic, as it is given; returns when the log has it."""
        ...

    def metadata(self, shard: int) -> MetadataReads:
        """Reads that include everything answered so far."""
        ...

    def space(self, shard: int) -> SpaceReads:
        """Reads about space that include everything answered so far."""
        ...

    def snapshots(self, shard: int) -> SnapshotReads:
        """Reads of the snapshots service."""
        ...

    def scm(self, shard: int) -> ScmReads:
        """Reads of the storage container manager."""
        ...

    def close(self) -> None:
        """Leave the plane."""
        ...
