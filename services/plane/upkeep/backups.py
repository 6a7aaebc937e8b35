"""Backups of a plane: copies of each service's databases, with the positions in the log that they have reached.

``services/runtime/copies/manifests.py`` describes a complete backup. One that is being made or removed is
``<directory>/.making-<host>-<name>``; the next one of this host removes what is left of it.
"""

from __future__ import annotations

import fcntl
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import groupby
from pathlib import Path

import httpx

from services.client.wire.http_reads import WRONG_SHARD, http_client, reason_of
from services.metadata.checkpoints.unfinished import first_offset_of_txn, oldest_unfinished_txn
from services.metadata.recovery.digest import digest_shard
from services.plane.machine.errors import StackError, disk_error
from services.plane.stack.plane_file import PlaneFile, read_plane_file
from services.plane.stack.process_names import METADATA, SERVICES
from services.plane.stack.secrets import http_token
from services.plane.upkeep.shard_databases import database_directory, open_copy, positions_of
from services.runtime.copies.kept_copies import COPIES, DAY_SECONDS, KeptCopies
from services.runtime.copies.manifests import (
    Backup,
    BackupError,
    CopyName,
    InputPosition,
    PlacedBackup,
    ServiceCopy,
    made_at,
    placed_backups,
    write_manifest,
)
from services.runtime.copies.restores import NoRoomError, check_copy, place_copy, require_room
from services.storage.linked_files import tree_bytes
from services.storage.rocks_backups import copy_files, count_checkpoints, count_table_files, remove_unfinished
from services.storage.rocks_checkpoints import MAKING, sync_directory
from services.storage.store import StoreError

LOCK_NAME = "backup.lock"
COPY_PREFIX = "backup-"
"""Prefix of the names of copies that services make for a backup."""
ASK_SECONDS = 90.0
LEFT_SECONDS = DAY_SECONDS
"""Age from which on what another host has left of a backup is removed, too."""


class ElsewhereError(StackError):
    """No process of this host runs the shard, and one on another host may."""


def backups_directory(home: Path) -> Path:
    """Return the directory of a home's backups, for a plane whose description names none."""
    return home / "backups"


def backups_of(plane: PlaneFile) -> Path:
    """Return the directory of a plane's backups."""
    return Path(plane.backups) if plane.backups else backups_directory(Path(plane.home))


def backups_at(home: Path) -> Path:
    """Return the directory of the backups of a home's plane, or of the home if the plane does not run."""
    plane = read_plane_file(home)
    return backups_of(plane) if plane else backups_directory(home)


def listed_backups(directory: Path) -> list[PlacedBackup]:
    """Return the complete backups in a directory, oldest first. Raise StackError if one cannot be read."""
    try:
        return placed_backups(directory)
    except BackupError as error:
        raise StackError(str(error)) from error


def known_backups(plane: PlaneFile, *others: Path) -> list[Backup]:
    """Return the backups of a plane, oldest first: in its directory, in the home and in other directories.

    Raises:
        StackError: a directory or a manifest cannot be read.
    """
    return [found.backup for found in _placed_backups(plane, *others)]


def _placed_backups(plane: PlaneFile, *others: Path) -> list[PlacedBackup]:
    home = backups_directory(Path(plane.home))
    wanted = [*([Path(plane.backups)] if plane.backups else []), *([home] if home.exists() else []), *others]
    distinct = {directory.resolve(): directory for directory in wanted}.values()
    return sorted((found for directory in distinct for found in listed_backups(directory)), key=made_at)


def shared_backups(plane: PlaneFile) -> list[Backup] | None:
    """Return the backups with which a host begins that has no database; None if the description names no directory.

    Raises:
        StackError: the directory or a manifest cannot be read.
    """
    return [found.backup for found in listed_backups(Path(plane.backups))] if plane.backups else None


def damaged_copies(plane: PlaneFile, *others: Path) -> dict[CopyName, str]:
    """Return the copies in the known backups that cannot be restored, each with what it lacks.

    Raises:
        StackError: a directory, a manifest or a copy cannot be read.
    """
    damaged = {}
    for found in _placed_backups(plane, *others):
        for copy in found.backup.copies:
            try:
                check_copy(found, copy)
            except FileNotFoundError as error:
                damaged[found.backup.name, copy.service, copy.shard] = error.strerror or str(error)
            except OSError as error:
                what = f"{found.directory} cannot be read ({error.strerror or error}): see that its disk is mounted"
                raise StackError(f"{what}.") from error
    return damaged


def find_backup(directory: Path, name: str = "") -> PlacedBackup:
    """Return the backup of this name, or the newest one for an empty name. Raise StackError if there is none."""
    listed = listed_backups(directory) if directory.exists() else []
    found = [one for one in listed if name in ("", one.backup.name)]
    if not found:
        which = f"no complete backup {name}" if name else "no complete backup"
        raise StackError(f"{directory} holds {which}: make one (deepclean backup), or name another directory (--from).")
    return found[-1]


def make_backup(
    plane: PlaneFile, directory: Path, *, has_digest: bool = True, tell: Callable[[str], None] = lambda _: None
) -> Backup:
    """Copy every shard of every service of a running plane that a process of this host runs. ``tell`` is for what an
    operator should know of earlier backups.

    Raises:
        StackError: a service did not answer, none runs here, or the disk failed. No incomplete backup with a manifest
            is left.
    """
    home = Path(plane.home)
    with backup_lock(home):
        _remove_what_was_cut_off(home, plane.shards, directory)
        name = datetime.now(UTC).strftime("%Y%m%dT%H%M%S-%fZ")
        making = directory / unfinished_name(home, name)
        try:
            copies = list(_Making(plane, making, name, _newest_copies(directory), has_digest, tell).copies())
            if not copies:
                raise StackError("No process of this host runs a shard: make the backup on the hosts that do.")
            backup = Backup(name, int(time.time() * 1000), plane.shards, tuple(copies))
            _require_copies(making, backup)
            write_manifest(making, backup)
            making.rename(directory / name)
            sync_directory(directory)
        except OSError as error:
            raise disk_error(directory, error) from error
        return backup


def missing_from(backup: Backup) -> list[tuple[str, int]]:
    """Return the services and shards without a copy: no process of the backup's host ran them."""
    places = ((service, shard) for service in SERVICES for shard in range(backup.shards))
    return [place for place in places if backup.copy_of(*place) is None]


def places_text(places: Iterable[tuple[str, int]]) -> str:
    """Return services and shards in words: ``metadata 0, 2; snapshots 1``."""
    return "; ".join(
        f"{service} {', '.join(str(shard) for _, shard in one)}"
        for service, one in groupby(places, key=lambda place: place[0])
    )


def _wanted(backup: Backup, services: Sequence[str], shards: Sequence[int]) -> list[tuple[str, int]]:
    """Return the copies to restore; each service and each shard that is named must be among them."""
    if services and shards:
        return [(service, shard) for service in services for shard in shards]
    places = [
        (copy.service, copy.shard)
        for copy in backup.copies
        if copy.service in (services or SERVICES) and (not shards or copy.shard in shards)
    ]
    found_services, found_shards = ({place[part] for place in places} for part in (0, 1))
    missing = [
        *(service for service in services if service not in found_services),
        *(f"shard {shard}" for shard in shards if shard not in found_shards),
    ]
    if missing:
        raise StackError(f"Backup {backup.name} has nothing of {missing[0]}: name another backup.")
    return places


@contextmanager
def backup_lock(home: Path) -> Iterator[None]:
    """Let one command of a home at a time make or remove backups. Raise StackError if there is another."""
    if not home.is_dir():
        raise StackError(f"{home} is no home of a plane: name it (--home).")
    with (home / LOCK_NAME).open("a+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StackError(f"Backups of {home} are being made or removed: wait until that has ended.") from error
        yield


def _remove_what_was_cut_off(home: Path, shards: int, directory: Path) -> None:
    """Remove copies of interrupted backups only: an audit or a digest may be using its own copy."""
    for service in SERVICES:
        for shard in range(shards):
            copies = KeptCopies(database_directory(home, service, shard) / COPIES, DAY_SECONDS)
            for left in copies.directory.glob(f"{COPY_PREFIX}*"):
                copies.remove(left.name)
    remove_unfinished_backups(home, directory)


def remove_unfinished_backups(home: Path, directory: Path) -> None:
    """Remove what interrupted commands of this home have left of backups that they made or deleted; of others after a
    day, since they may be at work."""
    own, too_old = unfinished_name(home, ""), time.time() - LEFT_SECONDS
    for path in directory.glob(f"{MAKING}*"):
        with suppress(FileNotFoundError):  # another host has finished its backup
            if path.name.startswith(own) or path.stat().st_mtime < too_old:
                shutil.rmtree(path, ignore_errors=True)


def unfinished_name(home: Path, name: str) -> str:
    """Return what the directory of a backup is called while it is made or removed: no command takes it for a backup.

    It has a mark of the home on its host, since hosts may keep their backups in one directory.
    """
    mark = blake2b(f"{platform.node()}:{home.absolute()}".encode(), digest_size=6).hexdigest()
    return f"{MAKING}{mark}-{name}"


def _newest_copies(directory: Path) -> dict[tuple[str, int], Path]:
    """Return the newest copy of each shard of each service in a directory."""
    with suppress(BackupError):  # the directory is not there yet
        return {
            (copy.service, copy.shard): placed.place_of(copy)
            for placed in placed_backups(directory, on_unreadable=lambda _: None)
            for copy in placed.backup.copies
        }
    return {}


@dataclass(frozen=True, slots=True)
class _Making:
    """A backup of a running plane that is being made."""

    plane: PlaneFile
    directory: Path
    """Where the backup is made."""
    name: str
    earlier: Mapping[tuple[str, int], Path]
    """The copies with which files are shared."""
    has_digest: bool
    tell: Callable[[str], None]

    def copies(self) -> Iterator[ServiceCopy]:
        """Copy all shards that run here."""
        for service in SERVICES:
            for shard in range(self.plane.shards):
                with suppress(ElsewhereError):
                    yield self.copy(service, shard)

    def copy(self, service: str, shard: int) -> ServiceCopy:
        """Copy a shard. If files that it shares with an earlier copy are damaged there, all files are copied."""
        target, earlier = self.directory / service / str(shard), self.earlier.get((service, shard))
        self._copy_files(service, shard, target, earlier)
        try:
            return _described(target, service, shard, has_digest=self.has_digest)
        except StoreError:
            if earlier is None:
                raise
        shutil.rmtree(target)
        self._copy_files(service, shard, target, None)
        described = _described(target, service, shard, has_digest=self.has_digest)
        self.tell(
            f"{earlier} is damaged, so nothing is shared with it: move this backup away before you delete older ones."
        )
        return described

    def _copy_files(self, service: str, shard: int, target: Path, earlier: Path | None) -> None:
        with copy_of_running(self.plane, service, shard, f"{COPY_PREFIX}{self.name}") as made:
            try:
                copy_files(made, target, earlier=earlier)
            except FileNotFoundError as error:
                if made.exists():
                    raise
                raise StackError(
                    f"The copy {made} was removed while the backup read it: {service} was restarted, or the copy was "
                    f"older than DEEPCLEAN_COPY_SECONDS. Back up again."
                ) from error


def _described(target: Path, service: str, shard: int, *, has_digest: bool) -> ServiceCopy:
    with closing(open_copy(target, service)) as copy:
        rows = positions_of(copy, service).values()
        positions = tuple(InputPosition(row.topic, row.topic_id, row.next_offset) for row in rows)
        checkpoints, table_files = count_checkpoints(target), count_table_files(target)
        if service != METADATA:
            return ServiceCopy(
                service, shard, positions, tree_bytes(target), checkpoints=checkpoints, table_files=table_files
            )
        unfinished = oldest_unfinished_txn(copy)
        digest = digest_shard(copy) if has_digest else None
        return ServiceCopy(
            service,
            shard,
            positions,
            tree_bytes(target),  # the digest removes from checkpoints what no read of them needs
            checkpoints=checkpoints,
            table_files=table_files,
            digest=digest,
            unfinished_txn=unfinished,
            unfinished_offset=None if unfinished is None else first_offset_of_txn(copy, unfinished),
        )


@contextmanager
def copy_of_running(plane: PlaneFile, service: str, shard: int, name: str) -> Iterator[Path]:
    """Have a running service copy a shard's database beside it; the copy is deleted when the block is left.

    Raises:
        ElsewhereError: no process of this host runs the shard, and another host may.
        StackError: the service did not answer, or made no copy.
    """
    process = plane.processes.get(service)
    has_other_hosts = service in plane.elsewhere or plane.has_moving_shards or plane.has_fixed_shards
    if process is None and has_other_hosts:
        raise ElsewhereError(f"{service} does not run on this host: call the command on the host that runs it.")
    if process is None:
        raise StackError(f"The plane runs no {service}: start it whole (deepclean up).")
    try:
        with http_client(http_token(Path(plane.home)), seconds=ASK_SECONDS) as http:
            answer = http.post(f"{process.url}/v1/shards/{shard}/copies/{name}")
    except httpx.HTTPError as error:
        raise StackError(f"{service} did not answer on {process.url}: read {process.log}.") from error
    if not answer.is_success:
        reason = reason_of(answer)
        if reason is None:
            raise StackError(f"{service} made no copy of shard {shard}: it ended, or failed; read {process.log}.")
        if reason.code == WRONG_SHARD and has_other_hosts:
            raise ElsewhereError(
                f"{service} does not run shard {shard} on this host: call the command on the host that does."
            )
        raise StackError(f"{service} made no copy of shard {shard}: {reason.message}.")
    made = Path(answer.json()["directory"])
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _require_copies(directory: Path, backup: Backup) -> None:
    """Raise StackError if a copy is not there: the manifest must not name what cannot be restored."""
    for copy in backup.copies:
        if not (directory / copy.service / str(copy.shard)).is_dir():
            raise StackError(f"Somebody has removed a part of {directory} meanwhile: back up again.")


def restore_backup(
    home: Path, found: PlacedBackup, services: Sequence[str] = (), shards: Sequence[int] = ()
) -> list[ServiceCopy]:
    """Put copies of a backup where services look for their databases; return these copies.

    Without ``services`` or ``shards`` these are all that the backup has of the others.

    Raises:
        StackError: a target is not empty, the backup lacks a copy that is named or a checkpoint of it, or the disk has
            no room or fails. No file is replaced.
    """
    backup = found.backup
    wanted = _wanted(backup, services, shards)
    copies = []
    for service, shard in wanted:
        copy, target = backup.copy_of(service, shard), database_directory(home, service, shard)
        if copy is None:
            raise StackError(f"Backup {backup.name} has no copy of {service}, shard {shard}: name another backup.")
        if target.exists() and any(target.iterdir()):
            raise StackError(
                f"{target} is not empty: move it away first, and keep it until you have seen the restored one."
            )
        copies.append(copy)
    with _explaining(backup, found.directory):
        for copy in copies:
            check_copy(found, copy)
    with _explaining(backup, home):
        for copy in copies:
            remove_unfinished(database_directory(home, copy.service, copy.shard))
        require_room([found.place_of(copy) for copy in copies], home)
    for copy in copies:
        target = database_directory(home, copy.service, copy.shard)
        with _explaining(backup, target):
            place_copy(found, copy, target)  # an empty directory is replaced
    return copies


@contextmanager
def _explaining(backup: Backup, target: Path) -> Iterator[None]:
    """Raise StackError for what prevents a restore."""
    try:
        yield
    except NoRoomError as error:
        raise StackError(f"Backup {backup.name} has no room in {target}: {error.strerror}. Free some.") from error
    except FileNotFoundError as error:
        what = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
        raise StackError(f"Backup {backup.name} cannot be restored ({what}): name another backup.") from error
    except OSError as error:
        raise disk_error(target, error) from error
