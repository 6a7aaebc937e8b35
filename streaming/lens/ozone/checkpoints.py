"""Puts the databases together that an Ozone Manager sends as a checkpoint, from a tar file or over HTTP.

``/dbCheckpoint`` sends the active files at the root, and ``/v2/dbCheckpoint`` each file once under a name of its own.
In both, ``hardLinkFile`` says which files are which, and an empty file says that the checkpoint is complete.
"""

from __future__ import annotations

import errno
import tarfile
from pathlib import Path

import httpx

from services.lens.ozone.layout import ACTIVE_DIRECTORY, CURRENT, OzoneLocationError
from services.lens.ozone.location import (
    COMPLETE,
    DAMAGED_ARCHIVE,
    HTTP,
    cut_short,
    no_address,
    no_answer,
    only_a_part,
    refusal,
)

LINKS = "hardLinkFile"
ENDPOINTS = ("/v2/dbCheckpoint", "/dbCheckpoint")
"""The newer one first: it holds all databases at one moment. Releases before 2.2 have the other only."""
_QUERY = {"includeSnapshotData": "true", "flushBeforeCheckpoint": "true"}
TIMEOUT_SECONDS = 600.0


def directory_of(location: str, scratch: Path) -> Path:
    """Return the directory to read; a checkpoint is unpacked into the scratch directory.

    Raises:
        OzoneLocationError: the checkpoint cannot be had, or is not complete.
    """
    if location.startswith(HTTP):
        archive = fetched(location, scratch)
        directory = unpacked(archive, scratch)
        archive.unlink()
        return directory
    return unpacked(Path(location), scratch) if Path(location).is_file() else Path(location)


def fetched(url: str, directory: Path) -> Path:
    """Have an Ozone Manager make a checkpoint, and write it to a file.

    Raises:
        OzoneLocationError: it refuses, or the connection ends early.
    """
    target = directory / "checkpoint.tar"
    base = url.rstrip("/")
    try:
        for endpoint in ENDPOINTS:
            with httpx.stream("GET", base + endpoint, params=_QUERY, timeout=TIMEOUT_SECONDS) as answer:
                if answer.status_code == httpx.codes.NOT_FOUND:
                    continue
                if answer.status_code != httpx.codes.OK:
                    raise refusal(base + endpoint, answer.status_code)
                _write(answer, target)
                return target
    except httpx.InvalidURL:
        raise no_address() from None
    except httpx.ReadTimeout:
        raise OzoneLocationError(
            f"{base} sent nothing for {TIMEOUT_SECONDS:g} seconds after it was asked for a checkpoint: look into its "
            f"log, or copy its database while it is stopped."
        ) from None
    except httpx.HTTPError as error:
        raise no_answer(base, error) from None
    raise OzoneLocationError(f"{base} has no {' and no '.join(ENDPOINTS)}: name the Ozone Manager's HTTP port (9874).")


def _write(answer: httpx.Response, target: Path) -> None:
    with target.open("wb") as file:
        for piece in answer.iter_bytes():
            try:
                file.write(piece)
            except OSError as error:
                raise _full(target, error) from None


def unpacked(archive: Path, directory: Path) -> Path:
    """Unpack a checkpoint, and return the directory that then holds ``om.db`` and ``db.snapshots``.

    A tar file of such a directory will do, too.

    Raises:
        OzoneLocationError: the file is cut short, no tar file, not to be trusted, or only a part of a checkpoint; or
            the disk is full.
    """
    target = directory / "checkpoint"
    target.mkdir()
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")
        inner = next((found.parent.parent for found in target.rglob(f"{ACTIVE_DIRECTORY}/{CURRENT}")), None)
        if inner is not None:
            return inner
        if not (target / COMPLETE).exists():
            raise only_a_part(archive)
        _link(target, archive)
    except tarfile.FilterError as error:
        raise _leads_outside(archive, error.tarinfo.name) from None
    except DAMAGED_ARCHIVE as error:
        raise cut_short(archive, error) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise _full(target, error) from None
        raise OzoneLocationError(
            f"{archive} cannot be unpacked ({error}): check the rights, or fetch or copy it again."
        ) from None
    return target


def _full(target: Path, error: OSError) -> OzoneLocationError:
    return OzoneLocationError(
        f"{target} cannot be written ({error.strerror}): a checkpoint needs room for its files in the directory for "
        f"temporary files; TMPDIR names another one."
    )


def _leads_outside(archive: Path, name: str) -> OzoneLocationError:
    return OzoneLocationError(f"{archive} names {name}, which is outside of it: do not trust it; fetch another.")


def _link(target: Path, archive: Path) -> None:
    active = target / ACTIVE_DIRECTORY
    active.mkdir(exist_ok=True)
    for name, source in _pairs(target / LINKS, archive):
        made, linked = _inside(target, name, archive), _inside(target, source, archive)
        if not linked.is_file():
            raise OzoneLocationError(f"{archive} has no {source}, which its {LINKS} names: fetch it again.")
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            made.hardlink_to(linked)
    if not (active / CURRENT).exists():  # the older form: what is left at the root is the active database
        for file in [file for file in target.iterdir() if file.is_file() and file.name not in (COMPLETE, LINKS)]:
            file.rename(active / file.name)


def _pairs(links: Path, archive: Path) -> list[tuple[str, str]]:
    """Return the lines of the file of links: the name of a file, and which file it is."""
    if not links.exists():
        return []
    try:
        lines = links.read_text(encoding="utf-8").splitlines()
        return [(name, source) for name, source in (line.split("\t") for line in lines if line)]
    except ValueError:  # no text, or a line that has not two parts
        raise OzoneLocationError(f"{archive} has a damaged {LINKS}: fetch it again.") from None


def _inside(target: Path, name: str, archive: Path) -> Path:
    """Return the path of a file in the checkpoint: the archive may come from anybody, and name files of this machine.

    The archive has no symbolic links that lead out of it: unpacking refuses them.
    """
    path = (target / name).resolve()
    if not path.is_relative_to(target.resolve()):
        raise _leads_outside(archive, name)
    return path
