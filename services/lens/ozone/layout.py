"""Where the active database and those of the snapshots are, in a directory of an Ozone Manager or a copy of one."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rocksdict import AccessType, Options, Rdict

from services.domain.errors import DeepcleanError
from services.lens.ozone.tables import SNAPSHOT_INFO

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
        OzoneLocationError: there is no database, it cannot be read, or all databases of its snapshots are missing.
    """
    try:
        if not location.exists():
            raise OzoneLocationError(
                f"{location} is missing: name the directory that holds om.db, a checkpoint's tar file, or "
                f"http://HOST:9874 of an Ozone Manager."
            )
        for active in (location / ACTIVE_DIRECTORY, location):
            if (active / CURRENT).is_file():
                found = OzoneDirectories(active, active.parent / SNAPSHOTS)
                _check(found)
                return found
    except PermissionError as error:
        raise unreadable(error) from None
    raise OzoneLocationError(
        f"{location} has no database of an Ozone Manager: name the directory that holds om.db and db.snapshots "
        f"(ozone.om.db.dirs), a copy of it, or a checkpoint's tar file."
    )


def _check(directories: OzoneDirectories) -> None:
    """Refuse what cannot be read, and a copy without the snapshots, of which hardly a figure would be right."""
    next(directories.active.iterdir())
    (directories.active / CURRENT).read_bytes()
    if directories.snapshots.is_dir():
        next(directories.snapshots.iterdir(), None)
    elif _names_snapshots(directories.active):
        raise OzoneLocationError(
            f"{directories.snapshots} is missing, though {directories.active} has snapshots: copy db.snapshots as "
            f"well, or fetch a checkpoint with includeSnapshotData=true."
        )


def _names_snapshots(active: Path) -> bool:
    """Return whether a database has a row of a snapshot. What is wrong with a damaged one is said when it is read."""
    with tempfile.TemporaryDirectory(prefix="deepclean-ozone-") as mirror:  # rocksdict writes beside what it opens
        for file in active.iterdir():
            Path(mirror, file.name).symlink_to(file.absolute())
        try:
            options = Options(raw_mode=True)
            options.set_max_open_files(1)
            database = Rdict(mirror, options, {SNAPSHOT_INFO: options}, AccessType.read_only(False))
            rows = database.get_column_family(SNAPSHOT_INFO)
            found = next(iter(rows.keys()), None) is not None
            rows.close()
            database.close()
        except Exception:
            return False
    return found
