"""Checkpoints of a RocksDB database: directories of hard-linked files that never change.

::

    <directory>/<name>              complete: it got this name by one rename when everything in it was on disk
    <directory>/<name>+2            the same, made again while a removed one of that name was read, or rewritten
    <directory>/<name>/TRIMMED      its files of families that checkpoints do not keep are deleted
    <directory>/<name>/REMOVED      removed: deleted after its last reader closes it, or at the start
    <directory>/.making-<name>      not complete; removed at the start
    <directory>/.rewriting-<name>   the same, of one that is being rewritten (``defragmentation``)
    <directory>/.removing-<name>    removed; deleted by ``trim``, or at the start

A checkpoint is made with all column families, since RocksDB cannot leave one out. Files that belong only to families
that the checkpoint need not keep are unlinked later: RocksDB never looks for them when it opens the checkpoint
read-only with the other families. That takes a millisecond; dropping the families takes hundreds (measured: each drop
is a synced change of the manifest).
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from weakref import WeakSet

from rocksdict import AccessType, Cache, Checkpoint, Rdict

from schemas.formats import FAMILY as FORMAT_FAMILY
from services.storage.rocks_options import RocksOptions
from services.storage.rocks_views import RocksView, check_format, explaining
from services.storage.store import BEYOND, StoreError
from services.storage.tables import TableDefinition

MAKING, REWRITING, REMOVING, TRIMMED, REMOVED = ".making-", ".rewriting-", ".removing-", "TRIMMED", "REMOVED"
AGAIN = "+"
"""Separates name and number in the directory of a recreated checkpoint; no quoted name contains it."""
MAX_NAME_BYTES = 200
MOST_LEFT = 64
"""Most removed checkpoints that wait to be deleted. ``remove`` deletes the others: a rebuild has no clean-up thread."""
OPENERS_FILES = ("LOG", "LOCK", "rocksdict-config", TRIMMED, REMOVED)
"""Beginnings of the names of files that do not belong to the database: those of its openers, and markers."""


def directory_name(name: str) -> str:
    """Return the directory name of a checkpoint, quoted so that it is no path. Raise ValueError for a wrong length."""
    quoted = quote(name, safe="")
    quoted = quoted.replace(".", "%2E", 1) if quoted.startswith(".") else quoted
    if not 0 < len(quoted) <= MAX_NAME_BYTES:
        raise ValueError(f"a checkpoint's name has 1 to {MAX_NAME_BYTES} bytes, this one {len(quoted)}: choose another")
    return quoted


@dataclass(slots=True)
class Handle:
    """One open checkpoint, or another database that is open read-only."""

    path: Path
    database: Rdict
    families: dict[str, Rdict]
    readers: int = 0
    is_removed: bool = False

    def close(self) -> None:
        """Close the database."""
        for family in self.families.values():
            family.close()
        self.families.clear()
        self.database.close()


def open_read_only(
    path: Path,
    wanted: Iterable[TableDefinition[Any]],
    options: RocksOptions,
    cache: Cache,
    named: Path | None = None,
) -> Handle:
    """Open those of the wanted families that a database has, read-only; errors call the database ``named``.

    Raises:
        StoreError: it cannot be opened, or a newer program has written it.
    """
    named = named or path
    with explaining(named, "opened"):
        there = set(Rdict.list_cf(str(path), options.checkpoint()))
        definitions = {table.name: table for table in wanted}
        kept = {name: definitions.get(name) for name in (*definitions, FORMAT_FAMILY) if name in there}
        families = {name: options.read_only_family(table, cache) for name, table in kept.items()}
        database = Rdict(str(path), options.checkpoint(), families, AccessType.read_only(False))
        handle = Handle(path, database, {name: database.get_column_family(name) for name in kept})
        check_format(RocksView(path, handle.families).scan(FORMAT_FAMILY, b"", BEYOND), named)
        return handle


class CheckpointView(RocksView):
    """A view of a checkpoint; it keeps the checkpoint's handle open until it is closed."""

    def __init__(self, checkpoints: Checkpoints, handle: Handle) -> None:
        super().__init__(handle.path, handle.families)
        self._checkpoints = checkpoints
        self._handle: Handle | None = handle

    @property
    def handle(self) -> Handle | None:
        """The handle of the checkpoint; None once the view is closed."""
        return self._handle

    def live_files(self) -> list[dict[str, Any]]:
        """Return size and keys of each table file."""
        return [] if self._handle is None else self._handle.database.live_files()

    def close(self) -> None:
        """Close the view; further calls do nothing."""
        super().close()
        handle, self._handle = self._handle, None
        if handle is not None:
            self._checkpoints.release(handle)

    def __del__(self) -> None:
        self.close()


@dataclass(slots=True)
class Checkpoints:
    """The checkpoints beside one database. Safe to share between threads."""

    directory: Path
    definitions: Iterable[TableDefinition[Any]]
    """The families that a checkpoint keeps."""
    options: RocksOptions
    cache: Cache
    inside: Callable[[], None] = lambda: None
    """Called while a checkpoint is being made."""
    _handles: OrderedDict[str, Handle] = field(default_factory=OrderedDict)
    """Open checkpoints, by directory name."""
    _made_again: dict[str, str] = field(default_factory=dict)
    """Directory names of recreated checkpoints, by the usual name, which a removed checkpoint still has."""
    _views: WeakSet[CheckpointView] = field(default_factory=WeakSet)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _linking: threading.Lock = field(default_factory=threading.Lock)
    """Held while files of a checkpoint without a handle are deleted, and while a checkpoint is linked elsewhere."""
    _going: deque[Path] = field(default_factory=deque)
    """Directories that are removed and not deleted yet."""

    def start(self) -> None:
        """Create the directory; delete incomplete and removed checkpoints that a crash has left."""
        with explaining(self.directory, "made ready"):
            make_directory(self.directory)
            for left in list(self.directory.iterdir()):
                if left.name.startswith((MAKING, REWRITING, REMOVING)) or (left / REMOVED).exists():
                    shutil.rmtree(left)
            for again in sorted(self.directory.glob(f"*{AGAIN}*"), key=_number):
                usual = self.directory / again.name.partition(AGAIN)[0]
                if usual.exists():  # a crash after a rewritten one got its place: both have the same rows
                    shutil.rmtree(usual)
                again.rename(usual)
            sync_directory(self.directory)

    def names(self) -> list[str]:
        """Return the names of the complete checkpoints."""
        return sorted(unquote(name) for name in self.complete())

    def complete(self) -> dict[str, Path]:
        """Return the paths of the complete checkpoints, by their usual directory names."""
        with self._lock:
            return {
                path.name.partition(AGAIN)[0]: path for path in self.directories() if not self._is_removed(path.name)
            }

    def directories(self) -> list[Path]:
        """Return the paths of all checkpoints, also of removed ones that a reader has open."""
        with explaining(self.directory, "read"):
            return [path for path in self.directory.iterdir() if not path.name.startswith(".")]

    def _place(self, name: str) -> str:
        """Return the directory name of a checkpoint, or its usual one when none has that name."""
        alone = directory_name(name)
        return self._made_again.get(alone, alone)

    def _is_removed(self, directory: str) -> bool:
        """Return whether a directory is removed, and is kept only for readers that have it open."""
        handle = self._handles.get(directory)
        return handle is not None and handle.is_removed

    def _find(self, name: str) -> Path | None:
        """Return the path of a checkpoint, or None when none has that name."""
        path = self.directory / self._place(name)
        return path if path.is_dir() and not self._is_removed(path.name) else None

    def _free_place(self, name: str) -> str:
        """Return a directory name for a new checkpoint that no removed and still open one has."""
        alone = directory_name(name)
        again = (f"{alone}{AGAIN}{number}" for number in count(2))
        return next(place for place in chain((alone,), again) if not self._is_removed(place))

    def make(self, name: str, database: Rdict) -> bool:
        """Make a checkpoint of the database, on disk when this returns. A crash leaves no incomplete one of that name.

        Return False if there is a complete one, which is left as it is. No other thread may make a checkpoint of that
        name at the same time.
        """
        with self._lock:
            if self._find(name) is not None:
                return False
        alone = directory_name(name)
        making = self.directory / f"{MAKING}{alone}"
        with explaining(self.directory / alone, "made"):
            if making.exists():
                shutil.rmtree(making)
            Checkpoint(database).create_checkpoint(str(making))  # its files and names are on disk when this returns
            self.inside()
            with self._lock:  # else a reader could close the earlier one between the choice of the name and its use
                place = self._free_place(name)
                making.rename(self.directory / place)
                if place != alone:
                    self._made_again[alone] = place
            sync_directory(self.directory)
        return True

    def replace(self, view: CheckpointView, made: Path) -> bool:
        """Put a rewritten checkpoint into the place of the one that a view shows; readers of the old one keep that.

        Return False if the old one was removed meanwhile. A crash leaves one of them, or both: the old one is marked
        as removed only when the new one is on disk under its name.
        """
        with self._lock:
            handle = view.handle
            if handle is None or handle.is_removed:
                return False
            alone = handle.path.name.partition(AGAIN)[0]
            later = (f"{alone}{AGAIN}{number}" for number in count(_number(handle.path) + 1))
            place = next(place for place in later if not (self.directory / place).exists())
            with explaining(self.directory / alone, "rewritten"):
                made.rename(self.directory / place)
                sync_directory(self.directory)
            self._made_again[alone] = place
            self._mark_removed(handle)
            return True

    def open(self, name: str) -> CheckpointView:
        """Return a view of a checkpoint. Raise KeyError when none has that name."""
        with self._lock:
            path = self._find(name)
            if path is None:
                raise KeyError(name)
            handle = self._handles.get(path.name)
            if handle is None:
                handle = self._handles[path.name] = self._open(path)
            handle.readers += 1
            self._handles.move_to_end(path.name)
            self._close_idle()
            view = CheckpointView(self, handle)
            self._views.add(view)
            return view

    def copy(self, name: str, directory: Path) -> None:
        """Link a checkpoint's files into a directory on the same disk; they outlive the checkpoint.

        Raises:
            KeyError: no checkpoint has that name.
        """
        with self._lock, self._linking:  # so that no file is trimmed or removed meanwhile
            path = self._find(name)
            if path is None:
                raise KeyError(name)
            with explaining(directory, "made"):
                directory.mkdir(parents=True)
                for file in path.iterdir():
                    if not file.name.startswith(OPENERS_FILES):
                        os.link(file, directory / file.name)

    def _open(self, path: Path) -> Handle:
        with explaining(path, "opened"):
            handle = open_read_only(path, self.definitions, self.options, self.cache)
            self._trim(handle)
            return handle

    def _trim(self, handle: Handle) -> None:
        """Unlink the table files that belong only to families that this checkpoint need not keep."""
        marker = handle.path / TRIMMED
        if marker.exists():
            return
        wanted = {Path(file["name"]).name for file in handle.database.live_files()}
        for file in handle.path.glob("*.sst"):
            if file.name not in wanted:
                file.unlink(missing_ok=True)  # a reader may have opened it at the same time
        for file in handle.path.glob("OPTIONS-*"):  # 200 kB, which no reader needs
            file.unlink(missing_ok=True)
        marker.touch()

    def trim(self, limit: int) -> int:
        """Delete removed checkpoints, and trim at most ``limit`` others; return the number trimmed.

        Not for the writer's thread: deleting the last links of large files takes tenths of a second.
        """
        self._delete_removed()
        trimmed = 0
        for path in self.complete().values():
            if trimmed >= limit:
                break
            if not (path / TRIMMED).exists():
                trimmed += self._trim_closed(path)
        return trimmed

    def _trim_closed(self, path: Path) -> bool:
        """Trim a checkpoint with a handle of its own, so that the writer can make and remove others meanwhile."""
        with self._linking:
            try:
                self._open(path).close()
            except StoreError:
                if path.is_dir():
                    raise
                return False  # removed meanwhile
        return True

    def release(self, handle: Handle) -> None:
        """Record that a reader has closed its view; remove the checkpoint if that was the last one of a removed one."""
        with self._lock:
            handle.readers -= 1
            if handle.is_removed and handle.readers == 0:
                self._remove(handle.path.name)
            else:
                self._close_idle()

    def _close_idle(self) -> None:
        """Close the least recently used handles over the limit; never one that a reader uses."""
        idle = [name for name, handle in self._handles.items() if handle.readers == 0]
        for name in idle[: max(0, len(self._handles) - self.options.checkpoint_handles)]:
            self._handles.pop(name).close()

    def remove(self, name: str) -> None:
        """Remove a checkpoint: it cannot be opened any more; its files are deleted after its last reader closes it."""
        with self._lock:
            path = self._find(name)
            if path is None:
                return
            handle = self._handles.get(path.name)
            if handle is not None and handle.readers > 0:
                self._mark_removed(handle)
            else:
                self._remove(path.name)
            self._made_again.pop(directory_name(name), None)
        self._delete_removed(leaving=MOST_LEFT)

    def _mark_removed(self, handle: Handle) -> None:
        """Mark it on disk before another of that name is made: else a start could take this one for the new one."""
        with explaining(handle.path, "removed"):
            (handle.path / REMOVED).touch()
            sync_directory(handle.path)
        handle.is_removed = True

    def _remove(self, directory: str) -> None:
        handle = self._handles.pop(directory, None)
        if handle is not None:
            handle.close()
        path = self.directory / directory
        places = chain((f"{REMOVING}{directory}",), (f"{REMOVING}{directory}{AGAIN}{number}" for number in count(2)))
        removing = next(place for name in places if not (place := self.directory / name).exists())
        with explaining(path, "removed"):
            if path.is_dir():
                path.rename(removing)
                self._going.append(removing)

    def _delete_removed(self, leaving: int = 0) -> None:
        """Delete the files of removed checkpoints, oldest first, until ``leaving`` are left. It takes no lock, since no
        other thread uses these files.
        """
        while len(self._going) > leaving:
            try:
                removing = self._going.popleft()
            except IndexError:  # another thread has deleted the last one
                return
            with explaining(removing, "deleted"):
                shutil.rmtree(removing)

    def close(self) -> None:
        """Close every view and every handle."""
        with self._lock:
            for view in list(self._views):
                view.close()
            for handle in self._handles.values():
                handle.close()
            self._handles.clear()
        self._delete_removed()


def _number(directory: Path) -> int:
    """Return how often a checkpoint of a directory's name was made, 1 for one with the usual name."""
    return int(directory.name.partition(AGAIN)[2] or 1)


def make_directory(directory: Path) -> None:
    """Create a directory and its missing parents; their names are synced to disk."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)
    sync_directory(directory.parent)  # the process that made it may have crashed before it was synced


def sync_directory(directory: Path) -> None:
    """Sync the names in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
