"""Commands that change access lists."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from schemas.error_codes import ErrorCode
from schemas.records import (
    AclObject,
    AclScope,
    AddAcl,
    BucketLayout,
    BucketRow,
    Committed,
    RemoveAcl,
    SetAcl,
)
from services.domain.acls import Acls, inherited, made_of, with_added, without
from services.domain.names import check_key_path
from services.domain.refusals import CommandError
from services.domain.table_keys import flat_key
from services.metadata.namespace import tree
from services.metadata.namespace.buckets import find_bucket, named_bucket, volume_row
from services.metadata.state.tables import KEY_TABLE, PREFIX_TABLE
from services.metadata.state.transaction import Transaction
from services.storage.store import prefix_end

MAX_PREFIXES = 1_000
"""Maximum prefixes of a bucket that have lists: they are removed with the bucket, by one command."""
_Change = Callable[[Acls], Acls]


def add_acl(transaction: Transaction, command: AddAcl) -> Committed:
    """Add rights to an entry, or a new entry."""
    return _change(transaction, command, lambda acls: with_added(acls, command.acl))


def remove_acl(transaction: Transaction, command: RemoveAcl) -> Committed:
    """Take rights away from an entry."""
    return _change(transaction, command, lambda acls: without(acls, command.acl))


def set_acl(transaction: Transaction, command: SetAcl) -> Committed:
    """Replace all entries."""
    return _change(transaction, command, lambda _: made_of(command.acls))


def _change(transaction: Transaction, command: AddAcl | RemoveAcl | SetAcl, change: _Change) -> Committed:
    if command.object is AclObject.PREFIX:
        return _change_prefix(transaction, command, change)
    bucket_id, object_id = object_of(transaction, command)
    acls, work = transaction.acls, transaction.work
    acls.put(work, bucket_id, object_id, change(acls.of(work, bucket_id, object_id)))
    return Committed(object_id)


def object_of(transaction: Transaction, command: AddAcl | RemoveAcl | SetAcl) -> tuple[int, int]:
    """Return the ids by which a volume, bucket, key or directory has its list. Raise CommandError if it is missing.

    A command names nothing below its object: its sender may have rights to that, and none to the object.
    """
    has_more = command.path or (command.object is AclObject.VOLUME and command.bucket)
    if command.object in (AclObject.VOLUME, AclObject.BUCKET) and has_more:
        raise CommandError(
            ErrorCode.INVALID_REQUEST, f"the list is that of a {command.object.value}: name nothing in it"
        )
    if command.object is AclObject.VOLUME:
        volume_id = volume_row(transaction.work, command.volume).object_id
        return volume_id, volume_id
    if command.object is AclObject.BUCKET:
        bucket_id = named_bucket(transaction.work, command.volume, command.bucket).object_id
        return bucket_id, bucket_id
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    object_id = find_object(transaction, bucket, command.path)
    if object_id is None:
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"there is no key or directory {command.path}")
    return bucket.object_id, object_id


def find_object(transaction: Transaction, bucket: BucketRow, path: str) -> int | None:
    """Return the id of the key or directory of a path; None if there is none."""
    if bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED:
        found = tree.find(transaction, bucket, path)
        return None if found is None else found.object_id
    row = transaction.work.table(KEY_TABLE).get(flat_key(bucket.volume, bucket.bucket, path)) if path else None
    return None if row is None else row.object_id


def _change_prefix(transaction: Transaction, command: AddAcl | RemoveAcl | SetAcl, change: _Change) -> Committed:
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    is_tree = bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
    check_key_path(command.path.removesuffix("/"), is_tree=is_tree)
    if not command.path.endswith("/"):
        raise CommandError(ErrorCode.INVALID_PATH, "a prefix ends with a slash")
    before = transaction.acls.of_prefix(transaction.work, bucket, command.path)
    changed = change(before)
    if not before:
        _check_new_prefix(transaction, bucket, command)
        changed = _with_inherited(transaction, bucket, command.path, changed)
    transaction.acls.put_prefix(transaction.work, bucket, command.path, changed)
    return Committed(0)


def _with_inherited(transaction: Transaction, bucket: BucketRow, prefix: str, acls: Acls) -> Acls:
    """Return the first list of a prefix, with what it inherits from the next longer prefix above it, else from the
    bucket.
    """
    rows, work = transaction.acls, transaction.work
    above = inherited(rows.of_longest_prefix(work, bucket, prefix.removesuffix("/")), AclScope.ACCESS)
    for acl in above or inherited(rows.of(work, bucket.object_id, bucket.object_id), AclScope.ACCESS):
        acls = with_added(acls, acl)
    return acls


def _check_new_prefix(transaction: Transaction, bucket: BucketRow, command: AddAcl | RemoveAcl | SetAcl) -> None:
    if isinstance(command, RemoveAcl):
        raise CommandError(ErrorCode.PREFIX_NOT_FOUND, f"the prefix {command.path} has no access list")
    start = flat_key(bucket.volume, bucket.bucket, "")
    others = transaction.work.table(PREFIX_TABLE).scan(start, prefix_end(start))
    if sum(1 for _ in islice(others, MAX_PREFIXES)) == MAX_PREFIXES:
        raise CommandError(ErrorCode.LIMIT_EXCEEDED, f"{MAX_PREFIXES} prefixes of the bucket have access lists already")
