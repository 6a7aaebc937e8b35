"""The owners of secrets, and the check of a command's signature, for every service that accepts commands.

The secrets are rows of the service's own s3SecretTable, changed by commands of its own log. So the state and the log
alone decide whether a command is allowed, and a replay of the log years later decides the same.

Signatures are required once the table has an administrator. Before ``restore`` has read the table, all commands are
refused. Add the services' secrets before the first administrator's, so that none of their commands is refused in
between.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.error_codes import ErrorCode
from schemas.records import MetadataCommand, SecretRole, SecretRow, SetSecret, SnapshotCommand
from schemas.signatures import LONGEST_SECRET, SHORTEST_SECRET, is_signed_with
from services.domain.authorization import SIGNED_FOR_MS, is_timely, why_not_named
from services.domain.errors import DeepcleanError
from services.domain.refusals import CommandError
from services.runtime.loop.service import Message
from services.storage.tables import Table

Command = MetadataCommand | SnapshotCommand


class DeniedError(DeepcleanError):
    """The sender of a command is unknown or unauthorized. A denied command changes no state."""


class Signers:
    """The owners of secrets at one shard of one service."""

    def __init__(self) -> None:
        self._rows: dict[str, SecretRow] = {}
        self.is_on = True
        """Whether commands must be signed: False only once a table without an administrator was read."""

    def restore(self, rows: Iterable[SecretRow]) -> None:
        """Replace the owners by the rows of the table."""
        self._rows = {row.name: row for row in rows}
        self._look()

    def _look(self) -> None:
        self.is_on = any(row.role is SecretRole.ADMINISTRATOR for row in self._rows.values())

    def set_secret(self, change: SetSecret, table: Table[SecretRow]) -> None:
        """Set or remove a secret, here and in its table. Raise CommandError (INVALID_REQUEST) with the remedy."""
        row = self._changed(change)
        if row is None:
            table.delete(change.name.encode())
            self._rows.pop(change.name, None)
        else:
            table.put(change.name.encode(), row)
            self._rows[change.name] = row
        self._look()

    def _changed(self, change: SetSecret) -> SecretRow | None:
        """Return the row after a change; None when the secret is removed."""
        if reason := why_not_named(change.name, change.role):
            raise CommandError(ErrorCode.INVALID_REQUEST, reason)
        before = self._rows.get(change.name)
        if self.is_on and not self._others_administer(change):
            raise CommandError(
                ErrorCode.INVALID_REQUEST, f"{change.name} is the last administrator: name another one first"
            )
        if not change.secret:
            return None
        if not SHORTEST_SECRET <= len(change.secret) <= LONGEST_SECRET:
            raise CommandError(
                ErrorCode.INVALID_REQUEST,
                f"a secret has {SHORTEST_SECRET} to {LONGEST_SECRET} bytes, this has {len(change.secret)}",
            )
        is_same = before is not None and before.secret == change.secret
        previous = b"" if before is None or is_same else before.secret
        return SecretRow(change.name, change.role, change.secret, previous)

    def _others_administer(self, change: SetSecret) -> bool:
        if change.secret and change.role is SecretRole.ADMINISTRATOR:
            return True
        return any(row.role is SecretRole.ADMINISTRATOR for name, row in self._rows.items() if name != change.name)

    def require_service(self, message: Message, command: Command) -> None:
        """Refuse a command that its sender, a service, has not signed.

        Raises:
            DeniedError: the signature is missing or of another sender, or the sender is no service.
        """
        row = self._rows.get(command.sender)
        if command.user or row is None or row.role is not SecretRole.SERVICE or not _is_signed_by(row, message):
            raise DeniedError(f"{type(command.body).__name__} is not signed by {command.sender}: {_ADVICE}")

    def require_person(self, message: Message, command: Command) -> SecretRole:
        """Refuse a command that its user has not signed recently; return the user's role.

        The age is measured by the record's own time. The log's highest time is not used: one clock that ran ahead would
        lock out all users until the other clocks have caught up.

        Raises:
            DeniedError: the signature is missing or of another user, or the command may be an old one sent again.
        """
        row = self._rows.get(command.user)
        if row is None or row.role is SecretRole.SERVICE or not _is_signed_by(row, message):
            who = command.user or "a user"
            raise DeniedError(f"{type(command.body).__name__} is not signed by {who}: {_ADVICE}")
        if not command.client_id.startswith(f"{command.user}/") or command.number <= 0:
            # So no user can use up another's numbers, and a duplicate counts once.
            raise DeniedError(
                f"a signed command needs a number above 0 and a client id that begins with {command.user}/"
            )
        if not is_timely(command.issued_at_ms, message.timestamp_ms):
            raise DeniedError(
                f"the command was signed at {command.issued_at_ms} ms, more than {SIGNED_FOR_MS // 60_000} minutes "
                f"from when the broker took it: set the client's clock, and send it again"
            )
        return row.role

    def role_of(self, name: str) -> SecretRole | None:
        """Return the role of a name; None when it has no secret."""
        row = self._rows.get(name)
        return None if row is None else row.role


_ADVICE = "name the secret file of who sends it, and see that its secret is known (docs/security.md)"


def _is_signed_by(row: SecretRow, message: Message) -> bool:
    topic, value = message.topic.name, message.value
    return is_signed_with(row.secret, topic, value) or (
        row.previous_secret != b"" and is_signed_with(row.previous_secret, topic, value)
    )
