"""Files and directories of a tree (layout FILE_SYSTEM_OPTIMIZED). Rows are found by parent id and name; a move changes
one row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from schemas.error_codes import ErrorCode
from schemas.records import (
    BucketLayout,
    BucketRow,
    Committed,
    DeleteDirectory,
    DirectoryRow,
    KeyRow,
    MakeDirectory,
    RenameDirectory,
)
from services.domain.names import check_key_path
from services.domain.refusals import CommandError
from services.domain.table_keys import tree_key
from services.metadata.namespace.buckets import find_bucket
from services.metadata.namespace.garbage import death_now, move_directory_to_garbage, move_key_to_garbage, note_rename
from services.metadata.namespace.inheritance import directory_created
from services.metadata.namespace.key_versions import rename_versions
from services.metadata.namespace.quotas import check_room
from services.metadata.state.tables import DIRECTORY_TABLE, FILE_TABLE
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Work
from services.storage.store import prefix_end
from services.storage.tables import TableDefinition

V = TypeVar("V")


class Place(NamedTuple, Generic[V]):
    """The table and key of a row, its parent and name, and the number of directories created for it."""

    table: TableDefinition[V]
    db_key: bytes
    parent_id: int
    name: str
    made_directories: int = 0


def row_key(bucket: BucketRow, parent_id: int, name: str) -> bytes:
    """Return the row key of a file or directory of a bucket."""
    return tree_key(bucket.volume_id, bucket.object_id, parent_id, name)


def _components(path: str) -> list[str]:
    """Return the names on a path; none for the root."""
    return path.split("/") if path else []


def place_for_file(transaction: Transaction, bucket: BucketRow, path: str) -> Place[KeyRow]:
    """Return the place for a file of this path. Create missing directories above it."""
    directory, _, name = path.rpartition("/")
    parent_id, made = _make_directories(transaction, bucket, directory, ErrorCode.NOT_A_FILE)
    key = row_key(bucket, parent_id, name)
    if transaction.work.table(DIRECTORY_TABLE).get(key) is not None:
        raise CommandError(ErrorCode.NOT_A_FILE, f"{path} is a directory")
    return Place(FILE_TABLE, key, parent_id, name, made)


def place_for_directory(transaction: Transaction, bucket: BucketRow, path: str) -> Place[DirectoryRow]:
    """Return the place for a directory of this path, which must be free. Create missing directories above it."""
    directory, _, name = path.rpartition("/")
    parent_id, made = _make_directories(transaction, bucket, directory, ErrorCode.NOT_A_FILE)
    key, work = row_key(bucket, parent_id, name), transaction.work
    if work.table(DIRECTORY_TABLE).get(key) is not None or work.table(FILE_TABLE).get(key) is not None:
        raise CommandError(ErrorCode.FILE_ALREADY_EXISTS, f"there is a {path} already: name another path (--to)")
    return Place(DIRECTORY_TABLE, key, parent_id, name, made)


def _make_directories(
    transaction: Transaction, bucket: BucketRow, path: str, code_for_file: ErrorCode
) -> tuple[int, int]:
    """Create the missing directories of a path. Return the id of the last one, and the number created."""
    known = transaction.directories.find(bucket.object_id, path)
    if known is not None:
        return known, 0
    directories, files = transaction.work.table(DIRECTORY_TABLE), transaction.work.table(FILE_TABLE)
    parent_id, made = bucket.object_id, 0
    for name in _components(path):
        key = row_key(bucket, parent_id, name)
        found = directories.get(key)
        if found is None:
            if files.get(key) is not None:
                raise CommandError(code_for_file, f"{name} in the path is a file, not a directory")
            now = transaction.log_time_ms
            found = DirectoryRow(transaction.new_object_id(), parent_id, name, transaction.txn, 0, now, now)
            directories.put(key, found)
            directory_created(transaction, bucket, found.object_id, parent_id)
            made += 1
        parent_id = found.object_id
    transaction.directories.remember(bucket.object_id, path, parent_id)
    return parent_id, made


def find_directory(transaction: Transaction, bucket: BucketRow, path: str) -> int | None:
    """Return the id of the directory of a path, the bucket's id for an empty path; None if there is none."""
    parent_id = transaction.directories.find(bucket.object_id, path)
    if parent_id is not None:
        return parent_id
    parent_id = bucket.object_id
    for name in _components(path):
        found = transaction.work.table(DIRECTORY_TABLE).get(row_key(bucket, parent_id, name))
        if found is None:
            return None
        parent_id = found.object_id
    transaction.directories.remember(bucket.object_id, path, parent_id)
    return parent_id


def require_no_file_above(transaction: Transaction, bucket: BucketRow, path: str) -> None:
    """Refuse a path on which a file is where a directory would have to be. Raise CommandError (NOT_A_FILE)."""
    work, parent_id = transaction.work, bucket.object_id
    for name in _components(path.rpartition("/")[0]):
        key = row_key(bucket, parent_id, name)
        found = work.table(DIRECTORY_TABLE).get(key)
        if found is None:
            if work.table(FILE_TABLE).get(key) is not None:
                raise CommandError(ErrorCode.NOT_A_FILE, f"{name} on the path {path} is a file")
            return
        parent_id = found.object_id


def _find_key(transaction: Transaction, bucket: BucketRow, path: str) -> bytes | None:
    """Return the row key for a path; None if its directory is missing, and for the root."""
    directory, slash, name = path.rpartition("/")
    parent_id = find_directory(transaction, bucket, directory or slash)  # for "/name" it is "/", which never exists
    return None if parent_id is None or not name else row_key(bucket, parent_id, name)


def find(transaction: Transaction, bucket: BucketRow, path: str) -> DirectoryRow | KeyRow | None:
    """Return the file or directory of a path; None if there is none, and for the root."""
    key, work = _find_key(transaction, bucket, path), transaction.work
    return None if key is None else work.table(DIRECTORY_TABLE).get(key) or work.table(FILE_TABLE).get(key)


def tree_bucket(transaction: Transaction, volume: str, bucket: str) -> BucketRow:
    """Return a bucket. Raise CommandError (NOT_SUPPORTED_OPERATION) if it is not a tree."""
    row = find_bucket(transaction.work, volume, bucket)
    if row.layout is not BucketLayout.FILE_SYSTEM_OPTIMIZED:
        raise CommandError(
            ErrorCode.NOT_SUPPORTED_OPERATION,
            f"bucket {volume}/{bucket} has the layout {row.layout}; directories need FILE_SYSTEM_OPTIMIZED",
        )
    return row


def make_directory(transaction: Transaction, command: MakeDirectory) -> Committed:
    """Create a directory and its missing parents. An existing directory stays unchanged."""
    bucket = tree_bucket(transaction, command.volume, command.bucket)
    check_key_path(command.directory, is_tree=True)
    object_id, made = _make_directories(transaction, bucket, command.directory, ErrorCode.FILE_ALREADY_EXISTS)
    check_room(transaction, bucket, 0, made)
    transaction.figures.put(bucket.object_id, 0, made)
    return Committed(object_id)


def delete_directory(transaction: Transaction, command: DeleteDirectory) -> Committed:
    """Delete a directory by moving its row. Its contents stay until the expansion."""
    bucket = tree_bucket(transaction, command.volume, command.bucket)
    return Committed(delete_path(transaction, bucket, command.directory, is_recursive=command.is_recursive))


def delete_path(transaction: Transaction, bucket: BucketRow, path: str, *, is_recursive: bool) -> int:
    """Move a file or directory from the namespace to the garbage tables. Return its id."""
    row = remove(transaction, bucket, path, is_recursive=is_recursive)
    death = death_now(transaction, bucket.object_id)
    if isinstance(row, bytes):
        return move_key_to_garbage(transaction, bucket.volume_id, bucket.object_id, row, death).object_id
    move_directory_to_garbage(transaction, bucket.volume_id, bucket.object_id, row, death)
    return row.object_id


def remove(
    transaction: Transaction, bucket: BucketRow, path: str, *, is_recursive: bool = False
) -> DirectoryRow | bytes:
    """Remove a file or directory from the namespace. Return its row; for a file, the encoded row."""
    work = transaction.work
    key = _find_key(transaction, bucket, path)
    directory = work.table(DIRECTORY_TABLE).get(key) if key else None
    if key and directory:
        if not is_recursive and _has_children(work, bucket, directory.object_id):
            raise CommandError(ErrorCode.DIRECTORY_NOT_EMPTY, f"directory {path} is not empty")
        work.table(DIRECTORY_TABLE).delete(key)
        transaction.directories.forget(bucket.object_id, path)
        return directory
    file = work.table(FILE_TABLE).get_encoded(key) if key else None
    if key is None or file is None:
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"there is no file or directory {path}")
    work.table(FILE_TABLE).delete(key)
    return file


def _has_children(work: Work, bucket: BucketRow, directory_id: int) -> bool:
    prefix = row_key(bucket, directory_id, "")
    end = prefix_end(prefix)
    return work.table(FILE_TABLE).has_any(prefix, end) or work.table(DIRECTORY_TABLE).has_any(prefix, end)


def moved_to(transaction: Transaction, bucket: BucketRow, source: str, target: str) -> str:
    """Return the path that a move to a target gives: below the target, if that is another directory."""
    if source != target and isinstance(find(transaction, bucket, target), DirectoryRow):
        return f"{target}/{source.rpartition('/')[2]}"
    return target


def rename_directory(transaction: Transaction, command: RenameDirectory) -> Committed:
    """Give a directory another path."""
    bucket = tree_bucket(transaction, command.volume, command.bucket)
    return Committed(rename(transaction, bucket, command.source, command.target))


def rename(transaction: Transaction, bucket: BucketRow, source: str, target: str) -> int:
    """Move a file or directory, into the target if that is a directory. Return its id."""
    work = transaction.work
    row = find(transaction, bucket, source)
    if row is None:
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"there is no file or directory {source}")
    check_key_path(target, is_tree=True)
    if source == target:
        if isinstance(row, KeyRow):
            return row.object_id
        raise CommandError(ErrorCode.KEY_ALREADY_EXISTS, f"source and target are both {source}")
    target = moved_to(transaction, bucket, source, target)
    if isinstance(row, DirectoryRow) and target.startswith(f"{source}/"):
        raise CommandError(ErrorCode.KEY_RENAME_ERROR, f"{source} cannot be moved below itself")
    directory, _, name = target.rpartition("/")
    parent_id = find_directory(transaction, bucket, directory)
    if parent_id is None:
        raise CommandError(ErrorCode.KEY_RENAME_ERROR, f"there is no directory {directory}")
    new_key = row_key(bucket, parent_id, name)
    if work.table(FILE_TABLE).get(new_key) is not None or work.table(DIRECTORY_TABLE).get(new_key) is not None:
        raise CommandError(ErrorCode.KEY_ALREADY_EXISTS, f"there is a {target} already")
    old_key = row_key(bucket, row.parent_id, row.name)
    note_rename(transaction, bucket, row.object_id, row.rename_txn, old_key)
    definition: TableDefinition[Any] = FILE_TABLE if isinstance(row, KeyRow) else DIRECTORY_TABLE
    work.table(definition).delete(old_key)
    moved = replace(row, parent_id=parent_id, name=name, update_id=transaction.txn, rename_txn=transaction.txn)
    work.table(definition).put(new_key, moved)
    if isinstance(moved, KeyRow):
        rename_versions(work, (bucket.volume_id, bucket.object_id), moved)
    else:
        transaction.directories.forget(bucket.object_id, source)
    return row.object_id
