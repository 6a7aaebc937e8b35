"""The objects of the library with awaitable methods, for programs on asyncio: ``deepclean.connect_async``.

Each call runs in one of a bounded number of threads. A cancelled call runs there to its end, so a command whose task
was cancelled may be applied.
"""

# Made from the synchronous objects by python -m deepclean.generate: change these, then run that.

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import BinaryIO, Self

from deepclean.bucket import NO_QUOTA, Bucket, Plan
from deepclean.bulk_errors import KeyFailure
from deepclean.namespace import Namespace
from deepclean.snapshot import Snapshot
from deepclean.threads import AsyncBulkWriter, AsyncClient, Threads
from deepclean.volume import Volume
from deepclean.writer import BLOCK_SIZE_BYTES, MAX_IN_FLIGHT
from schemas.answers import (
    BucketSpace,
    ListedDeletion,
    ListedEntry,
    ListedVersion,
    RetentionPreview,
    SnapshotConsumer,
    SnapshotTag,
)
from schemas.records import (
    BucketLayout,
    BucketRow,
    BucketVersioning,
    CollectionState,
    DirectoryRow,
    KeyRow,
    Replication,
    RetentionPolicy,
    RetentionRow,
    SnapshotInfo,
    VolumeRow,
)
from schemas.space_answers import FreedSpace, PathExplanation, SnapshotSpace, SnapshotSpaces
from services.client.tasks.restore import Restored
from services.client.tasks.snapshot_ids import ACTIVE
from services.client.tasks.undelete import Undeleted
from services.domain.snapshot_diff import DiffEntry


class AsyncNamespace:
    """Keys and directories at paths: of a bucket now, or as a snapshot shows them.

    Paths have no slash at their beginning. Each read shows one moment. If a listing of a bucket has several pages,
    these may show different moments. All pages of a listing of a snapshot show the same moment.
    """

    _sync: Namespace

    def __init__(self, threads: Threads, sync: Namespace) -> None:
        self._threads = threads
        self._sync = sync

    @property
    def volume(self) -> str:
        """Name of the volume."""
        return self._sync.volume

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self._sync.bucket

    def list(self, prefix: str = "", *, start_after: str = "", limit: int | None = None) -> AsyncIterator[ListedEntry]:
        """Yield the keys and directories whose paths begin with a prefix, a directory before its contents.

        Pages are fetched while the caller iterates. ``start_after`` is the path after which the listing begins;
        ``limit`` is the most entries that it has.

        Raises:
            NotFoundError: the bucket or the snapshot does not exist.
        """
        return self._threads.iterate(self._sync.list, prefix, start_after=start_after, limit=limit)

    def listdir(self, path: str = "") -> AsyncIterator[ListedEntry]:
        """Yield what is directly below a directory, or below the root, by name.

        In a flat bucket, names are divided at slashes. What stands before a slash is shown once, as a directory without
        an id and a time, for all keys that begin with it. Each entry has its whole path. An empty name between two
        slashes is no directory of its own: the key ``a//b`` is an entry directly below ``a``. The key ``dir/`` is an
        entry below ``dir``. What lies below the directories that are listed is not listed, and most of it is not even
        read.

        Raises:
            NotFoundError: there is nothing at the path, or no such bucket or snapshot.
            InvalidRequestError: a key is at the path.
        """
        return self._threads.iterate(self._sync.listdir, path)

    async def stat(self, path: str, *, version: int = 0) -> KeyRow | DirectoryRow:
        """Return the row of a key or directory, or of one version of a key by its id.

        Raises:
            NotFoundError: there is nothing at the path, or no such version, bucket or snapshot.
        """
        return await self._threads.run(self._sync.stat, path, version=version)

    async def has(self, path: str) -> bool:
        """Return whether a key or directory is at a path.

        Raises:
            NotFoundError: the bucket or the snapshot does not exist.
        """
        return await self._threads.run(self._sync.has, path)

    async def versions(self, key: str) -> Sequence[ListedVersion]:
        """Return the versions of a key, oldest first; the last one is the current."""
        return await self._threads.run(self._sync.versions, key)

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a key, or ``length`` of them from ``offset`` on, under the conditions of ``open``.

        Raises:
            MissingBytesError: no datanode has a block, for example because the key was put without bytes.
        """
        return await self._threads.run(self._sync.read, key, offset=offset, length=length)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"


class AsyncSnapshot(AsyncNamespace):
    """A snapshot of a bucket by its name, whether it exists or not.

    Each call looks the name up first. ``async with bucket.snapshot("s1") as s:`` looks it up once: within the block all
    calls are about this snapshot, also if another client renames it and gives the name to another one. The same holds
    for the object that ``Bucket.create_snapshot`` returns: reads use the id of the snapshot. A command names a
    snapshot by its name, so the present name of this id is looked up right before the command is sent. The block does
    not keep the snapshot from being deleted; a tag does.
    """

    _sync: Snapshot

    @property
    def name(self) -> str:
        """Name of the snapshot."""
        return self._sync.name

    async def id(self) -> str:
        """Return the id of the live snapshot.

        Raises:
            NotFoundError: no snapshot of this name exists; ``SnapshotExpiredError`` if one did.
        """
        return await self._threads.run(self._sync.id)

    async def exists(self) -> bool:
        """Return whether the snapshot exists and is not being deleted."""
        return await self._threads.run(self._sync.exists)

    async def info(self) -> SnapshotInfo:
        """Return the row of the snapshot: its id, state, times, sizes and flags; also while it is being deleted.

        Raises:
            NotFoundError: no snapshot of this name exists; ``SnapshotExpiredError`` if one did.
        """
        return await self._threads.run(self._sync.info)

    async def delete(self) -> None:
        """Delete the snapshot. Versions that only this snapshot holds are then freed.

        Raises:
            NotFoundError: there is no such snapshot.
            ProtectedError: a tag protects it.
        """
        await self._threads.run(self._sync.delete)

    async def rename(self, name: str) -> AsyncSnapshot:
        """Rename the snapshot, and return it under its new name.

        Raises:
            NotSupportedError: the plane does not allow it.
        """
        return AsyncSnapshot(self._threads, await self._threads.run(self._sync.rename, name))

    async def tag(self, tag: str, *, owner: str = "", reason: str = "", time_to_live_ms: int = 0) -> None:
        """Protect the snapshot with a tag: it does not expire and cannot be deleted. 0 ms: for an unlimited time.

        Raises:
            AlreadyExistsError: the bucket has a tag of this name.
        """
        await self._threads.run(self._sync.tag, tag, owner=owner, reason=reason, time_to_live_ms=time_to_live_ms)

    async def diff(self, to_snapshot: str = ACTIVE) -> list[DiffEntry]:
        """Return what changed from this snapshot to another one, or to the bucket as it is now.

        The entries are the deleted paths, then the renamed, created and modified ones, each group by path.

        Raises:
            NotFoundError: there is no such snapshot.
            BusyError: the plane computes too many diffs already.
        """
        return await self._threads.run(self._sync.diff, to_snapshot)

    async def space(self) -> SnapshotSpace:
        """Return the bytes that the snapshot references, holds alone, and shares with its neighbours.

        Raises:
            NotFoundError: there is no such snapshot.
        """
        return await self._threads.run(self._sync.space)

    async def what_if(self) -> FreedSpace:
        """Return the bytes that deleting this snapshot alone would free. Nothing is deleted.

        Raises:
            NotFoundError: there is no such snapshot.
        """
        return await self._threads.run(self._sync.what_if)

    async def restore(self, path: str, *, to: str = "") -> Restored:
        """Copy a key, or a directory with all below it, out of the snapshot into the bucket; to ``to`` if given.

        The copies are new versions with blocks of their own. Where the plane keeps bytes, they are read and written
        again.

        Raises:
            NotFoundError: the snapshot has nothing at the path.
            MissingBytesError: no datanode has the bytes of a key: they are lost, or it was put without bytes. What was
                copied before remains.
        """
        return await self._threads.run(self._sync.restore, path, to=to)

    async def __aenter__(self) -> Self:
        return type(self)(self._threads, await self._threads.run(self._sync.__enter__))

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: a snapshot that is read is not held."""

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"


class AsyncBucket(AsyncNamespace):
    """A bucket by its name, whether it exists or not. It has no state: each method asks the plane.

    Methods that change the bucket return the txn at which the change was applied, if not said otherwise. While a
    rollback runs, changes are refused as busy, and are repeated for the time that ``connect`` was given.
    """

    _sync: Bucket

    async def create(
        self,
        layout: BucketLayout = BucketLayout.FILE_SYSTEM_OPTIMIZED,
        *,
        replication: Replication | None = None,
        exist_ok: bool = False,
    ) -> AsyncBucket:
        """Create the bucket, as a tree of directories or with flat keys, and return it.

        ``replication`` is that of its blocks, by default the plane's. With ``exist_ok`` a bucket that exists is left as
        it is, whatever its layout.

        Raises:
            NotFoundError: there is no such volume.
            AlreadyExistsError: the bucket exists.
            QuotaError: the volume has a quota of bytes, which a new bucket has none of; or it has as many buckets and
                links as it may.
        """
        return AsyncBucket(
            self._threads,
            await self._threads.run(self._sync.create, layout, replication=replication, exist_ok=exist_ok),
        )

    async def create_link(self, source: AsyncBucket) -> AsyncBucket:
        """Create the bucket as another name of ``source``, a bucket of a volume of the same shard, and return it."""
        return AsyncBucket(self._threads, await self._threads.run(self._sync.create_link, source._sync))

    async def delete(self) -> int:
        """Delete the bucket.

        Raises:
            NotEmptyError: it has keys, directories or snapshots.
        """
        return await self._threads.run(self._sync.delete)

    async def exists(self) -> bool:
        """Return whether the bucket exists; ``has`` is about a path in it."""
        return await self._threads.run(self._sync.exists)

    async def info(self) -> BucketRow:
        """Return the row of the bucket: layout, versioning, replication, quotas and use. For a link, it is the row
        of the bucket to which the link leads.

        Raises:
            NotFoundError: there is no such bucket.
        """
        return await self._threads.run(self._sync.info)

    async def put(
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
        return await self._threads.run(
            self._sync.put, key, size_bytes=size_bytes, data=data, tag=tag, block_size_bytes=block_size_bytes
        )

    async def put_if(self, key: str, *, size_bytes: int, expected_generation: int, tag: str = "") -> int:
        """Commit a key only if it is as expected: ``expected_generation`` is the ``update_id`` of its row, or -1 if
        there must be no such key.

        Raises:
            ValueError: the generation is 0, which no row has.
            NotFoundError: the key does not exist, or has another generation.
            AlreadyExistsError: the key exists, and -1 was given.
        """
        return await self._threads.run(
            self._sync.put_if, key, size_bytes=size_bytes, expected_generation=expected_generation, tag=tag
        )

    async def delete_key(self, key: str, *, version: int = 0) -> int:
        """Delete a key with all of its versions, or one version by its id. Use ``writer`` to delete many keys.

        In a tree, an empty directory at the path is deleted, too.

        Raises:
            NotFoundError: there is no such key or version.
            NotEmptyError: a directory that is not empty is at the path.
        """
        return await self._threads.run(self._sync.delete_key, key, version=version)

    async def rename_key(self, source: str, target: str) -> int:
        """Rename a key, in a tree also into another directory.

        In a tree, if the target is a directory, the key moves into it under its own name.

        Raises:
            AlreadyExistsError: something is at that path.
            InvalidRequestError: the parent directory of the target does not exist; it is not created.
        """
        return await self._threads.run(self._sync.rename_key, source, target)

    async def make_directory(self, path: str) -> int:
        """Create a directory with its missing parents, in a bucket that is a tree."""
        return await self._threads.run(self._sync.make_directory, path)

    async def delete_directory(self, path: str, *, recursive: bool = True) -> int:
        """Delete a directory with all that is below it, at one txn; without ``recursive`` only an empty one.

        A key at the path is deleted, too.

        Raises:
            NotEmptyError: the directory is not empty, and ``recursive`` is false.
        """
        return await self._threads.run(self._sync.delete_directory, path, recursive=recursive)

    async def rename_directory(self, source: str, target: str) -> int:
        """Move a directory with all that is below it, at one txn.

        If the target is a directory, the source moves into it under its own name.

        Raises:
            AlreadyExistsError: something is at that path.
            InvalidRequestError: the parent directory of the target does not exist, or the directory would move below
                itself.
        """
        return await self._threads.run(self._sync.rename_directory, source, target)

    def writer(
        self, *, max_in_flight: int = MAX_IN_FLIGHT, on_failure: Callable[[KeyFailure], None] | None = None
    ) -> AsyncBulkWriter:
        """Return a writer for many puts and deletes; at most ``max_in_flight`` keys (1 to 20,000) are unanswered."""
        return AsyncBulkWriter(self._threads, self._sync.writer(max_in_flight=max_in_flight, on_failure=on_failure))

    def snapshot(self, name: str) -> AsyncSnapshot:
        """Return a snapshot of the bucket by its name, whether it exists or not."""
        return AsyncSnapshot(self._threads, self._sync.snapshot(name))

    async def create_snapshot(self, name: str) -> AsyncSnapshot:
        """Create a snapshot and return it. It shows every change that this connection has sent before.

        Raises:
            AlreadyExistsError: a snapshot of this name exists, or was deleted a moment ago and is not dropped yet.
            LimitError: the shard has reached its limit of snapshots.
        """
        return AsyncSnapshot(self._threads, await self._threads.run(self._sync.create_snapshot, name))

    def snapshots(self, *, with_deleted: bool = False) -> AsyncIterator[SnapshotInfo]:
        """Yield the rows of the snapshots, oldest first.

        With ``with_deleted`` also those of deleted snapshots that are not dropped yet.

        Raises:
            NotFoundError: there is no such bucket.
        """
        return self._threads.iterate(self._sync.snapshots, with_deleted=with_deleted)

    async def diff(self, from_snapshot: str, to_snapshot: str = ACTIVE) -> list[DiffEntry]:
        """Return what changed between two snapshots: deleted, renamed, created and modified paths, in this order.

        ``active`` is the bucket as it is now.

        Raises:
            NotFoundError: there is no such snapshot.
            BusyError: the plane computes too many diffs already.
        """
        return await self._threads.run(self._sync.diff, from_snapshot, to_snapshot)

    async def roll_back(self, snapshot: str = "", *, tag: str = "") -> None:
        """Make a snapshot, or the one that a tag names, the content of the bucket again. Newer snapshots are deleted.

        Raises:
            NotFoundError: there is no such snapshot or tag.
            ProtectedError: a tag protects a newer snapshot.
            BusyError: another operation is under way. The rollback is not repeated; some newer snapshots may be deleted
                already.
            PlaneTimeoutError: it was not done within 60 seconds. It goes on: until it has ended, changes of the bucket
                are refused as busy.
        """
        await self._threads.run(self._sync.roll_back, snapshot, tag=tag)

    async def space(self) -> BucketSpace:
        """Return the bytes of the bucket by stage: live, held by snapshots, pending, claimed and freed."""
        return await self._threads.run(self._sync.space)

    async def snapshot_spaces(self) -> SnapshotSpaces:
        """Return the referenced, exclusive and shared bytes of every live snapshot, all as of one txn."""
        return await self._threads.run(self._sync.snapshot_spaces)

    async def what_if(self, snapshots: Iterable[str]) -> FreedSpace:
        """Return the bytes that deleting these snapshots together would free. Nothing is deleted.

        Raises:
            NotFoundError: one of them does not exist.
        """
        return await self._threads.run(self._sync.what_if, snapshots)

    async def plan(self, free_bytes: int, *, keep: Iterable[str] = (), is_replicated: bool = False) -> Plan:
        """Return the smallest set of snapshots whose deletion frees at least ``free_bytes``. Nothing is deleted.

        The set has none of ``keep``, and none that a tag, a consumer or the bucket's policy keeps. ``is_replicated``:
        the bytes are those that blocks take on disks.
        """
        return await self._threads.run(self._sync.plan, free_bytes, keep=keep, is_replicated=is_replicated)

    async def explain(self, path: str) -> PathExplanation:
        """Return the version that a path has, and its earlier ones that are not freed, each with stage and holders."""
        return await self._threads.run(self._sync.explain, path)

    def deleted(self) -> AsyncIterator[ListedDeletion]:
        """Yield the deleted keys, versions and directories that are not claimed, oldest first, in pages.

        ``returning`` says what an undelete would restore now; ``ONLY_A_COPY``: nothing. Versions of zero bytes are not
        listed, and cannot be undeleted except with their directory.
        """
        return self._threads.iterate(self._sync.deleted)

    async def undelete(self, path: str, *, to: str = "", death: int = 0, by_file: bool = False) -> Undeleted:
        """Undo the last deletion at a path, or the one at the txn ``death``; its blocks return. ``to``: a new path.

        A directory returns with all that was below it. ``by_file``: the files below a directory return one by one, as
        far as they are not claimed; the result lists the files that could not be restored.

        Raises:
            CannotUndeleteError: what was deleted is claimed, or cannot return, for example because a snapshot holds it
                and another snapshot was created since; the message says what can be done.
            AlreadyExistsError: something is at the path.
        """
        return await self._threads.run(self._sync.undelete, path, to=to, death=death, by_file=by_file)

    async def retention(self) -> RetentionRow | None:
        """Return the retention policy and the results of its last run; None if the bucket has no policy."""
        return await self._threads.run(self._sync.retention)

    async def set_retention(self, policy: RetentionPolicy) -> None:
        """Set the retention policy, in place of the present one.

        Raises:
            InvalidRequestError: the values contradict each other.
        """
        await self._threads.run(self._sync.set_retention, policy)

    async def unset_retention(self) -> None:
        """Remove the retention policy: snapshots no longer expire."""
        await self._threads.run(self._sync.unset_retention)

    async def preview_retention(self, policy: RetentionPolicy | None = None) -> RetentionPreview:
        """Return what a run of the policy, or of another one, would expire now, and why other snapshots stay."""
        return await self._threads.run(self._sync.preview_retention, policy)

    async def expire(self) -> tuple[str, ...]:
        """Apply the retention policy now; return the names of the snapshots that it has deleted, oldest first.

        Raises:
            PlaneTimeoutError: it was not done within 60 seconds; it goes on.
        """
        return await self._threads.run(self._sync.expire)

    async def tags(self) -> list[SnapshotTag]:
        """Return the tags of the bucket, by name; ``Snapshot.tag`` makes one."""
        return await self._threads.run(self._sync.tags)

    async def delete_tag(self, tag: str) -> None:
        """Delete a tag; its snapshot may then expire or be deleted."""
        await self._threads.run(self._sync.delete_tag, tag)

    async def consumers(self) -> list[SnapshotConsumer]:
        """Return the consumers of the bucket, by name."""
        return await self._threads.run(self._sync.consumers)

    async def set_consumer(self, consumer: str, snapshot: str, *, is_behind: bool = False) -> None:
        """Say which snapshot a consumer reads next; those that it has still to read do not expire.

        With ``is_behind``, ``snapshot`` is the last one that it has read: it reads the following one next.
        """
        await self._threads.run(self._sync.set_consumer, consumer, snapshot, is_behind=is_behind)

    async def delete_consumer(self, consumer: str) -> None:
        """Forget a consumer; it protects no snapshot any more."""
        await self._threads.run(self._sync.delete_consumer, consumer)

    async def set_collection(self, state: CollectionState, *, reason: str = "") -> int:
        """Suspend garbage collection of the bucket (paused, shadow) or resume it (running)."""
        return await self._threads.run(self._sync.set_collection, state, reason=reason)

    async def set_versioning(self, versioning: BucketVersioning) -> int:
        """Keep versions of keys that are overwritten from now on, or suspend this."""
        return await self._threads.run(self._sync.set_versioning, versioning)

    async def set_replication(self, replication: Replication) -> int:
        """Set the replication of blocks that are allocated from now on."""
        return await self._threads.run(self._sync.set_replication, replication)

    async def set_quota(self, *, quota_bytes: int = NO_QUOTA, quota_names: int = NO_QUOTA) -> int:
        """Set the quotas: of replicated bytes, and of keys and directories. Deleted ones count until they are freed.

        -1 means no quota. A quota that you do not give is set to -1, too.

        Raises:
            QuotaError: more is used already; or it is more than the volume's quota of bytes leaves, or none although
                the volume has one.
        """
        return await self._threads.run(self._sync.set_quota, quota_bytes=quota_bytes, quota_names=quota_names)

    async def set_owner(self, user: str) -> int:
        """Give the bucket another owner than its volume has; an empty name: that of the volume."""
        return await self._threads.run(self._sync.set_owner, user)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"


class AsyncVolume:
    """A volume by its name, whether it exists or not. It has no state: each method asks the plane."""

    _sync: Volume

    def __init__(self, threads: Threads, sync: Volume) -> None:
        self._threads = threads
        self._sync = sync

    @property
    def name(self) -> str:
        """Name of the volume."""
        return self._sync.name

    async def create(self, *, owner: str = "", shard: int | None = None, exist_ok: bool = False) -> AsyncVolume:
        """Create the volume in the shard with the least load, or in ``shard``, and return it.

        With ``exist_ok`` a volume that exists is left as it is.

        Raises:
            AlreadyExistsError: the volume exists.
            InvalidRequestError: the name breaks a rule, or belongs to another shard.
        """
        return AsyncVolume(
            self._threads, await self._threads.run(self._sync.create, owner=owner, shard=shard, exist_ok=exist_ok)
        )

    async def delete(self) -> None:
        """Delete the volume. Its name keeps belonging to its shard.

        Raises:
            NotFoundError: there is no such volume.
            NotEmptyError: it has buckets, or belongs to a tenant.
        """
        await self._threads.run(self._sync.delete)

    async def exists(self) -> bool:
        """Return whether the volume exists."""
        return await self._threads.run(self._sync.exists)

    async def info(self) -> VolumeRow:
        """Return the row of the volume: its owner, quotas and creation time.

        Raises:
            NotFoundError: there is no such volume.
        """
        return await self._threads.run(self._sync.info)

    def bucket(self, name: str) -> AsyncBucket:
        """Return a bucket of the volume by its name, whether it exists or not."""
        return AsyncBucket(self._threads, self._sync.bucket(name))

    def buckets(self) -> AsyncIterator[BucketRow]:
        """Yield the rows of the volume's buckets and links by name; pages are fetched while the caller iterates.

        Raises:
            NotFoundError: there is no such volume.
        """
        return self._threads.iterate(self._sync.buckets)

    async def set_quota(self, *, quota_bytes: int = NO_QUOTA, quota_buckets: int = NO_QUOTA) -> None:
        """Set the limits of the volume: of the sum of its buckets' quotas in bytes, and of its number of buckets.

        -1 means no limit. A limit that you do not give is set to -1, too.

        Raises:
            QuotaError: more is used already, or a bucket has no quota of bytes.
        """
        await self._threads.run(self._sync.set_quota, quota_bytes=quota_bytes, quota_buckets=quota_buckets)

    async def set_owner(self, user: str) -> None:
        """Give the volume another owner."""
        await self._threads.run(self._sync.set_owner, user)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"


class AsyncConnection(AsyncClient):
    """A client with awaitable methods, which ``connect_async`` makes, for an ``async with`` block.

    Tasks of one event loop may share it. ``connection`` is the synchronous client below.
    """

    def volume(self, name: str) -> AsyncVolume:
        """Return a volume by its name, whether it exists or not."""
        return AsyncVolume(self._threads, self._sync.volume(name))

    def volumes(self, *, user: str = "") -> AsyncIterator[VolumeRow]:
        """Yield the rows of all volumes, or of those that a user owns, shard by shard, each shard's by name."""
        return self._threads.iterate(self._sync.volumes, user=user)

    async def settle(self) -> None:
        """Wait until no shard has anything left to do: all that may be freed is freed.

        This ends the undo windows of all earlier deletions, those of other users, too, and ignores purge hours and
        rates. On a secured plane only an administrator may do it.

        Raises:
            NotAllowedError: the client is no administrator.
            PlaneTimeoutError: the plane has not come to rest in time.
        """
        await self._threads.run(self._sync.settle)
