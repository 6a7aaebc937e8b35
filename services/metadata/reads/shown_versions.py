"""What live snapshots show under a path, found without looking into each of them.

A row of the namespace says when it came to be where it is: its ``update_id``. So whoever shows it shows it in all live
snapshots since then, and one look tells of all of them. What is not there says nothing of since when; that is in
changedTable, in which one point look-up per pair of neighbouring snapshots finds the newest change of that one key.
(A rollback brings rows back with an older ``update_id``; but the snapshots that saw something else were dropped.)

So, from the newest snapshot to the oldest, a path falls into stretches that show the same. A stretch that is the life
of a deleted version under this name needs no look at all. For another one the newest checkpoint in it is opened: one
for each thing that the path was and that has no row under this name, and one for each time that it was nothing.
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
"""Opens the checkpoint of a snapshot; raises KeyError when it is gone."""
DiedUnder = Callable[[int], Sequence[DeletedKeyRow]]
"""Deleted versions of the path's last name in a directory, among them all that a snapshot holds, by death; 0 in a flat
bucket.
"""
_death: Callable[[DeletedKeyRow], Txn] = attrgetter("death")


@dataclass(frozen=True, slots=True)
class _Parent:
    """The directory that the parts of a path before the last lead to, and since when they do."""

    directory_id: int
    since: Txn


@dataclass(frozen=True, slots=True)
class _Look:
    """What one state of a bucket shows under a path."""

    found: KeyRow | DirectoryRow | None
    since: Txn
    """Since when everything that was looked at is where it is."""
    absent: tuple[ChangedKey, ...]
    """Rows that are not there: one of them came or went when something else was shown."""
    parent: _Parent | None
    """None when the path ends before its last part."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Live snapshots next to each other that show the same under a path."""

    found: KeyRow | DirectoryRow
    snapshots: Sequence[SnapshotListRow]
    """Oldest first."""


class ShownVersions:
    """Looks for a path in the live snapshots of a bucket."""

    def __init__(
        self,
        tables: TablesReader,
        bucket: BucketRow,
        path: str,
        live: Sequence[SnapshotListRow],
        snapshots_ever: int,
        died_under: DiedUnder,
        checkpoint: Checkpoint,
    ) -> None:
        """``live`` are the bucket's live snapshots, oldest first."""
        self._tables = tables
        self._bucket = bucket
        self._path = path
        self._live = live
        self._ever = snapshots_ever
        self._txns = [row.txn for row in live]
        self._ordinals = [row.ordinal for row in live]
        self._died_under = died_under
        self._checkpoint = checkpoint

    def stretches(self) -> Iterator[Stretch]:
        """Everything that a live snapshot shows under the path, newest first."""
        parent: _Parent | None = None
        left = len(self._live)
        """So many snapshots, the oldest, are still to be looked at."""
        look: _Look | None = find(self._tables, self._bucket, self._path)
        changes_end = self._ever
        """Ordinal of the newest interval that lies before what was looked at."""
        while True:
            if look is not None:
                parent = look.parent
                first = self._first(look, left, changes_end)
                if look.found is not None and first < left:
                    yield Stretch(look.found, self._live[first:left])
                left = first
            if not left:
                return
            newest = self._live[left - 1]
            look = self._dead(parent, newest.txn)
            if look is None:
                left, look = self._opened(left)
            changes_end = newest.ordinal - 1

    def _first(self, look: _Look, left: int, changes_end: int) -> int:
        """Index of the oldest snapshot that shows what a look at the next newer state has shown."""
        first = bisect_left(self._txns, look.since, 0, left)
        if look.found is not None or first == left:
            return first
        for ordinal in range(changes_end, self._live[first].ordinal - 1, -1):
            if any(is_changed(self._tables, self._bucket, ordinal, key) for key in look.absent):
                return bisect_right(self._ordinals, ordinal, first, left)
        return first

    def _dead(self, parent: _Parent | None, txn: Txn) -> _Look | None:
        """The deleted version that had this name in a snapshot, if one did: told by its row, without a look there."""
        if parent is None or parent.since > txn:
            return None
        dead = self._died_under(parent.directory_id)
        # Mostly the first that died later: a name has one version at a time, but for what a rollback brought back.
        for place in range(bisect_right(dead, txn, key=_death), len(dead)):
            row = dead[place]
            if row.key.update_id <= txn:
                return _Look(row.key, max(parent.since, row.key.update_id), (), parent)
        return None

    def _opened(self, left: int) -> tuple[int, _Look | None]:
        """Look into the newest snapshot that is left; one that was dropped a moment ago is left out."""
        with opened(self._checkpoint, self._live[left - 1].snapshot_id) as tables:
            if tables is not None:
                return left, find(tables, self._bucket, self._path)
        return left - 1, None


@contextmanager
def opened(checkpoint: Checkpoint, snapshot_id: str) -> Iterator[TablesReader | None]:
    """A checkpoint, let go of afterwards; None when its snapshot was dropped a moment ago."""
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
    """What a state of a bucket shows under a path."""
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
