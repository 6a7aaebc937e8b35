"""Snapshots: a bucket as it was at one txn, readable under a name."""

from __future__ import annotations

from typing import Self

from deepclean.calls import Calls
from deepclean.namespace import Namespace
from schemas.records import CreateTag, DeleteSnapshot, RenameSnapshot, SnapshotInfo, SnapshotStatus
from schemas.space_answers import FreedSpace, SnapshotSpace
from services.client.errors import NotFoundError, PlaneError
from services.client.tasks.diffs import diff
from services.client.tasks.restore import Restored, restore
from services.client.tasks.snapshot_ids import ACTIVE, EXPIRED, live_snapshot_id
from services.domain.snapshot_diff import DiffEntry


class Snapshot(Namespace):
    """A snapshot of a bucket by its name, whether it exists or not.

    Each call looks the name up first. ``with bucket.snapshot("s1") as s:`` looks it up once: within the block all
    calls are about this snapshot, also if another client renames it and gives the name to another one. The same holds
    for the object that ``Bucket.create_snapshot`` returns: reads use the id of the snapshot. A command names a
    snapshot by its name, so the present name of this id is looked up right before the command is sent. The block does
    not keep the snapshot from being deleted; a tag does.
    """

    def __init__(self, calls: Calls, volume: str, bucket: str, name: str, snapshot_id: str = "") -> None:
        super().__init__(calls, volume, bucket)
        self.name = name
        """Name of the snapshot."""
        self._known_id = snapshot_id

    def _snapshot_id(self) -> str:
        return self._known_id or self.id()

    def id(self) -> str:
        """Return the id of the live snapshot.

        Raises:
            NotFoundError: no snapshot of this name exists; ``SnapshotExpiredError`` if one did.
        """
        if self._known_id:
            if self.info().status is not SnapshotStatus.SNAPSHOT_ACTIVE:
                raise self._gone()
            return self._known_id
        if self.name == ACTIVE:  # which would mean the active namespace below
            return self.info().snapshot_id
        shard = self._calls.volumes.shard_of(self.volume)
        return live_snapshot_id(self._calls.plane, shard, self.volume, self.bucket, self.name)

    def exists(self) -> bool:
        """Return whether the snapshot exists and is not being deleted."""
        try:
            self.id()
        except NotFoundError:
            return False
        return True

    def info(self) -> SnapshotInfo:
        """Return the row of the snapshot: its id, state, times, sizes and flags; also while it is being deleted.

        Raises:
            NotFoundError: no snapshot of this name exists; ``SnapshotExpiredError`` if one did.
        """
        reads, bucket = self._calls.snapshots(self.volume), self._real()
        refusal: NotFoundError | None = None
        try:
            row = reads.snapshot(*bucket, self.name)
        except NotFoundError as error:
            if not self._known_id:
                raise
            refusal = error
        else:
            if self._known_id in ("", row.snapshot_id):
                return row
        for row in reads.snapshots(*bucket, with_deleted=True):
            if row.snapshot_id == self._known_id:
                return row
        raise refusal or self._gone()

    def _gone(self) -> PlaneError:
        return PlaneError(EXPIRED, f"snapshot {self.name} of {self.volume}/{self.bucket} is deleted")

    def _present_name(self) -> str:
        """Return the name by which a command finds the snapshot: commands know no ids."""
        return self.info().name if self._known_id else self.name

    def delete(self) -> None:
        """Delete the snapshot. Versions that only this snapshot holds are then freed.

        Raises:
            NotFoundError: there is no such snapshot.
            ProtectedError: a tag protects it.
        """
        self._calls.request(self.volume, DeleteSnapshot(self.volume, self.bucket, self._present_name()))

    def rename(self, name: str) -> Snapshot:
        """Rename the snapshot, and return it under its new name.

        Raises:
            NotSupportedError: the plane does not allow it.
        """
        self._calls.request(self.volume, RenameSnapshot(self.volume, self.bucket, self._present_name(), name))
        return Snapshot(self._calls, self.volume, self.bucket, name, self._known_id)

    def tag(self, tag: str, *, owner: str = "", reason: str = "", time_to_live_ms: int = 0) -> None:
        """Protect the snapshot with a tag: it does not expire and cannot be deleted. 0 ms: for an unlimited time.

        Raises:
            AlreadyExistsError: the bucket has a tag of this name.
        """
        command = CreateTag(self.volume, self.bucket, self._present_name(), tag, owner, reason, time_to_live_ms)
        self._calls.request(self.volume, command)

    def diff(self, to_snapshot: str = ACTIVE) -> list[DiffEntry]:
        """Return what changed from this snapshot to another one, or to the bucket as it is now.

        The entries are the deleted paths, then the renamed, created and modified ones, each group by path.

        Raises:
            NotFoundError: there is no such snapshot.
            BusyError: the plane computes too many diffs already.
        """
        shard = self._calls.volumes.shard_of(self.volume)
        second = live_snapshot_id(self._calls.plane, shard, self.volume, self.bucket, to_snapshot)
        reads = self._calls.metadata(self.volume)
        return diff(reads, self.volume, self.bucket, from_snapshot_id=self._snapshot_id(), to_snapshot_id=second)

    def space(self) -> SnapshotSpace:
        """Return the bytes that the snapshot references, holds alone, and shares with its neighbours.

        Raises:
            NotFoundError: there is no such snapshot.
        """
        snapshot_id = self._snapshot_id()
        for one in self._calls.view(self.volume, self.bucket).spaces().snapshots:
            if one.snapshot_id == snapshot_id:
                return one
        raise PlaneError("FILE_NOT_FOUND", f"the snapshot {self.name} was dropped a moment ago")

    def what_if(self) -> FreedSpace:
        """Return the bytes that deleting this snapshot alone would free. Nothing is deleted.

        Raises:
            NotFoundError: there is no such snapshot.
        """
        view = self._calls.view(self.volume, self.bucket)
        return view.what_if(view.snapshots(), [self._present_name()])

    def restore(self, path: str, *, to: str = "") -> Restored:
        """Copy a key, or a directory with all below it, out of the snapshot into the bucket; to ``to`` if given.

        The copies are new versions with blocks of their own. Where the plane keeps bytes, they are read and written
        again.

        Raises:
            NotFoundError: the snapshot has nothing at the path.
            MissingBytesError: no datanode has the bytes of a key: they are lost, or it was put without bytes. What was
                copied before remains.
        """
        shard, bucket = self._calls.volumes.shard_of(self.volume), (self.volume, self.bucket)
        return restore(self._calls.plane, shard, bucket, path, self._snapshot_id(), to)

    def _real(self) -> tuple[str, str]:
        return self._calls.bucket_of(self.volume, self.bucket)

    def __enter__(self) -> Self:
        return type(self)(self._calls, self.volume, self.bucket, self.name, self._snapshot_id())

    def __exit__(self, *_: object) -> None:
        """Do nothing: a snapshot that is read is not held."""

    def __repr__(self) -> str:
        return f"Snapshot({self.volume!r}, {self.bucket!r}, {self.name!r})"
