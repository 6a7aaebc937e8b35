"""How much of the disk directories hold whose files are links to one another's, as checkpoints do."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from time import time_ns

from services.storage.rocks_views import store_error

_SAME_TICK_NS = 1_000_000_000
"""What changed so lately may change once more without another time of change: file systems go by ticks of a clock."""


def file_sizes(directory: Path) -> dict[int, int]:
    """Size of each file by its number on the disk, which links to it share; empty for a directory that is not there."""
    files = {}
    try:
        for file in directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # compacted away meanwhile
                status = file.stat()
                files[status.st_ino] = status.st_size
    except FileNotFoundError:
        pass
    except OSError as error:
        raise store_error(directory, "read", error) from error
    return files


class LinkedFiles:
    """The files of some directories, each counted once.

    A directory is listed again only when something was added to it or taken away: a thousand checkpoints of a hundred
    files would take a fifth of a processor's time otherwise, and of what the writer's thread needs.
    """

    def __init__(self) -> None:
        self._listed: dict[Path, tuple[int, dict[int, int]]] = {}
        """By directory its time of change, and its files."""
        self._links: Counter[int] = Counter()
        self._sizes: dict[int, int] = {}

    def look(self, directories: Iterable[Path]) -> None:
        """Take in what has changed: these are all directories that there are.

        Raises:
            StoreError: one of them cannot be read.
        """
        gone = dict(self._listed)
        for directory in directories:
            try:
                changed_ns = directory.stat().st_mtime_ns
            except FileNotFoundError:
                continue
            known = gone.pop(directory, None)
            if known is None or known[0] != changed_ns or time_ns() - changed_ns < _SAME_TICK_NS:
                files = file_sizes(directory)
                self._add(files)
                self._remove(known[1] if known else {})
                self._listed[directory] = changed_ns, files
        for directory, (_, files) in gone.items():
            self._remove(files)
            del self._listed[directory]

    def _add(self, files: dict[int, int]) -> None:
        self._links.update(files.keys())
        self._sizes |= files

    def _remove(self, files: Iterable[int]) -> None:
        for number in files:
            self._links[number] -= 1
            if not self._links[number]:
                del self._links[number], self._sizes[number]

    def bytes_beside(self, others: Collection[int]) -> int:
        """Bytes of the files that are none of ``others``, by their numbers."""
        return sum(size for number, size in self._sizes.items() if number not in others)
