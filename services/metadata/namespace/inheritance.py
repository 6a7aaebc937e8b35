"""The access list of a new object: what it inherits, and the rights of its creator.

As in Ozone a key inherits from its longest prefix, else from its directory, else from its bucket; a directory from the
one above it, else from its bucket; a bucket from its volume. Who creates an object by a right, not as its owner, gets
all rights to it.
"""

from __future__ import annotations

from schemas.records import AclScope, BucketRow
from services.domain.acls import Acls, inherited, of_creator
from services.metadata.state.transaction import Transaction


def key_created(transaction: Transaction, bucket: BucketRow, object_id: int, parent_id: int, path: str) -> None:
    """Give a new key its list. ``parent_id`` is 0 in a flat bucket."""
    acls = transaction.acls
    if acls.is_used:
        found = inherited(acls.of_longest_prefix(transaction.work, bucket, path), AclScope.ACCESS)
        found = found or _from_above(transaction, bucket.object_id, parent_id, AclScope.ACCESS)
        _put(transaction, bucket.object_id, object_id, found)


def directory_created(transaction: Transaction, bucket: BucketRow, object_id: int, parent_id: int) -> None:
    """Give a new directory its list, which its own contents inherit, too."""
    if transaction.acls.is_used:
        found = _from_above(transaction, bucket.object_id, parent_id, AclScope.DEFAULT)
        _put(transaction, bucket.object_id, object_id, found)


def bucket_created(transaction: Transaction, bucket: BucketRow) -> None:
    """Give a new bucket its list."""
    acls = transaction.acls
    if acls.is_used:
        found = inherited(acls.of(transaction.work, bucket.volume_id, bucket.volume_id), AclScope.ACCESS)
        acls.put(transaction.work, bucket.object_id, bucket.object_id, found)


def _from_above(transaction: Transaction, bucket_id: int, parent_id: int, scope: AclScope) -> Acls:
    """Return what is inherited from a directory, else from the bucket."""
    acls, work = transaction.acls, transaction.work
    found = inherited(acls.of(work, bucket_id, parent_id), scope) if parent_id else ()
    return found or inherited(acls.of(work, bucket_id, bucket_id), scope)


def _put(transaction: Transaction, bucket_id: int, object_id: int, acls: Acls) -> None:
    if transaction.creator:
        acls = (of_creator(transaction.creator), *acls)
    if acls:
        transaction.acls.put(transaction.work, bucket_id, object_id, acls)
