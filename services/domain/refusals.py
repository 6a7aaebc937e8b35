"""Refusals of a command or a read: an error code and a sentence for the client."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.error_codes import ErrorCode
from services.domain.errors import DeepcleanError


class CommandError(DeepcleanError):
    """A refused command or read: nothing changes, and the client gets the reason."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class NotDone:
    """The answer to a command that made progress without finishing: an error code and the progress."""

    code: ErrorCode
    message: str


class SnapshotExpiredError(CommandError):
    """A snapshot was dropped; ``next_snapshot`` is the one at which its reader can continue, or empty.

    ``named`` describes the dropped snapshot in words; ``next_snapshot`` is a name or an id, as in the request.
    """

    def __init__(self, named: str, next_snapshot: str) -> None:
        advice = f"reopen at {next_snapshot}, the next one" if next_snapshot else "no later snapshot exists"
        super().__init__(ErrorCode.SNAPSHOT_EXPIRED, f"{named} has expired or was deleted: {advice}")
        self.next_snapshot = next_snapshot
