"""The commands on versions: whether a bucket keeps them, and deleting one of a key.

A key is deleted with all of its versions, as in Ozone (``keys.delete_key``).
"""

from __future__ import annotations

from dataclasses import replace

from schemas.error_codes import ErrorCode
from schemas.records import BucketVersioning, Committed, DeleteKeyVersion, KeyRow, SetBucketVersioning
from services.domain.errors import InvariantError
from services.domain.refusals import CommandError
from services.domain.table_keys import bucket_key
from services.metadata.namespace.buckets import find_bucket
from services.metadata.namespace.garbage import death_now, move_key_to_garbage, move_version_to_garbage
from services.metadata.namespace.key_parts import Ids
from services.metadata.namespace.key_versions import (
    as_current,
    become_noncurrent,
    rows_of_version,
    take_version,
    versions_of,
)
from services.metadata.namespace.writing import find_place
from services.metadata.state.tables import BUCKET_TABLE
from services.metadata.state.transaction import Transaction
from services.storage.tables import Table


def set_bucket_versioning(transaction: Transaction, command: SetBucketVersioning) -> Committed:
    """Set whether overwritten versions of keys are kept from now on. What is kept already stays."""
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    if command.versioning is BucketVersioning.UNVERSIONED:
        raise CommandError(
            ErrorCode.INVALID_REQUEST, "versioning is ENABLED or SUSPENDED: a bucket never becomes UNVERSIONED again"
        )
    changed = replace(bucket, versioning=command.versioning, update_id=transaction.txn)
    transaction.work.table(BUCKET_TABLE).put(bucket_key(bucket.volume, bucket.bucket), changed)
    return Committed(bucket.object_id)


def delete_key_version(transaction: Transaction, command: DeleteKeyVersion) -> Committed:
    """Delete one version of a key. In place of the current one the newest noncurrent version becomes current."""
    work = transaction.work
    bucket = find_bucket(work, command.volume, command.bucket)
    ids = bucket.volume_id, bucket.object_id
    place = find_place(transaction, bucket, command.key) if command.key else None
    table = None if place is None else work.table(place.table)
    encoded = None if table is None or place is None else table.get_encoded(place.db_key)
    if table is None or place is None or encoded is None:
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"there is no key {command.key}")
    key = table.decode(encoded)
    if key.birth != command.version:
        table.put(place.db_key, _without_version(transaction, ids, key, command.version))
    elif key.version_rows:
        _end_current(transaction, ids, table, place.db_key, key)
    else:
        table.delete(place.db_key)
        move_key_to_garbage(transaction, *ids, encoded, death_now(transaction, ids[1]))
    return Committed(key.object_id)


def _without_version(transaction: Transaction, ids: Ids, key: KeyRow, birth: int) -> KeyRow:
    """Move a noncurrent version to deletedTable. Return the row of the current one."""
    version = take_version(transaction.work, ids, key.object_id, birth)
    if version is None:
        raise CommandError(
            ErrorCode.KEY_NOT_FOUND, f"{key.name} has no version {birth}: list its versions (deepclean key versions)"
        )
    rows = key.version_rows - rows_of_version(transaction.work, ids, version)
    move_version_to_garbage(transaction, ids, version, key, death_now(transaction, ids[1]))
    return replace(key, version_rows=rows)


def _end_current(transaction: Transaction, ids: Ids, table: Table[KeyRow], row_key: bytes, key: KeyRow) -> None:
    """Move the current version to deletedTable as a version of its key, which lives on as the newest noncurrent one."""
    work = transaction.work
    newest = versions_of(work, ids, key)[-1]
    become_noncurrent(transaction, ids, key)
    ended = take_version(work, ids, key.object_id, key.birth)
    found = take_version(work, ids, key.object_id, newest.birth)
    if ended is None or found is None:
        raise InvariantError(f"the key {key.object_id} has no version {newest.birth}; report it with the log")
    move_version_to_garbage(transaction, ids, ended, key, death_now(transaction, ids[1]))
    table.put(row_key, as_current(work, ids, found, key, transaction.txn))
    transaction.figures.put(ids[1], 0, 1)
