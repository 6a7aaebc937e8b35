"""Errors with which only the snapshots service refuses a command."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.error_codes import ErrorCode
from schemas.records import TagRow
from services.domain.refusals import CommandError


class TaggedSnapshotError(CommandError):
    """The snapshot is protected by a tag, and is not deleted."""

    def __init__(self, snapshot: str, tags: Sequence[TagRow]) -> None:
        names = ", ".join(_described(tag) for tag in tags)
        super().__init__(
            ErrorCode.TAGGED_SNAPSHOT,
            f"snapshot {snapshot} is kept by {'a tag' if len(tags) == 1 else 'tags'}: {names}; delete "
            f"{'it' if len(tags) == 1 else 'them'} first (deepclean tag delete)",
        )


def _described(tag: TagRow) -> str:
    said = ", ".join(part for part in (tag.owner and f"of {tag.owner}", tag.reason) if part)
    return f"{tag.tag} ({said})" if said else tag.tag


class ChainCorruptedError(CommandError):
    """The chain is corrupted: no snapshot may be added to it or removed from it."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            ErrorCode.INTERNAL_ERROR,
            f"Snapshot chain is corrupted ({reason}). Claims are stopped; mend the previous ids in snapshotInfoTable, "
            f"restart snapshots, then resume claims",
        )
