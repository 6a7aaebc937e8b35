"""Who has a secret, and whether a command was signed by who it says: asked by every service that takes commands.

The secrets are rows of the service's own s3SecretTable, changed by commands of its own log. So whether a command is
allowed follows from the state and the log alone, today and when the log is read again in ten years.

Nothing is demanded until an administrator is known: that is what ``restore`` finds in a table. Before a table was read
nobody is known, and everybody is refused. Services are made known before an administrator is, so that none of their
commands is refused in between.
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
    """Who sent a command is not known, or may not do it. What was denied leaves no trace in the state."""


class Signers:
    """Everyone who has a secret at one shard of one service."""

    def __init__(self) -> None:
        self._rows: dict[str, SecretRow] = {}
        self.is_on = True
        """Whether commands must be signed: they must, unless a table was read that knows no administrator."""

    def restore(self, rows: Iterable[SecretRow]) -> None:
        """Start from the table."""
        self._rows = {row.name: row for row in rows}
        self._look()

    def _look(self) -> None:
        self.is_on = any(row.role is SecretRole.ADMINISTRATOR for row in self._rows.values())

    def set_secret(self, change: SetSecret, table: Table[SecretRow]) -> None:
        """Add, change or remove a secret, here and in the service's table.

        Raises:
            CommandError: INVALID_REQUEST; why, and what to do.
        """
        row = self._changed(change)
        if row is None:
            table.delete(change.name.encode())
            self._rows.pop(change.name, None)
        else:
            table.put(change.name.encode(), row)
            self._rows[change.name] = row
        self._look()

    def _changed(self, change: SetSecret) -> SecretRow | None:
        """The row after a change; None when the name goes."""
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
            DeniedError: it is somebody else's, or nobody's.
        """
        row = self._rows.get(command.sender)
        if command.user or row is None or row.role is not SecretRole.SERVICE or not _is_signed_by(row, message):
            raise DeniedError(f"{type(command.body).__name__} is not signed by {command.sender}: {_ADVICE}")

    def require_person(self, message: Message, command: Command) -> SecretRole:
        """Refuse a command that its user has not signed, just now; says what the user is.

        Its age is measured by the record's own time: a log's time that a clock once pushed ahead would lock everybody
        out until the clocks have caught up.

        Raises:
            DeniedError: it is somebody else's, or nobody's, or may be an old one that is sent again.
        """
        row = self._rows.get(command.user)
        if row is None or row.role is SecretRole.SERVICE or not _is_signed_by(row, message):
            who = command.user or "a user"
            raise DeniedError(f"{type(command.body).__name__} is not signed by {who}: {_ADVICE}")
        if not command.client_id.startswith(f"{command.user}/") or command.number <= 0:
            # Nobody can use up another's numbers, and what is sent again counts once.
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
        """What somebody is; None for a stranger."""
        row = self._rows.get(name)
        return None if row is None else row.role


_ADVICE = "name the secret file of who sends it, and see that its secret is known (docs/security.md)"


def _is_signed_by(row: SecretRow, message: Message) -> bool:
    topic, fingerprint, value = message.topic.name, message.fingerprint, message.value
    return is_signed_with(row.secret, topic, fingerprint, value) or (
        row.previous_secret != b"" and is_signed_with(row.previous_secret, topic, fingerprint, value)
    )
