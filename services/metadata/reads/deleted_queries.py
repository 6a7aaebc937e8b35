"""What was deleted from a bucket and can still be brought back: its versions and directories, in the order of death.

A row that is not claimed is there, and that is all that decides; until when nobody claims it is told by the undo
window, which metadata's settings repeat for this listing alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from heapq import merge

from schemas.answers import ListedDeletion, Returning
from schemas.records import BucketLayout, BucketRow, DeletedDirectoryRow, DeletedKeyRow, DeletedKind
from services.domain.coming_back import Return, return_of_directory, return_of_key
from services.domain.space_matrix import NOBODY, holders
from services.domain.table_keys import (
    garbage_end,
    garbage_from,
    garbage_key,
    object_txn,
    tree_key,
)
from services.metadata.reads.queries import live_snapshots
from services.metadata.state.tables import DELETED_DIRECTORY_TABLE, DELETED_TABLE, DIRECTORY_TABLE
from services.runtime.http.reads import ReadError
from services.storage.store import prefix_end
from services.storage.tables import TablesReader

MAX_DIRECTORIES = 100_000
"""Live directories that one page reads to tell paths by, 10 µs each; in a larger tree some paths are not told."""
MAX_DEPTH = 200
"""Directories above an entry that are looked up, some µs each; of a deeper one the path is not told."""

_PLACE = re.compile(r"([0-9]{1,19}):(-?[0-9]{1,19})")
"""Death and objectID; the epoch of an objectID may make it negative."""
_Row = DeletedKeyRow | DeletedDirectoryRow
_RETURNING = {
    Return.ITSELF: Returning.ITSELF,
    Return.NEW_OBJECT: Returning.NEW_OBJECT,
    Return.SNAPSHOT_IN_BETWEEN: Returning.ONLY_A_COPY,
    Return.HELD: Returning.ONLY_A_COPY,
}


def list_deleted(
    tables: TablesReader, bucket: BucketRow, start_after: str = "", limit: int = 1_000, undo_window_ms: int = 0
) -> list[ListedDeletion]:
    """Some of what was deleted and is not claimed, oldest death first, behind ``<death>:<objectID>``.

    Raises:
        ReadError: INVALID_REQUEST, that is not where an entry is.
    """
    live = tuple(snapshot.txn for snapshot in live_snapshots(tables, bucket.object_id))
    paths = _Paths(tables, bucket)
    entries: list[ListedDeletion] = []
    for row in _rows(tables, bucket, start_after):
        entries.append(_entry(tables, bucket, row, live, paths, undo_window_ms))
        if len(entries) >= limit:
            break
    return entries


def _rows(tables: TablesReader, bucket: BucketRow, start_after: str) -> Iterator[_Row]:
    ids = bucket.volume_id, bucket.object_id
    start = garbage_from(*ids, 0)
    if start_after:
        place = _PLACE.fullmatch(start_after)
        if place is None:
            shown = start_after[:100]
            raise ReadError("INVALID_REQUEST", f"start_after is {shown!r}; write start_after=<death>:<objectID>")
        start = garbage_key(*ids, int(place[1]), int(place[2])) + b"\0"
    tables_rows: list[Iterator[tuple[bytes, _Row]]] = [
        tables.table(DELETED_TABLE).scan(start, garbage_end(*ids)),
        tables.table(DELETED_DIRECTORY_TABLE).scan(start, garbage_end(*ids)),
    ]
    for _, row in merge(*tables_rows, key=lambda one: one[0]):
        yield row


def _entry(
    tables: TablesReader, bucket: BucketRow, row: _Row, live: tuple[int, ...], paths: _Paths, undo_window_ms: int
) -> ListedDeletion:
    if isinstance(row, DeletedKeyRow):
        kind, thing, birth = DeletedKind.KEY, row.key, row.key.birth
        size_bytes, tag = row.key.size_bytes, row.key.tag
        returning = _RETURNING[return_of_key(row, bucket.rolled_back_txn, live)]
        parent_id, name, object_id = thing.parent_id, thing.name, thing.object_id
    else:
        kind, birth, size_bytes, tag = DeletedKind.DIRECTORY, object_txn(row.directory.object_id), 0, ""
        parent_id, name, object_id = row.directory.parent_id, row.directory.name, row.directory.object_id
        parent = tables.table(DELETED_DIRECTORY_TABLE).get(
            garbage_key(bucket.volume_id, bucket.object_id, row.death, parent_id)
        )
        outcome = return_of_directory(row, live, has_parent_in_garbage=parent is not None)
        returning = Returning.ITSELF if outcome is Return.ITSELF else Returning.ONLY_ITS_FILES
    is_held = holders(birth, row.death, live) != NOBODY
    return ListedDeletion(
        kind=kind,
        path=paths.of(parent_id, name, row.death),
        name=name,
        object_id=object_id,
        birth=birth,
        death=row.death,
        size_bytes=size_bytes,
        tag=tag,
        deletion_time_ms=row.deletion_time_ms,
        is_held=is_held,
        until_ms=-1 if is_held else row.deletion_time_ms + undo_window_ms,
        returning=returning,
    )


class _Paths:
    """Paths by the ids of directories: of those that died with a thing, and of live ones as far as they are read."""

    def __init__(self, tables: TablesReader, bucket: BucketRow) -> None:
        self._tables = tables
        self._bucket = bucket
        self._is_tree = bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
        self._live: dict[int, tuple[int, str]] | None = None

    def of(self, parent_id: int, name: str, death: int) -> str:
        """Where something was when it died; empty when that cannot be told."""
        if not self._is_tree:
            return name
        names, seen = [name], 0
        while parent_id != self._bucket.object_id:
            above = self._deleted(parent_id, death) or self._live_directory(parent_id)
            seen += 1
            if above is None or seen > MAX_DEPTH:
                return ""
            parent_id = above[0]
            names.append(above[1])
        return "/".join(reversed(names))

    def _deleted(self, directory_id: int, death: int) -> tuple[int, str] | None:
        """A directory that died with what was in it."""
        key = garbage_key(self._bucket.volume_id, self._bucket.object_id, death, directory_id)
        row = self._tables.table(DELETED_DIRECTORY_TABLE).get(key)
        return None if row is None else (row.directory.parent_id, row.directory.name)

    def _live_directory(self, directory_id: int) -> tuple[int, str] | None:
        if self._live is None:
            self._live = {}
            start = tree_key(self._bucket.volume_id, self._bucket.object_id, 0, "")[: -len(b"0/")]
            for read, (_, row) in enumerate(self._tables.table(DIRECTORY_TABLE).scan(start, prefix_end(start))):
                if read >= MAX_DIRECTORIES:
                    break
                self._live[row.object_id] = (row.parent_id, row.name)
        return self._live.get(directory_id)
