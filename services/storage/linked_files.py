"""Measures the disk space of directories that share files by hard links, as checkpoints do."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from time import time_ns
from typing import NamedTuple

from services.storage.rocks_views import explaining

_SAME_TICK_NS = 1_000_000_000
"""A directory that changed less than this time ago may change again with the same modification time: file systems take
it from a clock with coarse ticks."""
_UNSURE = -1
"""Replaces a modification time that another change may leave as it is."""


def file_sizes(directory: Path) -> dict[int, int]:
    """Return the size of each file by its inode number, which its links share; empty for a missing directory.

    Raises:
        StoreError: the directory cannot be read.
    """
    files = {}
    with explaining(directory, "read"), suppress(FileNotFoundError):
        for file in directory.iterdir():
            with suppress(FileNotFoundError):  # compaction has removed it since
                status = file.stat()
                files[status.st_ino] = status.st_size
    return files


class _Counted(NamedTuple):
    size_bytes: int
    names: int
    """Names that were found."""
    links: int
    """All names, wherever they are."""


def _files_below(directories: Iterable[Path]) -> dict[tuple[int, int], _Counted]:
    """Return the files of directories and of all below them, by device and inode. What vanishes meanwhile is left out.

    Raises:
        OSError: a file cannot be looked at.
    """
    found: dict[tuple[int, int], _Counted] = {}
    for directory in directories:
        for place, _, names in os.walk(directory, onerror=_raise_unless_gone):
            for name in names:
                with suppress(FileNotFoundError):
                    status = Path(place, name).stat()
                    inode = status.st_dev, status.st_ino
                    before = found[inode].names if inode in found else 0
                    found[inode] = _Counted(status.st_size, before + 1, status.st_nlink)
    return found


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def tree_bytes(directory: Path) -> int:
    """Return the bytes of a directory's files, and of those below it, each counted once however many names it has."""
    return sum(one.size_bytes for one in _files_below([directory]).values())


def exclusive_bytes(directories: Iterable[Path]) -> int:
    """Return the bytes of the files that have all their names below some directories: what their deletion frees."""
    return sum(one.size_bytes for one in _files_below(directories).values() if one.names == one.links)


def _time_of_change(directory: Path, now_ns: int) -> int | None:
    """Return the modification time of a directory, ``_UNSURE`` if it is too recent, None for a missing directory."""
    with explaining(directory, "read"), suppress(FileNotFoundError):
        changed_ns = directory.stat().st_mtime_ns
        return changed_ns if now_ns - changed_ns >= _SAME_TICK_NS else _UNSURE
    return None


class LinkedFiles:
    """The files of some directories, each counted once. Not safe to share between threads.

    A directory is listed again only when files were added or removed. Listing a thousand checkpoints of a hundred files
    every five seconds would take a fifth of a processor, and hold Python's lock while the writer needs it. Growth of a
    file in place is not noticed: in a checkpoint only the log grows.
    """

    def __init__(self) -> None:
        self._listed: dict[Path, tuple[int, frozenset[int]]] = {}
        """Per directory: its modification time before it was listed, and the inode numbers of its files."""
        self._links: Counter[int] = Counter()
        self._sizes: dict[int, int] = {}

    def look(self, directories: Iterable[Path]) -> None:
        """Update the files; ``directories`` are all directories, and others are forgotten.

        Raises:
            StoreError: a directory cannot be read.
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

    def shares(self, others: Collection[int]) -> dict[Path, float]:
        """Return for each directory the bytes of its files that are not in ``others``, each divided by its links."""
        return {
            directory: sum(self._sizes[number] / self._links[number] for number in files if number not in others)
            for directory, (_, files) in self._listed.items()
        }

    def bytes_beside(self, others: Collection[int]) -> int:
        """Return the bytes of all files whose inode numbers are not in ``others``."""
        return sum(size for number, size in self._sizes.items() if number not in others)
