"""Decide which commands of a log were authorized, from the secrets, signatures and volume owners in the log.

Only permissions are checked here, not whether rows may be freed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schemas import records
from schemas.records import MetadataCommand, SecretRole, SetSecret
from schemas.signatures import LONGEST_SECRET, SHORTEST_SECRET, is_signed_with
from services.domain.authorization import may_manage, why_not_named

SIGNED_FOR_MS = 1_800_000
TOPIC = "metadata.commands"
COLLECTION_COMMANDS = (records.SetCollection, records.SetBreaker, records.ResetBreaker)
"""Commands that only change when rows may be claimed. They do not affect which versions are live or held."""
_ADMINISTRATORS_ONLY = (
    *(records.CreateVolume, records.SetSecret, records.RequeueOrphans, records.RepairQuota),
    records.SetDefaultReplication,
)
_BY_RIGHTS = (
    *(records.SetGroups, records.CreateTenant, records.DeleteTenant, records.AssignUserToTenant),
    *(records.RevokeUserFromTenant, records.AssignTenantAdmin, records.SetS3Secret, records.RevokeS3Secret),
    *(records.GetDelegationToken, records.RenewDelegationToken, records.CancelDelegationToken),
)
"""Commands without a volume that belongs to somebody: here for administrators; see ``rights`` for others."""


class Signed(NamedTuple):
    """A command with its signed bytes."""

    command: MetadataCommand
    timestamp_ms: int
    """Time at which the broker appended the record."""
    value: bytes
    later_schema_id: int = 0
    """Schema that has written the command; 0 for the first one, which need not be announced."""


@dataclass(frozen=True, slots=True)
class _Secret:
    """The current and the previous secret of a user or service."""

    role: SecretRole
    secret: bytes = field(repr=False)
    previous: bytes = field(repr=False)


class Secrets:
    """The secrets of users and services, and the owners of the volumes."""

    def __init__(self) -> None:
        self._secrets: dict[str, _Secret] = {}
        self.owners: dict[str, str] = {}
        """Owner of each existing volume."""
        self.are_asked_for = False
        """True when commands must be signed, that is once an administrator has a secret."""

    def set(self, change: SetSecret) -> bool:
        """Apply a change of a secret. Return False when metadata refuses it."""
        is_made = self._set(change)
        self.are_asked_for = any(one.role is SecretRole.ADMINISTRATOR for one in self._secrets.values())
        return is_made

    def _set(self, change: SetSecret) -> bool:
        if why_not_named(change.name, change.role):
            return False
        administrators = {name for name, one in self._secrets.items() if one.role is SecretRole.ADMINISTRATOR}
        becomes_one = bool(change.secret) and change.role is SecretRole.ADMINISTRATOR
        if administrators and not becomes_one and administrators <= {change.name}:
            return False
        if not change.secret:
            self._secrets.pop(change.name, None)
            return True
        if not SHORTEST_SECRET <= len(change.secret) <= LONGEST_SECRET:
            return False
        before = self._secrets.get(change.name)
        previous = before.secret if before is not None and before.secret != change.secret else b""
        self._secrets[change.name] = _Secret(change.role, change.secret, previous)
        return True

    def learn(self, name: str, secret: bytes) -> None:
        """Note the secret of an access id or token, which metadata has accepted. The previous one stays valid."""
        before = self._secrets.get(name)
        previous = before.secret if before is not None and before.secret != secret else b""
        self._secrets[name] = _Secret(SecretRole.USER, secret, previous)

    def forget(self, name: str) -> None:
        """Note that an access id or token has no secret any more."""
        self._secrets.pop(name, None)

    def is_signed(self, signed: Signed) -> bool:
        """Return whether a user, an access id or a token has signed a command."""
        return self._person(signed) is not None

    def allow_client(self, signed: Signed) -> bool:
        """Return whether a client's command is authorized."""
        command = signed.command
        body: Any = command.body
        role = self._person(signed)
        is_nobodys = isinstance(body, COLLECTION_COMMANDS) and body.volume not in self.owners
        is_nobodys = is_nobodys or (isinstance(body, records.SetQuota) and not body.bucket)
        if role is None or is_nobodys or isinstance(body, (*_ADMINISTRATORS_ONLY, *_BY_RIGHTS)):
            return role is SecretRole.ADMINISTRATOR
        return self.may_manage(command.user, body.volume)

    def allow_internal(self, signed: Signed) -> bool:
        """Return whether a service's command, or a command that controls the shard itself, is authorized."""
        command = signed.command
        if not command.sender:
            return self._person(signed) is SecretRole.ADMINISTRATOR
        known = self._secrets.get(command.sender)
        is_service = known is not None and known.role is SecretRole.SERVICE
        return not command.user and is_service and _is_signed_by(known, signed)

    def may_manage(self, user: str, volume: str) -> bool:
        """Return whether a user may manage a volume.

        True for a missing volume: the command itself is then refused for that reason.
        """
        if volume not in self.owners:
            return True
        known = self._secrets.get(user)
        return known is not None and may_manage(known.role, user, self.owners[volume])

    def _person(self, signed: Signed) -> SecretRole | None:
        """Return the role of the user who signed a command.

        None without a valid signature, without a number and the user's client id, or when the broker's timestamp
        and the signing time differ by more than ``SIGNED_FOR_MS``.
        """
        command = signed.command
        known = self._secrets.get(command.user)
        if known is None or known.role is SecretRole.SERVICE or not _is_signed_by(known, signed):
            return None
        if not command.client_id.startswith(f"{command.user}/") or command.number <= 0:
            return None
        return known.role if abs(signed.timestamp_ms - command.issued_at_ms) <= SIGNED_FOR_MS else None


def _is_signed_by(known: _Secret | None, signed: Signed) -> bool:
    secrets = () if known is None else (known.secret, known.previous)
    return any(is_signed_with(secret, TOPIC, signed.value) for secret in secrets if secret)
