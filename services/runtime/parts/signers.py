"""The owners of secrets, and the check of a command's signature, for every service that accepts commands.

The secrets are rows of the service's own s3SecretTable, changed by commands of its own log. So the state and the log
alone decide whether a command is allowed, and a replay of the log years later decides the same.

Signatures are required once the table has an administrator. Before ``restore`` has read the table, all commands are
refused. Add the services' secrets before the first administrator's, so that none of their commands is refused in
between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from schemas.error_codes import ErrorCode
from schemas.records import MetadataCommand, SecretRole, SecretRow, SetGroups, SetSecret, SnapshotCommand
from schemas.signatures import LONGEST_SECRET, SHORTEST_SECRET, is_signed_with
from services.domain.authorization import LONGEST_NAME, SIGNED_FOR_MS, is_timely, why_not_named
from services.domain.errors import DeepcleanError
from services.domain.refusals import CommandError
from services.runtime.loop.service import Message
from services.storage.tables import Table

Command = MetadataCommand | SnapshotCommand
MAX_GROUPS = 64
"""Maximum groups of a user."""


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
        check_secret(change.secret)
        is_same = before is not None and before.secret == change.secret
        previous = b"" if before is None or is_same else before.secret
        return SecretRow(change.name, change.role, change.secret, previous, before.groups if before else ())

    def set_of_access_id(self, access_id: str, user: str, secret: bytes, table: Table[SecretRow]) -> None:
        """Set the secret by which an access id signs as its user. Raise CommandError (INVALID_REQUEST)."""
        check_secret(secret)
        before = self._rows.get(access_id)
        previous = before.secret if before is not None and before.secret != secret else b""
        row = SecretRow(access_id, SecretRole.USER, secret, previous, principal=user)
        table.put(access_id.encode(), row)
        self._rows[access_id] = row

    def remove_access_id(self, access_id: str, table: Table[SecretRow]) -> None:
        """Remove the secret of an access id, if it has one."""
        if self._rows.pop(access_id, None) is not None:
            table.delete(access_id.encode())

    def set_groups(self, change: SetGroups, table: Table[SecretRow]) -> None:
        """Set the groups of a user, here and in the table. Raise CommandError (INVALID_REQUEST)."""
        row = self._rows.get(change.name)
        if row is None or row.principal or row.role is SecretRole.SERVICE:
            raise CommandError(
                ErrorCode.INVALID_REQUEST, f"{change.name[:LONGEST_NAME]!r} is not a user with a secret: set one first"
            )
        if len(change.groups) > MAX_GROUPS or not all(0 < len(group) <= LONGEST_NAME for group in change.groups):
            raise CommandError(
                ErrorCode.INVALID_REQUEST,
                f"a user has at most {MAX_GROUPS} groups, with names of 1 to {LONGEST_NAME} characters",
            )
        changed = replace(row, groups=tuple(sorted(set(change.groups))))
        table.put(change.name.encode(), changed)
        self._rows[change.name] = changed

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

    def require_person(self, message: Message, command: Command, token: SecretRow | None = None) -> SecretRole:
        """Refuse a command that its user has not signed recently; return the user's role.

        The age is measured by the record's own time. The log's highest time is not used: one clock that ran ahead would
        lock out all users until the other clocks have caught up.

        ``token`` is the secret of the delegation token that the command names as its user.

        Raises:
            DeniedError: the signature is missing or of another user, or the command may be an old one sent again.
        """
        row = token or self._rows.get(command.user)
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

    def groups_of(self, name: str) -> tuple[str, ...]:
        """Return the groups of a user."""
        row = self._rows.get(name)
        return () if row is None else row.groups

    def principal_of(self, name: str) -> str:
        """Return the user as whom an access id acts, or the name itself."""
        row = self._rows.get(name)
        return name if row is None or not row.principal else row.principal

    def role_of(self, name: str) -> SecretRole | None:
        """Return the role of a name; None when it has no secret."""
        row = self._rows.get(name)
        return None if row is None else row.role


_ADVICE = "name the secret file of who sends it, and see that its secret is known (docs/security.md)"


def check_secret(secret: bytes) -> None:
    """Refuse a secret of another length than those that sign. Raise CommandError (INVALID_REQUEST)."""
    if not SHORTEST_SECRET <= len(secret) <= LONGEST_SECRET:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"a secret has {SHORTEST_SECRET} to {LONGEST_SECRET} bytes, this has {len(secret)}",
        )


def _is_signed_by(row: SecretRow, message: Message) -> bool:
    topic, value = message.topic.name, message.value
    return is_signed_with(row.secret, topic, value) or (
        row.previous_secret != b"" and is_signed_with(row.previous_secret, topic, value)
    )
