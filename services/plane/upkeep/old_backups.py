"""Deletes backups that newer ones replace, and says which copies of a backup are damaged.

A backup of one host has the shards that the host ran then, so that backups are not simply the older the less needed:
one is replaced when each of its copies has newer ones. When in doubt, a backup is kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from services.plane.machine.errors import StackError, disk_error
from services.plane.upkeep.backups import backup_lock, listed_backups, remove_unfinished_backups, unfinished_name
from services.runtime.copies.manifests import PlacedBackup, ServiceCopy
from services.runtime.copies.restores import check_copy
from services.storage.linked_files import exclusive_bytes
from services.storage.rocks_checkpoints import sync_directory

Place = tuple[str, int]
"""A service and a shard."""


@dataclass(frozen=True, slots=True)
class KeptBackup:
    """A backup, and what is wrong with it."""

    placed: PlacedBackup
    damaged: Mapping[Place, str] = field(default_factory=dict)
    """Copies that cannot be restored, each with the reason."""

    @property
    def name(self) -> str:
        """The name in the manifest."""
        return self.placed.backup.name

    @property
    def copies(self) -> Mapping[Place, ServiceCopy]:
        """The copies by service and shard."""
        return {(copy.service, copy.shard): copy for copy in self.placed.backup.copies}

    @property
    def is_counted(self) -> bool:
        """Whether it may replace others, and be deleted."""
        return self.placed.is_itself


def kept_backups(directory: Path, *, may_be_absent: bool = False) -> list[KeptBackup]:
    """Return the backups in a directory, oldest first, and look whether the parts of each copy are there.

    Raises:
        StackError: the directory or a manifest cannot be read.
    """
    if may_be_absent and not directory.exists():
        return []
    return [KeptBackup(placed, _damaged(placed)) for placed in listed_backups(directory)]


def replaced_backups(kept: Sequence[KeptBackup], keep: int) -> list[KeptBackup]:
    """Return those backups, oldest first, of which each copy is replaced by at least ``keep`` whole ones.

    A copy replaces an older one of the same shard if it has read the same topics at least as far. A copy of another
    log does not, nor one that was begun before the older one. A backup under another name, or a link to one, is neither
    counted nor deleted.
    """
    known = [one for one in kept if one.is_counted]
    return [
        one
        for age, one in enumerate(known)
        if one.copies
        and all(
            sum(_is_replaced_by(copy, newer, place) for newer in known[age + 1 :]) >= keep
            for place, copy in one.copies.items()
        )
    ]


def _is_replaced_by(copy: ServiceCopy, newer: KeptBackup, place: Place) -> bool:
    other = newer.copies.get(place)
    if other is None or place in newer.damaged:
        return False
    return all(
        (read := other.position(one.topic)) is not None
        and read.topic_id == one.topic_id
        and read.next_offset >= one.next_offset
        for one in copy.positions
    )


def deletable_backups(kept: Sequence[KeptBackup], keep: int, names: Sequence[str] = ()) -> list[KeptBackup]:
    """Return the backups that newer ones replace, oldest first: those that are named, or all.

    Raises:
        StackError: a name is of no backup, or of one that must be kept.
    """
    replaced = replaced_backups(kept, keep)
    for name in names:
        found = [one for one in kept if name in (one.name, one.placed.directory.name)]
        if not found:
            raise StackError(f"There is no complete backup {name}: see deepclean backups list.")
        if not any(one.is_counted for one in found):
            raise StackError(
                f"{found[0].placed.directory} is a link to backup {found[0].name}, or was renamed or copied: remove it "
                f"yourself if nobody needs it."
            )
        if all(one.name != name for one in replaced):
            raise StackError(
                f"Backup {name} is kept: of some shard in it there are fewer than {keep} newer whole copies of the "
                f"same log. Make a backup first (deepclean backup), lower --keep, or, if it is of another log, take it "
                f"out of the directory."
            )
    return [one for one in replaced if not names or one.name in names]


def freed_bytes(deleted: Iterable[KeptBackup]) -> int:
    """Return the bytes that the deletion of these backups frees: those of files that nothing else shares.

    Raises:
        StackError: a file cannot be looked at.
    """
    directories = [one.placed.directory for one in deleted]
    try:
        return exclusive_bytes(directories)
    except OSError as error:
        raise disk_error(directories[0], error) from error


def delete_backups(home: Path, directory: Path, keep: int, names: Sequence[str]) -> None:
    """Delete these backups of a directory, and what interrupted commands have left.

    Each is hidden by one rename before the first of its files goes. It is no error if another host has deleted one.

    Raises:
        StackError: a backup is being made, is needed by now, or the disk failed.
    """
    with backup_lock(home):
        remove_unfinished_backups(home, directory)
        kept = kept_backups(directory)
        present = {one.name for one in kept if one.name in names}
        for one in deletable_backups(kept, keep, sorted(present)) if present else ():
            hidden = directory / unfinished_name(home, one.name)
            try:
                with suppress(FileNotFoundError):  # another host deletes it, too
                    one.placed.directory.rename(hidden)
                    hidden.touch()  # by its age other hosts see that somebody is at work on it
                    sync_directory(directory)
                    shutil.rmtree(hidden)
            except OSError as error:
                raise disk_error(directory, error) from error


def _damaged(placed: PlacedBackup) -> dict[Place, str]:
    found = {}
    for copy in placed.backup.copies:
        try:
            check_copy(placed, copy)
        except OSError as error:
            found[copy.service, copy.shard] = error.strerror or str(error)
    return found
