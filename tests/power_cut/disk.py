"""Runs a process on a disk that notes what is synced, and takes away from its files what was not."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path


@dataclass(slots=True)
class Synced:
    """What the disk has for certain."""

    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes from the beginning of a file, by its inode."""
    names: dict[int, dict[str, int]] = field(default_factory=dict)
    """Inodes by name, by the inode of their directory."""


@dataclass(frozen=True, slots=True)
class LosingDisk:
    """One directory tree, with the notes of what was synced in it kept beside it."""

    root: Path
    notes: Path

    def environment(self) -> dict[str, str]:
        """What a process has to be started with, for its syncs to be noted.

        Raises:
            subprocess.CalledProcessError: the C compiler refused the library.
        """
        self.notes.mkdir(parents=True, exist_ok=True)
        (self.notes / "replaced").mkdir(exist_ok=True)
        library = self.notes / "journal.so"
        if not library.exists():
            with as_file(files("tests.power_cut") / "journal.c") as source:
                subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        return {
            **os.environ,
            "LD_PRELOAD": str(library),
            "POWER_CUT_JOURNAL": str(self.notes / "journal"),
            "POWER_CUT_REPLACED": str(self.notes / "replaced"),
        }

    def synced(self) -> Synced:
        """What the notes say."""
        found = Synced()
        listed: dict[str, int] = {}
        for line in (self.notes / "journal").read_text().splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "file":
                inode, size = rest.split()
                found.sizes[int(inode)] = int(size)
            elif kind == "directory":
                listed = found.names[int(rest)] = {}
            else:
                inode, _, name = rest.partition(" ")
                listed[name] = int(inode)
        return found

    def cut_power(self) -> None:
        """Leave what was synced and nothing else; no process may use the tree any more.

        Names that were unlinked stay unlinked: whether they come back is up to a disk, and they were of no use.
        """
        self._leave_synced(self.root, self.synced())

    def _leave_synced(self, directory: Path, synced: Synced) -> None:
        names = synced.names.get(directory.stat().st_ino, {})
        for path in list(directory.iterdir()):
            inode = path.lstat().st_ino
            if names.get(path.name) != inode:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                replaced = self.notes / "replaced" / str(names.get(path.name, ""))
                if path.name in names and replaced.is_file():
                    os.link(replaced, path)
                    os.truncate(path, synced.sizes.get(names[path.name], 0))
            elif path.is_dir():
                self._leave_synced(path, synced)
            else:
                os.truncate(path, min(path.stat().st_size, synced.sizes.get(inode, 0)))
