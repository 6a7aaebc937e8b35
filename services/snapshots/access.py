"""Authorization of commands: key_deletion by its signature, users by their signature and the buckets that they own.

Metadata knows the owners of buckets and sends the owner with each capture. This service uses the owner of the bucket's
newest snapshot. In a bucket without snapshots metadata decides about a create, and only administrators may set a
policy or a consumer.
"""

from __future__ import annotations

from typing import Any

from schemas import records
from schemas.error_codes import ErrorCode
from schemas.records import SecretRole, SetSecret, SnapshotCommand
from services.domain.authorization import may_manage
from services.domain.errors import InvalidMessageError
from services.domain.refusals import CommandError
from services.runtime.loop.service import Message, Work
from services.runtime.parts.signers import DeniedError, Signers
from services.snapshots.state.rows import SnapshotRows
from services.snapshots.state.tables import SECRET_TABLE
from services.storage.tables import Tables

_ADMINISTRATORS_ONLY = (SetSecret, records.ResolveDeadLetter, records.Settle)
"""Commands for administrators only. A settle ends undo windows and bypasses claim rates and hours for all users."""


class Access:
    """Checks signatures and permissions. Signatures are required once an administrator has a secret."""

    def __init__(self, rows: SnapshotRows) -> None:
        self._rows = rows
        self._signers = Signers()

    @property
    def is_on(self) -> bool:
        """Return whether commands must be signed."""
        return self._signers.is_on

    def restore(self, tables: Tables) -> None:
        """Read the secrets from the table."""
        self._signers.restore(row for _, row in tables.table(SECRET_TABLE).scan())

    def check_service(self, message: Message, command: SnapshotCommand) -> None:
        """Check that a service has signed its command.

        Raises:
            InvalidMessageError: the signature is missing or wrong; the loop dead-letters the command.
        """
        if not self._signers.is_on:
            return
        try:
            self._signers.require_service(message, command)
        except DeniedError as error:
            raise InvalidMessageError(str(error)) from error

    def check_client(self, message: Message, command: SnapshotCommand) -> None:
        """Check that the user of a client's command has signed it and is authorized.

        Raises:
            CommandError: PERMISSION_DENIED.
        """
        try:
            role = self._signers.require_person(message, command)
        except DeniedError as error:
            raise CommandError(ErrorCode.PERMISSION_DENIED, str(error)) from error
        body: Any = command.body
        if role is SecretRole.ADMINISTRATOR:
            return
        if isinstance(body, _ADMINISTRATORS_ONLY):
            raise CommandError(
                ErrorCode.PERMISSION_DENIED, f"{type(body).__name__} is for administrators, which {command.user} is not"
            )
        chain = self._rows.active_chain(body.volume, body.bucket)
        if not chain and isinstance(body, records.CreateSnapshot):
            return  # the owner is not known here: metadata decides
        if not may_manage(role, command.user, chain[-1].owner if chain else ""):
            raise CommandError(
                ErrorCode.PERMISSION_DENIED,
                f"{command.user} is not known to own {body.volume}/{body.bucket}: its owner or an administrator may "
                f"do this, and as long as it has no snapshot only an administrator",
            )

    def set_secret(self, change: SetSecret, work: Work) -> None:
        """Add, change or remove the secret of a user or a service.

        Raises:
            CommandError: the change is refused.
        """
        self._signers.set_secret(change, work.table(SECRET_TABLE))
