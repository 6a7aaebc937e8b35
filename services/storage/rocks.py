"""A database on disk: RocksDB in one directory, its checkpoints in ``checkpoints`` beside that directory.

One writer; any number of readers in other threads, each with a view of its own.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import unquote
from weakref import WeakSet

from rocksdict import AccessType, Cache, Checkpoint, ColumnFamily, Rdict, WriteBatch

from schemas.formats import FAMILY as FORMAT_FAMILY
from schemas.formats import rows_of
from services.storage.defragmentation import DEFRAGMENTED, Pace, Ranges, expected_bytes, is_worth_it, rewrite
from services.storage.idle_merges import is_in_parts, merge_at_rest
from services.storage.linked_files import LinkedFiles, file_sizes
from services.storage.rocks_backups import write_copy
from services.storage.rocks_checkpoints import (
    AGAIN,
    REWRITING,
    Checkpoints,
    CheckpointView,
    directory_name,
    make_directory,
)
from services.storage.rocks_options import RocksOptions
from services.storage.rocks_views import PinnedView, ReportingCursor, RocksView, check_format, explaining, store_error
from services.storage.store import BEYOND, Batch, GapFound, StoreError
from services.storage.tables import TableDefinition

DEFAULT_FAMILY = "default"
FIRST_PART = 4
"""The first part is the keys divided by this number; another thread looks up the others meanwhile."""
LOOKED_AT_AGAIN = 1.25
"""A checkpoint that was not worth to be rewritten is looked at again when its share has grown by this factor."""
FEWEST_IN_PARTS = 256
"""Fewer keys are looked up in one part: that takes a millisecond, and handing keys to a thread costs as much."""


class RocksStore(RocksView):
    """One open database. Raise StoreError when another process has it open."""

    def __init__(
        self,
        directory: Path,
        families: Sequence[TableDefinition[Any]],
        checkpointed: frozenset[str] = frozenset(),
        options: RocksOptions | None = None,
        inside_checkpoint: Callable[[], None] = lambda: None,
    ) -> None:
        """``inside_checkpoint`` is called while a checkpoint is being made: tests crash there."""
        self._options = options or RocksOptions()
        cache = Cache(self._options.block_cache_bytes)
        self._database = _open(directory, families, self._options, cache)
        with explaining(directory, "opened"):
            names = Rdict.list_cf(str(directory), self._options.database())
            super().__init__(directory, {name: self._database.get_column_family(name) for name in names})
            self._handles: dict[str, ColumnFamily] = {
                name: self._database.get_column_family_handle(name) for name in names
            }
        self._packed = {table.name for table in families if table.is_packed}
        self._written = monotonic()
        self._kept = frozenset(table.name for table in families if table.name in checkpointed)
        self._kept_writes = 0
        """Batches that have changed a family that checkpoints keep."""
        self._newest: tuple[str, int] | None = None
        """The checkpoint that was made last, and the number of such batches before."""
        self._write_lock = threading.Lock()
        self._beside = ThreadPoolExecutor(1, "look-ups")  # its thread starts with the first units that are large
        self._views: WeakSet[PinnedView] = WeakSet()
        kept = [table for table in families if table.name in checkpointed]
        self._checkpoints = Checkpoints(directory.parent / "checkpoints", kept, self._options, cache, inside_checkpoint)
        self._checkpoints.start()
        self._checkpoint_files = LinkedFiles()
        self._measuring = threading.Lock()
        self._looked_at: dict[Path, float] = {}
        """Checkpoints that were not worth to be rewritten, and their shares at that time."""
        try:
            self._keep_format([table.record for table in families])
        except StoreError:
            self.close()
            raise

    def _keep_format(self, records: Sequence[type[Any]]) -> None:
        """Check the format, and store the schemas of the rows before the first row is written."""
        rows = dict(self.scan(FORMAT_FAMILY, b"", BEYOND))
        if rows or any(next(self.scan(name, b"", BEYOND), None) for name in self._handles):
            check_format(rows.items(), self.path)
        self.write({FORMAT_FAMILY: {key: value for key, value in rows_of(records).items() if key not in rows}})

    def scan_reporting_gaps(
        self, family: str, start: bytes, end: bytes, found: GapFound
    ) -> Iterator[tuple[bytes, bytes]]:
        """As ``scan``; call ``found`` with each range without rows that took longer than ``SLOW_GAP_SECONDS``."""
        rows = self._rows_of(family)
        if rows is None or start >= end:
            return iter(())
        return self._rows_from(ReportingCursor(self.path, rows, start, end, found))

    def get_many(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of some keys, in their order: RocksDB looks them up together."""
        rows = self._rows_of(family)
        if rows is None:
            return [None] * len(keys)
        try:
            asked: list[Any] = keys
            values: Any = rows.get(asked)
        except Exception as error:
            raise store_error(self.path, "read", error) from error
        return list(values)

    def get_in_parts(self, family: str, keys: list[bytes]) -> Iterator[list[bytes | None]]:
        """As ``get_many``; another thread looks up the keys behind the first part.

        RocksDB looks up without Python's lock, and look-ups take a fifth of a unit of work: meanwhile the unit can use
        the first part.
        """
        first = len(keys) // FIRST_PART
        rest = self._looked_up_beside(family, keys[first:]) if len(keys) >= FEWEST_IN_PARTS else None
        yield self.get_many(family, keys if rest is None else keys[:first])
        if rest is not None:
            yield rest.result()

    def _looked_up_beside(self, family: str, keys: list[bytes]) -> Future[list[bytes | None]] | None:
        """Start a look-up in another thread; return None when there is no thread, so that the caller looks up."""
        if not self._options.is_looking_up_beside:
            return None
        try:
            return self._beside.submit(self.get_many, family, keys)
        except RuntimeError:  # no thread can be started, or the process is ending: the look-up itself can succeed
            return None

    def write(self, batch: Batch) -> None:
        """Write a batch atomically; it is durable when this returns."""
        rows = WriteBatch(raw_mode=True)
        for family, changes in batch.items():
            handle = self._handles[family]
            for key, value in changes.items():
                if value is None:
                    rows.delete(key, handle)
                else:
                    rows.put(key, value, handle)
        if rows.is_empty():
            return
        with self._write_lock:
            self._written = monotonic()
            self._kept_writes += not self._kept.isdisjoint(batch)
            try:
                self._database.write(rows)
                sync(self._database)
            except Exception as error:
                raise store_error(self.path, "written", error) from error

    def reading(self) -> PinnedView:
        """Return a view that later writes do not change. Close it: until then RocksDB keeps all rows that it sees."""
        with self._write_lock:  # else a write could fall between two families of the view
            if self._families is None:
                raise StoreError(f"{self.path} cannot be read, it was closed: open it again")
            view = PinnedView(self.path, self._families)
            self._views.add(view)
            return view

    def checkpoint(self, name: str) -> None:
        """Make a checkpoint of all committed rows; a complete one of that name is left as it is."""
        writes = self._kept_writes  # before it is made: a diff makes one beside the writer
        if self._checkpoints.make(name, self._database):
            self._newest = name, writes

    def open_checkpoint(self, name: str) -> CheckpointView:
        """Return a view of a checkpoint. Raise KeyError when none has that name."""
        return self._checkpoints.open(name)

    def remove_checkpoint(self, name: str) -> None:
        """Remove a checkpoint; do nothing when none has that name."""
        self._checkpoints.remove(name)

    def checkpoints(self) -> list[str]:
        """Return the names of the complete checkpoints."""
        return self._checkpoints.names()

    def back_up_to(self, target: Path) -> None:
        """Copy all committed rows and all checkpoints to a directory on the same disk. For the writer's thread."""
        write_copy(self._database, self._checkpoints, target)

    def copy_to(self, directory: Path) -> PinnedView:
        """Copy all committed rows of all families to a directory on the same disk; return a view of them to be closed.

        The files are hard links: it takes the time of a flush of the memtables, and writers wait that long.
        """
        with self._write_lock:  # so that the view and the copy hold the same writes
            if self._families is None:
                raise StoreError(f"{self.path} cannot be read, it was closed: open it again")
            with explaining(directory, "made"):
                directory.parent.mkdir(parents=True, exist_ok=True)
                Checkpoint(self._database).create_checkpoint(str(directory))
            view = PinnedView(self.path, self._families)
            self._views.add(view)
            return view

    def copy_checkpoint(self, name: str, directory: Path) -> None:
        """Link the files of a checkpoint into another directory. Raise KeyError when none has that name."""
        self._checkpoints.copy(name, directory)

    def trim_checkpoints(self, limit: int = 10) -> int:
        """Remove the families that new checkpoints need not keep; return the number of trimmed checkpoints."""
        return self._checkpoints.trim(limit)

    def defragment(self, kept_rows: Callable[[str], Ranges | None], pace: Pace) -> tuple[str, int] | None:
        """Rewrite the checkpoint that costs most, if that pays; return its name and the bytes that it took less.

        ``kept_rows`` returns the rows that the checkpoint of a name has to keep, or None to leave it as it is.
        Not for the writer's thread; one thread at a time.
        """
        for path, share in self._fragmented():
            name = unquote(path.name.partition(AGAIN)[0])
            kept = kept_rows(name)
            with suppress(KeyError), closing(self._checkpoints.open(name)) as view:
                if kept is None or view.path != path:
                    continue
                self._looked_at[path] = share
                if is_worth_it(share, expected_bytes(view, kept), self._options.least_gain_bytes):
                    return self._rewritten(name, view, kept, pace)
        return None

    def _fragmented(self) -> list[tuple[Path, float]]:
        """Return the checkpoints that may be worth to be rewritten, and their shares; the largest first."""
        with self._measuring:
            self._checkpoint_files.look(self._checkpoints.directories())
            shares = self._checkpoint_files.shares(file_sizes(self.path))
        self._looked_at = {path: share for path, share in self._looked_at.items() if path in shares}
        found = [
            (path, share)
            for path, share in shares.items()
            if share >= max(self._options.least_gain_bytes, LOOKED_AT_AGAIN * self._looked_at.get(path, 0))
            and not (path / DEFRAGMENTED).exists()
        ]
        return sorted(found, key=itemgetter(1), reverse=True)

    def _rewritten(self, name: str, view: CheckpointView, kept: Ranges, pace: Pace) -> tuple[str, int] | None:
        directory = self._checkpoints.directory / f"{REWRITING}{directory_name(name)}"
        before = sum(file_sizes(view.path).values())
        try:
            made = rewrite(view, self._checkpoints.definitions, kept, directory, self._options, pace)
            after = 0 if made is None else sum(file_sizes(made).values())
            return (name, before - after) if made and self._checkpoints.replace(view, made) else None
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def compact_at_rest(self, rest_seconds: float) -> list[str]:
        """Merge the runs of families in which nothing was written for a while; return the families' names.

        A write that comes meanwhile does not wait for it. The newest checkpoint, if it still has the same rows, gets
        the new files: else it would keep the old ones alone. Not for the writer's thread; one thread at a time.
        """
        merged = []
        for name, rows in (self._families or {}).items():
            if monotonic() - self._written >= rest_seconds and is_in_parts(rows, self._options.least_gain_bytes):
                with explaining(self.path, "compacted"):
                    merge_at_rest(rows, is_packed=name in self._packed)
                merged.append(name)
        if merged:
            self._link_newest_again()
        return merged

    def _link_newest_again(self) -> None:
        """Make the newest checkpoint again, if no family that checkpoints keep was written since."""
        if self._newest is None:
            return
        name, writes = self._newest
        directory = self._checkpoints.directory / f"{REWRITING}{directory_name(name)}"
        try:
            with suppress(KeyError), closing(self._checkpoints.open(name)) as view:
                with self._write_lock, explaining(directory, "made"):  # so that nothing is written before it is made
                    if self._kept_writes != writes:
                        return
                    shutil.rmtree(directory, ignore_errors=True)
                    directory.mkdir()
                    Checkpoint(self._database).create_checkpoint(str(directory / "made"))
                self._checkpoints.replace(view, directory / "made")
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def table_sizes(self) -> dict[str, int]:
        """Return the bytes of each family's table files."""
        families = self._families or {}
        return {
            name: int(rows.property_int_value("rocksdb.total-sst-files-size") or 0) for name, rows in families.items()
        }

    def size_bytes(self) -> int:
        """Return the bytes of the database on disk, without checkpoints."""
        return sum(file_sizes(self.path).values())

    def checkpoint_sizes(self) -> tuple[int, int]:
        """Return the number of checkpoints, and the bytes that only they hold; a linked file counts once."""
        names = self._checkpoints.names()
        with self._measuring:
            self._checkpoint_files.look(self._checkpoints.directories())
            return len(names), self._checkpoint_files.bytes_beside(file_sizes(self.path))

    def close(self) -> None:
        """Close the database and all views of it."""
        self._beside.shutdown()
        with self._write_lock:
            families = self._families or {}
            for view in list(self._views):
                view.close()
            super().close()
            self._checkpoints.close()
            self._handles.clear()
            for rows in families.values():
                rows.close()
            self._database.close()


def sync(database: Rdict) -> None:
    """Return when what was written is on the disk. A synced write would keep Python's lock meanwhile, so that the other
    shards of the process would wait, too.
    """
    database.flush_wal(True)


def _open(directory: Path, families: Sequence[TableDefinition[Any]], options: RocksOptions, cache: Cache) -> Rdict:
    """Open a database with the wanted families and all existing ones, as RocksDB requires."""
    definitions = {table.name: table for table in families}
    with explaining(directory, "opened"):
        make_directory(directory)
        database = options.database()
        there = Rdict.list_cf(str(directory), database) if (directory / "CURRENT").exists() else []
        names = {*definitions, *there, FORMAT_FAMILY} - {DEFAULT_FAMILY}
        return Rdict(
            str(directory),
            database,
            {name: options.family(definitions.get(name), cache) for name in sorted(names)},
            AccessType.read_write(),
        )
