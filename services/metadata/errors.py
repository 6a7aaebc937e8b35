"""Refusals of a client's command, with Ozone's codes."""

from __future__ import annotations

from enum import StrEnum

from services.runtime.errors import DeepcleanError


class ErrorCode(StrEnum):
    """Why a command is refused."""

    VOLUME_NOT_FOUND = "VOLUME_NOT_FOUND"
    VOLUME_ALREADY_EXISTS = "VOLUME_ALREADY_EXISTS"
    VOLUME_NOT_EMPTY = "VOLUME_NOT_EMPTY"
    BUCKET_NOT_FOUND = "BUCKET_NOT_FOUND"
    BUCKET_ALREADY_EXISTS = "BUCKET_ALREADY_EXISTS"
    BUCKET_NOT_EMPTY = "BUCKET_NOT_EMPTY"
    CONTAINS_SNAPSHOT = "CONTAINS_SNAPSHOT"
    KEY_NOT_FOUND = "KEY_NOT_FOUND"
    KEY_ALREADY_EXISTS = "KEY_ALREADY_EXISTS"
    KEY_RENAME_ERROR = "KEY_RENAME_ERROR"
    NOT_A_FILE = "NOT_A_FILE"
    FILE_ALREADY_EXISTS = "FILE_ALREADY_EXISTS"
    FILE_NOT_FOUND = "FILE_NOT_FOUND"
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


class CommandError(DeepcleanError):
    """A command that is refused: nothing changes, and the client is told why."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
