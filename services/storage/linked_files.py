"""How much of the disk directories hold whose files are links to one another's, as checkpoints do."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from time import time_ns

from services.storage.rocks_views import store_error

_SAME_TICK_NS = 1_000_000_000
"""A directory that changed so lately may change once more without another time of change: file systems go by ticks of a
clock."""
_UNSURE = -1
"""In place of a time of change that may stay the same."""


def file_sizes(directory: Path) -> dict[int, int]:
    """Size of each file by its number on the disk, which links to it share; empty for a directory that is not there.

    Raises:
        StoreError: the directory cannot be read.
    """
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


def _time_of_change(directory: Path, now_ns: int) -> int | None:
    """When something was added to a directory or taken away; None for one that is not there."""
    try:
        changed_ns = directory.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    except OSError as error:
        raise store_error(directory, "read", error) from error
    return changed_ns if now_ns - changed_ns >= _SAME_TICK_NS else _UNSURE


class LinkedFiles:
    """The files of some directories, each counted once; for one thread.

    A directory is listed again only when something was added to it or taken away. To list a thousand checkpoints of a
    hundred files every five seconds would take a fifth of a processor, and hold Python's lock while the writer needs
    it. What grows in place is not seen to grow: of a checkpoint that is its log alone.
    """

    def __init__(self) -> None:
        self._listed: dict[Path, tuple[int, frozenset[int]]] = {}
        """By directory its time of change before it was listed, and the numbers of its files."""
        self._links: Counter[int] = Counter()
        self._sizes: dict[int, int] = {}

    def look(self, directories: Iterable[Path]) -> None:
        """Take in what has changed: these are all directories that there are.

        Raises:
            StoreError: one of them cannot be read.
        """
        left, now_ns = dict(self._listed), time_ns()
        for directory in directories:
            changed_ns = _time_of_change(directory, now_ns)
            if changed_ns is None:
                continue
            before, files = left.pop(directory, (_UNSURE, frozenset[int]()))
            if before == _UNSURE or before != changed_ns:
                self._listed[directory] = changed_ns, self._add(file_sizes(directory))
                self._remove(files)
        for directory, (_, files) in left.items():
            self._remove(files)
            del self._listed[directory]

    def _add(self, files: dict[int, int]) -> frozenset[int]:
        self._links.update(files.keys())
        self._sizes |= files
        return frozenset(files)

    def _remove(self, files: frozenset[int]) -> None:
        for number in files:
            self._links[number] -= 1
            if not self._links[number]:
                del self._links[number], self._sizes[number]

    def bytes_beside(self, others: Collection[int]) -> int:
        """Bytes of the files that are none of ``others``, by their numbers."""
        return sum(size for number, size in self._sizes.items() if number not in others)
