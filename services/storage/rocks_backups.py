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
TABLE_SUFFIX, TABLE_END_BYTES = ".sst", 1 << 16
_CURRENT = "CURRENT"
"""The file that makes a directory a database: it names the manifest."""


def has_database(directory: Path) -> bool:
    """Return whether a directory holds a database."""
    return (directory / DATABASE / _CURRENT).exists()


def count_table_files(copy: Path) -> int:
    """Return the number of table files of the database in a copy, without its checkpoints."""
    return sum(1 for _ in (copy / DATABASE).glob(f"*{TABLE_SUFFIX}"))


def count_checkpoints(copy: Path) -> int:
    """Return the number of checkpoints in a copy of a database."""
    directory = copy / CHECKPOINTS
    return sum((entry / _CURRENT).exists() for entry in directory.iterdir()) if directory.exists() else 0


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
) -> None:
    """Copy a directory.

    RocksDB never changes a table file, so table files are linked where the disk is the same, and to ``earlier``, a copy
    on the disk of the target, if that has them already. A file that has several names, as checkpoints share files, is
    copied once.

    ``before_file`` is called before each file; what it raises ends the copying.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    _Copying(before_file, {} if earlier is None else _tables_below(earlier)).copy(source, target)


class _Likeness(NamedTuple):
    """What all names of a file and all its copies have alike. Files of other databases may have it, too."""

    name: str
    size_bytes: int
    changed_ns: int


class _Copying:
    """Copies directories, and knows which files it has copied already."""

    def __init__(self, before_file: Callable[[], None], earlier: Mapping[_Likeness, Path]) -> None:
        self._before_file = before_file
        self._earlier = earlier
        self._copied: dict[tuple[int, int, _Likeness], Path] = {}
        """By device, inode and likeness, since some file systems invent inodes: the first copy of each file."""

    def copy(self, source: Path, target: Path) -> None:
        make_directory(target.parent)
        target.mkdir()
        for entry in sorted(source.iterdir()):
            if entry.is_dir():
                self.copy(entry, target / entry.name)
            else:
                self._before_file()
                if not self._link_known(entry, target / entry.name):
                    shutil.copy2(entry, target / entry.name)
                    with (target / entry.name).open("rb") as copied:
                        os.fsync(copied.fileno())
        sync_directory(target)

    def _link_known(self, file: Path, target: Path) -> bool:
        """Link a file to what is on the disk of the target already; return whether that was possible."""
        found = file.stat()
        alike = _Likeness(file.name, found.st_size, found.st_mtime_ns)
        inode = found.st_dev, found.st_ino, alike
        if inode in self._copied and _link(self._copied[inode], target):
            return True
        self._copied[inode] = target
        if file.suffix != TABLE_SUFFIX:  # RocksDB appends to manifest and log
            return False
        kept = self._earlier.get(alike)
        return _link(file, target) or (kept is not None and _is_same_table(file, kept) and _link(kept, target))


def _tables_below(copy: Path) -> dict[_Likeness, Path]:
    """Return the table files of a copy; another host may delete it meanwhile."""
    found = {}
    for place, _, names in os.walk(copy):
        for name in names:
            if name.endswith(TABLE_SUFFIX):
                with contextlib.suppress(OSError):
                    status = Path(place, name).stat()
                    found[_Likeness(name, status.st_size, status.st_mtime_ns)] = Path(place, name)
    return found


def _is_same_table(one: Path, other: Path) -> bool:
    """Return whether two table files of one size end alike: there RocksDB writes which session of which database, under
    which number, has made a file."""
    try:
        return _end_of(one) == _end_of(other)
    except OSError:
        return False


def _end_of(file: Path) -> bytes:
    with file.open("rb") as table:
        table.seek(max(0, os.fstat(table.fileno()).st_size - TABLE_END_BYTES))
        return table.read()


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
