"""Finds the objects that live snapshots show at a path, without opening each snapshot.

A row of the namespace has the txn since which it is at its place: its ``update_id``. So a row in one snapshot is in all
live snapshots since that txn, and one look-up covers all of them. A missing row has no such txn. For it, one point
look-up in changedTable for each pair of neighbouring snapshots finds the newest change of the key. (A rollback restores
rows with an older ``update_id``, but the snapshots that showed other rows were dropped before.)

So, from the newest snapshot to the oldest, a path is divided into stretches that show the same object. A stretch that
is the life of a deleted version of this name needs no checkpoint. For any other stretch its newest checkpoint is
opened: one for each object without a garbage row of this name, and one for each stretch without an object.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter

from schemas.records import BucketLayout, BucketRow, DeletedKeyRow, DirectoryRow, KeyRow, SnapshotListRow
from services.domain.reclaimability import Txn
from services.domain.table_keys import flat_key, tree_key
from services.metadata.state.changed_rows import ChangedKey, is_changed
from services.metadata.state.tables import DIRECTORY_TABLE, FILE_TABLE, KEY_TABLE
from services.storage.tables import TablesReader

Checkpoint = Callable[[str], TablesReader]
"""Opens the checkpoint of a snapshot; raises KeyError when it was removed."""
DiedUnder = Callable[[int], Sequence[DeletedKeyRow]]
"""Returns deleted versions of the path's last name in a directory, by death, with all that a snapshot holds. The
directory is 0 in a flat bucket.
"""


@dataclass(frozen=True, slots=True)
class _Parent:
    """The directory above the last part of a path, and the txn since which it has been there."""

    directory_id: int
    since: Txn


@dataclass(frozen=True, slots=True)
class _Look:
    """The object at a path in one state of a bucket."""

    found: KeyRow | DirectoryRow | None
    since: Txn
    """txn since which all rows that were read are at their places."""
    absent: tuple[ChangedKey, ...]
    """Missing rows. One of them was written or removed when the path showed another object."""
    parent: _Parent | None
    """None when a directory above the last part is missing."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring live snapshots that show the same object at a path."""

    found: KeyRow | DirectoryRow
    snapshots: Sequence[SnapshotListRow]
    """Oldest first."""


@dataclass(frozen=True, slots=True)
class ShownVersions:
    """Searches a path in the live snapshots of a bucket."""

    tables: TablesReader
    bucket: BucketRow
    path: str
    live: Sequence[SnapshotListRow]
    """The bucket's live snapshots, oldest first."""
    snapshots_ever: int
    died_under: DiedUnder
    checkpoint: Checkpoint

    def stretches(self) -> Iterator[Stretch]:
        """Yield the stretches of the path with an object, newest first."""
        parent: _Parent | None = None
        left = len(self.live)
        """Number of the oldest snapshots that are not covered yet."""
        look: _Look | None = find(self.tables, self.bucket, self.path)
        changes_end = self.snapshots_ever
        """Ordinal of the newest interval before the last look."""
        while True:
            if look is not None:
                parent = look.parent
                first = self._first(look, left, changes_end)
                if look.found is not None and first < left:
                    yield Stretch(look.found, self.live[first:left])
                left = first
            if not left:
                return
            newest = self.live[left - 1]
            look = self._dead(parent, newest.txn)
            if look is None:
                left, look = self._opened(left)
            changes_end = newest.ordinal - 1

    def _first(self, look: _Look, left: int, changes_end: int) -> int:
        """Return the index of the oldest snapshot that shows the same as the look at the next newer state."""
        first = bisect_left(self.live, look.since, 0, left, key=attrgetter("txn"))
        if look.found is not None or first == left:
            return first
        for ordinal in range(changes_end, self.live[first].ordinal - 1, -1):
            if any(is_changed(self.tables, self.bucket, ordinal, key) for key in look.absent):
                return bisect_right(self.live, ordinal, first, left, key=attrgetter("ordinal"))
        return first

    def _dead(self, parent: _Parent | None, txn: Txn) -> _Look | None:
        """Return the deleted version that had this name in a snapshot, from its garbage row; None if there is none."""
        if parent is None or parent.since > txn:
            return None
        dead = self.died_under(parent.directory_id)
        # Usually the first one that died later. A name has one current version at a time, except after a rollback.
        for place in range(bisect_right(dead, txn, key=attrgetter("death")), len(dead)):
            row = dead[place]
            if row.key.update_id <= txn and not row.version_of:
                return _Look(row.key, max(parent.since, row.key.update_id), (), parent)
        return None

    def _opened(self, left: int) -> tuple[int, _Look | None]:
        """Open the newest snapshot that is left. Skip it if it was dropped meanwhile."""
        with opened(self.checkpoint, self.live[left - 1].snapshot_id) as tables:
            if tables is not None:
                return left, find(tables, self.bucket, self.path)
        return left - 1, None


@contextmanager
def opened(checkpoint: Checkpoint, snapshot_id: str) -> Iterator[TablesReader | None]:
    """Open a checkpoint and close it afterwards. Yield None if its snapshot was dropped meanwhile."""
    try:
        tables = checkpoint(snapshot_id)
    except KeyError:
        yield None
        return
    try:
        yield tables
    finally:
        tables.reader.close()


def find(tables: TablesReader, bucket: BucketRow, path: str) -> _Look:
    """Return the object at a path in one state of a bucket."""
    if bucket.layout is not BucketLayout.FILE_SYSTEM_OPTIMIZED:
        key = ChangedKey(KEY_TABLE, flat_key(bucket.volume, bucket.bucket, path))
        row = tables.table(KEY_TABLE).get(key.key)
        return _Look(row, row.update_id if row else 0, () if row else (key,), _Parent(0, 0))
    *above, name = path.split("/")
    parent = _Parent(bucket.object_id, 0)
    for part in above:
        part_key = tree_key(bucket.volume_id, bucket.object_id, parent.directory_id, part)
        directory = tables.table(DIRECTORY_TABLE).get(part_key)
        if directory is None:
            return _Look(None, parent.since, (ChangedKey(DIRECTORY_TABLE, part_key),), None)
        parent = _Parent(directory.object_id, max(parent.since, directory.update_id))
    last_key = tree_key(bucket.volume_id, bucket.object_id, parent.directory_id, name)
    found = tables.table(FILE_TABLE).get(last_key) or tables.table(DIRECTORY_TABLE).get(last_key)
    if found is not None:
        return _Look(found, max(parent.since, found.update_id), (), parent)
    absent = ChangedKey(FILE_TABLE, last_key), ChangedKey(DIRECTORY_TABLE, last_key)
    return _Look(None, parent.since, absent, parent)
