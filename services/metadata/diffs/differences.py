"""The diff of two states of a bucket, each of them the active namespace or a snapshot checkpoint.

``compare_all`` reads every row of both states. ``compare_changes`` reads the changed rows from changedTable and looks
up only these: other rows are the same in both states and have no entry. It also reads the contents of directories
that only one state has, since they have entries, and once all directories of a tree, for paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from schemas.error_codes import ErrorCode
from schemas.records import BucketLayout, BucketRow, DirectoryRow, KeyRow
from services.domain.refusals import CommandError
from services.domain.snapshot_diff import (
    DiffEntry,
    NamespaceObject,
    Paths,
    PlacedObject,
    difference,
    place,
    reachable,
)
from services.domain.table_keys import snapshot_id_key, tree_key
from services.metadata.reads import queries
from services.metadata.state.changed_rows import ChangedKey, changed_rows
from services.metadata.state.tables import DIRECTORY_TABLE, FILE_TABLE, KEY_TABLE, SNAPSHOT_LIST_TABLE, namespace_prefix
from services.runtime.http.reads import closing_reader
from services.storage.store import Store, prefix_end
from services.storage.tables import TableDefinition, TablesReader

AFTER_ALL = 1 << 62
"""An ordinal higher than that of any snapshot."""
Seen = Callable[[int], None]
"""Called with the number of rows read since the last call. It may raise an error to stop the diff."""


@dataclass(frozen=True, slots=True)
class BucketState:
    """One state of a bucket, and how to read its rows."""

    tables: TablesReader
    bucket: BucketRow

    @property
    def is_tree(self) -> bool:
        """Whether the bucket has directories."""
        return self.bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED

    def objects(self) -> Iterator[NamespaceObject]:
        """Yield every key and directory that has a row, also those that cannot be reached from the root any more."""
        if self.is_tree:
            yield from self.directories()
        yield from self._scanned(FILE_TABLE if self.is_tree else KEY_TABLE, namespace_prefix(self.bucket))

    def directories(self) -> Iterator[NamespaceObject]:
        """Yield every directory that has a row."""
        return self._scanned(DIRECTORY_TABLE, namespace_prefix(self.bucket))

    def children(self, directory_id: int) -> Iterator[NamespaceObject]:
        """Yield the contents of a directory."""
        prefix = tree_key(self.bucket.volume_id, self.bucket.object_id, directory_id, "")
        return chain(self._scanned(DIRECTORY_TABLE, prefix), self._scanned(FILE_TABLE, prefix))

    def at(self, changed: ChangedKey) -> NamespaceObject | None:
        """Return the object of a row in this state; None if there is no row."""
        row: KeyRow | DirectoryRow | None = self.tables.table(changed.table).get(changed.key)
        return None if row is None else self._object(row)

    def _scanned(self, table: TableDefinition[Any], prefix: bytes) -> Iterator[NamespaceObject]:
        for _, row in self.tables.table(table).scan(prefix, prefix_end(prefix)):
            yield self._object(row)

    def _object(self, row: KeyRow | DirectoryRow) -> NamespaceObject:
        if isinstance(row, DirectoryRow):
            return NamespaceObject(row.object_id, row.parent_id, row.name, True, (0, 0))
        parent_id = row.parent_id if self.is_tree else self.bucket.object_id
        return NamespaceObject(row.object_id, parent_id, row.name, False, (row.birth, row.size_bytes))


def compare_all(before: BucketState, after: BucketState) -> list[DiffEntry]:
    """Return the diff of two states by reading every row of both: slow, and certain to miss nothing."""
    root_id = before.bucket.object_id
    old, new = (reachable(state.objects(), root_id) for state in (before, after))
    return difference(old, new)


def compare_changes(
    before: BucketState, after: BucketState, changes: Iterable[ChangedKey], seen: Seen = lambda _: None
) -> list[DiffEntry]:
    """Return the same diff by reading the changed rows. ``changes`` has every row that differs, and may have others.

    An object with the same row in both states has no entry, unless only one state reaches it, because of a directory
    above it. So below each directory that only one state reaches, all unchanged objects belong to that state alone;
    the changed ones are read anyway.
    """
    old, new = _changed_objects(before, after, changes, seen)
    if not old and not new:
        return []
    root_id = before.bucket.object_id
    directories = {found.object_id: found for found in before.directories()} if before.is_tree else {}
    later = {key: found for key, found in directories.items() if key not in old}
    later |= {found.object_id: found for found in new.values() if found.is_directory}
    old_side = _Side(before, old, Paths(root_id, directories.get))
    new_side = _Side(after, new, Paths(root_id, later.get))
    was, now = old_side.placed(), new_side.placed()
    return difference(
        [*was.values(), *old_side.dragged_along(was, now, seen)],
        [*now.values(), *new_side.dragged_along(now, was, seen)],
    )


def _changed_objects(
    before: BucketState, after: BucketState, changes: Iterable[ChangedKey], seen: Seen
) -> tuple[dict[int, NamespaceObject], dict[int, NamespaceObject]]:
    """Return the objects of both states whose rows differ, by objectID."""
    old: dict[int, NamespaceObject] = {}
    new: dict[int, NamespaceObject] = {}
    for changed in set(changes):
        was, now = before.at(changed), after.at(changed)
        seen(1)
        if was != now:
            if was is not None:
                old[was.object_id] = was
            if now is not None:
                new[now.object_id] = now
    return old, new


@dataclass(frozen=True, slots=True)
class _Side:
    """One of two states: its objects whose rows differ, and the paths in it."""

    state: BucketState
    changed: Mapping[int, NamespaceObject]
    paths: Paths

    def placed(self) -> dict[int, PlacedObject]:
        """Return the changed objects that can be reached, by objectID."""
        return {one.row.object_id: one for one in place(self.changed.values(), self.paths)}

    def dragged_along(
        self, reached: Mapping[int, PlacedObject], reached_there: Mapping[int, PlacedObject], seen: Seen
    ) -> Iterator[PlacedObject]:
        """Yield the unchanged objects below directories that this side reaches and the other one does not."""
        lone = [one for object_id, one in reached.items() if one.row.is_directory and object_id not in reached_there]
        while lone:
            directory = lone.pop()
            for child in self.state.children(directory.row.object_id):
                seen(1)
                if child.object_id not in self.changed:
                    found = PlacedObject(child, f"{directory.path}/{child.name}")
                    if child.is_directory:
                        lone.append(found)
                    yield found


@dataclass(frozen=True, slots=True)
class OpenedStates:
    """Two states of a bucket that can be compared as long as they are open."""

    before: BucketState
    after: BucketState
    _tables: TablesReader
    _first_ordinal: int
    _end_ordinal: int

    def changes(self) -> Iterator[ChangedKey]:
        """Yield the rows that changed between the two states, in either direction."""
        return changed_rows(self._tables, self.before.bucket, self._first_ordinal, self._end_ordinal)


@contextmanager
def opened_states(
    store: Store, volume: str, bucket: str, from_snapshot_id: str, to_snapshot_id: str
) -> Iterator[OpenedStates]:
    """Open two states of a bucket; an empty id is the active namespace now. Both stay readable while they are open.

    Raises:
        CommandError: FILE_NOT_FOUND or SNAPSHOT_EXPIRED.
    """
    with ExitStack() as opened:
        # Open the checkpoints first: an open one keeps its files, even if its snapshot is dropped meanwhile.
        checkpoints = [
            opened.enter_context(closing_reader(queries.open_snapshot(store, one))) if one else None
            for one in (from_snapshot_id, to_snapshot_id)
        ]
        tables = opened.enter_context(closing_reader(store.reading()))
        row = queries.get_bucket(tables, volume, bucket)
        ordinals = [_ordinal(tables, row, one) for one in (from_snapshot_id, to_snapshot_id)]
        before, after = (
            BucketState(state, queries.get_bucket(state, volume, bucket))
            for state in (checkpoint or tables for checkpoint in checkpoints)
        )
        yield OpenedStates(before, after, tables, min(ordinals), max(ordinals))


def _ordinal(tables: TablesReader, bucket: BucketRow, snapshot_id: str) -> int:
    """Return the ordinal of a snapshot; for the active namespace ``AFTER_ALL``."""
    if not snapshot_id:
        return AFTER_ALL
    captured = tables.table(SNAPSHOT_LIST_TABLE).get(snapshot_id_key(snapshot_id))
    if captured is None or captured.bucket_id != bucket.object_id:
        name = f"{bucket.volume}/{bucket.bucket}"
        raise CommandError(ErrorCode.FILE_NOT_FOUND, f"there is no snapshot with the id {snapshot_id} of {name}")
    if not captured.is_live:
        raise queries.missing_snapshot(tables, snapshot_id)
    return captured.ordinal
