"""Copies of a shard's database that somebody has asked for: kept beside it until they are given back, or too old.

::

    <shard's directory>/copies/<name>                for backups and digests
    <shard's directory>/audits/<audit id>/<name>     for audits
    <…>/.removing-<name>-<number>                    on its way out

A copy needs nobody to keep it: whatever is written or dropped meanwhile, its files stay, and so does the room that they
take. It goes by one rename and its files after that: who still reads it finds nothing any more, and never takes half of
it for the whole.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from services.storage.rocks_checkpoints import REMOVING

COPIES, AUDITS = "copies", "audits"
DAY_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class KeptCopies:
    """The copies in one directory; it may be looked at from several threads."""

    directory: Path
    kept_seconds: float
    """A copy that is older belongs to nobody any more: whoever asked for it has died, or has forgotten it."""

    def others(self, name: str) -> int:
        """How many there are beside the one of a name, once the old ones are gone.

        Raises:
            OSError: the disk refuses.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self.remove_old(but=name)
        return sum(found.name != name for found in self._found())

    def remove(self, name: str) -> bool:
        """Remove one; says whether it was there."""
        leaving = self.directory / f"{REMOVING}{name}-{time.time_ns()}"
        try:
            (self.directory / name).rename(leaving)
        except OSError:
            return False
        shutil.rmtree(leaving, ignore_errors=True)
        return True

    def remove_old(self, but: str = "") -> None:
        """Remove those that are too old."""
        for found in self._found():
            # One that goes meanwhile was given back.
            with contextlib.suppress(FileNotFoundError):
                if found.name != but and time.time() - found.stat().st_mtime > self.kept_seconds:
                    self.remove(found.name)

    def remove_all(self) -> None:
        """Remove everything, half made ones too: at the start of a service, which nobody has asked for a copy yet."""
        for found in self._found():
            self.remove(found.name)
        shutil.rmtree(self.directory, ignore_errors=True)  # with what was being made or removed when a process died

    def _found(self) -> list[Path]:
        """The copies; not what is being made or removed, whose name begins with a dot."""
        with contextlib.suppress(FileNotFoundError):
            return [found for found in self.directory.iterdir() if not found.name.startswith(".")]
        return []
