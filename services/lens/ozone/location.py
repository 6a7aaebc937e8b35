"""Says what is wrong with a location before anything is read: one sentence, at once, without Spark.

What takes as long as reading is left to the reader: to unpack a large compressed archive, or to have a checkpoint made.
"""

from __future__ import annotations

import lzma
import tarfile
import zlib
from pathlib import Path

import httpx

from services.domain.addresses import without_credentials
from services.lens.ozone.layout import ACTIVE_DIRECTORY, CURRENT, OzoneLocationError, directories_at, unreadable

COMPLETE = "OZONE_RATIS_SNAPSHOT_COMPLETE"
"""The file that is last in a checkpoint's archive."""
SMALL_BYTES = 32 << 20
"""A compressed archive up to this size is read to its end; of one that is not compressed only the headers are read."""
ANSWER_SECONDS = 20.0
HTTP = ("http://", "https://")
DAMAGED_ARCHIVE = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError)


def check_location(location: str) -> None:
    """Raise ``OzoneLocationError`` if there is no database of an Ozone Manager, or no checkpoint, at a location."""
    if location.startswith(HTTP):
        _check_address(location)
    elif "://" in location:
        raise OzoneLocationError(
            f"{without_credentials(location)} is in a store that is not known here: copy the database, and name its "
            f"directory."
        )
    elif Path(location).is_file():
        _check_archive(Path(location))
    else:
        directories_at(Path(location))


def _check_address(url: str) -> None:
    """Ask for no checkpoint yet: making one takes as long as the database is large."""
    base = url.rstrip("/")
    try:
        status = httpx.head(base, timeout=ANSWER_SECONDS).status_code
    except httpx.InvalidURL:
        raise no_address() from None
    except httpx.HTTPError as error:
        raise no_answer(base, error) from None
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise refusal(base, status)


def no_address() -> OzoneLocationError:
    """Return the error for a text that is no address. It is not repeated: it may have a part of a password."""
    return OzoneLocationError("This is no address: name one as http://HOST:9874.")


def no_answer(base: str, error: Exception) -> OzoneLocationError:
    """Return the error for an address where nobody speaks HTTP."""
    return OzoneLocationError(
        without_credentials(f"{base} did not send a checkpoint ({error}): is it the port of an Ozone Manager (9874)?")
    )


def refusal(url: str, status: int) -> OzoneLocationError:
    """Return the error for an Ozone Manager that refuses."""
    reasons: dict[int, str] = {
        httpx.codes.UNAUTHORIZED: "it asks for Kerberos: copy the database instead",
        httpx.codes.FORBIDDEN: "it wants an administrator: copy the database instead",
        httpx.codes.SERVICE_UNAVAILABLE: "it is not the leader: name the leader",
    }
    return OzoneLocationError(
        f"{without_credentials(url)} answered {status}: {reasons.get(status, 'look into its log')}."
    )


def _check_archive(archive: Path) -> None:
    try:
        with tarfile.open(archive) as tar:
            is_quick = archive.stat().st_size <= SMALL_BYTES or _is_plain(tar)
            names = tar.getnames() if is_quick else None
    except PermissionError as error:
        raise unreadable(error) from None
    except DAMAGED_ARCHIVE as error:
        raise cut_short(archive, error) from None
    except OSError as error:
        raise OzoneLocationError(f"{archive} cannot be read ({error}): check the disk, or copy it again.") from None
    if names is not None and not any(is_whole(name) for name in names):
        raise only_a_part(archive)


def _is_plain(tar: tarfile.TarFile) -> bool:
    """Return whether an archive is not compressed, so that going from header to header reads nothing between."""
    return type(tar.fileobj).__module__ in ("io", "_io", "builtins")


def is_whole(name: str) -> bool:
    """Return whether an archive with a file of this name has a database, or all files of a checkpoint."""
    return Path(name) == Path(COMPLETE) or Path(name).parts[-2:] == (ACTIVE_DIRECTORY, CURRENT)


def only_a_part(archive: Path) -> OzoneLocationError:
    """Return the error for an archive without a database and without the end of a checkpoint."""
    return OzoneLocationError(
        f"{archive} has only a part of a checkpoint, without {COMPLETE}: raise the Ozone Manager's "
        f"ozone.om.ratis.snapshot.max.total.sst.size and fetch it again, or copy the directories."
    )


def cut_short(archive: Path, error: Exception) -> OzoneLocationError:
    """Return the error for an archive that cannot be read to its end."""
    what = str(error).partition("\n")[0].rstrip(":")  # the other lines say of each compression that it is not that one
    return OzoneLocationError(f"{archive} is cut short or no tar file ({what}): fetch or copy it again.")
