"""Whether a directory of the active namespace can be reached from its bucket, and if not, why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A directory in ``directoryTable`` of the active store, or in ``deletedDirectoryTable`` of any store."""

    name: bytes
    parent_id: int
    deleted_in: int | None = None
    """Number of the store, in the order of the chain, whose ``deletedDirectoryTable`` has it."""


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """Where a directory is in the tree."""

    path: str
    """Path in the bucket, without slashes at its ends; what of it is known, if it cannot be reached."""
    deleted_in: int | None = None
    """Number of the store in which the nearest deleted directory above it waits to be expanded."""
    deleted_id: int = 0
    is_orphaned: bool = False
    """Nothing leads to it, and no deleted directory does: Ozone frees what is below it never."""


Lookup = Callable[[int], DirectoryEntry | None]
MAX_DEPTH = 4_096


def place_of(directory_id: int, bucket_id: int, lookup: Lookup) -> DirectoryPlace:
    """Find the place of a directory by its parents. The nearest deleted one counts: its store judges what is below."""
    names: list[bytes] = []
    deleted_in, deleted_id = None, 0
    seen: set[int] = set()
    current = directory_id
    while current != bucket_id:
        entry = lookup(current) if len(names) < MAX_DEPTH and current not in seen else None
        if entry is None:
            path = "/".join(name.decode(errors="replace") for name in reversed(names))
            return DirectoryPlace(path, deleted_in, deleted_id, is_orphaned=deleted_in is None)
        seen.add(current)
        names.append(entry.name)
        if entry.deleted_in is not None and deleted_in is None:
            deleted_in, deleted_id = entry.deleted_in, current
        current = entry.parent_id
    path = "/".join(name.decode(errors="replace") for name in reversed(names))
    return DirectoryPlace(path, deleted_in, deleted_id)
