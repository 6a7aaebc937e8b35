"""Whether who sent a command may do it: key_deletion by its signature, people by what they own.

Who owns a bucket is metadata's to know. A create is decided there; everything else by the owner that came back with
the bucket's newest snapshot. Of a bucket without snapshots only administrators may set a policy or a consumer.
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
from services.snapshots.state.tables import SECRET_TABLE, ReadableTables

_ADMINISTRATORS_ONLY = (SetSecret, records.ResolveDeadLetter, records.Settle)
"""A settle ends undo windows and passes the pace of everybody's deletions."""


class Access:
    """Knows who has a secret, and asks for signatures once an administrator has one."""

    def __init__(self, rows: SnapshotRows) -> None:
        self._rows = rows
        self._signers = Signers()

    @property
    def is_on(self) -> bool:
        """Whether commands must be signed."""
        return self._signers.is_on

    def restore(self, tables: ReadableTables) -> None:
        """Start from the table."""
        self._signers.restore(row for _, row in tables.table(SECRET_TABLE).scan())

    def check_service(self, message: Message, command: SnapshotCommand) -> None:
        """Refuse a service's command that it has not signed.

        Raises:
            InvalidMessageError: it goes to the dead letters.
        """
        if not self._signers.is_on:
            return
        try:
            self._signers.require_service(message, command)
        except DeniedError as error:
            raise InvalidMessageError(str(error)) from error

    def check_client(self, message: Message, command: SnapshotCommand) -> None:
        """Refuse a client's command unless its user has signed it and may do it.

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
        owner = self._owner(body.volume, body.bucket)
        if owner is None and isinstance(body, records.CreateSnapshot):
            return  # metadata knows, and its answer decides
        if not may_manage(role, command.user, owner or ""):
            raise CommandError(
                ErrorCode.PERMISSION_DENIED,
                f"{command.user} is not known to own {body.volume}/{body.bucket}: its owner or an administrator may "
                f"do this, and as long as it has no snapshot only an administrator",
            )

    def _owner(self, volume: str, bucket: str) -> str | None:
        chain = self._rows.active_chain(volume, bucket)
        return chain[-1].owner if chain else None

    def set_secret(self, change: SetSecret, work: Work) -> None:
        """Add, change or remove the secret of a user or a service.

        Raises:
            CommandError: it is refused.
        """
        self._signers.set_secret(change, work.table(SECRET_TABLE))
