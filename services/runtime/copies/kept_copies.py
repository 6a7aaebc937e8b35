"""Requested copies of a shard's database: kept beside it until their users remove them, or until they are too old.

::

    <shard's directory>/copies/<name>                for backups and digests
    <shard's directory>/audits/<audit id>/<name>     for audits
    <…>/.removing-<name>-<number>                    being removed

The files of a copy stay, and take space, whatever the service writes or drops. A copy is removed by one rename, and its
files are deleted after that: a reader then finds no copy, and never half a copy.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from services.storage.rocks_checkpoints import REMOVING
from services.storage.store import StoreError

COPIES, AUDITS = "copies", "audits"
DAY_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class KeptCopies:
    """The copies in one directory. Several threads may use it."""

    directory: Path
    kept_seconds: float
    """Older copies are removed: their users have crashed or have forgotten them."""

    def others(self, name: str) -> int:
        """Remove copies that are too old; return the number of those left, without the one named ``name``.

        Raises:
            StoreError: the directory cannot be used.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.remove_old(but=name)
            return sum(found.name != name for found in self._found())
        except OSError as error:
            raise StoreError(
                f"{self.directory} cannot be used: free some space there or repair the disk ({error})"
            ) from error

    def remove(self, name: str) -> bool:
        """Remove a copy; return whether it existed."""
        leaving = self.directory / f"{REMOVING}{name}-{time.time_ns()}"
        try:
            (self.directory / name).rename(leaving)
        except OSError:
            return False
        shutil.rmtree(leaving, ignore_errors=True)
        return True

    def remove_old(self, but: str = "") -> None:
        """Remove the copies that are too old, except the one named ``but``."""
        for found in self._found():
            # A copy that is missing by now was removed by its user.
            with contextlib.suppress(FileNotFoundError):
                if found.name != but and time.time() - found.stat().st_mtime > self.kept_seconds:
                    self.remove(found.name)

    def remove_all(self) -> None:
        """Remove all copies, incomplete ones, too. Call it at the start of a service, before it accepts requests."""
        for found in self._found():
            self.remove(found.name)
        shutil.rmtree(self.directory, ignore_errors=True)  # with the incomplete copies of a crashed process

    def _found(self) -> list[Path]:
        """Return the copies, without those being made or removed, whose names begin with a dot."""
        with contextlib.suppress(FileNotFoundError):
            return [found for found in self.directory.iterdir() if not found.name.startswith(".")]
        return []
