"""Refusals of a command or a read: a code, and a sentence for the client."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.error_codes import ErrorCode
from services.domain.errors import DeepcleanError


class CommandError(DeepcleanError):
    """A command that is refused: nothing changes, and the client is told why."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class NotDone:
    """A command that changed something without finishing what it asks for: how far it is."""

    code: ErrorCode
    message: str


class SnapshotExpiredError(CommandError):
    """A snapshot was dropped; ``next_snapshot`` names the one at which its reader can continue, if there is one.

    ``named`` says which snapshot, in words; ``next_snapshot`` is a name or an id, as the reader asked.
    """

    def __init__(self, named: str, next_snapshot: str) -> None:
        advice = f"reopen at {next_snapshot}, the next one" if next_snapshot else "no later one is there"
        super().__init__(ErrorCode.SNAPSHOT_EXPIRED, f"{named} has expired or was deleted: {advice}")
        self.next_snapshot = next_snapshot
