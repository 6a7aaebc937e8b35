"""The rights that commands ask for, of users who own neither the volume nor the bucket.

As in Ozone a right to an object asks for one to the objects above it, too:

========================================= ================================ ===========
right to a key or directory               to its longest prefix and bucket  to its volume
========================================= ================================ ===========
CREATE, which asks for none to itself     WRITE                            READ
WRITE                                     WRITE                            READ
DELETE, WRITE_ACL                         READ                             READ
========================================= ================================ ===========

A bucket's CREATE asks for WRITE of the volume, and its other rights for READ of the volume. A key or directory that is
missing is refused by the command itself. docs/security.md has the table of commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from schemas import records
from schemas.error_codes import ErrorCode
from schemas.records import AclObject, AclRight, BucketLayout, BucketRow
from services.domain.acls import Acls, is_granted
from services.domain.refusals import CommandError
from services.domain.table_keys import bucket_key, volume_key
from services.metadata.namespace.acls import find_object
from services.metadata.namespace.tree import moved_to
from services.metadata.state.bucket_links import bucket_at
from services.metadata.state.tables import BUCKET_TABLE, VOLUME_TABLE
from services.metadata.state.transaction import Transaction


class _Asked(NamedTuple):
    """A right that a command asks for, and the field with the path of the key or directory."""

    kind: AclObject
    right: AclRight
    field: str = ""


_CREATE = (_Asked(AclObject.KEY, AclRight.CREATE, "key"),)
_RENAME = (_Asked(AclObject.KEY, AclRight.DELETE, "source"), _Asked(AclObject.KEY, AclRight.CREATE, "target"))
ASKED: Mapping[type[Any], tuple[_Asked, ...]] = {
    records.DeleteVolume: (_Asked(AclObject.VOLUME, AclRight.DELETE),),
    records.CreateBucket: (_Asked(AclObject.BUCKET, AclRight.CREATE),),
    records.CreateBucketLink: (_Asked(AclObject.BUCKET, AclRight.CREATE),),
    records.DeleteBucket: (_Asked(AclObject.BUCKET, AclRight.DELETE),),
    **dict.fromkeys(
        (records.SetQuota, records.SetBucketVersioning, records.SetBucketReplication),
        (_Asked(AclObject.BUCKET, AclRight.WRITE),),
    ),
    **dict.fromkeys((records.PutKey, records.PutKeyIf, records.OpenKey, records.AllocateBlocks), _CREATE),
    **dict.fromkeys((records.SyncKey, records.CommitKey, records.AbandonKey), _CREATE),
    **dict.fromkeys((records.InitiateUpload, records.CompleteUpload, records.AbortUpload), _CREATE),
    records.PutKeys: (_Asked(AclObject.KEY, AclRight.CREATE, "keys"),),
    records.RecoverLease: (_Asked(AclObject.KEY, AclRight.WRITE, "key"),),
    records.MakeDirectory: (_Asked(AclObject.KEY, AclRight.CREATE, "directory"),),
    **dict.fromkeys((records.DeleteKey, records.DeleteKeyVersion), (_Asked(AclObject.KEY, AclRight.DELETE, "key"),)),
    records.DeleteKeys: (_Asked(AclObject.KEY, AclRight.DELETE, "keys"),),
    records.DeleteDirectory: (_Asked(AclObject.KEY, AclRight.DELETE, "directory"),),
    records.RenameKey: _RENAME,
    records.RenameDirectory: _RENAME,
}
"""Commands that are missing here are for owners and administrators."""
_OF_ACLS = (records.AddAcl, records.RemoveAcl, records.SetAcl)
_OF_THE_LINK = (records.CreateBucketLink, records.DeleteBucket, records.CreateBucket, records.SetOwner)
_ABOVE_KEY = {AclRight.CREATE: AclRight.WRITE, AclRight.WRITE: AclRight.WRITE}


def require_rights(transaction: Transaction, user: str, body: Any) -> None:
    """Refuse a command of a user whom the access lists do not give the rights that it asks for.

    Raises:
        CommandError: PERMISSION_DENIED.
    """
    asked = _asked(body)
    check = _Check(transaction, user, body)
    if not asked or not transaction.acls.is_used:
        raise check.denial("")
    for kind, right, field in asked:
        if kind is AclObject.VOLUME:
            check.volume(right)
        elif kind is AclObject.BUCKET:
            check.bucket(right)
        else:
            for path in check.paths(field):
                check.below_bucket(kind, path, right)


def require_link(transaction: Transaction, user: str, body: Any) -> None:
    """Refuse a command on a link of a user who may not read the link. Raise CommandError (PERMISSION_DENIED)."""
    _Check(transaction, user, body).link(AclRight.READ)


def is_of_the_link(body: Any) -> bool:
    """Return whether a command is about a bucket's own name, wherever it leads."""
    if isinstance(body, _OF_ACLS):
        return body.object in (AclObject.VOLUME, AclObject.BUCKET)
    return isinstance(body, _OF_THE_LINK)


def _asked(body: Any) -> tuple[_Asked, ...]:
    if isinstance(body, _OF_ACLS):
        return (_Asked(body.object, AclRight.WRITE_ACL, "path"),)
    if isinstance(body, records.SetOwner):
        return (_Asked(AclObject.BUCKET if body.bucket else AclObject.VOLUME, AclRight.WRITE_ACL),)
    return ASKED.get(type(body), ())


class _Check:
    """The check of one command."""

    def __init__(self, transaction: Transaction, user: str, body: Any) -> None:
        self._transaction = transaction
        self._user, self._groups = user, transaction.signers.groups_of(user)
        self._body = body

    def denial(self, wanted: str) -> CommandError:
        """Return the refusal."""
        lacks = f" and has no {wanted}" if wanted else ""
        return CommandError(
            ErrorCode.PERMISSION_DENIED,
            f"{self._user or 'an unknown user'} does not own {self._body.volume}{lacks}: its owner or an administrator "
            f"may do this, or give the right (deepclean acl add)",
        )

    def _require(self, acls: Acls, right: AclRight, what: str) -> None:
        if not is_granted(acls, right, self._user, self._groups):
            raise self.denial(f"right {right} to {what}")

    def volume(self, right: AclRight, name: str = "") -> None:
        """Check a right to the volume."""
        name = name or self._body.volume
        row = self._transaction.work.table(VOLUME_TABLE).get(volume_key(name))
        acls = self._transaction.acls.of(self._transaction.work, row.object_id, row.object_id) if row else ()
        self._require(acls, right, f"the volume {name}")

    def bucket(self, right: AclRight) -> None:
        """Check a right to the bucket that a command is about, and to its volume."""
        if right is AclRight.CREATE:
            self.volume(AclRight.WRITE)
        elif is_of_the_link(self._body):
            self.link(right)
        else:
            row = bucket_at(self._transaction.work, self._body.volume, self._body.bucket)
            self._found_bucket(row, right)

    def link(self, right: AclRight) -> None:
        """Check a right to the named bucket or link itself, and to its volume."""
        key = bucket_key(self._body.volume, self._body.bucket)
        self._found_bucket(self._transaction.work.table(BUCKET_TABLE).get(key), right)

    def _found_bucket(self, row: BucketRow | None, right: AclRight) -> None:
        if row is not None:
            self._of_bucket(row, right)
        self.volume(AclRight.READ, row.volume if row else "")

    def _of_bucket(self, row: BucketRow, right: AclRight) -> None:
        acls = self._transaction.acls.of(self._transaction.work, row.object_id, row.object_id)
        self._require(acls, right, f"the bucket {row.volume}/{row.bucket}")

    def paths(self, field: str) -> Sequence[str]:
        """Return the paths in a field; that of a move into a directory is below it."""
        named: str | Sequence[str] = getattr(self._body, field)
        if not isinstance(named, str):
            return named
        bucket = bucket_at(self._transaction.work, self._body.volume, self._body.bucket)
        if field == "target" and bucket is not None and bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED:
            named = moved_to(self._transaction, bucket, self._body.source, named)
        return (named,)

    def below_bucket(self, kind: AclObject, path: str, right: AclRight) -> None:
        """Check a right to a key, directory or prefix, and what it asks for above."""
        transaction, work = self._transaction, self._transaction.work
        bucket = bucket_at(work, self._body.volume, self._body.bucket)
        if bucket is not None:
            above = _ABOVE_KEY.get(right, AclRight.READ)
            if kind is AclObject.PREFIX:
                acls = transaction.acls.of_prefix(work, bucket, path)
                if acls:
                    self._require(acls, right, f"the prefix {path}")
                else:  # whoever may change the list of the bucket begins that of a prefix
                    above = right
            elif acls := transaction.acls.of_longest_prefix(work, bucket, path):
                self._require(acls, above, f"the prefix of {path}")
            if kind is AclObject.KEY and right is not AclRight.CREATE:
                object_id = find_object(transaction, bucket, path)
                if object_id is not None:
                    self._require(transaction.acls.of(work, bucket.object_id, object_id), right, path)
            self._of_bucket(bucket, above)
        self.volume(AclRight.READ, bucket.volume if bucket else "")
