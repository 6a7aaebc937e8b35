"""Who else than administrators and owners of volumes can have a right, from the commands of the log.

Access lists, tenants and tokens are not replayed: whether they allow a command is read from metadata's answer, which
such a command always gets. It is checked that somebody has signed it who has a secret or token of the log, and whom an
access list, an access id or a bucket of its own has ever named.
"""

from __future__ import annotations

from typing import Any

from schemas import records
from schemas.records import Acl, AclIdentity, Committed, MetadataCommand
from services.verifier.unauthorized_commands import Secrets, Signed

RIGHTS_COMMANDS = (
    *(records.SetOwner, records.AddAcl, records.RemoveAcl, records.SetAcl, records.SetGroups),
    *(records.CreateTenant, records.DeleteTenant, records.AssignUserToTenant, records.RevokeUserFromTenant),
    *(records.AssignTenantAdmin, records.SetS3Secret, records.RevokeS3Secret),
    *(records.GetDelegationToken, records.RenewDelegationToken, records.CancelDelegationToken),
)
"""Commands that only change who may do what, except that a new tenant has a new volume."""
_OF_ALL = (records.GetDelegationToken, records.RenewDelegationToken, records.CancelDelegationToken)
_OF_USERS_OF_TENANTS = (
    *(records.AssignUserToTenant, records.RevokeUserFromTenant, records.AssignTenantAdmin),
    *(records.SetS3Secret, records.RevokeS3Secret),
)
_MAKE_BUCKETS = (records.CreateBucket, records.CreateBucketLink)
_BY_OWNERS_ALONE = (records.Undelete, records.SetCollection, records.SetBreaker, records.ResetBreaker)
_ADMINISTRATORS_ONLY = (
    *(records.CreateVolume, records.SetSecret, records.RequeueOrphans, records.RepairQuota),
    records.SetDefaultReplication,
    *(records.SetGroups, records.CreateTenant, records.DeleteTenant),
)


class Rights:
    """The users whom a right can have been given, the owners of buckets and the volumes of tenants."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._named: set[tuple[AclIdentity, str]] = set()
        self._groups: dict[str, tuple[str, ...]] = {}
        self._principals: dict[str, str] = {}
        """The user of each access id and token that signs."""
        self.access_ids: set[str] = set()
        """The access ids that exist."""
        self._of_tenants: set[str] = set()
        """Users who have had an access id."""
        self._owners_of_buckets: dict[tuple[str, str], str] = {}
        self.tenants: dict[str, str] = {}
        """The volume of each tenant."""

    def can_be_allowed(self, signed: Signed) -> bool:
        """Return whether metadata's answer may show that a command was allowed to somebody who owns no volume of it."""
        if not self._secrets.is_signed(signed):
            return False
        body: Any = signed.command.body
        user = self._user(signed.command)
        if isinstance(body, _OF_ALL):
            return True
        if isinstance(body, _ADMINISTRATORS_ONLY):
            return False
        if isinstance(body, _OF_USERS_OF_TENANTS):
            return user in self._of_tenants
        is_manager = self._secrets.may_manage(user, body.volume) or self.owns_bucket(user, body)
        return is_manager or (not isinstance(body, _BY_OWNERS_ALONE) and self._is_named(user))

    def _user(self, command: MetadataCommand) -> str:
        return self._principals.get(command.user, command.user)

    def owns_bucket(self, user: str, body: Any) -> bool:
        """Return whether a user owns the bucket that a command names."""
        return user != "" and self._owners_of_buckets.get((body.volume, getattr(body, "bucket", ""))) == user

    def _is_named(self, user: str) -> bool:
        identities = {(AclIdentity.USER, user), (AclIdentity.WORLD, "")}
        identities |= {(AclIdentity.GROUP, group) for group in self._groups.get(user, ())}
        return not identities.isdisjoint(self._named) or user in self._owners_of_buckets.values()

    def bucket_made(self, command: MetadataCommand) -> None:
        """Note the owner of a new bucket: who was given the right to create it."""
        if isinstance(command.body, _MAKE_BUCKETS):
            body, user = command.body, self._user(command)
            self._owners_of_buckets.pop((body.volume, body.bucket), None)
            if self._secrets.are_asked_for and not self._secrets.may_manage(user, body.volume):
                self._owners_of_buckets[body.volume, body.bucket] = user

    def change(self, command: MetadataCommand, made: Committed) -> None:
        """Apply a command that metadata has accepted."""
        body: Any = command.body
        if isinstance(body, records.AddAcl):
            self._name([body.acl])
        elif isinstance(body, records.SetAcl):
            self._name(body.acls)
        elif isinstance(body, records.SetGroups):
            self._groups[body.name] = body.groups
        elif isinstance(body, records.SetOwner):
            self._set_owner(body)
        elif isinstance(body, records.CreateTenant):
            self.tenants[body.tenant] = body.volume
        elif isinstance(body, records.DeleteTenant):
            del self.tenants[body.tenant]
        else:
            self._change_secret(command, made)

    def _name(self, acls: list[Acl] | tuple[Acl, ...]) -> None:
        self._named |= {(acl.identity, acl.name) for acl in acls}

    def _set_owner(self, body: records.SetOwner) -> None:
        if body.bucket:
            self._owners_of_buckets[body.volume, body.bucket] = body.owner
        else:
            self._secrets.owners[body.volume] = body.owner

    def _change_secret(self, command: MetadataCommand, made: Committed) -> None:
        """Apply a command on the secret of an access id or token."""
        body: Any = command.body
        if isinstance(body, records.AssignUserToTenant):
            self._principals[body.access_id] = body.user
            self.access_ids.add(body.access_id)
            self._of_tenants.add(body.user)
            self._secrets.learn(body.access_id, body.secret)
        elif isinstance(body, records.SetS3Secret):
            self._secrets.learn(body.access_id, body.secret)
        elif isinstance(body, records.RevokeS3Secret | records.RevokeUserFromTenant):
            self._secrets.forget(body.access_id)
            if isinstance(body, records.RevokeUserFromTenant):
                self.access_ids.discard(body.access_id)
        elif isinstance(body, records.GetDelegationToken):
            self._principals[f"token {made.token_id}"] = command.user
            self._secrets.learn(f"token {made.token_id}", body.secret)
        elif isinstance(body, records.CancelDelegationToken):
            self._secrets.forget(f"token {body.token_id}")
