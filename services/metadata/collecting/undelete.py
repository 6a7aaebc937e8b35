"""Undeletes keys and directories: a row moves back from its garbage table, unless a claim came first.

The shard's log decides between a claim and an undelete: the first one finds the row, and the other one finds it
missing. A deleted directory can be undeleted as a whole as long as nothing below it has moved to the garbage tables.
Afterwards its files can be undeleted one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schemas.error_codes import ErrorCode
from schemas.records import (
    BucketLayout,
    BucketRow,
    Committed,
    DeletedKeyRow,
    DeletedKind,
    KeyPartRow,
    KeyRow,
    Undelete,
)
from services.domain.coming_back import Return, is_itself_as_version, return_of_directory, return_of_key
from services.domain.errors import InvariantError
from services.domain.names import check_key_path
from services.domain.reclaimability import Txn
from services.domain.refusals import CommandError
from services.domain.replication import redundancy_of
from services.domain.space_matrix import holders
from services.domain.table_keys import garbage_key, key_version_key, object_txn
from services.metadata.collecting.shadow import discount_version
from services.metadata.namespace import tree
from services.metadata.namespace.buckets import find_bucket
from services.metadata.namespace.garbage import DIRECTORY_CELL, key_cell, note_rename
from services.metadata.namespace.inheritance import directory_created, key_created
from services.metadata.namespace.key_parts import put_parts
from services.metadata.namespace.key_versions import check_version_rows, keep_version
from services.metadata.namespace.tree import Place
from services.metadata.namespace.writing import find_place
from services.metadata.state.deleted_names import forget_death
from services.metadata.state.tables import (
    DELETED_DIRECTORY_TABLE,
    DELETED_TABLE,
    DIRECTORY_TABLE,
    KEY_TABLE,
    KEY_VERSION_TABLE,
    namespace_key,
)
from services.metadata.state.transaction import Transaction


def undelete(transaction: Transaction, command: Undelete) -> Committed:
    """Undelete a version or a whole directory.

    Raises:
        CommandError: TOO_LATE when the row is claimed or missing, KEY_ALREADY_EXISTS or FILE_ALREADY_EXISTS when the
            path is in use, DIRECTORY_EXPANDED when only its files can be undeleted, SNAPSHOT_IN_BETWEEN and
            HELD_BY_SNAPSHOT when only a copy can be made.
    """
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    check_key_path(command.path, is_tree=bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED)
    if command.kind is DeletedKind.KEY:
        return _undelete_key(transaction, bucket, command)
    if command.kind is DeletedKind.DIRECTORY:
        return _undelete_directory(transaction, bucket, command)
    raise CommandError(ErrorCode.INVALID_REQUEST, "a rename cannot be undeleted; name a key or a directory")


def _too_late(command: Undelete) -> CommandError:
    return CommandError(
        ErrorCode.TOO_LATE,
        f"{command.path}, deleted at txn {command.death}, is claimed or missing and cannot be undeleted; list the rest "
        f"(deepclean deleted list), or copy it from a snapshot that holds it (deepclean restore)",
    )


def _undelete_key(transaction: Transaction, bucket: BucketRow, command: Undelete) -> Committed:
    table = transaction.work.table(DELETED_TABLE)
    row = table.get(garbage_key(bucket.volume_id, bucket.object_id, command.death, command.object_id))
    if row is None or row.key.birth != command.birth:
        raise _too_late(command)
    if row.part_of:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"{command.object_id} names blocks of {command.path} alone: name the key's objectID",
        )
    parts = _rows_of_parts(transaction, bucket, row)
    if parts is None:
        raise _too_late(command)
    if row.version_of and _undelete_version(transaction, bucket, command.path, row, parts):
        return Committed(row.key.object_id, row.key.blocks)
    version, live = row.key, transaction.snapshots.of(transaction.work, bucket.object_id).live_txns
    outcome = return_of_key(row, bucket.rolled_back_txn, live)
    if outcome not in (Return.ITSELF, Return.NEW_OBJECT):
        raise _only_a_copy(command, outcome)
    place = _place_for_key(transaction, bucket, command.path)
    is_moved = (place.parent_id, place.name) != (version.parent_id, version.name)
    if outcome is Return.NEW_OBJECT:
        back = replace(version, object_id=transaction.new_object_id(), birth=transaction.txn, rename_txn=0)
    elif is_moved:
        old_key = namespace_key(bucket, version.parent_id, version.name)
        note_rename(transaction, bucket, version.object_id, version.rename_txn, old_key)
        back = replace(version, rename_txn=transaction.txn)
    else:
        back = version
    back = replace(back, parent_id=place.parent_id, name=place.name, update_id=transaction.txn)
    if parts or row.unread_bytes:
        back = _restore_parts(transaction, bucket, row, back, parts)
    else:
        _restore_whole(transaction, bucket.object_id, version)
    _leave_garbage(transaction, bucket, row, live)
    transaction.work.table(place.table).put(place.db_key, back)
    key_created(transaction, bucket, back.object_id, place.parent_id, command.path)
    transaction.figures.put(bucket.object_id, 0, place.made_directories)
    return Committed(back.object_id, back.blocks)


def _undelete_version(
    transaction: Transaction, bucket: BucketRow, path: str, row: DeletedKeyRow, parts: Sequence[DeletedKeyRow]
) -> bool:
    """Restore a noncurrent version to its key, if that is live at the path; return whether it is.

    A version that is newer than the current one becomes the current one.
    """
    work, ids = transaction.work, (bucket.volume_id, bucket.object_id)
    place = find_place(transaction, bucket, path)
    key = None if place is None else work.table(place.table).get(place.db_key)
    if place is None or key is None or key.object_id != row.version_of:
        return False
    snapshots = transaction.snapshots.of(work, ids[1])
    if not is_itself_as_version(row, snapshots.live_txns):
        raise CommandError(
            ErrorCode.SNAPSHOT_IN_BETWEEN,
            f"a snapshot was captured since the version {row.key.birth} of {path} was deleted: name a free path "
            f"(--to), or copy it from a snapshot that holds it (deepclean restore)",
        )
    version, back = row.key, row.key
    if version.birth > key.birth:
        rows = keep_version(transaction, ids, key)
        back = replace(version, object_id=key.object_id, parent_id=key.parent_id, name=key.name)
        back = replace(back, rename_txn=key.rename_txn, update_id=transaction.txn, version_rows=rows)
        table, row_key = work.table(place.table), place.db_key
    else:
        counted = replace(key, version_rows=check_version_rows(key, len(parts)))
        work.table(place.table).put(place.db_key, counted)
        transaction.figures.put(ids[1], 0, -1)
        back = replace(version, parent_id=key.parent_id, name=key.name)
        table, row_key = work.table(KEY_VERSION_TABLE), key_version_key(*ids, key.object_id, version.birth)
    if parts or row.unread_bytes:
        back = _restore_parts(transaction, bucket, row, back, parts)
    else:
        _restore_whole(transaction, ids[1], version)
    table.put(row_key, back)
    _leave_garbage(transaction, bucket, row, snapshots.live_txns)
    return True


def _restore_whole(transaction: Transaction, bucket_id: int, version: KeyRow) -> None:
    """Count a version that is restored with all of its bytes, which are in one run of blocks."""
    transaction.figures.restore(bucket_id, version.size_bytes)
    if redundancy := redundancy_of(version.blocks):
        transaction.figures.add_redundancy(bucket_id, redundancy, -redundancy)


def _leave_garbage(transaction: Transaction, bucket: BucketRow, row: DeletedKeyRow, live: Sequence[Txn]) -> None:
    """Remove the garbage row of a version that was restored, and what is counted and noted for it."""
    version, ids = row.key, (bucket.volume_id, bucket.object_id)
    transaction.work.table(DELETED_TABLE).delete(garbage_key(*ids, row.death, version.object_id))
    forget_death(transaction.work, ids[1], version, row.death)
    if row.version_of:
        transaction.figures.restore_version(ids[1])
    discount_version(transaction, ids[1], row)
    counted = key_cell(version.size_bytes, 1, redundancy_of(version.blocks))
    transaction.space.subtract(ids[1], holders(version.birth, row.death, live), counted)


def _rows_of_parts(transaction: Transaction, bucket: BucketRow, first: DeletedKeyRow) -> list[DeletedKeyRow] | None:
    """Return the garbage rows of a version's further runs; None when one of them is claimed or missing."""
    table, ids = transaction.work.table(DELETED_TABLE), (bucket.volume_id, bucket.object_id)
    found = [table.get(garbage_key(*ids, first.death, object_id)) for object_id in first.part_ids]
    rows = [row for row in found if row is not None]
    return rows if len(rows) == len(found) else None


def _restore_parts(
    transaction: Transaction, bucket: BucketRow, first: DeletedKeyRow, back: KeyRow, rows: Sequence[DeletedKeyRow]
) -> KeyRow:
    """Restore the further runs of a version whose row will be ``back``. Return this row with its whole size."""
    ids = bucket.volume_id, bucket.object_id
    live = transaction.snapshots.of(transaction.work, ids[1]).live_txns
    parts, size_bytes, redundancy = list[KeyPartRow](), first.key.size_bytes, redundancy_of(first.key.blocks)
    for row in rows:
        run = row.key
        if run.blocks is None:
            raise InvariantError(f"the run {run.object_id} of a deleted version has no blocks; report it with the log")
        birth = transaction.txn if back.birth == transaction.txn else run.birth
        parts.append(KeyPartRow(run.object_id, birth, run.blocks))
        size_bytes += run.size_bytes
        redundancy += redundancy_of(run.blocks)
        transaction.work.table(DELETED_TABLE).delete(garbage_key(*ids, row.death, run.object_id))
        discount_version(transaction, ids[1], row)
        counted = key_cell(run.size_bytes, 1, redundancy_of(run.blocks))
        transaction.space.subtract(ids[1], holders(run.birth, row.death, live), counted)
    put_parts(transaction.work, ids, back.object_id, parts)
    transaction.figures.restore(ids[1], size_bytes, rows=1 + len(parts))
    if redundancy:
        transaction.figures.add_redundancy(ids[1], redundancy, -redundancy)
    return replace(back, size_bytes=size_bytes - first.unread_bytes, is_composed=True)


def _only_a_copy(command: Undelete, outcome: Return) -> CommandError:
    if outcome is Return.SNAPSHOT_IN_BETWEEN:
        code, reason = ErrorCode.SNAPSHOT_IN_BETWEEN, "another snapshot was created after its deletion"
    else:
        code, reason = ErrorCode.HELD_BY_SNAPSHOT, "its object may be live as another version"
    return CommandError(
        code, f"a snapshot holds {command.path}, and {reason}: copy it from the snapshot (deepclean restore)"
    )


def _place_for_key(transaction: Transaction, bucket: BucketRow, path: str) -> Place[KeyRow]:
    """Return the place for a key, whose path must be free."""
    if bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED:
        place, code = tree.place_for_file(transaction, bucket, path), ErrorCode.FILE_ALREADY_EXISTS
    else:
        place = Place(KEY_TABLE, namespace_key(bucket, 0, path), 0, path)
        code = ErrorCode.KEY_ALREADY_EXISTS
    if transaction.work.table(place.table).get_encoded(place.db_key) is not None:
        raise CommandError(code, f"there is a {path} already: name another path (--to)")
    return place


def _undelete_directory(transaction: Transaction, bucket: BucketRow, command: Undelete) -> Committed:
    """Move one row back, which makes everything below reachable again: nothing below has moved yet."""
    work, ids = transaction.work, (bucket.volume_id, bucket.object_id)
    table = work.table(DELETED_DIRECTORY_TABLE)
    row_key = garbage_key(*ids, command.death, command.object_id)
    row = table.get(row_key)
    if row is None or object_txn(command.object_id) != command.birth:
        raise _too_late(command)
    directory = row.directory
    live = transaction.snapshots.of(work, bucket.object_id).live_txns
    parent = table.get(garbage_key(*ids, row.death, directory.parent_id))
    outcome = return_of_directory(row, live, has_parent_in_garbage=parent is not None)
    if outcome is Return.EXPANDED:
        raise CommandError(
            ErrorCode.DIRECTORY_EXPANDED,
            f"the contents of {command.path} are being freed, so it cannot be undeleted as a whole: "
            f"undelete its files one by one (deepclean undelete --files)",
        )
    if outcome is not Return.ITSELF:
        raise CommandError(
            ErrorCode.SNAPSHOT_IN_BETWEEN,
            f"a snapshot was captured since {command.path} was deleted, so it cannot be undeleted as a whole: "
            f"undelete its files one by one once they are listed (deepclean undelete --files)",
        )
    place = tree.place_for_directory(transaction, bucket, command.path)
    rename_txn = directory.rename_txn
    if (place.parent_id, place.name) != (directory.parent_id, directory.name):
        old_key = tree.row_key(bucket, directory.parent_id, directory.name)
        note_rename(transaction, bucket, directory.object_id, rename_txn, old_key)
        rename_txn = transaction.txn
    back = replace(
        directory, parent_id=place.parent_id, name=place.name, update_id=transaction.txn, rename_txn=rename_txn
    )
    table.delete(row_key)
    forget_death(work, bucket.object_id, directory, row.death)
    work.table(DIRECTORY_TABLE).put(place.db_key, back)
    directory_created(transaction, bucket, back.object_id, place.parent_id)
    transaction.space.subtract(bucket.object_id, holders(command.birth, row.death, live), DIRECTORY_CELL)
    transaction.space.unexpanded_changed(work, bucket.object_id, row.death, -1)
    transaction.figures.restore(bucket.object_id, 0)
    transaction.figures.put(bucket.object_id, 0, place.made_directories)
    return Committed(back.object_id)
