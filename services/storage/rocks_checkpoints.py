"""Checkpoints of a RocksDB database: directories of hard-linked files that never change.

::

    <directory>/<name>              complete: it got this name by one rename when everything in it was on disk
    <directory>/<name>+2            the same, while one of that name that was removed before is still read
    <directory>/<name>/TRIMMED      the files of families that checkpoints do not keep are gone from it
    <directory>/<name>/REMOVED      nobody finds it any more; it goes with its last reader, or at the start
    <directory>/.making-<name>      not complete; removed at the start
    <directory>/.removing-<name>    on its way out; deleted by ``trim``, or at the start

A checkpoint is made with all column families, since RocksDB cannot leave one out. The files that belong only to
families that it need not keep are unlinked later: opened read-only with the families that it keeps, RocksDB never
looks for the others. That takes a millisecond, where dropping them properly takes hundreds (measured: each drop is a
synced change of the manifest).
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
from services.storage.rocks_views import RocksView, check_format, store_error
from services.storage.store import StoreError
from services.storage.tables import TableDefinition

MAKING, REMOVING, TRIMMED, REMOVED = ".making-", ".removing-", "TRIMMED", "REMOVED"
AGAIN = "+"
"""Separates name and number in the directory of a recreated checkpoint; no quoted name contains it."""
MAX_NAME_BYTES = 200
MOST_LEFT = 64
"""Removed checkpoints that wait to be deleted: where nobody keeps house, as in a rebuild, whoever removes deletes."""
OPENERS_FILES = ("LOG", "LOCK", "rocksdict-config", TRIMMED, REMOVED)
"""What is beside the database's own files: written by whoever opens it, or about it."""


def directory_name(name: str) -> str:
    """A checkpoint's name as that of a directory: it can name no other place. Raises ValueError."""
    quoted = quote(name, safe="")
    quoted = quoted.replace(".", "%2E", 1) if quoted.startswith(".") else quoted
    if not 0 < len(quoted) <= MAX_NAME_BYTES:
        raise ValueError(f"a checkpoint's name has 1 to {MAX_NAME_BYTES} bytes, this one {len(quoted)}: choose another")
    return quoted


@dataclass(slots=True)
class _Handle:
    """One open checkpoint."""

    path: Path
    database: Rdict
    families: dict[str, Rdict]
    readers: int = 0
    is_removed: bool = False

    def close(self) -> None:
        for family in self.families.values():
            family.close()
        self.families.clear()
        self.database.close()


class CheckpointView(RocksView):
    """A view of a checkpoint: holds its handle open until it is closed."""

    def __init__(self, checkpoints: Checkpoints, handle: _Handle) -> None:
        super().__init__(handle.path, handle.families)
        self._checkpoints = checkpoints
        self._handle: _Handle | None = handle

    def close(self) -> None:
        """Let go of the checkpoint; once is enough."""
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
    """Called while a checkpoint is half made."""
    _handles: OrderedDict[str, _Handle] = field(default_factory=OrderedDict)
    """Open checkpoints by their directories' names."""
    _made_again: dict[str, str] = field(default_factory=dict)
    """In which directory a checkpoint is, where a removed one has the directory of its name."""
    _views: WeakSet[CheckpointView] = field(default_factory=WeakSet)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _linking: threading.Lock = field(default_factory=threading.Lock)
    """Held while files of a checkpoint without a handle go, and while those of one are linked elsewhere."""
    _going: deque[Path] = field(default_factory=deque)
    """Removed, and not deleted yet."""

    def start(self) -> None:
        """Make the directory, and remove what a crash has left half made, half removed or removed and still read."""
        try:
            make_directory(self.directory)
            for left in list(self.directory.iterdir()):
                if left.name.startswith((MAKING, REMOVING)) or (left / REMOVED).exists():
                    shutil.rmtree(left)
            for again in self.directory.glob(f"*{AGAIN}*"):  # all before it were removed
                again.rename(self.directory / again.name.partition(AGAIN)[0])
            sync_directory(self.directory)
        except OSError as error:
            raise store_error(self.directory, "made ready", error) from error

    def names(self) -> list[str]:
        """Names of the complete checkpoints."""
        return sorted(unquote(name) for name in self.complete())

    def complete(self) -> dict[str, Path]:
        """Where the complete checkpoints are, by the directory name that each has when it is alone."""
        with self._lock:
            return {
                path.name.partition(AGAIN)[0]: path for path in self.directories() if not self._is_removed(path.name)
            }

    def directories(self) -> list[Path]:
        """Where checkpoints are, also those that are still in use though removed."""
        try:
            return [path for path in self.directory.iterdir() if not path.name.startswith(".")]
        except OSError as error:
            raise store_error(self.directory, "read", error) from error

    def _place(self, name: str) -> str:
        """The directory's name that a checkpoint has, or would have if there were one."""
        alone = directory_name(name)
        return self._made_again.get(alone, alone)

    def _is_removed(self, directory: str) -> bool:
        """Whether only readers from before its removal keep a directory."""
        handle = self._handles.get(directory)
        return handle is not None and handle.is_removed

    def _find(self, name: str) -> Path | None:
        """The directory of a checkpoint that is there."""
        path = self.directory / self._place(name)
        return path if path.is_dir() and not self._is_removed(path.name) else None

    def _free_place(self, name: str) -> str:
        """A directory's name for a checkpoint that is not there: not that of a removed one that is still read."""
        alone = directory_name(name)
        again = (f"{alone}{AGAIN}{number}" for number in count(2))
        return next(place for place in chain((alone,), again) if not self._is_removed(place))

    def make(self, name: str, database: Rdict) -> None:
        """Keep what the database holds now; complete on disk when this returns, or not there at all.

        Nobody else makes one of that name meanwhile.
        """
        with self._lock:
            if self._find(name) is not None:
                return
        alone = directory_name(name)
        making = self.directory / f"{MAKING}{alone}"
        try:
            if making.exists():
                shutil.rmtree(making)
            Checkpoint(database).create_checkpoint(str(making))  # its files and names are on disk when this returns
            self.inside()
            with self._lock:  # no reader lets go of the one before between the choice of a place and its use
                place = self._free_place(name)
                making.rename(self.directory / place)
                if place != alone:
                    self._made_again[alone] = place
            sync_directory(self.directory)
        except StoreError:
            raise
        except Exception as error:
            raise store_error(self.directory / alone, "made", error) from error

    def open(self, name: str) -> CheckpointView:
        """A view of a checkpoint. Raises KeyError when there is none of that name."""
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
        """Have a checkpoint's files in a directory of the same disk, too, whatever becomes of the checkpoint.

        Raises:
            KeyError: there is none of that name.
        """
        with self._lock, self._linking:  # nothing of it is trimmed or removed meanwhile
            path = self._find(name)
            if path is None:
                raise KeyError(name)
            try:
                directory.mkdir(parents=True)
                for file in path.iterdir():
                    if not file.name.startswith(OPENERS_FILES):
                        os.link(file, directory / file.name)
            except OSError as error:
                raise store_error(directory, "made", error) from error

    def _open(self, path: Path) -> _Handle:
        try:
            options = self.options.checkpoint()
            there = set(Rdict.list_cf(str(path), options))
            definitions = {table.name: table for table in self.definitions}
            kept = {name: definitions.get(name) for name in (*definitions, FORMAT_FAMILY) if name in there}
            families = {name: self.options.read_only_family(table, self.cache) for name, table in kept.items()}
            database = Rdict(str(path), options, families, AccessType.read_only(False))
            handle = _Handle(path, database, {name: database.get_column_family(name) for name in kept})
            check_format(RocksView(path, handle.families))
            self._trim(handle)
        except StoreError:
            raise
        except Exception as error:
            raise store_error(path, "opened", error) from error
        return handle

    def _trim(self, handle: _Handle) -> None:
        """Unlink the table files that only families hold which this checkpoint need not keep."""
        marker = handle.path / TRIMMED
        if marker.exists():
            return
        wanted = {Path(file["name"]).name for file in handle.database.live_files()}
        for file in handle.path.glob("*.sst"):
            if file.name not in wanted:
                file.unlink(missing_ok=True)  # a reader may have opened it at the same time
        marker.touch()

    def trim(self, limit: int) -> int:
        """Delete what was removed, and trim some checkpoints that nobody has opened yet; says how many of these.

        Not for the writer's thread: to delete the last names of large files takes tenths of a second.
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
        """Trim a checkpoint by a handle of its own: the writer, who takes and drops others, does not wait for it."""
        with self._linking:
            try:
                self._open(path).close()
            except StoreError:
                if path.is_dir():
                    raise
                return False  # it was removed meanwhile
        return True

    def release(self, handle: _Handle) -> None:
        """A reader has finished."""
        with self._lock:
            handle.readers -= 1
            if handle.is_removed and handle.readers == 0:
                self._remove(handle.path.name)
            else:
                self._close_idle()

    def _close_idle(self) -> None:
        """Keep the most recently used open; one that is in use is never closed."""
        idle = [name for name, handle in self._handles.items() if handle.readers == 0]
        for name in idle[: max(0, len(self._handles) - self.options.checkpoint_handles)]:
            self._handles.pop(name).close()

    def remove(self, name: str) -> None:
        """Remove a checkpoint: no new reader finds it; its files go soon after the last one that has it open."""
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

    def _mark_removed(self, handle: _Handle) -> None:
        """Have the disk know it before another one of the name is made: a start must not take this one for it."""
        try:
            (handle.path / REMOVED).touch()
            sync_directory(handle.path)
        except OSError as error:
            raise store_error(handle.path, "removed", error) from error
        handle.is_removed = True

    def _remove(self, directory: str) -> None:
        handle = self._handles.pop(directory, None)
        if handle is not None:
            handle.close()
        path = self.directory / directory
        places = chain((f"{REMOVING}{directory}",), (f"{REMOVING}{directory}{AGAIN}{number}" for number in count(2)))
        removing = next(place for name in places if not (place := self.directory / name).exists())
        try:
            if path.is_dir():
                path.rename(removing)
                self._going.append(removing)
        except OSError as error:
            raise store_error(path, "removed", error) from error

    def _delete_removed(self, leaving: int = 0) -> None:
        """Delete the files of what was removed, oldest first, until so many are left. Nobody knows of them any more,
        so nobody has to wait meanwhile.
        """
        while len(self._going) > leaving:
            try:
                removing = self._going.popleft()
            except IndexError:  # another thread has deleted the last one
                return
            try:
                shutil.rmtree(removing)
            except OSError as error:
                raise store_error(removing, "deleted", error) from error

    def close(self) -> None:
        """Close every view and every handle."""
        with self._lock:
            for view in list(self._views):
                view.close()
            for handle in self._handles.values():
                handle.close()
            self._handles.clear()
        self._delete_removed()


def make_directory(directory: Path) -> None:
    """Have a directory on the disk, with its name and those of the directories above it that were missing, too."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)
    sync_directory(directory.parent)  # whoever made it may have died before it was synced


def sync_directory(directory: Path) -> None:
    """Have the disk keep the names in a directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
