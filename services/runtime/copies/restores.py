"""Puts a backup in the place of a shard's database: one that an operator names, or the newest that fits the log.

A service restores by itself if its database is missing, or if the log does not reach back to it.

Where hosts share the shards, any of them may gain a shard at any time. It may never have run the shard before, or have
a database of long ago. The log behind the backups may be trimmed, so its beginning is of no use to such a host.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from services.domain.errors import PositionError, RetryableError
from services.log.port import Log
from services.runtime.copies.kept_copies import AUDITS, COPIES
from services.runtime.copies.manifests import (
    MANIFEST,
    BackupError,
    PlacedBackup,
    ServiceCopy,
    placed_backups,
    read_manifest,
)
from services.runtime.loop.service import Service, read_topics
from services.storage.linked_files import tree_bytes
from services.storage.rocks_backups import (
    count_checkpoints,
    count_table_files,
    has_database,
    place_files,
    remove_unfinished,
)
from services.storage.rocks_checkpoints import make_directory

OUTDATED, INCOMPLETE = ".outdated-", ".incomplete-"
"""Prefixes of a directory, beside that of a shard, with the database that a backup has replaced last, or with what was
there without being a database."""
_OF_THE_TARGET = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors that another backup would meet as well."""
RESTORED = "restored from a backup"

logger = structlog.get_logger(__name__)


class NoRoomError(OSError):
    """A copy has no room on the disk of its database."""


def place_copy(
    found: PlacedBackup,
    copy: ServiceCopy,
    target: Path,
    before_file: Callable[[], None] = lambda: None,
    make_way: Callable[[], None] = lambda: None,
) -> None:
    """Put a copy of a backup where a shard's database belongs, if it is whole and has room.

    ``make_way`` is called when the copy is made, before it gets its name: then nothing may be there but an empty
    directory. ``before_file`` is called before each file is copied; what it raises ends the copying.

    Raises:
        NoRoomError: the copy has no room.
        FileNotFoundError: the backup is being removed, or lacks a part.
        OSError: the disk cannot be used.
    """
    remove_unfinished(target)
    require_room([found.place_of(copy)], target.parent)

    def check(made: Path) -> None:
        check_copy(found, copy, made)
        make_way()

    place_files(found.place_of(copy), target, before_file, check)


def check_copy(found: PlacedBackup, copy: ServiceCopy, made: Path | None = None) -> None:
    """Check that a copy in a backup, or what was ``made`` of it, is whole.

    Who deletes a backup renames it, or removes its manifest first.

    Raises:
        FileNotFoundError: the backup is being removed, or lacks a part.
    """
    try:
        is_there = read_manifest(found.directory / MANIFEST) is not None
    except BackupError as error:
        raise FileNotFoundError(errno.ENOENT, str(error)) from error
    if not is_there:
        raise FileNotFoundError(errno.ENOENT, "the backup is being removed")
    place = made or found.place_of(copy)
    if not has_database(place):
        raise FileNotFoundError(errno.ENOENT, f"it has no database of {copy.service}, shard {copy.shard}")
    if copy.table_files is not None and count_table_files(place) != copy.table_files:
        raise FileNotFoundError(errno.ENOENT, "a table file is missing in the backup")
    if copy.checkpoints is not None and count_checkpoints(place) != copy.checkpoints:
        raise FileNotFoundError(errno.ENOENT, "a snapshot checkpoint is missing in the backup")


def require_room(copies: Sequence[Path], directory: Path) -> None:
    """Raise NoRoomError if copies of a backup have no room: other shards on this disk must not run out of it.

    What a backup takes is measured, since whoever has copied it elsewhere may have copied shared files several times.
    """
    make_directory(directory)
    if all(_is_on_one_disk(copy, directory) for copy in copies):
        return
    size_bytes, free = sum(map(tree_bytes, copies)), shutil.disk_usage(directory).free
    if free < size_bytes:
        raise NoRoomError(errno.ENOSPC, f"it needs {size_bytes:,} bytes, and {free:,} are free")


def _is_on_one_disk(one: Path, other: Path) -> bool:
    """Return whether table files can be linked from one directory to the other, which takes no room."""
    return one.stat().st_dev == other.stat().st_dev


@dataclass(frozen=True, slots=True)
class Restores:
    """The backups of one shard of a service, and the place of its database."""

    service: Service
    shard: int
    target: Path
    """The directory of the shard, with its database and checkpoints."""
    directory: Path | None
    """Where backups are kept; None if none is to be restored."""

    @property
    def why_none(self) -> str:
        """The end of a sentence that says where no backup was found."""
        return "" if self.directory is None else f"; {self.directory} has no backup of this shard that fits the log"

    def restore(self, log: Log, before_file: Callable[[], None]) -> bool:
        """Put the newest backup that fits the log in place; return whether there is one.

        A database that is there is moved aside. No process may have it open. ``before_file`` is called before each file
        is copied; what it raises ends the copying, and leaves all as it was.

        Raises:
            PositionError: the log has lost what a backup has read.
            RetryableError: the log did not answer, the disk is full, or no fitting backup could be copied.
        """
        if self.directory is None:
            return False
        failed: OSError | None = None
        for found, copy in self._fitting(self.directory, log):
            try:
                self._place(found, copy, before_file)
            except OSError as error:
                failed = error
                if error.errno in _OF_THE_TARGET:
                    break
                logger.warning("a backup is left out", backup=found.backup.name, reason=str(error))
            else:
                return True
        if failed is not None:
            raise RetryableError(
                f"no backup of shard {self.shard} could be copied from {self.directory} to {self.target} "
                f"({failed.strerror}): free some space, or repair the disk"
            ) from failed
        logger.warning("there is no backup of this shard that fits the log", shard=self.shard, directory=self.directory)
        return False

    def _place(self, found: PlacedBackup, copy: ServiceCopy, before_file: Callable[[], None]) -> None:
        """Put a copy in place of what is there."""
        logger.info("restoring a backup", shard=self.shard, backup=found.backup.name, size_bytes=copy.size_bytes)
        place_copy(found, copy, self.target, before_file, self._move_aside)
        logger.warning(RESTORED, service=self.service.name, shard=self.shard, backup=found.backup.name)

    def _move_aside(self) -> None:
        """Move what is in the place of the database aside; nothing that holds a file is removed."""
        if not any(path.is_file() for path in self.target.rglob("*")):
            shutil.rmtree(self.target, ignore_errors=True)
            return
        prefix = OUTDATED if has_database(self.target) else INCOMPLETE
        aside = self.target.with_name(f"{prefix}{self.target.name}")
        shutil.rmtree(aside, ignore_errors=True)
        self.target.rename(aside)
        for copies in (COPIES, AUDITS):
            shutil.rmtree(aside / copies, ignore_errors=True)

    def _fitting(self, directory: Path, log: Log) -> Iterator[tuple[PlacedBackup, ServiceCopy]]:
        """Yield the backups of this shard that the log goes on from, newest first."""
        topics = read_topics(self.service)
        bounds = {one: (log.first_offset(one, self.shard), log.end_offset(one, self.shard)) for one in topics}
        ids = log.topic_ids(topics)
        for found in _readable(directory):
            copy = found.backup.copy_of(self.service.name, self.shard)
            if copy is None or any(ids.get(one.topic) != one.topic_id for one in copy.positions):
                continue  # of another log
            positions = dict.fromkeys(bounds, 0) | {one.topic: one.next_offset for one in copy.positions}
            for topic, (_, end) in bounds.items():
                if positions[topic] > end:
                    raise PositionError(
                        f"{self.service.name}, shard {self.shard}: backup {found.backup.name} has read {topic} up to "
                        f"{positions[topic]}, but it ends at {end}: the broker has lost its tail; restore it, or, if "
                        f"the loss was accepted, take this backup out of {directory} and make another one"
                    )
            if all(first <= positions[topic] for topic, (first, _) in bounds.items()):
                yield found, copy


def _readable(directory: Path) -> list[PlacedBackup]:
    """Return the backups of a directory, newest first. One that cannot be read must not keep a shard from starting."""
    try:
        found = placed_backups(directory, lambda error: logger.warning("a backup is left out", reason=str(error)))
    except BackupError as error:
        logger.error("no backup is restored", reason=str(error))
        return []
    return found[::-1]
