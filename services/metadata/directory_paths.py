"""Ids of directories by their paths, in memory: commands come to the same directories again and again.

An entry holds as long as no directory of its bucket is moved or deleted; then, and whenever a command is undone that
may have made directories, all are forgotten. What is not here is looked up in directoryTable.
"""

from __future__ import annotations

MAX_PATHS = 50_000


class DirectoryPaths:
    """What was found or made since the last directory was moved or deleted."""

    def __init__(self) -> None:
        self._ids: dict[tuple[int, str], int] = {}

    def find(self, bucket_id: int, path: str) -> int | None:
        """Id of the directory of a path, if it is known here."""
        return self._ids.get((bucket_id, path))

    def remember(self, bucket_id: int, path: str, directory_id: int) -> None:
        """A directory is in the bucket at this path."""
        if len(self._ids) >= MAX_PATHS:
            self._ids.clear()
        self._ids[bucket_id, path] = directory_id

    def clear(self) -> None:
        """Forget all of them."""
        self._ids.clear()
