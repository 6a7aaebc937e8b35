"""Refusals of a command, with Ozone's codes."""

from __future__ import annotations

from enum import StrEnum

from services.runtime.errors import DeepcleanError


class ErrorCode(StrEnum):
    """Why a command is refused. Codes of a refused take are metadata's and pass through."""

    INVALID_SNAPSHOT_ERROR = "INVALID_SNAPSHOT_ERROR"
    TOO_MANY_SNAPSHOTS = "TOO_MANY_SNAPSHOTS"
    FILE_ALREADY_EXISTS = "FILE_ALREADY_EXISTS"
    FILE_NOT_FOUND = "FILE_NOT_FOUND"
    FEATURE_NOT_ENABLED = "FEATURE_NOT_ENABLED"
    INVALID_REQUEST = "INVALID_REQUEST"
    OLD_REQUEST = "OLD_REQUEST"
    WRONG_SHARD = "WRONG_SHARD"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    """The chain of this shard is corrupted: what Ozone answers then, too."""


class CommandError(DeepcleanError):
    """A command that is refused: nothing changes, and the sender is told why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ChainCorruptedError(CommandError):
    """The chain does not hold together: nothing may be added to it or taken from it."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            ErrorCode.INTERNAL_ERROR,
            f"Snapshot chain is corrupted ({reason}). Claims are stopped; mend the previous ids in snapshotInfoTable, "
            f"restart snapshots, then resume claims",
        )
