"""Copies of a database with its checkpoints: made while the database is written to, opened read-only.

::

    <directory>/db                    the database with all its families, outbox and positions among them
    <directory>/checkpoints/<name>    the database's checkpoints: hard links too

A copy gets its name by one rename when everything in it is on disk. It shares files with the database, so it takes no
space at first, and is lost with the same disk: copy it to another disk (``copy_files``).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rocksdict import Cache, Checkpoint, Rdict

from services.storage.rocks_checkpoints import (
    MAKING,
    Checkpoints,
    directory_name,
    make_directory,
    sync_directory,
)
from services.storage.rocks_options import RocksOptions
from services.storage.rocks_views import explaining
from services.storage.store import StoreError
from services.storage.tables import TableDefinition

DATABASE, CHECKPOINTS = "db", "checkpoints"
TABLE_SUFFIX = ".sst"


def has_database(directory: Path) -> bool:
    """Return whether a directory holds a database."""
    return (directory / DATABASE / "CURRENT").exists()


def count_checkpoints(copy: Path) -> int:
    """Return the number of checkpoints in a copy of a database."""
    directory = copy / CHECKPOINTS
    return sum(entry.is_dir() for entry in directory.iterdir()) if directory.exists() else 0


def write_copy(database: Rdict, checkpoints: Checkpoints, target: Path) -> None:
    """Copy a database and its checkpoints to a directory. A crash leaves no incomplete directory of that name.

    The writer calls it between two batches, so that the checkpoints belong to the state that is copied with them.
    """
    making = target.parent / f"{MAKING}{target.name}"
    with explaining(target, "made"):
        make_directory(target.parent)
        if target.exists():
            raise StoreError(f"{target} exists already: choose another name for this backup")
        if making.exists():
            shutil.rmtree(making)
        (making / CHECKPOINTS).mkdir(parents=True)
        Checkpoint(database).create_checkpoint(str(making / DATABASE))
        for name in checkpoints.names():
            with contextlib.suppress(KeyError):  # of no snapshot, or the writer would have removed it
                copied = making / CHECKPOINTS / directory_name(name)
                checkpoints.copy(name, copied)
                sync_directory(copied)
        sync_directory(making / CHECKPOINTS)
        sync_directory(making)
        making.rename(target)
        sync_directory(target.parent)


def copy_files(
    source: Path, target: Path, before_file: Callable[[], None] = lambda: None, earlier: Path | None = None
) -> int:
    """Copy a directory; return the bytes of its files, each counted once however many names it has.

    Table files never change. They are linked where the disk is the same. One that several checkpoints share is copied
    to another disk once. One that ``earlier``, a copy on the disk of the target, has already is linked to that.

    ``before_file`` is called before each file; what it raises ends the copying.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    return _Copying(before_file, {} if earlier is None else _tables_of(earlier)).copy(source, target)


class _Copying:
    """Copies directories, and knows which table files it has copied already."""

    def __init__(self, before_file: Callable[[], None], earlier: Mapping[_TableFile, Path]) -> None:
        self._before_file = before_file
        self._earlier = earlier
        self._copied: dict[tuple[int, int], Path] = {}
        """By device and inode, the first copy of each table file."""

    def copy(self, source: Path, target: Path) -> int:
        size_bytes = 0
        make_directory(target.parent)
        target.mkdir()
        for entry in sorted(source.iterdir()):
            if entry.is_dir():
                size_bytes += self.copy(entry, target / entry.name)
            else:
                self._before_file()
                size_bytes += self._copy_file(entry, target / entry.name)
        sync_directory(target)
        return size_bytes

    def _copy_file(self, file: Path, target: Path) -> int:
        """Copy or link a file; return its bytes, 0 for a further name of one. RocksDB appends to manifest and log."""
        found = file.stat()
        inode = found.st_dev, found.st_ino
        if file.suffix == TABLE_SUFFIX:
            if inode in self._copied and _link(self._copied[inode], target):
                return 0
            self._copied[inode] = target
            kept = self._earlier.get(_TableFile.of(file.name, found))
            if _link(file, target) or (kept is not None and _link(kept, target)):
                return found.st_size
        shutil.copy2(file, target)
        with target.open("rb") as copied:
            os.fsync(copied.fileno())
        return found.st_size


class _TableFile(NamedTuple):
    """What tells a table file from others: a copy keeps all three."""

    name: str
    size_bytes: int
    changed_ns: int

    @classmethod
    def of(cls, name: str, found: os.stat_result) -> _TableFile:
        return cls(name, found.st_size, found.st_mtime_ns)


def _tables_of(copy: Path) -> dict[_TableFile, Path]:
    found = {}
    for file in copy.rglob(f"*{TABLE_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # another host deletes this backup
            found[_TableFile.of(file.name, file.stat())] = file
    return found


def remove_unfinished(target: Path) -> Path:
    """Remove what a crash has left of an earlier ``place_files``; return where the next one makes its copy."""
    making = target.with_name(f"{MAKING}{target.name}")
    shutil.rmtree(making, ignore_errors=True)
    return making


def place_files(
    source: Path,
    target: Path,
    before_file: Callable[[], None] = lambda: None,
    before_placing: Callable[[Path], None] = lambda _: None,
) -> None:
    """Copy a directory to where nothing is. A crash or an error leaves no incomplete copy of that name.

    ``before_placing`` is called with the finished copy, before it gets its name. Raises what it and ``copy_files`` do.
    """
    making = remove_unfinished(target)
    try:
        copy_files(source, making, before_file)
        before_placing(making)
        making.rename(target)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    sync_directory(target.parent)


def _link(file: Path, target: Path) -> bool:
    """Give a file another name; return whether that was possible."""
    try:
        os.link(file, target)
    except OSError:  # another disk, a file system without links, or too many of them
        return False
    return True


class RocksCopy:
    """A copy that ``write_copy`` has made, open read-only."""

    def __init__(
        self, directory: Path, families: Sequence[TableDefinition[Any]], checkpointed: frozenset[str] = frozenset()
    ) -> None:
        options = RocksOptions()
        cache = Cache(options.block_cache_bytes)
        kept = [table for table in families if table.name in checkpointed]
        self._database = Checkpoints(directory, families, options, cache)
        self._checkpoints = Checkpoints(directory / CHECKPOINTS, kept, options, cache)
        self.open_checkpoint = self._checkpoints.open
        try:
            self._view = self._database.open(DATABASE)
        except KeyError as error:
            raise StoreError(f"{directory} holds no database: name a directory that was copied whole") from error
        self.get, self.scan = self._view.get, self._view.scan

    def close(self) -> None:
        """Close the copy."""
        self._view.close()
        self._database.close()
        self._checkpoints.close()
