"""Buckets: keys and directories, the snapshots of them, and what all of it takes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from deepclean.bulk_errors import KeyFailure
from deepclean.namespace import Namespace
from deepclean.snapshot import Snapshot
from deepclean.writer import BLOCK_SIZE_BYTES, MAX_IN_FLIGHT, BulkWriter
from schemas.answers import (
    BucketSpace,
    ListedDeletion,
    RetentionPreview,
    SnapshotConsumer,
    SnapshotTag,
)
from schemas.records import (
    BucketLayout,
    BucketRow,
    BucketVersioning,
    CollectionState,
    CreateBucket,
    CreateBucketLink,
    CreateSnapshot,
    DeleteBucket,
    DeleteConsumer,
    DeleteDirectory,
    DeleteKey,
    DeleteKeyVersion,
    DeleteTag,
    ExpireSnapshots,
    MakeDirectory,
    PutKey,
    PutKeyIf,
    RenameDirectory,
    RenameKey,
    Replication,
    RetentionPolicy,
    RetentionRow,
    RollBackBucket,
    SetBucketReplication,
    SetBucketVersioning,
    SetCollection,
    SetConsumer,
    SetOwner,
    SetQuota,
    SetRetention,
    SnapshotInfo,
    UnsetRetention,
)
from schemas.space_answers import FreedSpace, PathExplanation, SnapshotSpaces, SpacePlan
from services.client.errors import AlreadyExistsError, NotFoundError, PlaneError
from services.client.tasks.diffs import diff
from services.client.tasks.key_bytes import KeyPlace, put_bytes
from services.client.tasks.snapshot_ids import ACTIVE, live_snapshot_id
from services.client.tasks.undelete import Undeleted, undelete_files, undelete_path
from services.client.wire.paging import all_rows, deleted_position
from services.domain.snapshot_diff import DiffEntry

NO_QUOTA = -1


@dataclass(frozen=True, slots=True)
class Plan:
    """The snapshots whose deletion frees enough, and what it frees."""

    snapshots: tuple[str, ...]
    """Their names, oldest first."""
    space: SpacePlan
    """The figures; ``is_enough`` says whether they reach the requested bytes."""


class Bucket(Namespace):
    """A bucket by its name, whether it exists or not. It has no state: each method asks the plane.

    Methods that change the bucket return the txn at which the change was applied, if not said otherwise. While a
    rollback runs, changes are refused as busy, and are repeated for the time that ``connect`` was given.
    """

    def _snapshot_id(self) -> str:
        return ""

    def create(
        self,
        layout: BucketLayout = BucketLayout.FILE_SYSTEM_OPTIMIZED,
        *,
        replication: Replication | None = None,
        exist_ok: bool = False,
    ) -> Bucket:
        """Create the bucket, as a tree of directories or with flat keys, and return it.

        ``replication`` is that of its blocks, by default the plane's. With ``exist_ok`` a bucket that exists is left as
        it is, whatever its layout.

        Raises:
            NotFoundError: there is no such volume.
            AlreadyExistsError: the bucket exists.
            QuotaError: the volume has a quota of bytes, which a new bucket has none of; or it has as many buckets and
                links as it may.
        """
        try:
            self._calls.execute(self.volume, CreateBucket(self.volume, self.bucket, layout))
        except AlreadyExistsError:
            if not exist_ok:
                raise
            return self
        if replication is not None:
            self.set_replication(replication)
        return self

    def create_link(self, source: Bucket) -> Bucket:
        """Create the bucket as another name of ``source``, a bucket of a volume of the same shard, and return it."""
        self._calls.execute(self.volume, CreateBucketLink(self.volume, self.bucket, source.volume, source.bucket))
        return self

    def delete(self) -> int:
        """Delete the bucket.

        Raises:
            NotEmptyError: it has keys, directories or snapshots.
        """
        return self._calls.execute(self.volume, DeleteBucket(self.volume, self.bucket)).txn

    def exists(self) -> bool:
        """Return whether the bucket exists; ``has`` is about a path in it."""
        try:
            self.info()
        except NotFoundError:
            return False
        return True

    def info(self) -> BucketRow:
        """Return the row of the bucket: layout, versioning, replication, quotas and use. For a link, it is the row
        of the bucket to which the link leads.

        Raises:
            NotFoundError: there is no such bucket.
        """
        return self._calls.metadata(self.volume).bucket(self.volume, self.bucket)

    def put(
        self,
        key: str,
        *,
        size_bytes: int | None = None,
        data: bytes | BinaryIO | None = None,
        tag: str = "",
        block_size_bytes: int = BLOCK_SIZE_BYTES,
    ) -> int:
        """Commit a key, new or over an older version; missing parent directories are created.

        Give ``size_bytes`` or ``data``. With ``size_bytes``, blocks are allocated and counted, and no bytes are stored.
        ``data`` is a bytes object or an open file, and needs a plane with datanodes: the key is committed when all
        datanodes have confirmed all bytes. If a datanode refuses or does not answer before the commit, the write begins
        again, for up to 90 seconds. ``tag`` is your label of the version, shown in listings.

        Raises:
            NotFoundError: there is no such bucket.
            QuotaError: a quota leaves no room.
            NotSupportedError: the plane keeps no bytes.
        """
        if size_bytes is not None and data is None:
            command = PutKey(self.volume, self.bucket, key, size_bytes, tag, block_size_bytes)
            return self._calls.execute(self.volume, command).txn
        if data is None or size_bytes is not None:
            raise ValueError("give either size_bytes or data")
        source = io.BytesIO(data) if isinstance(data, bytes | bytearray | memoryview) else data
        place = KeyPlace(self._calls.volumes.shard_of(self.volume), self.volume, self.bucket, key)
        _, reply = put_bytes(self._calls.plane, place, source, block_size_bytes=block_size_bytes, tag=tag)
        return reply.txn

    def put_if(self, key: str, *, size_bytes: int, expected_generation: int, tag: str = "") -> int:
        """Commit a key only if it is as expected: ``expected_generation`` is the ``update_id`` of its row, or -1 if
        there must be no such key.

        Raises:
            ValueError: the generation is 0, which no row has.
            NotFoundError: the key does not exist, or has another generation.
            AlreadyExistsError: the key exists, and -1 was given.
        """
        if not expected_generation:  # to the plane it means: without a condition
            raise ValueError("the generation is that of a row, or -1 for a key that must not exist")
        command = PutKeyIf(self.volume, self.bucket, key, size_bytes, expected_generation, tag)
        return self._calls.execute(self.volume, command).txn

    def delete_key(self, key: str, *, version: int = 0) -> int:
        """Delete a key with all of its versions, or one version by its id. Use ``writer`` to delete many keys.

        In a tree, an empty directory at the path is deleted, too.

        Raises:
            NotFoundError: there is no such key or version.
            NotEmptyError: a directory that is not empty is at the path.
        """
        if version:
            return self._calls.execute(self.volume, DeleteKeyVersion(self.volume, self.bucket, key, version)).txn
        return self._calls.execute(self.volume, DeleteKey(self.volume, self.bucket, key)).txn

    def rename_key(self, source: str, target: str) -> int:
        """Rename a key, in a tree also into another directory.

        In a tree, if the target is a directory, the key moves into it under its own name.

        Raises:
            AlreadyExistsError: something is at that path.
            InvalidRequestError: the parent directory of the target does not exist; it is not created.
        """
        return self._calls.execute(self.volume, RenameKey(self.volume, self.bucket, source, target)).txn

    def make_directory(self, path: str) -> int:
        """Create a directory with its missing parents, in a bucket that is a tree."""
        return self._calls.execute(self.volume, MakeDirectory(self.volume, self.bucket, path)).txn

    def delete_directory(self, path: str, *, recursive: bool = True) -> int:
        """Delete a directory with all that is below it, at one txn; without ``recursive`` only an empty one.

        A key at the path is deleted, too.

        Raises:
            NotEmptyError: the directory is not empty, and ``recursive`` is false.
        """
        return self._calls.execute(self.volume, DeleteDirectory(self.volume, self.bucket, path, recursive)).txn

    def rename_directory(self, source: str, target: str) -> int:
        """Move a directory with all that is below it, at one txn.

        If the target is a directory, the source moves into it under its own name.

        Raises:
            AlreadyExistsError: something is at that path.
            InvalidRequestError: the parent directory of the target does not exist, or the directory would move below
                itself.
        """
        return self._calls.execute(self.volume, RenameDirectory(self.volume, self.bucket, source, target)).txn

    def writer(
        self, *, max_in_flight: int = MAX_IN_FLIGHT, on_failure: Callable[[KeyFailure], None] | None = None
    ) -> BulkWriter:
        """Return a writer for many puts and deletes; at most ``max_in_flight`` keys (1 to 20,000) are unanswered."""
        return BulkWriter(self._calls, self.volume, self.bucket, max_in_flight=max_in_flight, on_failure=on_failure)

    def snapshot(self, name: str) -> Snapshot:
        """Return a snapshot of the bucket by its name, whether it exists or not."""
        return Snapshot(self._calls, self.volume, self.bucket, name)

    def create_snapshot(self, name: str) -> Snapshot:
        """Create a snapshot and return it. It shows every change that this connection has sent before.

        Raises:
            AlreadyExistsError: a snapshot of this name exists, or was deleted a moment ago and is not dropped yet.
            LimitError: the shard has reached its limit of snapshots.
        """
        reply = self._calls.request(self.volume, CreateSnapshot(self.volume, self.bucket, name))
        return Snapshot(self._calls, self.volume, self.bucket, name, reply.snapshot_id)

    def snapshots(self, *, with_deleted: bool = False) -> Iterator[SnapshotInfo]:
        """Yield the rows of the snapshots, oldest first.

        With ``with_deleted`` also those of deleted snapshots that are not dropped yet.

        Raises:
            NotFoundError: there is no such bucket.
        """
        row = self.info()  # the snapshots service knows neither missing buckets nor links
        yield from self._calls.snapshots(self.volume).snapshots(row.volume, row.bucket, with_deleted=with_deleted)

    def diff(self, from_snapshot: str, to_snapshot: str = ACTIVE) -> list[DiffEntry]:
        """Return what changed between two snapshots: deleted, renamed, created and modified paths, in this order.

        ``active`` is the bucket as it is now.

        Raises:
            NotFoundError: there is no such snapshot.
            BusyError: the plane computes too many diffs already.
        """
        shard = self._calls.volumes.shard_of(self.volume)
        first, second = (
            live_snapshot_id(self._calls.plane, shard, self.volume, self.bucket, name)
            for name in (from_snapshot, to_snapshot)
        )
        reads = self._calls.metadata(self.volume)
        return diff(reads, self.volume, self.bucket, from_snapshot_id=first, to_snapshot_id=second)

    def roll_back(self, snapshot: str = "", *, tag: str = "") -> None:
        """Make a snapshot, or the one that a tag names, the content of the bucket again. Newer snapshots are deleted.

        Raises:
            NotFoundError: there is no such snapshot or tag.
            ProtectedError: a tag protects a newer snapshot.
            BusyError: another operation is under way. The rollback is not repeated; some newer snapshots may be deleted
                already.
            PlaneTimeoutError: it was not done within 60 seconds. It goes on: until it has ended, changes of the bucket
                are refused as busy.
        """
        self._calls.request(self.volume, RollBackBucket(self.volume, self.bucket, snapshot, tag))

    def space(self) -> BucketSpace:
        """Return the bytes of the bucket by stage: live, held by snapshots, pending, claimed and freed."""
        return self._calls.metadata(self.volume).space(self.volume, self.bucket)

    def snapshot_spaces(self) -> SnapshotSpaces:
        """Return the referenced, exclusive and shared bytes of every live snapshot, all as of one txn."""
        return self._calls.view(self.volume, self.bucket).spaces()

    def what_if(self, snapshots: Iterable[str]) -> FreedSpace:
        """Return the bytes that deleting these snapshots together would free. Nothing is deleted.

        Raises:
            NotFoundError: one of them does not exist.
        """
        view = self._calls.view(self.volume, self.bucket)
        return view.what_if(view.snapshots(), snapshots)

    def plan(self, free_bytes: int, *, keep: Iterable[str] = (), is_replicated: bool = False) -> Plan:
        """Return the smallest set of snapshots whose deletion frees at least ``free_bytes``. Nothing is deleted.

        The set has none of ``keep``, and none that a tag, a consumer or the bucket's policy keeps. ``is_replicated``:
        the bytes are those that blocks take on disks.
        """
        view = self._calls.view(self.volume, self.bucket)
        known = view.snapshots()
        found = view.plan(known, free_bytes, keep, is_replicated=is_replicated)
        return Plan(tuple(known.names_of(found.snapshot_ids)), found)

    def explain(self, path: str) -> PathExplanation:
        """Return the version that a path has, and its earlier ones that are not freed, each with stage and holders."""
        return self._calls.space(self.volume).explain_path(self.volume, self.bucket, path)

    def deleted(self) -> Iterator[ListedDeletion]:
        """Yield the deleted keys, versions and directories that are not claimed, oldest first, in pages.

        ``returning`` says what an undelete would restore now; ``ONLY_A_COPY``: nothing. Versions of zero bytes are not
        listed, and cannot be undeleted except with their directory.
        """
        reads = self._calls.metadata(self.volume)
        yield from all_rows(
            lambda after, limit: reads.deleted(self.volume, self.bucket, start_after=after, limit=limit),
            deleted_position,
        )

    def undelete(self, path: str, *, to: str = "", death: int = 0, by_file: bool = False) -> Undeleted:
        """Undo the last deletion at a path, or the one at the txn ``death``; its blocks return. ``to``: a new path.

        A directory returns with all that was below it. ``by_file``: the files below a directory return one by one, as
        far as they are not claimed; the result lists the files that could not be restored.

        Raises:
            CannotUndeleteError: what was deleted is claimed, or cannot return, for example because a snapshot holds it
                and another snapshot was created since; the message says what can be done.
            AlreadyExistsError: something is at the path.
        """
        shard = self._calls.volumes.shard_of(self.volume)
        bring_back = undelete_files if by_file else undelete_path
        return bring_back(self._calls.plane, shard, (self.volume, self.bucket), path, to or path, death)

    def retention(self) -> RetentionRow | None:
        """Return the retention policy and the results of its last run; None if the bucket has no policy."""
        try:
            return self._calls.snapshots(self.volume).retention(*self._real())
        except PlaneError as error:
            if error.code != "RETENTION_NOT_FOUND":
                raise
            return None

    def set_retention(self, policy: RetentionPolicy) -> None:
        """Set the retention policy, in place of the present one.

        Raises:
            InvalidRequestError: the values contradict each other.
        """
        self.info()  # the snapshots service does not know which buckets exist
        self._calls.request(self.volume, SetRetention(self.volume, self.bucket, policy))

    def unset_retention(self) -> None:
        """Remove the retention policy: snapshots no longer expire."""
        self._calls.request(self.volume, UnsetRetention(self.volume, self.bucket))

    def preview_retention(self, policy: RetentionPolicy | None = None) -> RetentionPreview:
        """Return what a run of the policy, or of another one, would expire now, and why other snapshots stay."""
        return self._calls.snapshots(self.volume).retention_preview(*self._real(), policy=policy)

    def expire(self) -> tuple[str, ...]:
        """Apply the retention policy now; return the names of the snapshots that it has deleted, oldest first.

        Raises:
            PlaneTimeoutError: it was not done within 60 seconds; it goes on.
        """
        expired = self._calls.request(self.volume, ExpireSnapshots(self.volume, self.bucket)).expired
        return expired.snapshots if expired else ()

    def tags(self) -> list[SnapshotTag]:
        """Return the tags of the bucket, by name; ``Snapshot.tag`` makes one."""
        return self._calls.snapshots(self.volume).tags(*self._real())

    def delete_tag(self, tag: str) -> None:
        """Delete a tag; its snapshot may then expire or be deleted."""
        self._calls.request(self.volume, DeleteTag(self.volume, self.bucket, "", tag))

    def consumers(self) -> list[SnapshotConsumer]:
        """Return the consumers of the bucket, by name."""
        return self._calls.snapshots(self.volume).consumers(*self._real())

    def set_consumer(self, consumer: str, snapshot: str, *, is_behind: bool = False) -> None:
        """Say which snapshot a consumer reads next; those that it has still to read do not expire.

        With ``is_behind``, ``snapshot`` is the last one that it has read: it reads the following one next.
        """
        self._calls.request(self.volume, SetConsumer(self.volume, self.bucket, consumer, snapshot, is_behind))

    def delete_consumer(self, consumer: str) -> None:
        """Forget a consumer; it protects no snapshot any more."""
        self._calls.request(self.volume, DeleteConsumer(self.volume, self.bucket, consumer))

    def set_collection(self, state: CollectionState, *, reason: str = "") -> int:
        """Suspend garbage collection of the bucket (paused, shadow) or resume it (running)."""
        return self._calls.execute(self.volume, SetCollection(self.volume, self.bucket, state, reason)).txn

    def set_versioning(self, versioning: BucketVersioning) -> int:
        """Keep versions of keys that are overwritten from now on, or suspend this."""
        return self._calls.execute(self.volume, SetBucketVersioning(self.volume, self.bucket, versioning)).txn

    def set_replication(self, replication: Replication) -> int:
        """Set the replication of blocks that are allocated from now on."""
        return self._calls.execute(self.volume, SetBucketReplication(self.volume, self.bucket, replication)).txn

    def set_quota(self, *, quota_bytes: int = NO_QUOTA, quota_names: int = NO_QUOTA) -> int:
        """Set the quotas: of replicated bytes, and of keys and directories. Deleted ones count until they are freed.

        -1 means no quota. A quota that you do not give is set to -1, too.

        Raises:
            QuotaError: more is used already; or it is more than the volume's quota of bytes leaves, or none although
                the volume has one.
        """
        command = SetQuota(self.volume, self.bucket, quota_bytes, quota_names)
        return self._calls.execute(self.volume, command).txn

    def set_owner(self, user: str) -> int:
        """Give the bucket another owner than its volume has; an empty name: that of the volume."""
        return self._calls.execute(self.volume, SetOwner(self.volume, self.bucket, user)).txn

    def _real(self) -> tuple[str, str]:
        return self._calls.bucket_of(self.volume, self.bucket)

    def __repr__(self) -> str:
        return f"Bucket({self.volume!r}, {self.bucket!r})"
