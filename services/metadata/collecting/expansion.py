"""Expanding a deleted directory, page by page, and removing its own row once it is empty.

A child dies with its directory: it gets the directory's death, however late the expansion.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from operator import sub

from schemas.records import (
    BucketIdentity,
    DeletedDirectoryRow,
    DirectoriesRemoved,
    DirectoryExpanded,
    DirectoryRemoval,
    ExpandDirectory,
    ExpansionOutcome,
    RemovalOutcome,
    RemoveDirectories,
    RowName,
)
from services.domain.reclaimability import is_reclaimable_after
from services.domain.space_matrix import holders
from services.domain.table_keys import bucket_id_key, garbage_key, object_txn, tree_key
from services.metadata.collecting.breaker import expanding
from services.metadata.collecting.collection_commands import is_suspended
from services.metadata.namespace.garbage import DIRECTORY_CELL, Death, move_directory_to_garbage, move_keys_to_garbage
from services.metadata.namespace.key_versions import further_rows
from services.metadata.state.deleted_names import forget_death
from services.metadata.state.tables import BUCKET_ID_TABLE, DELETED_DIRECTORY_TABLE, DIRECTORY_TABLE, FILE_TABLE
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Work
from services.storage.store import prefix_end

_ROW_OVERHEAD_BYTES = 120
"""Maximum bytes of a row's numbers, without its key and texts."""


class _Page:
    """One page of an expansion: breadth first, from one row down, within the limits of its command."""

    def __init__(self, transaction: Transaction, identity: BucketIdentity, command: ExpandDirectory) -> None:
        self._transaction = transaction
        self._identity = identity
        self._max_entries = self._left_entries = command.max_entries
        self._left_bytes = command.max_bytes
        self.directories = 0
        self.files = 0

    @property
    def moved_rows(self) -> int:
        """The rows of garbage tables that the page has made: of a file one for each run of blocks."""
        return self._max_entries - self._left_entries

    @property
    def _is_full(self) -> bool:
        return self._left_entries <= 0 or self._left_bytes <= 0

    def expand_tree(self, row: DeletedDirectoryRow) -> bool:
        """Expand a row and, within the page, the directories below. Return whether the row itself is fully expanded."""
        is_expanded = True
        waiting = deque([row])
        while waiting:
            front = waiting.popleft()
            made, is_done = self._expand(front)
            waiting.extend(made)
            if front is row:
                is_expanded = is_done
            if self._is_full:
                break
        return is_expanded

    def _expand(self, row: DeletedDirectoryRow) -> tuple[list[DeletedDirectoryRow], bool]:
        """Move children of one row. Return the rows of moved directories, and whether no child is left."""
        work = self._transaction.work
        death = Death(row.death, row.snapshots_before_death)
        made = []
        is_done = True
        ids = (self._identity.volume_id, self._identity.bucket_id)
        prefix = tree_key(*ids, row.directory.object_id, "")
        end = prefix_end(prefix)
        # A scan from the first child would make RocksDB step over all rows moved by earlier pages.
        next_directory = next_file = end
        for key, child in work.table(DIRECTORY_TABLE).scan(row.next_directory.encode() or prefix, end):
            if not self._add(len(key) + len(child.name)):
                is_done, next_directory = False, key
                break
            work.table(DIRECTORY_TABLE).delete(key)
            made.append(move_directory_to_garbage(self._transaction, *ids, child, death))
            self.directories += 1
        files = []
        for key, file in work.table(FILE_TABLE).scan_encoded(row.next_file.encode() or prefix, end):
            if not self._add(len(key) + len(file)):
                is_done, next_file = False, key
                break
            work.table(FILE_TABLE).delete(key)
            files.append(file)
            self._left_entries -= further_rows(work, ids, file)
        move_keys_to_garbage(self._transaction, *ids, files, death)
        self.files += len(files)
        if not is_done:
            row = replace(row, next_directory=next_directory.decode(), next_file=next_file.decode())
        self._save(row, len(made), is_expanded=is_done)
        return made, is_done

    def _add(self, size_bytes: int) -> bool:
        """Count one more child, whose numbers ``size_bytes`` excludes. Return False if the page is full."""
        if self._is_full:
            return False
        self._left_entries -= 1
        self._left_bytes -= size_bytes + _ROW_OVERHEAD_BYTES
        return True

    def _save(self, row: DeletedDirectoryRow, made: int, *, is_expanded: bool) -> None:
        ids = (self._identity.volume_id, self._identity.bucket_id)
        key = garbage_key(*ids, row.death, row.directory.object_id)
        saved = replace(row, is_expanded=is_expanded, child_rows=row.child_rows + made, is_expansion_begun=True)
        self._transaction.work.table(DELETED_DIRECTORY_TABLE).put(key, saved)
        if is_expanded:
            self._transaction.space.unexpanded_changed(self._transaction.work, self._identity.bucket_id, row.death, -1)


def expand_directory(transaction: Transaction, command: ExpandDirectory) -> DirectoryExpanded:
    """Move one page of a deleted directory's children to the garbage tables."""
    return expand_page(transaction, command)[0]


def expand_page(transaction: Transaction, command: ExpandDirectory) -> tuple[DirectoryExpanded, int]:
    """Move one page, as ``expand_directory`` does. Return the answer, and the number of rows in garbage tables."""
    work = transaction.work
    named = (command.bucket_id, command.object_id, command.death)
    identity = work.table(BUCKET_ID_TABLE).get(bucket_id_key(command.bucket_id))
    row = None
    if identity is not None:
        key = garbage_key(identity.volume_id, command.bucket_id, command.death, command.object_id)
        row = work.table(DELETED_DIRECTORY_TABLE).get(key)
    if identity is None or row is None:
        return DirectoryExpanded(*named, ExpansionOutcome.MISSING, 0, 0), 0
    if row.is_expanded:
        return DirectoryExpanded(*named, ExpansionOutcome.EXPANDED, 0, 0), 0
    live_before = transaction.figures.moved_live()
    page = _Page(transaction, identity, command)
    with expanding(transaction, command.bucket_id, row.death):
        outcome = ExpansionOutcome.EXPANDED if page.expand_tree(row) else ExpansionOutcome.PARTLY
    _correct_references(transaction, command.bucket_id, row.death, live_before)
    return DirectoryExpanded(*named, outcome, page.directories, page.files), page.moved_rows


def _correct_references(
    transaction: Transaction, bucket_id: int, death: int, live_before: tuple[int, int, int]
) -> None:
    """Subtract the moved versions from the snapshots captured since the death, which never listed them."""
    moved_bytes, moved_names, redundancy = map(sub, transaction.figures.moved_live(), live_before)
    corrected = [
        replace(
            snapshot,
            referenced_bytes=snapshot.referenced_bytes - moved_bytes,
            referenced_namespace=snapshot.referenced_namespace - moved_names,
            referenced_redundancy_bytes=snapshot.referenced_redundancy_bytes - redundancy,
        )
        for snapshot in transaction.snapshots.of(transaction.work, bucket_id).live_from(death)
    ]
    transaction.snapshots.update(transaction.work, bucket_id, corrected)
    for row in corrected:
        transaction.space.size_changed(row)


def remove_directories(transaction: Transaction, command: RemoveDirectories) -> DirectoriesRemoved:
    """Remove the rows of expanded, childless directories that no snapshot holds. Every row gets an answer."""
    removals = tuple([remove_directory_row(transaction, name) for name in command.rows])
    transaction.counters.refused_rows += sum(one.outcome is RemovalOutcome.HELD for one in removals)
    return DirectoriesRemoved(removals)


def key_of_row(transaction: Transaction, name: RowName) -> bytes:
    """Return the key of a row in its garbage table; for a bucket that never existed an empty key, which has no row."""
    identity = transaction.work.table(BUCKET_ID_TABLE).get(bucket_id_key(name.bucket_id))
    return b"" if identity is None else garbage_key(identity.volume_id, name.bucket_id, name.death, name.object_id)


def remove_directory_row(transaction: Transaction, name: RowName) -> DirectoryRemoval:
    """Remove the row of one directory if it is expanded, has no child row left and no snapshot holds it."""
    work = transaction.work
    table, key = work.table(DELETED_DIRECTORY_TABLE), key_of_row(transaction, name)
    row = table.get(key)
    if row is None:
        return _removal(name, 0, RemovalOutcome.MISSING)
    parent_id = row.directory.parent_id
    if not row.is_expanded:
        return _removal(name, parent_id, RemovalOutcome.UNEXPANDED)
    if row.child_rows:
        return _removal(name, parent_id, RemovalOutcome.HAS_CHILDREN)
    birth = object_txn(row.directory.object_id)
    snapshots = transaction.snapshots.of(work, name.bucket_id)
    if not is_reclaimable_after(birth, snapshots.previous(row.death)):
        return _removal(name, parent_id, RemovalOutcome.HELD)
    if is_suspended(transaction, name.bucket_id):
        return _removal(name, parent_id, RemovalOutcome.SUSPENDED)
    table.delete(key)
    forget_death(work, name.bucket_id, row.directory, row.death)
    transaction.space.subtract(name.bucket_id, holders(birth, row.death, snapshots.live_txns), DIRECTORY_CELL)
    transaction.figures.remove_directory(name.bucket_id)
    child_row_removed(work, key_of_row(transaction, replace(name, object_id=parent_id)))
    return _removal(name, parent_id, RemovalOutcome.REMOVED)


def child_row_removed(work: Work, parent_key: bytes) -> None:
    """Subtract a removed row from its parent's ``child_rows``, if the parent died with it."""
    table = work.table(DELETED_DIRECTORY_TABLE)
    parent = table.get(parent_key)
    if parent is not None:
        table.put(parent_key, replace(parent, child_rows=parent.child_rows - 1))


def _removal(name: RowName, parent_id: int, outcome: RemovalOutcome) -> DirectoryRemoval:
    return DirectoryRemoval(name.bucket_id, name.object_id, name.death, parent_id, outcome)
