"""Deletes backups that newer ones replace, and says which copies of a backup are damaged.

A backup of one host has the shards that the host ran then, so that backups are not simply the older the less needed:
one is replaced when each of its copies has newer ones.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.plane.machine.errors import StackError, disk_error
from services.plane.upkeep.backups import backup_lock, listed_backups, unfinished_name
from services.runtime.copies.manifests import Backup, PlacedBackup, ServiceCopy
from services.runtime.copies.restores import check_copy
from services.storage.rocks_checkpoints import sync_directory


@dataclass(frozen=True, slots=True)
class KeptBackup:
    """A backup, and what is wrong with it."""

    backup: Backup
    damaged: tuple[tuple[str, int, str], ...] = ()
    """Services and shards of copies that cannot be restored, each with the reason."""
    exclusive_bytes: int = 0
    """Bytes that a deletion frees: those of files that neither another backup nor a database shares."""

    def is_whole(self, copy: ServiceCopy) -> bool:
        """Return whether a copy of this backup can be restored, as far as its files are there."""
        return (copy.service, copy.shard) not in {(service, shard) for service, shard, _ in self.damaged}


def kept_backups(directory: Path) -> list[KeptBackup]:
    """Return the backups in a directory, oldest first, and look whether the parts of each copy are there.

    Raises:
        StackError: the directory or a manifest cannot be read.
    """
    return [
        KeptBackup(backup, tuple(_damaged(found)), exclusive_bytes([found.directory]))
        for backup in listed_backups(directory)
        for found in [PlacedBackup(directory / backup.name, backup)]
    ]


def replaced_backups(kept: Sequence[KeptBackup], keep: int) -> list[KeptBackup]:
    """Return those backups, oldest first, of which each copy has at least ``keep`` newer ones that are whole.

    A copy that is damaged counts for nothing, but does not let its backup go: in doubt it is kept.
    """
    newer: dict[tuple[str, int], int] = {}
    replaced = []
    for one in reversed(kept):
        if all(newer.get((copy.service, copy.shard), 0) >= keep for copy in one.backup.copies):
            replaced.append(one)
        for copy in filter(one.is_whole, one.backup.copies):
            newer[copy.service, copy.shard] = newer.get((copy.service, copy.shard), 0) + 1
    return replaced[::-1]


def deletable_backups(kept: Sequence[KeptBackup], keep: int, names: Sequence[str] = ()) -> list[KeptBackup]:
    """Return the backups that newer ones replace, oldest first: those that are named, or all.

    Raises:
        StackError: a name is of no backup, or of one that must be kept.
    """
    replaced = replaced_backups(kept, keep)
    known = {one.backup.name for one in kept}
    for name in names:
        if name not in known:
            raise StackError(f"There is no complete backup {name}: see deepclean backups list.")
        if all(one.backup.name != name for one in replaced):
            raise StackError(
                f"Backup {name} is kept: a shard in it has fewer than {keep} newer whole copies in other backups. "
                f"Make a backup first (deepclean backup), or lower --keep."
            )
    return [one for one in replaced if not names or one.backup.name in names]


def delete_backups(home: Path, directory: Path, deleted: Sequence[KeptBackup]) -> None:
    """Delete backups from a directory. Each is hidden by one rename before the first of its files goes.

    Raises:
        StackError: a backup is being made, or the disk failed.
    """
    with backup_lock(home):
        for name in [one.backup.name for one in deleted]:
            hidden = directory / unfinished_name(home, name)
            try:
                (directory / name).rename(hidden)
                sync_directory(directory)
                shutil.rmtree(hidden)
            except OSError as error:
                raise disk_error(directory, error) from error


def exclusive_bytes(directories: Iterable[Path]) -> int:
    """Return the bytes of the files that have all their names within some directories: what their deletion frees."""
    names: Counter[tuple[int, int]] = Counter()
    size_bytes = 0
    for path in (path for directory in directories for path in directory.rglob("*") if path.is_file()):
        found = path.stat()
        inode = found.st_dev, found.st_ino
        names[inode] += 1
        if names[inode] == found.st_nlink:
            size_bytes += found.st_size
    return size_bytes


def _damaged(found: PlacedBackup) -> Iterator[tuple[str, int, str]]:
    for copy in found.backup.copies:
        try:
            check_copy(found, copy)
        except OSError as error:
            yield copy.service, copy.shard, error.strerror or str(error)
