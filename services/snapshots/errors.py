"""Refusals of a command, with Ozone's codes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from schemas.records import TagRow
from services.domain.errors import DeepcleanError


class ErrorCode(StrEnum):
    """Why a command is refused. Codes of a refused take are metadata's and pass through."""

    INVALID_SNAPSHOT_ERROR = "INVALID_SNAPSHOT_ERROR"
    TOO_MANY_SNAPSHOTS = "TOO_MANY_SNAPSHOTS"
    BUCKET_BUSY = "BUCKET_BUSY"
    """The bucket is being rolled back, or a snapshot of it is half made."""
    FILE_ALREADY_EXISTS = "FILE_ALREADY_EXISTS"
    FILE_NOT_FOUND = "FILE_NOT_FOUND"
    FEATURE_NOT_ENABLED = "FEATURE_NOT_ENABLED"
    INVALID_REQUEST = "INVALID_REQUEST"
    OLD_REQUEST = "OLD_REQUEST"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    WRONG_SHARD = "WRONG_SHARD"
    TAGGED_SNAPSHOT = "TAGGED_SNAPSHOT"
    """A tag holds the snapshot."""
    SNAPSHOT_EXPIRED = "SNAPSHOT_EXPIRED"
    """The snapshot was there, and has expired or was deleted; only reads say so."""
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    """The shard has as many tags, consumers or policies as it may have."""
    RETENTION_NOT_FOUND = "RETENTION_NOT_FOUND"
    """The bucket has no retention policy."""
    DEAD_LETTER_NOT_FOUND = "DEAD_LETTER_NOT_FOUND"
    """The shard has no dead letter of this number."""
    DEAD_LETTER_RESOLVED = "DEAD_LETTER_RESOLVED"
    """Somebody has dealt with it before."""
    INTERNAL_ERROR = "INTERNAL_ERROR"
    """The chain of this shard is corrupted: what Ozone answers then, too."""


class CommandError(DeepcleanError):
    """A command that is refused: nothing changes, and the sender is told why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TaggedSnapshotError(CommandError):
    """A snapshot that is held is not deleted."""

    def __init__(self, snapshot: str, tags: Sequence[TagRow]) -> None:
        names = ", ".join(_described(tag) for tag in tags)
        super().__init__(
            ErrorCode.TAGGED_SNAPSHOT,
            f"snapshot {snapshot} is held by {'tag' if len(tags) == 1 else 'tags'} {names}: delete "
            f"{'it' if len(tags) == 1 else 'them'} first (deepclean tag delete)",
        )


def _described(tag: TagRow) -> str:
    said = ", ".join(part for part in (tag.owner and f"of {tag.owner}", tag.reason) if part)
    return f"{tag.tag} ({said})" if said else tag.tag


class SnapshotExpiredError(CommandError):
    """A snapshot was there and is not any more; ``next_snapshot`` is where its reader can go on, if anywhere."""

    def __init__(self, snapshot: str, next_snapshot: str) -> None:
        advice = f"reopen at {next_snapshot}, the next one" if next_snapshot else "no later one is there"
        super().__init__(ErrorCode.SNAPSHOT_EXPIRED, f"snapshot {snapshot} has expired or was deleted: {advice}")
        self.next_snapshot = next_snapshot


class ChainCorruptedError(CommandError):
    """The chain does not hold together: nothing may be added to it or taken from it."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            ErrorCode.INTERNAL_ERROR,
            f"Snapshot chain is corrupted ({reason}). Claims are stopped; mend the previous ids in snapshotInfoTable, "
            f"restart snapshots, then resume claims",
        )
