"""Where the active database and those of the snapshots are, in a directory of an Ozone Manager or a copy of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from services.domain.errors import DeepcleanError

ACTIVE_DIRECTORY = "om.db"
SNAPSHOTS = Path("db.snapshots", "checkpointState")
CURRENT = "CURRENT"
"""RocksDB's file that names the manifest: where it is, there is a database."""
_VERSION = re.compile(rb"^version:\s*(\d+)\s*$", re.MULTILINE)


class OzoneLocationError(DeepcleanError):
    """What was named is not the database of an Ozone Manager, or cannot be read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class OzoneDirectories:
    """The directories of one Ozone Manager."""

    active: Path
    snapshots: Path

    def of_snapshot(self, snapshot_id: str) -> Path:
        """Return the directory of a snapshot's database.

        The local data of a snapshot (from Ozone 2.1 on) has the version of its directory. The highest version that is
        there may be the leftover of an unfinished change, so the file decides.
        """
        plain = self.snapshots / f"om.db-{snapshot_id}"
        local_data = self.snapshots / f"om.db-{snapshot_id}.yaml"
        if not local_data.is_file():
            return plain
        # Only the line of the version is read: the file lists every SST file, and has tags of Java classes.
        found = _VERSION.search(local_data.read_bytes())
        version = int(found[1]) if found else 0
        return plain.with_name(f"{plain.name}-{version}") if version else plain


def unreadable(error: PermissionError) -> OzoneLocationError:
    """Return the error for a file or directory that may not be read."""
    return OzoneLocationError(
        f"{error.filename} cannot be read: run as a user who may read Ozone's metadata, or copy it."
    )


def directories_at(location: Path) -> OzoneDirectories:
    """Find the databases at a location: the directory that holds ``om.db``, or ``om.db`` itself.

    Raises:
        OzoneLocationError: there is no database, or it cannot be read.
    """
    try:
        for active in (location / ACTIVE_DIRECTORY, location):
            if (active / CURRENT).is_file():
                next(active.iterdir())
                return OzoneDirectories(active, active.parent / SNAPSHOTS)
    except PermissionError as error:
        raise unreadable(error) from None
    raise OzoneLocationError(
        f"{location} has no database of an Ozone Manager: name the directory that holds om.db and db.snapshots "
        f"(ozone.om.db.dirs), a copy of it, or a checkpoint's tar file."
    )
