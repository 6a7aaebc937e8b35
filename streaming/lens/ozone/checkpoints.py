"""Puts the databases together that an Ozone Manager sends as a checkpoint, from a tar file or over HTTP.

``/dbCheckpoint`` sends the active files at the root, and ``/v2/dbCheckpoint`` each file once under a name of its own.
In both, ``hardLinkFile`` says which files are which, and an empty file says that the checkpoint is complete.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import httpx

from streaming.lens.ozone.layout import ACTIVE_DIRECTORY, CURRENT, OzoneLocationError

COMPLETE, LINKS = "OZONE_RATIS_SNAPSHOT_COMPLETE", "hardLinkFile"
ENDPOINTS = ("/v2/dbCheckpoint", "/dbCheckpoint")
"""The newer one first: it holds all databases at one moment. Releases before 2.2 have the other only."""
_QUERY = {"includeSnapshotData": "true", "flushBeforeCheckpoint": "true"}
TIMEOUT_SECONDS = 600.0


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
                    raise OzoneLocationError(_refusal(base + endpoint, answer.status_code))
                with target.open("wb") as file:
                    for piece in answer.iter_bytes():
                        file.write(piece)
                return target
    except httpx.HTTPError as error:
        raise OzoneLocationError(
            f"{base} did not send a checkpoint ({error}): is it the port of an Ozone Manager (9874)?"
        ) from None
    raise OzoneLocationError(f"{base} has no {' and no '.join(ENDPOINTS)}: name the Ozone Manager's HTTP port (9874).")


def _refusal(url: str, status: int) -> str:
    reasons = {
        httpx.codes.FORBIDDEN: "it wants an administrator: copy the database instead",
        httpx.codes.SERVICE_UNAVAILABLE: "it is not the leader: name the leader",
    }
    return f"{url} answered {status}: {reasons.get(httpx.codes(status), 'look into its log')}."


def unpacked(archive: Path, directory: Path) -> Path:
    """Unpack a checkpoint, and return the directory that then holds ``om.db`` and ``db.snapshots``.

    A tar file of such a directory will do, too.

    Raises:
        OzoneLocationError: the file is cut short, no tar file, or only a part of a checkpoint.
    """
    target = directory / "checkpoint"
    target.mkdir()
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise OzoneLocationError(f"{archive} is cut short or no tar file ({error}): fetch or copy it again.") from None
    inner = next((found.parent.parent for found in target.rglob(f"{ACTIVE_DIRECTORY}/{CURRENT}")), None)
    if inner is not None:
        return inner
    if not (target / COMPLETE).exists():
        raise OzoneLocationError(
            f"{archive} has only a part of a checkpoint, without {COMPLETE}: raise the Ozone Manager's "
            f"ozone.om.ratis.snapshot.max.total.sst.size and fetch it again, or copy the directories."
        )
    _link(target, archive)
    return target


def _link(target: Path, archive: Path) -> None:
    links = target / LINKS
    pairs = [line.split("\t") for line in links.read_text().splitlines() if line] if links.exists() else []
    active = target / ACTIVE_DIRECTORY
    active.mkdir(exist_ok=True)
    for name, source in pairs:
        made = target / name
        if not (made.resolve().is_relative_to(target.resolve()) and (target / source).is_file()):
            raise OzoneLocationError(f"{archive} has no {source}, or names {name} outside of it: fetch it again.")
        made.parent.mkdir(parents=True, exist_ok=True)
        made.hardlink_to(target / source)
    if not (active / CURRENT).exists():  # the older form: what is left at the root is the active database
        for file in [file for file in target.iterdir() if file.is_file() and file.name not in (COMPLETE, LINKS)]:
            file.rename(active / file.name)
