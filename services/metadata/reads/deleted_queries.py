"""Lists the deleted versions and directories of a bucket that can still be undeleted, in the order of death.

A row can be undeleted as long as it is not claimed. The undo window tells when claims may begin; metadata's settings
repeat the window for this listing and for a metric.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from heapq import merge
from itertools import islice

from schemas.answers import ListedDeletion, Returning
from schemas.records import (
    BucketLayout,
    BucketRow,
    DeletedDirectoryRow,
    DeletedKeyRow,
    DeletedKind,
    DirectoryRow,
    KeyRow,
)
from services.domain.coming_back import Return, is_itself_as_version, return_of_directory, return_of_key
from services.domain.refusals import CommandError
from services.domain.space_matrix import NOBODY, holders
from services.domain.table_keys import (
    garbage_end,
    garbage_from,
    garbage_key,
    object_txn,
    tree_key,
)
from services.metadata.reads.queries import live_snapshots, stat
from services.metadata.reads.whole_versions import is_claimed_in_part, size_of_whole
from services.metadata.state.tables import DELETED_DIRECTORY_TABLE, DELETED_TABLE, DIRECTORY_TABLE
from services.runtime.http.reads import ReadError
from services.storage.store import prefix_end
from services.storage.tables import TablesReader

MAX_DIRECTORIES = 100_000
"""Maximum live directories that one page reads to build paths, 10 µs each. In a larger tree some paths are empty."""
MAX_DEPTH = 200
"""Maximum directories above an entry that are looked up, some µs each. The path of a deeper entry is empty."""

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
    """Return a page of deleted, unclaimed versions and directories, oldest death first, after ``<death>:<objectID>``.

    Raises:
        ReadError: INVALID_REQUEST, ``start_after`` is malformed.
    """
    live = tuple(snapshot.txn for snapshot in live_snapshots(tables, bucket.object_id))
    paths = _Paths(tables, bucket)
    rows = islice(_rows(tables, bucket, start_after), limit)
    return [_entry(tables, bucket, row, live, paths, undo_window_ms) for row in rows]


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
        if isinstance(row, DeletedDirectoryRow) or _can_come_back(tables, bucket, row):
            yield row


def _can_come_back(tables: TablesReader, bucket: BucketRow, row: DeletedKeyRow) -> bool:
    """Return whether a row stands for a whole version of which nothing is claimed."""
    return not row.part_of and not is_claimed_in_part(tables, bucket, row)


def _entry(
    tables: TablesReader, bucket: BucketRow, row: _Row, live: tuple[int, ...], paths: _Paths, undo_window_ms: int
) -> ListedDeletion:
    dead: KeyRow | DirectoryRow = row.key if isinstance(row, DeletedKeyRow) else row.directory
    path = paths.of(dead.parent_id, dead.name, row.death)
    if isinstance(row, DeletedKeyRow):
        kind, birth, tag = DeletedKind.KEY, row.key.birth, row.key.tag
        size_bytes = size_of_whole(tables, bucket, row)
        returning = _RETURNING[return_of_key(row, bucket.rolled_back_txn, live)]
        if row.version_of and is_itself_as_version(row, live) and _is_live(tables, bucket, path, row.version_of):
            returning = Returning.ITSELF
    else:
        kind, size_bytes, tag = DeletedKind.DIRECTORY, 0, ""
        birth = object_txn(dead.object_id)
        above = garbage_key(bucket.volume_id, bucket.object_id, row.death, dead.parent_id)
        parent = tables.table(DELETED_DIRECTORY_TABLE).get(above)
        outcome = return_of_directory(row, live, has_parent_in_garbage=parent is not None)
        returning = Returning.ITSELF if outcome is Return.ITSELF else Returning.ONLY_ITS_FILES
    is_held = holders(birth, row.death, live) != NOBODY
    return ListedDeletion(
        kind=kind,
        path=path,
        name=dead.name,
        object_id=dead.object_id,
        birth=birth,
        death=row.death,
        size_bytes=size_bytes,
        tag=tag,
        deletion_time_ms=row.deletion_time_ms,
        is_held=is_held,
        until_ms=-1 if is_held else row.deletion_time_ms + undo_window_ms,
        returning=returning,
        version_of=row.version_of if isinstance(row, DeletedKeyRow) else 0,
    )


def _is_live(tables: TablesReader, bucket: BucketRow, path: str, object_id: int) -> bool:
    """Return whether the key of a noncurrent version is live at a path."""
    try:
        return bool(path) and stat(tables, bucket, path).object_id == object_id
    except CommandError:
        return False


class _Paths:
    """Builds paths from directories that died with an entry, and from live ones, at most ``MAX_DIRECTORIES``."""

    def __init__(self, tables: TablesReader, bucket: BucketRow) -> None:
        self._tables = tables
        self._bucket = bucket
        self._is_tree = bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
        self._live: dict[int, tuple[int, str]] | None = None

    def of(self, parent_id: int, name: str, death: int) -> str:
        """Return the path of an entry at its death; empty if it is unknown."""
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
        """Return parent and name of a directory that died at this txn, or None."""
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
