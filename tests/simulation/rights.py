"""Who may do what, as the model of a run knows it: owners, access lists, groups and tokens, by docs/security.md.

A part of ``ShardModel``, asked where commands are signed. Whether a command is allowed is looked up in the namespace as
it is then, with each right that its row in the document's table names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from schemas import records
from schemas.records import Acl, AclIdentity, AclObject, AclRight, AclScope, MetadataCommand
from services.workloads.judge.model_bucket import Directory, OperationRefusedError, Version
from tests.simulation import access_lists
from tests.simulation.access_lists import AccessLists, Entries, grants
from tests.simulation.tokens import SIGNS_AS, Tokens

if TYPE_CHECKING:
    from tests.simulation.model import Incarnation, ShardModel

ROOT = "root"
_SOMETHING = "something"
"""In place of an object that nobody can name."""
_READ, _WRITE, _DELETE, _WRITE_ACL = AclRight.READ, AclRight.WRITE, AclRight.DELETE, AclRight.WRITE_ACL
_BY_PATH: Mapping[type[Any], tuple[tuple[str, AclRight | None, AclRight], ...]] = {
    **dict.fromkeys((records.PutKey, records.PutKeyIf, records.OpenKey), (("key", None, _WRITE),)),
    **dict.fromkeys((records.AllocateBlocks, records.SyncKey, records.CommitKey), (("key", None, _WRITE),)),
    **dict.fromkeys((records.AbandonKey, records.InitiateUpload), (("key", None, _WRITE),)),
    **dict.fromkeys((records.CompleteUpload, records.AbortUpload), (("key", None, _WRITE),)),
    records.PutKeys: (("keys", None, _WRITE),),
    records.MakeDirectory: (("directory", None, _WRITE),),
    records.RecoverLease: (("key", _WRITE, _WRITE),),
    **dict.fromkeys((records.DeleteKey, records.DeleteKeyVersion), (("key", _DELETE, _READ),)),
    records.DeleteKeys: (("keys", _DELETE, _READ),),
    records.DeleteDirectory: (("directory", _DELETE, _READ),),
    **dict.fromkeys(
        (records.RenameKey, records.RenameDirectory), (("source", _DELETE, _READ), ("target", None, _WRITE))
    ),
}
"""Of each command the field with a path, the right to what is there, and the right that is needed above it."""
_OF_BUCKET: Mapping[type[Any], AclRight] = {
    records.DeleteBucket: _DELETE,
    records.SetQuota: _WRITE,
    records.SetBucketVersioning: _WRITE,
    records.SetOwner: _WRITE_ACL,
}
OF_ACLS = (records.AddAcl, records.RemoveAcl, records.SetAcl)
OF_TOKENS = (records.GetDelegationToken, records.RenewDelegationToken, records.CancelDelegationToken)
COMMANDS = (*OF_ACLS, *OF_TOKENS, records.SetOwner, records.SetGroups)
_FOR_ROOT = (records.CreateVolume, records.SetSecret, records.SetGroups, records.RepairQuota, records.RequeueOrphans)
_OF_THE_NAME = (records.CreateBucket, records.CreateBucketLink, records.DeleteBucket, records.SetOwner)


@dataclass(slots=True)
class Rights:
    """The rights of a shard."""

    model: ShardModel
    lists: AccessLists = field(default_factory=AccessLists)
    tokens: Tokens = field(default_factory=Tokens)
    owners: dict[Hashable, str] = field(default_factory=dict)
    """Of volumes, buckets and links that have one."""
    people: set[str] = field(default_factory=set)
    """Who has a secret."""
    creator: str = ""
    """Who sends the present command by a right, and not as an owner."""
    denied: int = 0
    allowed: int = 0
    """How often somebody was who owns nothing."""
    _groups: dict[str, tuple[str, ...]] = field(default_factory=dict)

    # ---- asking

    def refusal(self, command: MetadataCommand, log_time_ms: int) -> str:
        """The code with which a command is refused before anybody looks at it; empty when it may be carried out."""
        self.creator, user, body = "", command.user, command.body
        if user.startswith(SIGNS_AS):
            user = self.tokens.owner_of(user, log_time_ms)
        if user not in self.people:
            return "PERMISSION_DENIED"
        if command.user == ROOT or isinstance(body, OF_TOKENS):
            return ""
        try:
            is_allowed = self._is_allowed(user, body)
        except OperationRefusedError as refusal:
            return refusal.code
        if is_allowed is None:
            is_allowed = not self._is_denied_by_plane(command)
        self.allowed += is_allowed
        self.denied += not is_allowed
        return "" if is_allowed else "PERMISSION_DENIED"

    def _is_denied_by_plane(self, command: MetadataCommand) -> bool:
        answers = self.model.answers_to(command.client_id, command.number)
        return any(answer.error == "PERMISSION_DENIED" for answer in answers)

    def _is_allowed(self, user: str, body: Any) -> bool | None:
        """Whether a user may do something who is no administrator, or acts by a token."""
        if isinstance(body, _FOR_ROOT) or (isinstance(body, records.SetQuota) and not body.bucket):
            return False
        volume, bucket = body.volume, getattr(body, "bucket", "")
        if volume not in self.model.names._volumes.volumes:
            return True  # it is refused as missing
        verdicts: list[bool | None] = []
        if bucket and not self._is_of_the_name(body):
            real = self._bucket_of(volume, bucket)
            if real is not None and (volume, bucket) in self.model.links and not self._owns(user, volume, bucket):
                verdicts += [self._may(user, ("link", volume, bucket), _READ), self._may(user, volume, _READ)]
            bucket = real.name if real is not None else bucket
        if not self._owns(user, volume, bucket):
            verdicts += [self._may(user, name, right) for name, right in self._asked(body)] or [False]
            self.creator = user
        if False in verdicts:
            return False
        return None if None in verdicts else True

    def _is_of_the_name(self, body: Any) -> bool:
        """Whether a command is about a link itself, not about the bucket to which it leads."""
        if isinstance(body, OF_ACLS):
            return body.object in (AclObject.VOLUME, AclObject.BUCKET)
        return isinstance(body, _OF_THE_NAME)

    def _bucket_of(self, volume: str, bucket: str) -> Incarnation | None:
        try:
            return self.model.found(volume, bucket)
        except OperationRefusedError as refusal:
            if refusal.code == "DETECTED_LOOP_IN_BUCKET_LINKS":
                raise
            return None

    def _owns(self, user: str, volume: str, bucket: str) -> bool:
        names: list[Hashable] = [volume, self.name_of(volume, bucket)] if bucket else [volume]
        return any(self.owners.get(name) == user for name in names)

    def owner_of(self, incarnation: Incarnation) -> str:
        """Who owns a bucket, or else its volume."""
        return self.owners.get(("bucket", id(incarnation))) or self.owners.get(incarnation.volume, "")

    def _may(self, user: str, name: Hashable, right: AclRight) -> bool | None:
        if name == _SOMETHING:
            return None
        return grants(self.lists.of(name), right, user, self._groups.get(user, ()))

    def name_of(self, volume: str, bucket: str) -> Hashable:
        """What has a name: a link, or one life of a bucket."""
        if (volume, bucket) in self.model.links:
            return ("link", volume, bucket)
        incarnation = self.model.current(volume, bucket)
        return None if incarnation is None else ("bucket", id(incarnation))

    def _asked(self, body: Any) -> Iterator[tuple[Hashable, AclRight]]:
        """The rights that somebody needs who owns nothing: objects that have no list give none."""
        volume, bucket = body.volume, getattr(body, "bucket", "")
        if isinstance(body, records.DeleteVolume):
            yield volume, _DELETE
        elif isinstance(body, records.CreateBucket | records.CreateBucketLink):
            yield volume, _WRITE
        elif isinstance(body, records.SetOwner) and not bucket:
            yield volume, _WRITE_ACL
        elif type(body) in _OF_BUCKET:
            yield from self._asked_of_bucket(body)
        elif isinstance(body, OF_ACLS):
            yield from self._asked_for_acl(body)
        elif type(body) in _BY_PATH:
            yield from self._asked_by_path(body)

    def _asked_by_path(self, body: Any) -> Iterator[tuple[Hashable, AclRight]]:
        real = self._bucket_of(body.volume, body.bucket)
        for name, of_it, above in _BY_PATH[type(body)]:
            paths = getattr(body, name)
            for path in (paths,) if isinstance(paths, str) else paths:
                if name == "target" and real is not None:
                    yield from self._asked_for_move(real, body.source, path, above)
                else:
                    yield from self._asked_below(real, path, of_it, above)
                yield body.volume, _READ

    def _asked_of_bucket(self, body: Any) -> Iterator[tuple[Hashable, AclRight]]:
        name = self.name_of(body.volume, body.bucket)
        if not self._is_of_the_name(body):
            real = self._bucket_of(body.volume, body.bucket)
            name = ("bucket", id(real)) if real is not None else None
        if name is not None:
            yield name, _OF_BUCKET[type(body)]
        yield body.volume, _READ

    def _asked_for_acl(self, body: Any) -> Iterator[tuple[Hashable, AclRight]]:
        if body.object is AclObject.VOLUME:
            yield body.volume, _WRITE_ACL
            return
        yield body.volume, _READ
        if body.object is AclObject.BUCKET:
            if (name := self.name_of(body.volume, body.bucket)) is not None:
                yield name, _WRITE_ACL
            return
        real = self._bucket_of(body.volume, body.bucket)
        if body.object is AclObject.KEY:
            yield from self._asked_below(real, body.path, _WRITE_ACL, _READ)
        elif real is not None:
            prefix = ("prefix", id(real), body.path)
            has_list = self.lists.of(prefix) != ()
            if has_list:
                yield prefix, _WRITE_ACL
            yield ("bucket", id(real)), _READ if has_list else _WRITE_ACL

    def _asked_below(
        self, incarnation: Incarnation | None, path: str, of_it: AclRight | None, above: AclRight
    ) -> Iterator[tuple[Hashable, AclRight]]:
        """A right to what is at a path, if there is anything, and one to the longest prefix and to the bucket."""
        if incarnation is None:
            return
        yield ("bucket", id(incarnation)), above
        prefix = self._longest_prefix(incarnation, path)
        if prefix is not None:
            yield prefix, above
        entry = self._entry(incarnation, path)
        if of_it is not None and incarnation.rollback is not None:
            yield _SOMETHING, of_it  # a page may have moved it, or may not
        elif of_it is not None and entry is not None:
            yield self.model.thing_of(entry), of_it

    def _asked_for_move(
        self, incarnation: Incarnation, source: str, target: str, above: AclRight
    ) -> Iterator[tuple[Hashable, AclRight]]:
        """The rights to where a move ends: below its target, if that is a directory."""
        if incarnation.rollback is not None:
            yield ("bucket", id(incarnation)), above
            yield _SOMETHING, above  # a page may have removed a directory there, or may not
            return
        is_inside = source != target and isinstance(self._entry(incarnation, target), Directory)
        path = f"{target}/{source.rpartition('/')[2]}" if is_inside else target
        yield from self._asked_below(incarnation, path, None, above)

    def _entry(self, incarnation: Incarnation, path: str) -> Version | Directory | None:
        parts = path.split("/") if incarnation.bucket.has_directories else [path]
        return incarnation.bucket.find(parts) if path else None

    def _longest_prefix(self, incarnation: Incarnation, path: str) -> Hashable:
        while (slash := path.rfind("/")) >= 0:
            name = ("prefix", id(incarnation), path[: slash + 1])
            if self.lists.of(name) != ():
                return name
            path = path[:slash]
        return None

    # ---- changing

    def change(self, command: MetadataCommand, log_time_ms: int) -> None:
        """Carry out a command about owners, lists, groups or tokens."""
        body: Any = command.body
        if isinstance(body, records.SetGroups):
            if body.name not in self.people:
                raise OperationRefusedError("INVALID_REQUEST", body.name)
            self._groups[body.name] = body.groups
        elif isinstance(body, records.SetOwner):
            self._set_owner(body)
        elif isinstance(body, OF_TOKENS):
            token_id = f"{self.model.shard}-{self.model.txn + 1}"
            self.tokens.change(body, command.user, token_id, log_time_ms, people=self.people)
        else:
            self._change_acl(body)
        self.model.txn += 1

    def _set_owner(self, body: records.SetOwner) -> None:
        self.model.names._require_volume(body.volume)
        name: Hashable = body.volume
        if body.bucket:
            name = self.name_of(body.volume, body.bucket)
            if name is None:
                raise OperationRefusedError("BUCKET_NOT_FOUND", body.bucket)
        self.owners[name] = body.owner

    def _change_acl(self, body: Any) -> None:
        name = self._object_of(body)
        before = self.lists.of(name)
        if isinstance(body, records.AddAcl):
            after = access_lists.added(before, [body.acl])
        elif isinstance(body, records.RemoveAcl):
            if before == () and body.object is AclObject.PREFIX:
                raise OperationRefusedError("PREFIX_NOT_FOUND", body.path)
            after = access_lists.without(before, body.acl)
        else:
            after = access_lists.added((), body.acls)
        if before == () and body.object is AclObject.PREFIX:
            incarnation = self.model.found(body.volume, body.bucket)
            above = self._inherited(incarnation, None, body.path.removesuffix("/"), AclScope.ACCESS)
            after = access_lists.added(after, above) if above is not None else access_lists.UNKNOWN
        self.lists.put(name, after)

    def _object_of(self, body: Any) -> Hashable:
        self.model.names._require_volume(body.volume)
        if body.object is AclObject.VOLUME:
            return str(body.volume)
        if body.object is AclObject.BUCKET:
            name = self.name_of(body.volume, body.bucket)
            if name is None:
                raise OperationRefusedError("BUCKET_NOT_FOUND", body.bucket)
            return name
        incarnation: Incarnation = self.model.found(body.volume, body.bucket)
        if incarnation.rollback is not None:
            raise OperationRefusedError("BUCKET_BUSY", body.bucket)
        if body.object is AclObject.PREFIX:
            return ("prefix", id(incarnation), body.path)
        entry = self._entry(incarnation, body.path)
        if entry is None:
            raise OperationRefusedError("KEY_NOT_FOUND", body.path)
        thing: Hashable = self.model.thing_of(entry)
        return thing

    # ---- what is made, and what goes

    def key_made(self, incarnation: Incarnation, parent: Directory, path: str, thing: Hashable) -> None:
        """A key is new: it has what it inherits, and its creator all rights."""
        self._made(thing, self._inherited(incarnation, parent, path, AclScope.ACCESS))

    def directory_made(self, incarnation: Incarnation, parent: Directory, thing: Hashable) -> None:
        """The same of a directory, whose contents inherit from it."""
        self._made(thing, self._inherited(incarnation, parent, "", AclScope.DEFAULT))

    def bucket_made(self, volume: str, bucket: str) -> None:
        """The same of a bucket or a link; its creator is its owner."""
        name = self.name_of(volume, bucket)
        self.owners[name] = self.creator
        self.lists.put(name, access_lists.inherited(self.lists.of(volume), AclScope.ACCESS))

    def _made(self, thing: Hashable, found: Entries) -> None:
        mine = (Acl(AclIdentity.USER, self.creator, (AclRight.ALL,), AclScope.ACCESS),) if self.creator else ()
        self.lists.put(thing, None if found is None else (*mine, *found))

    def _inherited(self, incarnation: Incarnation, parent: Directory | None, path: str, scope: AclScope) -> Entries:
        prefix = self._longest_prefix(incarnation, path)
        is_below = parent is not None and parent is not incarnation.bucket.root
        above = self.model.thing_of(parent) if parent is not None and is_below else None
        return access_lists.first_known(
            access_lists.inherited(self.lists.of(prefix) if prefix is not None else (), AclScope.ACCESS),
            access_lists.inherited(self.lists.of(above) if above is not None else (), scope),
            access_lists.inherited(self.lists.of(("bucket", id(incarnation))), scope),
        )

    def volume_gone(self, volume: str) -> None:
        """A volume is deleted."""
        self.lists.drop(volume)
        self.owners.pop(volume, None)

    def bucket_gone(self, name: Hashable) -> None:
        """A bucket or link is deleted, and the prefixes of a bucket with it."""
        self.lists.drop(name)
        self.owners.pop(name, None)
        if isinstance(name, tuple) and name[0] == "bucket":
            for prefix in self.lists.names("prefix", name[1]):
                self.lists.drop(prefix)
