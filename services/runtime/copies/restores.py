"""Puts the newest backup of a shard in place of a database that is missing, or that the log does not reach back to.

Where hosts share the shards, any of them may gain a shard at any time. It may never have run the shard before, or have
a database of long ago. The log behind the backups may be trimmed, so its beginning is of no use to such a host.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from services.log.port import Log
from services.runtime.copies.manifests import (
    Backup,
    BackupError,
    ServiceCopy,
    made_at,
    manifests_in,
    place_copy,
    read_manifest,
)
from services.storage.rocks_backups import DATABASE

OUTDATED = ".outdated-"
"""Prefix of a directory, beside that of a shard, with the database that a backup has replaced last."""
RESTORED = "restored from a backup"

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Restores:
    """The backups of one shard of a service, and the place of its database."""

    service: str
    shard: int
    target: Path
    """The directory of the shard, with its database and checkpoints."""
    directory: Path | None
    """Where backups are kept; None if none is to be restored."""

    @property
    def has_database(self) -> bool:
        """Whether the shard has a database."""
        return (self.target / DATABASE / "CURRENT").exists()

    def restore(self, log: Log, before_file: Callable[[], None]) -> bool:
        """Put the newest backup in place; return whether there was one. A database that is there is moved aside.

        No process may have the database open. ``before_file`` is called before each file is copied; what it raises ends
        the copying.

        Raises:
            BackupError: the directory of backups cannot be read.
            RetryableError: the log did not answer.
            OSError: the disk fails.
        """
        if self.directory is None or (found := self._newest(self.directory, log)) is None:
            return False
        backup, copy = found
        if self.target.exists() and any(self.target.iterdir()):
            aside = self.target.with_name(f"{OUTDATED}{self.target.name}")
            shutil.rmtree(aside, ignore_errors=True)
            self.target.rename(aside)
        place_copy(self.directory, backup, copy, self.target, before_file)
        logger.warning(RESTORED, service=self.service, shard=self.shard, backup=backup.name)
        return True

    def _newest(self, directory: Path, log: Log) -> tuple[Backup, ServiceCopy] | None:
        """Return the newest backup of this shard on this log."""
        found = [
            (backup, copy) for backup in _readable(directory) if (copy := backup.copy_of(self.service, self.shard))
        ]
        topics = {position.topic for _, copy in found for position in copy.positions}
        ids = log.topic_ids(sorted(topics))
        fitting = (
            one for one in found if all(ids[position.topic] == position.topic_id for position in one[1].positions)
        )
        return max(fitting, key=lambda one: made_at(one[0]), default=None)


def _readable(directory: Path) -> list[Backup]:
    """Return the backups of a directory. One that cannot be read must not keep a shard from starting."""
    found = []
    for manifest in manifests_in(directory):
        try:
            found.append(read_manifest(manifest))
        except BackupError as error:
            logger.warning("a backup is left out", reason=str(error))
    return found
