"""Rolling a bucket back: its active namespace becomes that of a snapshot, page by page, behind a fence.

The snapshot is the newest live one of its bucket, so a version still lives in one interval: a held version is restored
by removing its death, and no snapshot lies in the gap. Versions are compared by (objectID, birth), never by name.
Versions born since the snapshot die now. Held versions that died since are restored. Objects renamed since move back to
their place in the snapshot, with the snapshot's row. Versions without bytes have no garbage row: they are restored from
the snapshot checkpoint, if their directories can be reached there.

A version is restored as what it is in the snapshot, the current version of its key or a noncurrent one, whichever it
was since.

Each page is one command and one txn. The phases run in the order of ``_PHASES``; rollbackTable has the position of the
next page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from schemas.codec import codec
from schemas.records import (
    BlockRun,
    BucketLayout,
    BucketRow,
    BucketVersioning,
    DeletedDirectoryRow,
    DeletedKeyRow,
    DirectoryRow,
    ExpandDirectory,
    KeyHead,
    KeyPartRow,
    KeyRow,
    RollbackNameRow,
    RollbackOutcome,
    RollbackPage,
    RollbackPageDone,
    RollbackRow,
)
from services.domain.errors import InvariantError
from services.domain.replication import redundancy_of, redundancy_of_all
from services.domain.space_matrix import holders
from services.domain.table_keys import (
    bucket_id_prefix,
    bucket_key,
    garbage_end,
    garbage_from,
    garbage_key,
    identity_of_garbage_key,
    key_of_version,
    key_version_key,
    key_versions_prefix,
    object_key,
    object_txn,
    rollback_key,
)
from services.metadata.collecting.expansion import child_row_removed, expand_page
from services.metadata.namespace.garbage import (
    DIRECTORY_CELL,
    RENAME_CELL,
    death_now,
    drop_parts,
    key_cell,
    move_directory_to_garbage,
    move_key_to_garbage,
    move_version_to_garbage,
)
from services.metadata.namespace.key_parts import (
    further_runs,
    is_composed,
    parts_of,
    pop_parts,
    put_parts,
    runs_of,
    stored_bytes,
)
from services.metadata.namespace.key_versions import has_versions, versions_of
from services.metadata.state.deleted_names import forget_death
from services.metadata.state.figures import live_bucket
from services.metadata.state.space import unexpanded_bounds
from services.metadata.state.tables import (
    BUCKET_TABLE,
    DELETED_DIRECTORY_TABLE,
    DELETED_TABLE,
    DIRECTORY_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    KEY_VERSION_TABLE,
    ROLLBACK_NAME_TABLE,
    ROLLBACK_TABLE,
    SNAPSHOT_RENAMED_TABLE,
    namespace_key,
    namespace_prefix,
)
from services.metadata.state.transaction import Transaction
from services.storage.store import prefix_end
from services.storage.tables import TablesReader

_KEY_HEAD = codec(KeyHead)
_KEY_ROW = codec(KeyRow)
_HERE = RollbackNameRow("")
"""Marks a directory that is at its place in the snapshot: objects below it in the checkpoint can be reached."""


def rollback_page(transaction: Transaction, command: RollbackPage) -> RollbackPageDone:
    """Apply one page. The first page sets the fence. A repeated page gets the same answer again."""
    table = transaction.work.table(ROLLBACK_TABLE)
    key = rollback_key(command.bucket_id, command.rollback_id)
    row = table.get(key)
    if row is None:
        if command.page != 1:
            return _refused(command, "this rollback was never started")
        started = _start(transaction, command)
        if isinstance(started, str):
            return _refused(command, started)
        row = started
    elif command.page != row.page + 1 or is_finished(row):
        return _done(command, row)
    row = _Page(transaction, replace(row, page=command.page), command).carry_out()
    table.put(key, row)
    return _done(command, row)


def _refused(command: RollbackPage, message: str) -> RollbackPageDone:
    return RollbackPageDone(command.rollback_id, command.page, RollbackOutcome.REFUSED, message, 0, 0)


def is_finished(row: RollbackRow) -> bool:
    """Return whether the last page of a rollback was applied."""
    return row.phase == _FINISHED


def _done(command: RollbackPage, row: RollbackRow) -> RollbackPageDone:
    outcome = RollbackOutcome.DONE if is_finished(row) else RollbackOutcome.PARTLY
    return RollbackPageDone(command.rollback_id, row.page, outcome, "", row.died, row.restored)


def _start(transaction: Transaction, command: RollbackPage) -> RollbackRow | str:
    """Set the fence and return the row of a new rollback, or return why it cannot start."""
    bucket = live_bucket(transaction.work, command.bucket_id)
    snapshot = transaction.snapshots.find(transaction.work, command.snapshot_id)
    if bucket is None:
        return "the bucket was deleted"
    if bucket.rollback_snapshot_id:
        return "another rollback of the bucket is in progress: wait for its end"
    live = transaction.snapshots.of(transaction.work, command.bucket_id).newest_live_txn
    if snapshot is None or snapshot.bucket_id != command.bucket_id or not snapshot.is_live or snapshot.txn != live:
        return "the snapshot is not the newest one of its bucket any more: drop the newer ones first"
    _set_fence(transaction, bucket, command.snapshot_id)
    return RollbackRow(command.snapshot_id, snapshot.txn, 0, 0, b"", 0, 0)


def is_rolled_back_to(transaction: Transaction, bucket_id: int, snapshot_id: str) -> bool:
    """Return whether a rollback to a snapshot is in progress."""
    bucket = live_bucket(transaction.work, bucket_id)
    return bucket is not None and bucket.rollback_snapshot_id == snapshot_id


def _set_fence(transaction: Transaction, bucket: BucketRow, snapshot_id: str) -> None:
    fenced = replace(bucket, rollback_snapshot_id=snapshot_id)
    transaction.work.table(BUCKET_TABLE).put(bucket_key(bucket.volume, bucket.bucket), fenced)


class _Page:
    """One page of a rollback: resumes where the last page ended, up to the limit of its command."""

    def __init__(self, transaction: Transaction, row: RollbackRow, command: RollbackPage) -> None:
        bucket = live_bucket(transaction.work, command.bucket_id)
        if bucket is None:
            raise InvariantError(
                f"bucket {command.bucket_id} is being rolled back but is missing; report it with the log"
            )
        self._transaction = transaction
        self._work = transaction.work
        self._bucket = bucket
        self._ids = bucket.volume_id, bucket.object_id
        self._row = row
        self._left = max(1, command.max_entries)
        self._saved = TablesReader(transaction.work.store.open_checkpoint(row.snapshot_id))
        self._has_versions = bucket.versioning is not BucketVersioning.UNVERSIONED
        self._is_tree = bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
        keys = FILE_TABLE if self._is_tree else KEY_TABLE
        self._keys, self._saved_keys = transaction.work.table(keys), self._saved.table(keys)
        self._versions = transaction.work.table(KEY_VERSION_TABLE)
        self._saved_versions = self._saved.table(KEY_VERSION_TABLE)
        self._live_txns = transaction.snapshots.of(transaction.work, bucket.object_id).live_txns
        self._moved_children: Counter[int] = Counter()
        self._died = self._restored = 0
        transaction.directories.forget(bucket.object_id)

    def carry_out(self) -> RollbackRow:
        """Run one phase after the other up to the limit. Return the row with the progress."""
        start = self._row.next_key
        numbers = [number for number, _ in _PHASES]
        for number, phase in _PHASES[numbers.index(self._row.phase) :]:
            for key in phase(self, start):
                self._left -= 1
                if self._left < 0:
                    return self._row_at(number, key)
            start = b""
        bucket = live_bucket(self._work, self._bucket.object_id)
        if bucket is not None:
            _set_fence(self._transaction, replace(bucket, rolled_back_txn=self._transaction.txn), "")
        return self._row_at(_FINISHED, b"")

    def _row_at(self, phase: int, next_key: bytes) -> RollbackRow:
        died, restored = self._row.died + self._died, self._row.restored + self._restored
        return replace(self._row, phase=phase, next_key=next_key, died=died, restored=restored)

    # Phases. Each yields the key of a row before it looks at it. The next page resumes there if this one is full.

    def expand(self, start: bytes) -> Iterator[bytes]:
        """Expand every deleted directory of the bucket, so that the root reaches each row of the namespace."""
        ids = self._bucket.volume_id, self._bucket.object_id
        table = self._work.table(DELETED_DIRECTORY_TABLE)
        while unexpanded_bounds(self._work, self._bucket.object_id)[0]:
            expanded = 0
            for key, row in table.scan(max(start, garbage_from(*ids, 0)), garbage_end(*ids)):
                yield key
                if not row.is_expanded:
                    self._expand(row)
                    expanded += 1
            if not start and not expanded:  # there is none, although the figures count some
                self._transaction.space.disagrees(self._bucket.object_id, (0, 0, 0, -1, 0, 0))
                return
            start = b""  # rows that the expansion has created may have lower keys

    def _expand(self, row: DeletedDirectoryRow) -> None:
        command = ExpandDirectory(
            self._bucket.object_id, row.directory.object_id, row.death, max(1, self._left), 1 << 62
        )
        _, moved_rows = expand_page(self._transaction, command)
        self._left -= moved_rows

    def note_names(self, start: bytes) -> Iterator[bytes]:
        """Note the place in the snapshot of each object renamed since: its first rename has it."""
        names = self._work.table(ROLLBACK_NAME_TABLE)
        for key, _, object_id, row in self._garbage(SNAPSHOT_RENAMED_TABLE, start):
            yield key
            name = object_key(self._bucket.object_id, object_id)
            if row.birth <= self._row.snapshot_txn and names.get(name) is None:
                names.put(name, RollbackNameRow(row.db_key))

    def _garbage(self, definition: Any, start: bytes) -> Iterator[tuple[bytes, int, int, Any]]:
        """Yield the rows of a garbage table that died after the snapshot: key, death, objectID, row."""
        ids = self._bucket.volume_id, self._bucket.object_id
        first = max(start, garbage_from(*ids, self._row.snapshot_txn + 1))
        for key, row in self._work.table(definition).scan(first, garbage_end(*ids)):
            _, death, object_id = identity_of_garbage_key(key)
            yield key, death, object_id, row

    def _saved_key(self, object_id: int, here: bytes) -> bytes:
        """Return the key in the snapshot of an object whose present or last key is ``here``."""
        name = self._work.table(ROLLBACK_NAME_TABLE).get(object_key(self._bucket.object_id, object_id))
        return here if name is None or not name.db_key else name.db_key.encode()

    def _namespace(self, start: bytes) -> tuple[bytes, bytes]:
        prefix = namespace_prefix(self._bucket)
        return max(start, prefix), prefix_end(prefix)

    # Phases over live rows

    def settle_keys(self, start: bytes) -> Iterator[bytes]:
        """Move keys born since the snapshot to deletedTable, and renamed keys back to their place."""
        for key, _ in self._keys.scan_encoded(*self._namespace(start)):
            yield key
            row = self._keys.get_encoded(key)  # it may have moved since the scan began
            if row is not None:
                self._settle_key(key, row)

    def _settle_key(self, key: bytes, row: bytes) -> None:
        """Move a key to deletedTable or to its place, and then the key that was at that place, and so on."""
        moving: bytes | None = row
        while moving is not None:
            head = _KEY_HEAD.decode_head(moving)
            if head.birth > self._row.snapshot_txn:
                self._drop_if_there(key, moving)
                death = death_now(self._transaction, self._bucket.object_id)
                ids = (self._bucket.volume_id, self._bucket.object_id)
                self._left -= further_runs(self._work, ids, moving)
                is_older = object_txn(head.object_id) <= self._row.snapshot_txn
                move_key_to_garbage(self._transaction, *ids, moving, death, keeps_object=is_older, is_alone=True)
                self._died += 1
                return
            if self._becomes_noncurrent(moving, head):
                self._drop_if_there(key, moving)
                return
            saved_key = self._saved_key(head.object_id, key)
            saved = self._saved_keys.get_encoded(saved_key)
            if moving == saved and saved_key == key:
                return
            saved = self._as_in_snapshot(moving, saved_key)
            self._drop_if_there(key, moving)
            moving = self._keys.get_encoded(saved_key)
            self._keys.put_encoded(saved_key, saved)
            key = saved_key

    def _as_in_snapshot(self, moving: bytes, saved_key: bytes) -> bytes:
        """Return the row that a live version has after the rollback: that of the snapshot."""
        head = _KEY_HEAD.decode_head(moving)
        saved = self._current_in_snapshot(saved_key, head.object_id, head.birth)
        if _KEY_HEAD.decode_head(saved) == head and not is_composed(moving):
            return saved
        return _KEY_ROW.encode(self._with_runs_of_snapshot(self._keys.decode(moving), self._keys.decode(saved)))

    def _with_runs_of_snapshot(self, live: KeyRow, saved: KeyRow) -> KeyRow:
        """Move the further runs of a live version to its row in the snapshot, and return this row.

        A version that has grown loses the runs of blocks that were born since. Bytes that were added to its last block
        stay in the block, behind the end of the version.
        """
        parts = pop_parts(self._work, self._ids, live)
        self._left -= len(parts)
        kept = [part for part in parts if part.birth <= self._row.snapshot_txn]
        row = self._put_parts_back(saved, live.blocks, kept)
        drop_parts(self._transaction, self._ids, live, parts[len(kept) :])
        return row

    def _put_parts_back(self, saved: KeyRow, blocks: BlockRun | None, parts: list[KeyPartRow]) -> KeyRow:
        """Write the further runs of a version of the snapshot, and return its row. The runs are as long as by now."""
        put_parts(self._work, (self._bucket.volume_id, self._bucket.object_id), saved.object_id, parts)
        row = replace(saved, blocks=blocks)
        return replace(row, is_composed=bool(parts) or stored_bytes(row, parts) != row.size_bytes)

    def _drop_if_there(self, key: bytes, row: bytes) -> None:
        """Remove a row from its key, unless another one has replaced it."""
        if self._keys.get_encoded(key) == row:
            self._keys.delete(key)

    def settle_versions(self, start: bytes) -> Iterator[bytes]:
        """Move noncurrent versions born since the snapshot to deletedTable, the others to their place there."""
        prefix = key_versions_prefix(*self._ids)
        for key, _ in self._versions.scan(max(start, prefix), prefix_end(prefix)):
            yield key
            version = self._versions.get(key)
            if version is not None:
                self._settle_version(key, version)

    def _settle_version(self, key: bytes, version: KeyRow) -> None:
        object_id, birth = key_of_version(key)
        noncurrent = self._saved_versions.get(key)
        if noncurrent is not None:
            self._versions.put(key, self._with_runs_of_snapshot(version, noncurrent))
            return
        self._versions.delete(key)
        if birth > self._row.snapshot_txn:
            owner = replace(version, object_id=object_id)
            death = death_now(self._transaction, self._bucket.object_id)
            move_version_to_garbage(self._transaction, self._ids, version, owner, death)
            self._died += 1
            return
        here = self._saved_key(object_id, namespace_key(self._bucket, version.parent_id, version.name))
        current = self._current_in_snapshot(here, object_id, birth)
        self._put_back(here, _KEY_ROW.encode(self._with_runs_of_snapshot(version, self._keys.decode(current))))
        self._transaction.figures.put(self._bucket.object_id, 0, 1)

    def _becomes_noncurrent(self, moving: bytes, head: KeyHead) -> bool:
        """Make a current version a noncurrent one if it is one in the snapshot, and return whether it is."""
        if not self._has_versions:
            return False
        key = key_version_key(*self._ids, head.object_id, head.birth)
        noncurrent = self._saved_versions.get(key)
        if noncurrent is None:
            return False
        self._versions.put(key, self._with_runs_of_snapshot(self._keys.decode(moving), noncurrent))
        self._transaction.figures.put(self._bucket.object_id, 0, -1)
        return True

    def _current_in_snapshot(self, key: bytes, object_id: int, birth: int) -> bytes:
        """Return the row of a current version of the snapshot."""
        saved = self._saved_keys.get_encoded(key)
        head = None if saved is None else _KEY_HEAD.decode_head(saved)
        if saved is None or head is None or (head.object_id, head.birth) != (object_id, birth):
            raise InvariantError(f"the checkpoint has no version {birth} of {object_id} at {key!r}; report it")
        return saved

    def settle_directories(self, start: bytes) -> Iterator[bytes]:
        """Do the same for directories. Their contents are settled on their own."""
        table = self._work.table(DIRECTORY_TABLE)
        for key, _ in table.scan(*self._namespace(start)) if self._is_tree else ():
            yield key
            row = table.get(key)
            if row is not None:
                self._settle_directory(key, row)

    def _settle_directory(self, key: bytes, row: DirectoryRow) -> None:
        table = self._work.table(DIRECTORY_TABLE)
        moving: DirectoryRow | None = row
        while moving is not None:
            if object_txn(moving.object_id) > self._row.snapshot_txn:
                if table.get(key) == moving:
                    table.delete(key)
                self._move_directory_to_garbage(moving)
                return
            saved_key = self._saved_key(moving.object_id, key)
            saved = self._saved_directory(saved_key, moving.object_id)
            if moving == saved and saved_key == key:
                return
            if table.get(key) == moving:
                table.delete(key)
            moving = table.get(saved_key)
            table.put(saved_key, saved)
            key = saved_key

    def _saved_directory(self, key: bytes, object_id: int) -> DirectoryRow:
        saved = self._saved.table(DIRECTORY_TABLE).get(key)
        if saved is None or saved.object_id != object_id:
            raise InvariantError(f"the checkpoint has no directory {object_id} at {key!r}; report it")
        return saved

    def _move_directory_to_garbage(self, row: DirectoryRow) -> None:
        """Move a directory without its contents, and count the child rows among the rows of this page."""
        bucket, transaction = self._bucket, self._transaction
        death = death_now(transaction, bucket.object_id)
        table = self._work.table(DELETED_DIRECTORY_TABLE)
        parent_key = garbage_key(bucket.volume_id, bucket.object_id, death.txn, row.parent_id)
        parent = table.get(parent_key)
        if parent is None:
            self._moved_children[row.parent_id] += 1
        else:
            table.put(parent_key, replace(parent, child_rows=parent.child_rows + 1))
        children = self._moved_children.pop(row.object_id, 0)
        move_directory_to_garbage(
            transaction, bucket.volume_id, bucket.object_id, row, death, child_rows=children, is_expanded=True
        )
        self._died += 1

    # Phases over garbage rows

    def restore_keys(self, start: bytes) -> Iterator[bytes]:
        """Restore the versions that the snapshot holds and that died since."""
        bucket, deleted = self._bucket, self._work.table(DELETED_TABLE)
        for key, death, object_id, row in self._garbage(DELETED_TABLE, start):
            yield key
            birth = row.key.birth
            if birth > self._row.snapshot_txn or row.part_of:
                continue
            deleted.delete(key)
            forget_death(self._work, bucket.object_id, row.key, death)
            self._discount(row.key, death)
            if row.version_of:
                self._transaction.figures.restore_version(bucket.object_id)
            whole_id = row.version_of or object_id
            version_key = key_version_key(*self._ids, whole_id, birth)
            noncurrent = self._saved_versions.get_encoded(version_key) if self._has_versions else None
            if noncurrent is not None:
                self._versions.put_encoded(version_key, self._as_restored(noncurrent, row))
                self._transaction.figures.put(bucket.object_id, 0, -1)
                self._restored += 1
                continue
            here = self._saved_key(whole_id, namespace_key(bucket, row.key.parent_id, row.key.name))
            self._put_back(here, self._as_restored(self._current_in_snapshot(here, whole_id, birth), row))

    def _as_restored(self, saved: bytes, row: DeletedKeyRow) -> bytes:
        """Count a version that is restored from its garbage rows, and return its row."""
        head = _KEY_HEAD.decode_head(saved)
        if head.blocks != row.key.blocks or is_composed(saved):
            return self._restore_parts(self._keys.decode(saved), row)
        self._transaction.figures.restore(self._bucket.object_id, head.size_bytes)
        self._restore_redundancy([head.blocks])
        return saved

    def _restore_redundancy(self, runs: Iterable[BlockRun | None]) -> None:
        if redundancy := redundancy_of_all(runs):
            self._transaction.figures.add_redundancy(self._bucket.object_id, redundancy, -redundancy)

    def _discount(self, dead: KeyRow, death: int) -> None:
        """Subtract a garbage row from the space matrix."""
        held_by = holders(dead.birth, death, self._live_txns)
        counted = key_cell(dead.size_bytes, 1, redundancy_of(dead.blocks))
        self._transaction.space.subtract(self._bucket.object_id, held_by, counted)

    def _restore_parts(self, saved: KeyRow, first: DeletedKeyRow) -> bytes:
        """Restore the further runs of a version that the snapshot has. Return the version's row.

        Runs that were born since the snapshot stay in deletedTable.
        """
        bucket, deleted = self._bucket, self._work.table(DELETED_TABLE)
        ids = bucket.volume_id, bucket.object_id
        parts = []
        for part in parts_of(self._saved, ids, saved):
            key = garbage_key(*ids, first.death, part.object_id)
            dead = deleted.get(key)
            if dead is None or dead.key.blocks is None:
                raise InvariantError(
                    f"the run {part} of a version that the snapshot holds has no garbage row; report it"
                )
            deleted.delete(key)
            self._discount(dead.key, first.death)
            parts.append(replace(part, blocks=dead.key.blocks))
            self._left -= 1
        row = self._put_parts_back(saved, first.key.blocks, parts)
        stored = stored_bytes(row, parts)
        self._transaction.figures.restore(bucket.object_id, stored, rows=1 + len(parts))
        self._restore_redundancy(runs_of(row, parts))
        return _KEY_ROW.encode(row)

    def _put_back(self, key: bytes, saved: bytes) -> None:
        if self._keys.get_encoded(key) is not None:
            raise InvariantError(f"two versions of the snapshot are at {key!r}; report it with the log")
        self._keys.put_encoded(key, saved)
        self._restored += 1

    def restore_directories(self, start: bytes) -> Iterator[bytes]:
        """Restore the directories that died since."""
        bucket, deleted = self._bucket, self._work.table(DELETED_DIRECTORY_TABLE)
        for key, death, object_id, row in self._garbage(DELETED_DIRECTORY_TABLE, start):
            yield key
            birth = object_txn(object_id)
            if birth > self._row.snapshot_txn:
                continue
            directory = row.directory
            here = self._saved_key(object_id, namespace_key(bucket, directory.parent_id, directory.name))
            saved = self._saved_directory(here, object_id)
            deleted.delete(key)
            forget_death(self._work, bucket.object_id, directory, death)
            child_row_removed(self._work, garbage_key(bucket.volume_id, bucket.object_id, death, directory.parent_id))
            self._work.table(DIRECTORY_TABLE).put(here, saved)
            self._restored += 1
            self._transaction.space.subtract(bucket.object_id, holders(birth, death, self._live_txns), DIRECTORY_CELL)
            self._transaction.figures.restore(bucket.object_id, 0)

    def note_directories(self, start: bytes) -> Iterator[bytes]:
        """Note the ids of the directories, which are now those of the snapshot."""
        names = self._work.table(ROLLBACK_NAME_TABLE)
        for key, row in self._work.table(DIRECTORY_TABLE).scan(*self._namespace(start)) if self._is_tree else ():
            yield key
            names.put(object_key(self._bucket.object_id, row.object_id), _HERE)

    def restore_empty_keys(self, start: bytes) -> Iterator[bytes]:
        """Restore versions without bytes, which only the checkpoint still has."""
        for key, saved in self._saved_keys.scan_encoded(*self._namespace(start)):
            yield key
            if has_versions(saved) and self._is_reachable(saved):
                self._restore_empty_versions(self._keys.decode(saved))
            is_empty = _KEY_HEAD.decode_head(saved).blocks is None
            if is_empty and self._is_reachable(saved) and self._keys.get_encoded(key) is None:
                self._put_back(key, saved)
                self._transaction.figures.put(self._bucket.object_id, 0, 1)

    def _restore_empty_versions(self, key: KeyRow) -> None:
        for version in versions_of(self._saved, self._ids, key):
            version_key = key_version_key(*self._ids, key.object_id, version.birth)
            if version.blocks is None and self._versions.get_encoded(version_key) is None:
                self._versions.put(version_key, version)
                self._restored += 1

    def _is_reachable(self, saved: bytes) -> bool:
        """Return whether a key of the checkpoint can be reached from the root there."""
        parent_id = self._keys.decode(saved).parent_id
        if not self._is_tree or parent_id == self._bucket.object_id:
            return True
        names = self._work.table(ROLLBACK_NAME_TABLE)
        return names.get(object_key(self._bucket.object_id, parent_id)) == _HERE

    # Phases that clean up

    def forget_renames(self, start: bytes) -> Iterator[bytes]:
        """Remove the rename rows whose renames were undone."""
        table = self._work.table(SNAPSHOT_RENAMED_TABLE)
        for key, death, _, row in self._garbage(SNAPSHOT_RENAMED_TABLE, start):
            yield key
            if row.birth <= self._row.snapshot_txn:
                table.delete(key)
                self._transaction.space.subtract(
                    self._bucket.object_id, holders(row.birth, death, self._live_txns), RENAME_CELL
                )

    def forget_names(self, start: bytes) -> Iterator[bytes]:
        """Remove the notes of this rollback."""
        prefix = bucket_id_prefix(self._bucket.object_id)
        table = self._work.table(ROLLBACK_NAME_TABLE)
        for key, _ in table.scan(max(start, prefix), prefix_end(prefix)):
            yield key
            table.delete(key)


_FINISHED = 10
"""The phase of a rollback whose last page was applied."""
_PHASES: tuple[tuple[int, Callable[[_Page, bytes], Iterator[bytes]]], ...] = (
    (0, _Page.expand),
    (1, _Page.note_names),
    (2, _Page.settle_keys),
    (11, _Page.settle_versions),
    (3, _Page.settle_directories),
    (4, _Page.restore_keys),
    (5, _Page.restore_directories),
    (6, _Page.note_directories),
    (7, _Page.restore_empty_keys),
    (8, _Page.forget_renames),
    (9, _Page.forget_names),
)
"""The phases in their order. Each has a number of its own, since rollbackTable keeps it."""
