"""The backups of a directory: what each has of which shard.

::

    <directory>/<name>/<service>/<shard>/     a copy: its database, and its checkpoints if it has any
    <directory>/<name>/backup.json            the manifest; written last, so that a directory without it is not a backup

The copies need not be of one point in time: after a restore each service sends its later messages again, and the other
services ignore those that they have already applied.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from schemas.formats import FORMAT, FormatError, check
from services.domain.errors import InvariantError
from services.storage.digest import ShardDigest
from services.storage.rocks_checkpoints import sync_directory

MANIFEST = "backup.json"
LOST_AND_FOUND = "lost+found"
"""A directory of the file system, in the root of a disk."""


class BackupError(InvariantError):
    """A backup cannot be read; the message ends with the remedy."""


@dataclass(frozen=True, slots=True)
class InputPosition:
    """The next offset to read of an input topic."""

    topic: str
    topic_id: str
    next_offset: int


@dataclass(frozen=True, slots=True)
class ServiceCopy:
    """One shard of one service in a backup."""

    service: str
    shard: int
    positions: tuple[InputPosition, ...]
    size_bytes: int
    digest: ShardDigest | None = None
    """Digest of the copy, for metadata only; None if it was not computed."""
    unfinished_txn: int | None = None
    """Txn of the oldest command whose work is unfinished, for metadata only."""
    unfinished_offset: int | None = None
    """Earliest offset in metadata.commands at which this transaction may have begun."""
    checkpoints: int | None = None
    """Number of snapshot checkpoints in the copy; None in a backup of a program that did not count them."""
    table_files: int | None = None
    """Number of table files of the database, without its checkpoints; None as above."""

    def position(self, topic: str) -> InputPosition | None:
        """Return the position in a topic, or None if the service has never read it."""
        return next((one for one in self.positions if one.topic == topic), None)


CopyName = tuple[str, str, int]
"""A copy in a backup: name of the backup, service and shard."""


@dataclass(frozen=True, slots=True)
class Backup:
    """The manifest of a backup."""

    name: str
    made_at_ms: int
    shards: int
    copies: tuple[ServiceCopy, ...] = ()
    format: int = FORMAT
    """See ``schemas.formats``."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all copies, including files that they share with the databases or with other backups."""
        return sum(copy.size_bytes for copy in self.copies)

    def copy_of(self, service: str, shard: int) -> ServiceCopy | None:
        """Return the copy of one shard of one service, or None."""
        return next((one for one in self.copies if (one.service, one.shard) == (service, shard)), None)


@dataclass(frozen=True, slots=True)
class PlacedBackup:
    """A backup and its directory, whatever that is called by now."""

    directory: Path
    backup: Backup

    @property
    def is_itself(self) -> bool:
        """Whether the directory has the name that the backup was made under, and is no link to another one.

        Another name may be a copy that is not finished.
        """
        return self.directory.name == self.backup.name and not self.directory.is_symlink()

    def place_of(self, copy: ServiceCopy) -> Path:
        """Return the directory of one of the copies."""
        return self.directory / copy.service / str(copy.shard)


_ADAPTER = TypeAdapter(Backup)


def manifests_in(directory: Path) -> list[Path]:
    """Return where the manifests of backups in a directory may be, sorted by the names of their directories.

    Raises:
        BackupError: the directory is missing, or may not be read.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(directory))
    except OSError as error:
        raise BackupError(
            f"The backups in {directory} cannot be read ({error.strerror}): see that its disk is mounted, or name "
            f"another directory."
        ) from error
    return [directory / name / MANIFEST for name in names if not name.startswith(".") and name != LOST_AND_FOUND]


def read_manifest(manifest: Path) -> Backup | None:
    """Return the backup of a manifest; None if there is none, since it is no backup, or being made or removed.

    Raises:
        BackupError: it cannot be read.
    """
    try:
        content = json.loads(manifest.read_bytes())
        check(content.get("format"), str(manifest))
        return _ADAPTER.validate_python(content)
    except FormatError as error:
        raise BackupError(f"{error}, or move this backup elsewhere.") from error
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BackupError(
            f"{manifest} cannot be read ({error.strerror}): repair its disk, or let all hosts run as one user."
        ) from error
    except (ValueError, AttributeError) as error:
        raise BackupError(f"{manifest} was not written by deepclean: move this backup elsewhere.") from error


def _raise(error: BackupError) -> None:
    raise error


def placed_backups(directory: Path, on_unreadable: Callable[[BackupError], None] = _raise) -> list[PlacedBackup]:
    """Return the complete backups in a directory, sorted by ``made_at``.

    ``on_unreadable`` is called for each one that cannot be read; if it returns, that one is left out.

    Raises:
        BackupError: the directory is missing, or may not be read; by default also if a backup cannot be read.
    """
    found = []
    for manifest in manifests_in(directory):
        try:
            backup = read_manifest(manifest)
        except BackupError as error:
            on_unreadable(error)
        else:
            if backup is not None:
                found.append(PlacedBackup(manifest.parent, backup))
    return sorted(found, key=made_at)


def made_at(found: PlacedBackup) -> tuple[bool, int, str]:
    """Return what sorts backups by their age, oldest first; those under another name come before all others."""
    return found.is_itself, found.backup.made_at_ms, found.backup.name


def write_manifest(directory: Path, backup: Backup) -> None:
    """Write the manifest of a backup, and wait until it is on disk. Raise OSError if it cannot be written."""
    with (directory / MANIFEST).open("wb") as manifest:
        manifest.write(_ADAPTER.dump_json(backup, indent=1))
        manifest.flush()
        os.fsync(manifest.fileno())
    sync_directory(directory)
