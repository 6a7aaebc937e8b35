"""Refusals of a client's command, with Ozone's codes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from services.domain.errors import DeepcleanError


class ErrorCode(StrEnum):
    """Why a command is refused."""

    VOLUME_NOT_FOUND = "VOLUME_NOT_FOUND"
    VOLUME_ALREADY_EXISTS = "VOLUME_ALREADY_EXISTS"
    VOLUME_NOT_EMPTY = "VOLUME_NOT_EMPTY"
    BUCKET_NOT_FOUND = "BUCKET_NOT_FOUND"
    BUCKET_ALREADY_EXISTS = "BUCKET_ALREADY_EXISTS"
    BUCKET_BUSY = "BUCKET_BUSY"
    BUCKET_NOT_EMPTY = "BUCKET_NOT_EMPTY"
    CONTAINS_SNAPSHOT = "CONTAINS_SNAPSHOT"
    KEY_NOT_FOUND = "KEY_NOT_FOUND"
    KEY_ALREADY_EXISTS = "KEY_ALREADY_EXISTS"
    KEY_RENAME_ERROR = "KEY_RENAME_ERROR"
    NOT_A_FILE = "NOT_A_FILE"
    FILE_ALREADY_EXISTS = "FILE_ALREADY_EXISTS"
    DIRECTORY_NOT_EMPTY = "DIRECTORY_NOT_EMPTY"
    INVALID_VOLUME_NAME = "INVALID_VOLUME_NAME"
    INVALID_BUCKET_NAME = "INVALID_BUCKET_NAME"
    INVALID_KEY_NAME = "INVALID_KEY_NAME"
    INVALID_PATH = "INVALID_PATH"
    INVALID_REQUEST = "INVALID_REQUEST"
    NOT_SUPPORTED_OPERATION = "NOT_SUPPORTED_OPERATION"
    OLD_REQUEST = "OLD_REQUEST"
    WRONG_SHARD = "WRONG_SHARD"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    TOO_LATE = "TOO_LATE"
    """What was to come back is claimed or gone."""
    DIRECTORY_EXPANDED = "DIRECTORY_EXPANDED"
    """A tree cannot come back as a whole: some of it may have moved to the garbage tables."""
    SNAPSHOT_IN_BETWEEN = "SNAPSHOT_IN_BETWEEN"
    """A snapshot was taken since the deletion, and another one holds what was to come back."""
    HELD_BY_SNAPSHOT = "HELD_BY_SNAPSHOT"
    """A snapshot holds an overwritten version: it can be copied from there, but not come back."""
    SEARCH_GOES_ON = "SEARCH_GOES_ON"
    """So far nobody owns the orphaned blocks: the same command, sent again, goes on."""
    FILE_NOT_FOUND = "FILE_NOT_FOUND"
    """No snapshot has this id, or one had it that was dropped two days ago or more; only reads say so."""
    SNAPSHOT_EXPIRED = "SNAPSHOT_EXPIRED"
    """The snapshot was there and was dropped; only reads say so."""


class CommandError(DeepcleanError):
    """A command that is refused: nothing changes, and the client is told why."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class NotDone:
    """A command that has not done what it asks for, and changes something all the same: how far it is."""

    code: ErrorCode
    message: str


class SnapshotExpiredError(CommandError):
    """A snapshot was dropped; ``next_snapshot`` is the id of the one at which its reader can go on, if any."""

    def __init__(self, snapshot_id: str, next_snapshot: str) -> None:
        advice = f"reopen at {next_snapshot}, the next one" if next_snapshot else "no later one is there"
        super().__init__(
            ErrorCode.SNAPSHOT_EXPIRED, f"the snapshot with the id {snapshot_id} has expired or was deleted: {advice}"
        )
        self.next_snapshot = next_snapshot
