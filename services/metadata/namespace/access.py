"""Checks the rights of a command's sender in log order: services must have signed, users must own the volume."""

from __future__ import annotations

from typing import Any, NamedTuple

from schemas import records
from schemas.error_codes import ErrorCode
from schemas.records import Committed, MetadataCommand, SecretRole, SecretRow, SetGroups, SetSecret
from services.domain.authorization import may_manage
from services.domain.errors import InvalidMessageError
from services.domain.refusals import CommandError
from services.domain.table_keys import bucket_key, volume_key
from services.metadata.namespace.rights import is_of_the_link, require_link, require_rights
from services.metadata.namespace.tenants import is_access_id, may_manage_tenant, volume_of_access_id
from services.metadata.state.bucket_links import bucket_at
from services.metadata.state.tables import BUCKET_TABLE, SECRET_TABLE, VOLUME_TABLE
from services.metadata.state.token_rows import signer_by_token
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Message
from services.runtime.parts.signers import DeniedError, Signers

_ADMINISTRATORS_ONLY = (
    *(records.CreateVolume, records.SetSecret, records.SetGroups, records.RequeueOrphans, records.RepairQuota),
    records.SetDefaultReplication,
)
_OF_TENANTS = (
    *(records.CreateTenant, records.DeleteTenant, records.AssignUserToTenant, records.RevokeUserFromTenant),
    *(records.AssignTenantAdmin, records.SetS3Secret, records.RevokeS3Secret),
)
_OF_TOKENS = (records.GetDelegationToken, records.RenewDelegationToken, records.CancelDelegationToken)
"""Commands of every user. Their handlers compare the user with those that the token names."""


class _Sender(NamedTuple):
    """As whom a command is sent: a user, who may have signed by an access id or a delegation token."""

    user: str
    role: SecretRole
    name: str
    """The name by which the command is signed."""


def check_client(transaction: Transaction, message: Message, command: MetadataCommand) -> None:
    """Refuse a client's command unless its user has signed it and has the right to it.

    Raises:
        CommandError: PERMISSION_DENIED.
    """
    signers = transaction.signers
    token = signer_by_token(transaction.work, signers, command.user, transaction.log_time_ms)
    try:
        role = signers.require_person(message, command, token)
    except DeniedError as error:
        raise CommandError(ErrorCode.PERMISSION_DENIED, str(error)) from error
    user = _principal(signers, command.user, token)
    sender, body = _Sender(user, role, command.user), command.body
    transaction.is_answered = user != command.user
    if role is SecretRole.ADMINISTRATOR or isinstance(body, _OF_TOKENS):
        return
    if isinstance(body, _OF_TENANTS):
        if not may_manage_tenant(transaction, user, command.user, body):
            raise _denied(body, user)
    elif isinstance(body, _ADMINISTRATORS_ONLY) or _has_no_owner(transaction, body):
        raise _denied(body, user)
    else:
        _require(transaction, sender, body)


def _principal(signers: Signers, name: str, token: SecretRow | None) -> str:
    """Return the person for whom a command with this name counts: the one of its token, if a token has signed it."""
    return token.principal if token else signers.principal_of(name)


def _denied(body: Any, user: str) -> CommandError:
    return CommandError(
        ErrorCode.PERMISSION_DENIED, f"{type(body).__name__} is for administrators, which {user} is not"
    )


def _require(transaction: Transaction, sender: _Sender, body: Any) -> None:
    """Refuse a sender who neither manages what a command names nor has the rights that it asks for."""
    volume, bucket, user = body.volume, getattr(body, "bucket", ""), sender.user
    if transaction.work.table(VOLUME_TABLE).get(volume_key(volume)) is None:
        return  # the handler refuses it
    real = None if is_of_the_link(body) else bucket_at(transaction.work, volume, bucket)
    leads_elsewhere = real is not None and (real.volume, real.bucket) != (volume, bucket)
    if user != sender.name and transaction.signers.role_of(sender.name) is not None:
        _require_own_volume(transaction, sender, {volume, real.volume if real else volume})
    if real is not None and leads_elsewhere:
        if not manages(transaction, sender.role, user, volume, bucket):
            require_link(transaction, user, body)
        volume, bucket = real.volume, real.bucket
    if not manages(transaction, sender.role, user, volume, bucket):
        require_rights(transaction, user, body)
        transaction.creator = user
    if not all(manages(transaction, sender.role, user, one, "") for one in (body.volume, volume)):
        transaction.is_answered = True  # a replay knows the owners of volumes alone


def _require_own_volume(transaction: Transaction, sender: _Sender, volumes: set[str]) -> None:
    """Refuse an access id outside of the volume of its tenant."""
    own = volume_of_access_id(transaction, sender.name)
    if volumes != {own}:
        raise CommandError(ErrorCode.PERMISSION_DENIED, f"the access id {sender.name} works in the volume {own} alone")


def _has_no_owner(transaction: Transaction, body: Any) -> bool:
    """Return whether a collection command is about the whole shard or buckets of a deleted volume, or a quota is that
    of a volume.
    """
    if isinstance(body, records.SetQuota) and not body.bucket:
        return True
    is_asked = isinstance(body, records.SetCollection | records.SetBreaker | records.ResetBreaker)
    return is_asked and transaction.work.table(VOLUME_TABLE).get(volume_key(body.volume)) is None


def require_manager(transaction: Transaction, user: str, volume: str, bucket: str) -> None:
    """Refuse a user who manages neither a volume nor a bucket of it. The handler refuses a missing one.

    Raises:
        CommandError: PERMISSION_DENIED.
    """
    is_there = transaction.work.table(VOLUME_TABLE).get(volume_key(volume)) is not None
    role = transaction.signers.role_of(user)
    if is_there and (role is None or not manages(transaction, role, user, volume, bucket)):
        raise CommandError(
            ErrorCode.PERMISSION_DENIED,
            f"{user or 'an unknown user'} does not own {volume}/{bucket}: its owner or an administrator may do this",
        )


def manages(transaction: Transaction, role: SecretRole, user: str, volume: str, bucket: str) -> bool:
    """Return whether a user may do everything with a bucket: as administrator, or as owner of it or of its volume."""
    work = transaction.work
    rows = (
        work.table(VOLUME_TABLE).get(volume_key(volume)),
        work.table(BUCKET_TABLE).get(bucket_key(volume, bucket)) if bucket else None,
    )
    return any(row is not None and may_manage(role, user, row.owner) for row in rows)


def is_administrator(transaction: Transaction) -> bool:
    """Return whether an administrator has sent the present command; always true while commands need no signature."""
    signers = transaction.signers
    return not signers.is_on or signers.role_of(transaction.user) is SecretRole.ADMINISTRATOR


def manages_volume(transaction: Transaction, volume: str) -> bool:
    """Return whether the sender of the present command may do everything with a volume; true without signatures."""
    signers = transaction.signers
    if not signers.is_on:
        return True
    token = signer_by_token(transaction.work, signers, transaction.user, transaction.log_time_ms)
    user = _principal(signers, transaction.user, token)
    role = signers.role_of(user)
    return role is not None and manages(transaction, role, user, volume, "")


def check_internal(transaction: Transaction, message: Message, command: MetadataCommand) -> None:
    """Refuse an internal command that neither its service nor an administrator has signed.

    Raises:
        InvalidMessageError: the signature is missing or wrong; the command is dead-lettered.
    """
    try:
        if command.sender:
            transaction.signers.require_service(message, command)
            return
        require_administrator(transaction.signers, message, command)
    except DeniedError as error:
        raise InvalidMessageError(str(error)) from error


def require_administrator(signers: Signers, message: Message, command: MetadataCommand) -> None:
    """Refuse a command that no administrator has signed recently.

    Raises:
        DeniedError: the signer is not an administrator.
    """
    if signers.require_person(message, command) is not SecretRole.ADMINISTRATOR:
        raise DeniedError(f"{type(command.body).__name__} is for administrators, which {command.user} is not")


def set_secret(transaction: Transaction, change: SetSecret) -> Committed:
    """Add, change or remove the secret of a user or a service.

    Raises:
        CommandError: INVALID_REQUEST, also for the name of an access id without a secret: when that gets one again, it
            would replace the user's.
    """
    if is_access_id(transaction, change.name):
        raise CommandError(
            ErrorCode.INVALID_REQUEST, f"{change.name} is an access id: its user or tenant changes its secret"
        )
    transaction.signers.set_secret(change, transaction.work.table(SECRET_TABLE))
    return Committed(0)


def set_groups(transaction: Transaction, change: SetGroups) -> Committed:
    """Set the groups of a user."""
    transaction.signers.set_groups(change, transaction.work.table(SECRET_TABLE))
    return Committed(0)
