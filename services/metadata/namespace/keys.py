"""Commands on keys: put, delete (one, many) and rename. Paths in a tree are resolved by ``tree``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

from schemas.codec import codec
from schemas.error_codes import ErrorCode
from schemas.records import (
    BlockRun,
    BucketLayout,
    BucketRow,
    Committed,
    DeleteKey,
    DeleteKeys,
    DirectoryRow,
    KeyRow,
    KeysDeleted,
    PutKey,
    PutKeyIf,
    PutKeys,
    RenameKey,
)
from services.domain.names import MAX_KEY_TAG_LENGTH, check_key_path, check_length
from services.domain.refusals import CommandError
from services.domain.replication import redundancy_of
from services.domain.table_keys import MAX_BLOCKS_PER_COMMAND, MAX_KEYS_PER_COMMAND, bucket_key, flat_key
from services.metadata.namespace import tree
from services.metadata.namespace.buckets import find_bucket
from services.metadata.namespace.conditions import NO_CONDITION, check_generation
from services.metadata.namespace.garbage import (
    death_now,
    end_or_keep,
    move_directory_to_garbage,
    move_key_to_garbage,
    move_keys_to_garbage,
    note_rename,
)
from services.metadata.namespace.inheritance import key_created
from services.metadata.namespace.key_versions import UNVERSIONED, keeps_versions, rename_versions
from services.metadata.namespace.quotas import NO_QUOTA, check_room, room_bytes
from services.metadata.namespace.tree import Place
from services.metadata.state.tables import BUCKET_TABLE, KEY_TABLE
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Work

_TREE = BucketLayout.FILE_SYSTEM_OPTIMIZED  # reading a member of an enum takes longer
_KEY_ROW = codec(KeyRow)
_NAMES = [one.name for one in fields(KeyRow)]
_LAST = _NAMES.index("is_versioned")
_ROW_START, _ROW_END = _KEY_ROW.encoder_of(*_NAMES[:_LAST]), _KEY_ROW.encoder_of(*_NAMES[_LAST:])


def _row_end(*, is_versioned: bool, version_rows: int) -> bytes:
    return _ROW_END({"is_versioned": is_versioned, "version_rows": version_rows, "is_composed": False})


_PLAIN_END = _row_end(is_versioned=False, version_rows=0)
"""The last fields of most rows."""


def read_versions_ahead(bodies: Sequence[object], work: Work) -> None:
    """Read in one call the rows that puts and deletes in flat buckets look up, so that RocksDB reads each file once.

    Most put keys are new, but each needs a look into the filter of every sorted run. Changes of earlier commands of the
    batch take precedence over the rows read here.
    """
    is_flat = dict[tuple[str, str], bool]()
    found_at = []
    for body in bodies:
        if isinstance(body, (PutKey, DeleteKey, PutKeys)):
            place = (body.volume, body.bucket)
            if place not in is_flat:
                bucket = work.table(BUCKET_TABLE).get(bucket_key(*place))
                is_flat[place] = bucket is not None and bucket.layout is not _TREE
            if not is_flat[place]:
                continue
            if isinstance(body, PutKeys):
                found_at += [flat_key(*place, key) for key in body.keys]
            else:
                found_at.append(flat_key(*place, body.key))
    if found_at:
        work.table(KEY_TABLE).read_ahead(found_at)


def put_key_if(transaction: Transaction, command: PutKeyIf) -> Committed:
    """Commit a version of a key if the key has the expected generation, or is absent as expected."""
    return put_key(transaction, command, command.expected_generation)


def put_key(transaction: Transaction, command: PutKey | PutKeyIf, expected_generation: int = NO_CONDITION) -> Committed:
    """Commit a version of a key. It creates the key, or replaces the existing version."""
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    is_tree = bucket.layout is _TREE
    check_key_path(command.key, is_tree=is_tree)
    check_length("a tag", command.tag, MAX_KEY_TAG_LENGTH)
    blocks = _blocks(transaction, bucket, command)
    if is_tree:
        place = tree.place_for_file(transaction, bucket, command.key)
    else:
        place = Place(KEY_TABLE, flat_key(bucket.volume, bucket.bucket, command.key), 0, command.key)
    table = transaction.work.table(place.table)
    replaced_row = table.get_encoded(place.db_key)
    existing = None if replaced_row is None else table.decode(replaced_row)
    if expected_generation != NO_CONDITION:
        check_generation(existing, expected_generation, command.key)
    if bucket.quota_bytes != NO_QUOTA or bucket.quota_namespace != NO_QUOTA:
        check_room(transaction, bucket, room_bytes([blocks] if blocks else []), 1 + place.made_directories)
    now = transaction.log_time_ms
    object_id = existing.object_id if existing else transaction.new_object_id()
    version_rows = 0
    if existing is not None and replaced_row is not None:
        version_rows = end_or_keep(transaction, bucket, existing, replaced_row)
    # Encode the fields without a record object, because most commands are puts.
    start = {
        "object_id": object_id,
        "birth": transaction.txn,
        "size_bytes": command.size_bytes,
        "blocks": blocks,
        "parent_id": place.parent_id,
        "name": place.name,
        "update_id": transaction.txn,
        "rename_txn": existing.rename_txn if existing else 0,
        "tag": command.tag,
        "creation_time_ms": existing.creation_time_ms if existing else now,
        "modification_time_ms": now,
    }
    end = _PLAIN_END
    if version_rows or bucket.versioning is not UNVERSIONED:
        end = _row_end(is_versioned=keeps_versions(bucket), version_rows=version_rows)
    table.put_encoded(place.db_key, _ROW_START(start) + end)
    if existing is None and transaction.acls.is_used:
        key_created(transaction, bucket, object_id, place.parent_id, command.key)
    transaction.figures.put(bucket.object_id, command.size_bytes, 1 + place.made_directories)
    if transaction.counters.has_redundancy and (redundancy := redundancy_of(blocks)):
        transaction.figures.add_redundancy(bucket.object_id, redundancy, stored=redundancy)
    transaction.check_stored()
    if blocks:
        transaction.written.add(bucket.object_id, blocks)
    return Committed(object_id, blocks)


def _blocks(transaction: Transaction, bucket: BucketRow, command: PutKey | PutKeyIf) -> BlockRun | None:
    """Return the blocks of a version. Their ids follow from shard and txn, so that a replay assigns the same."""
    if command.size_bytes < 0 or command.block_size_bytes <= 0:
        raise CommandError(ErrorCode.INVALID_REQUEST, "size_bytes must be at least 0 and block_size_bytes at least 1")
    if command.size_bytes == 0:
        return None
    count = -(-command.size_bytes // command.block_size_bytes)
    if count > MAX_BLOCKS_PER_COMMAND:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"{count} blocks in one command; at most {MAX_BLOCKS_PER_COMMAND}: use larger blocks",
        )
    first = transaction.first_local_id()
    return BlockRun(transaction.container_for(bucket), first, count, command.block_size_bytes, command.size_bytes)


def check_key_count(keys: Sequence[str]) -> None:
    """Refuse a command as a whole that names no key, or more than one may. Raise CommandError (INVALID_REQUEST)."""
    if not 1 <= len(keys) <= MAX_KEYS_PER_COMMAND:
        raise CommandError(
            ErrorCode.INVALID_REQUEST, f"{len(keys)} keys in one command; 1 to {MAX_KEYS_PER_COMMAND} are allowed"
        )


def delete_key(transaction: Transaction, command: DeleteKey) -> Committed:
    """Delete a key; in a tree also an empty directory."""
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    if bucket.layout is _TREE:
        return Committed(tree.delete_path(transaction, bucket, command.key, is_recursive=False))
    row = _remove_key(transaction, bucket, command.key)
    death = death_now(transaction, bucket.object_id)
    return Committed(move_key_to_garbage(transaction, bucket.volume_id, bucket.object_id, row, death).object_id)


def delete_keys(transaction: Transaction, command: DeleteKeys) -> Committed:
    """Delete many keys at one txn, each as ``delete_key`` does.

    A key that cannot be deleted does not stop the others, as in Ozone's deleteKeys, even if no key can be deleted.
    """
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    check_key_count(command.keys)
    death = death_now(transaction, bucket.object_id)
    left: dict[ErrorCode, list[int]] = {ErrorCode.KEY_NOT_FOUND: [], ErrorCode.DIRECTORY_NOT_EMPTY: []}
    rows, children = list[bytes](), Counter[int]()
    for place, removed in enumerate(_each_removed(transaction, bucket, command.keys)):
        if isinstance(removed, bytes):
            rows.append(removed)
        elif isinstance(removed, DirectoryRow):
            # Directories of one death count their children among one another, as in an expanded tree.
            below = children.pop(removed.object_id, 0)
            children[removed.parent_id] += 1
            move_directory_to_garbage(transaction, bucket.volume_id, bucket.object_id, removed, death, child_rows=below)
        else:
            left[removed].append(place)
    move_keys_to_garbage(transaction, bucket.volume_id, bucket.object_id, rows, death)
    not_found, not_empty = (tuple(places) for places in left.values())
    deleted = len(command.keys) - len(not_found) - len(not_empty)
    return Committed(0, keys=KeysDeleted(deleted, not_found, not_empty))


def _each_removed(
    transaction: Transaction, bucket: BucketRow, keys: Sequence[str]
) -> Iterator[bytes | DirectoryRow | ErrorCode]:
    """Remove each key from the namespace; yield its row, or the error code if it cannot be removed."""
    is_tree = bucket.layout is _TREE
    if not is_tree:
        found_at = [flat_key(bucket.volume, bucket.bucket, key) for key in keys]
        transaction.work.table(KEY_TABLE).read_ahead(found_at)
    remove = tree.remove if is_tree else _remove_key
    for key in keys:
        try:
            yield remove(transaction, bucket, key)
        except CommandError as refusal:  # raised before any change
            yield refusal.code


def _remove_key(transaction: Transaction, bucket: BucketRow, path: str) -> bytes:
    """Remove a key from a flat bucket. Return its encoded row."""
    table = transaction.work.table(KEY_TABLE)
    key = flat_key(bucket.volume, bucket.bucket, path)
    row = table.get_encoded(key) if path else None
    if row is None:
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"there is no key {path}")
    table.delete(key)
    return row


def rename_key(transaction: Transaction, command: RenameKey) -> Committed:
    """Give a key another path."""
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    if bucket.layout is _TREE:
        return Committed(tree.rename(transaction, bucket, command.source, command.target))
    check_key_path(command.target, is_tree=False)
    table = transaction.work.table(KEY_TABLE)
    source = flat_key(bucket.volume, bucket.bucket, command.source)
    target = flat_key(bucket.volume, bucket.bucket, command.target)
    row = table.get(source) if command.source else None
    if table.get(target) is not None:  # asked first, as in Ozone
        raise CommandError(ErrorCode.KEY_ALREADY_EXISTS, f"there is a key {command.target} already")
    if row is None:
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"there is no key {command.source}")
    note_rename(transaction, bucket, row.object_id, row.rename_txn, source)
    table.delete(source)
    renamed = replace(row, name=command.target, update_id=transaction.txn, rename_txn=transaction.txn)
    table.put(target, renamed)
    rename_versions(transaction.work, (bucket.volume_id, bucket.object_id), renamed)
    return Committed(row.object_id)
