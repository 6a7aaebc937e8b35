"""Checks the rights of a command's sender in log order: services must have signed, users must own the volume."""

from __future__ import annotations

from typing import Any

from schemas import records
from schemas.error_codes import ErrorCode
from schemas.records import Committed, MetadataCommand, SecretRole, SetSecret
from services.domain.authorization import may_manage
from services.domain.errors import InvalidMessageError
from services.domain.refusals import CommandError
from services.domain.table_keys import volume_key
from services.metadata.state.tables import SECRET_TABLE, VOLUME_TABLE
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Message
from services.runtime.parts.signers import DeniedError, Signers

_ADMINISTRATORS_ONLY = (records.CreateVolume, records.SetSecret, records.RequeueOrphans)


def check_client(transaction: Transaction, message: Message, command: MetadataCommand) -> None:
    """Refuse a client's command unless its user has signed it and has the right to it.

    Raises:
        CommandError: PERMISSION_DENIED.
    """
    try:
        role = transaction.signers.require_person(message, command)
    except DeniedError as error:
        raise CommandError(ErrorCode.PERMISSION_DENIED, str(error)) from error
    body: Any = command.body
    if isinstance(body, _ADMINISTRATORS_ONLY) or _has_no_owner(transaction, body):
        if role is not SecretRole.ADMINISTRATOR:
            raise CommandError(
                ErrorCode.PERMISSION_DENIED, f"{type(body).__name__} is for administrators, which {command.user} is not"
            )
        return
    require_manager(transaction, command.user, body.volume)


def _has_no_owner(transaction: Transaction, body: Any) -> bool:
    """Return whether a collection command is about the whole shard, or about buckets of a deleted volume."""
    is_asked = isinstance(body, records.SetCollection | records.SetBreaker | records.ResetBreaker)
    return is_asked and transaction.work.table(VOLUME_TABLE).get(volume_key(body.volume)) is None


def require_manager(transaction: Transaction, user: str, volume: str) -> None:
    """Refuse a user without the right to manage a volume's contents. The handler refuses a missing volume.

    Raises:
        CommandError: PERMISSION_DENIED.
    """
    row = transaction.work.table(VOLUME_TABLE).get(volume_key(volume))
    role = transaction.signers.role_of(user)
    if row is not None and (role is None or not may_manage(role, user, row.owner)):
        raise CommandError(
            ErrorCode.PERMISSION_DENIED,
            f"{user or 'an unknown user'} does not own the volume {volume}: its owner or an administrator may do this",
        )


def is_administrator(transaction: Transaction) -> bool:
    """Return whether an administrator has sent the present command; always true while commands need no signature."""
    signers = transaction.signers
    return not signers.is_on or signers.role_of(transaction.user) is SecretRole.ADMINISTRATOR


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
    """Add, change or remove the secret of a user or a service."""
    transaction.signers.set_secret(change, transaction.work.table(SECRET_TABLE))
    return Committed(0)
