"""Checkpoints of a RocksDB database: directories of hard-linked files that never change.

::

    <directory>/<name>              complete: it got this name by one rename when everything in it was on disk
    <directory>/<name>/TRIMMED      the files of families that checkpoints do not keep are gone from it
    <directory>/.making-<name>      not complete; removed at the start
    <directory>/.removing-<name>    on its way out; removed at the start

A checkpoint is made with all column families, since RocksDB cannot leave one out. The files that belong only to
families that it need not keep are unlinked later: opened read-only with the families that it keeps, RocksDB never
looks for the others. That takes a millisecond, where dropping them properly takes hundreds (measured: each drop is a
synced change of the manifest).
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from weakref import WeakSet

from rocksdict import AccessType, Cache, Checkpoint, Rdict

from services.runtime.errors import StoreError
from services.storage.rocks_options import RocksOptions
from services.storage.rocks_views import RocksView, store_error
from services.storage.tables import TableDefinition

MAKING, REMOVING, TRIMMED = ".making-", ".removing-", "TRIMMED"
MAX_NAME_BYTES = 200
OPENERS_FILES = ("LOG", "LOCK", "rocksdict-config", TRIMMED)
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
    _views: WeakSet[CheckpointView] = field(default_factory=WeakSet)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def start(self) -> None:
        """Make the directory, and remove what a crash has left half made or half removed."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for left in self.directory.iterdir():
                if left.name.startswith((MAKING, REMOVING)):
                    shutil.rmtree(left)
        except OSError as error:
            raise store_error(self.directory, "made ready", error) from error

    def names(self) -> list[str]:
        """Names of the complete checkpoints."""
        with self._lock:
            removed = {handle.path.name for handle in self._handles.values() if handle.is_removed}
        entries = (entry.name for entry in self._entries())
        return sorted(unquote(name) for name in entries if not name.startswith(".") and name not in removed)

    def directories(self) -> list[Path]:
        """Where checkpoints are, also those that are still in use though removed."""
        return [path for path in self._entries() if not path.name.startswith(".")]

    def _entries(self) -> list[Path]:
        try:
            return list(self.directory.iterdir())
        except OSError as error:
            raise store_error(self.directory, "read", error) from error

    def make(self, name: str, database: Rdict) -> None:
        """Keep what the database holds now; complete on disk when this returns, or not there at all."""
        complete = self.directory / directory_name(name)
        if complete.is_dir():
            return
        making = self.directory / f"{MAKING}{complete.name}"
        try:
            if making.exists():
                shutil.rmtree(making)
            Checkpoint(database).create_checkpoint(str(making))  # its files and names are on disk when this returns
            self.inside()
            making.rename(complete)
            sync_directory(self.directory)
        except StoreError:
            raise
        except Exception as error:
            raise store_error(complete, "made", error) from error

    def open(self, name: str) -> CheckpointView:
        """A view of a checkpoint. Raises KeyError when there is none of that name."""
        directory = directory_name(name)
        with self._lock:
            handle = self._handles.get(directory)
            if handle is None:
                path = self.directory / directory
                if not path.is_dir():
                    raise KeyError(name)
                handle = self._handles[directory] = self._open(path)
            elif handle.is_removed:
                raise KeyError(name)
            handle.readers += 1
            self._handles.move_to_end(directory)
            self._close_idle()
            view = CheckpointView(self, handle)
            self._views.add(view)
            return view

    def copy(self, name: str, directory: Path) -> None:
        """Have a checkpoint's files in a directory of the same disk, too, whatever becomes of the checkpoint.

        Raises:
            KeyError: there is none of that name.
        """
        with self._lock:  # nothing of it is trimmed or removed meanwhile
            path = self.directory / directory_name(name)
            handle = self._handles.get(path.name)
            if not path.is_dir() or (handle is not None and handle.is_removed):
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
            kept = {table.name: table for table in self.definitions if table.name in there}
            families = {name: self.options.read_only_family(table, self.cache) for name, table in kept.items()}
            database = Rdict(str(path), options, families, AccessType.read_only(False))
            handle = _Handle(path, database, {name: database.get_column_family(name) for name in kept})
            self._trim(handle)
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
                file.unlink()
        marker.touch()

    def trim(self, limit: int) -> int:
        """Trim some checkpoints that nobody has opened yet; says how many. Not for the writer's thread."""
        trimmed = 0
        for path in self._entries():
            if trimmed >= limit:
                break
            if path.name.startswith(".") or (path / TRIMMED).exists():
                continue
            try:
                self.open(unquote(path.name)).close()
            except KeyError:  # removed meanwhile
                continue
            trimmed += 1
        return trimmed

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
        """Remove a checkpoint: no new reader finds it; its files go with the last one that has it open."""
        directory = directory_name(name)
        with self._lock:
            handle = self._handles.get(directory)
            if handle is not None and handle.readers > 0:
                handle.is_removed = True
            else:
                self._remove(directory)

    def _remove(self, directory: str) -> None:
        handle = self._handles.pop(directory, None)
        if handle is not None:
            handle.close()
        path = self.directory / directory
        removing = self.directory / f"{REMOVING}{directory}"
        try:
            if not path.is_dir():
                return
            path.rename(removing)
            shutil.rmtree(removing)
        except OSError as error:
            raise store_error(path, "removed", error) from error

    def close(self) -> None:
        """Close every view and every handle."""
        with self._lock:
            for view in list(self._views):
                view.close()
            for handle in self._handles.values():
                handle.close()
            self._handles.clear()


def sync_directory(directory: Path) -> None:
    """Have the disk keep the names in a directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
