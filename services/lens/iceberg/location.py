"""Finds a table's current metadata file: from its directory, from the file's own address, or from a catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyarrow import fs

from services.domain.addresses import without_credentials
from services.lens.iceberg.errors import IcebergError

_METADATA_FILE = re.compile(r"v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
LOCAL = "^file:/+"
SCHEME = "^[a-zA-Z][a-zA-Z0-9+.-]*://"
"""What an address has more than the path that Arrow's file systems know; Spark's jobs replace it as well."""
SLASHES = "/{2,}"
"""In a local path they are one. In an object store a key with two is another key, which Arrow cannot read."""
VERSION_HINT = "version-hint.text"


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A metadata file, and the file system that has it."""

    files: fs.FileSystem
    metadata_file: str
    """Its path in the file system."""
    newest_file: str
    """The newest metadata file in the same directory: another one if an older one was named."""
    is_certain: bool
    """Whether the table's own hint, a catalog or the user names the file, and not only its number."""
    rivals: tuple[str, ...] = ()
    """If it is not certain: other metadata files of the same version, any of which may be the current one."""


def plain_path(address: str) -> str:
    """Return an address as the file systems of Arrow have it: without scheme, and with the bucket first."""
    local = re.sub(LOCAL, "/", address)
    return re.sub(SCHEME, "", local) if re.match(SCHEME, local) else re.sub(SLASHES, "/", local)


def version_of(path: str) -> int | None:
    """Return the version of a metadata file, or None if the name is that of another file."""
    matched = _METADATA_FILE.fullmatch(PurePosixPath(path).name)
    return int(matched[1]) if matched else None


def find_table(location: str) -> FoundTable:
    """Find the table at a location.

    Raises:
        IcebergError: there is none, or it cannot be reached.
    """
    named = _from_catalog(location) if _is_in_catalog(location) else location
    try:
        files, path = _file_system(named)
        kind = files.get_file_info(path).type
        if kind is fs.FileType.NotFound:
            raise IcebergError(f"{named} is missing: name a table's directory, a metadata.json, or CATALOG:db.table.")
        if kind is fs.FileType.File:
            found = _versions(files, str(PurePosixPath(path).parent))
            return FoundTable(files, path, _newest(found) if found else path, is_certain=True)
        directory = f"{path}/metadata"
        found = _versions(files, directory)
        if not found:
            raise IcebergError(f"{named} has no metadata/*.metadata.json: name the directory of an Iceberg table.")
        if hint := _hinted(files, directory, found):
            return FoundTable(files, hint, hint, is_certain=True)
        newest = _newest(found)
        rivals = tuple(sorted(one.path for one in found[max(found)] if one.path != newest))
        return FoundTable(files, newest, newest, is_certain=False, rivals=rivals)
    except (OSError, pa.ArrowException) as error:
        raise IcebergError(
            f"{named} cannot be read ({first_line(error)}): check the address and the rights."
        ) from error


def read_file(files: fs.FileSystem, path: str) -> bytes:
    """Return the content of a file.

    Raises:
        IcebergError: it is missing, or there are no rights.
    """
    try:
        with files.open_input_stream(path, compression=None) as file:
            return bytes(file.read())
    except (OSError, pa.ArrowException) as error:
        raise IcebergError(
            f"{path} cannot be read ({first_line(error)}): check that it exists, and the rights."
        ) from error


def _file_system(location: str) -> tuple[fs.FileSystem, str]:
    if re.match(LOCAL, location) or not re.match(SCHEME, location):
        return fs.LocalFileSystem(), str(Path(plain_path(location)).absolute())
    address = re.sub(r"^s3[an]:", "s3:", location)
    if not address.startswith(("s3://", "gs://")):  # those of others are not what plain_path makes of them
        raise IcebergError(
            f"{location} is in a store that is not known here: use s3:// or gs://, or a copy of the table that was "
            f"made with Iceberg's rewrite_table_path."
        )
    files, path = fs.FileSystem.from_uri(address)
    return files, path.rstrip("/")


def _versions(files: fs.FileSystem, directory: str) -> dict[int, list[fs.FileInfo]]:
    found: dict[int, list[fs.FileInfo]] = {}
    for one in files.get_file_info(fs.FileSelector(directory, allow_not_found=True)):
        version = version_of(one.path)
        if version is not None and one.is_file:
            found.setdefault(version, []).append(one)
    return found


def _newest(found: dict[int, list[fs.FileInfo]]) -> str:
    return str(max(found[max(found)], key=lambda one: (one.mtime_ns or 0, one.path)).path)


def _hinted(files: fs.FileSystem, directory: str, found: dict[int, list[fs.FileInfo]]) -> str | None:
    """Return the metadata file of the hint, or, as Iceberg does, the last of those that follow it without a gap."""
    hint = f"{directory}/{VERSION_HINT}"
    if not files.get_file_info(hint).is_file:
        return None
    try:
        version = int(read_file(files, hint).split()[0])
    except (ValueError, IndexError):
        return None
    if version not in found:
        return None
    while version + 1 in found:
        version += 1
    return _newest({version: found[version]})


def _is_in_catalog(location: str) -> bool:
    return re.fullmatch(r"[\w-]+:[^/\\:]+", location) is not None and not Path(location).exists()


def _from_catalog(location: str) -> str:
    name, _, table = location.partition(":")
    if "." not in table:
        raise IcebergError(f"{location} has no namespace: name it as CATALOG:NAMESPACE.TABLE, as in {name}:db.{table}.")
    try:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 it is optional
    except ImportError:
        raise IcebergError(
            f"{location} is in a catalog, which PyIceberg reads: pip install 'deepclean[iceberg]', or name the table's "
            f"directory or metadata.json."
        ) from None
    try:
        catalog = load_catalog(name)
    except Exception as error:  # what a catalog raises is its own
        variable = f"PYICEBERG_CATALOG__{name.upper().replace('-', '_')}__URI"
        raise IcebergError(
            f"PyIceberg cannot open the catalog {name} ({_said(error)}): set its address, as in "
            f"{variable}=http://HOST:8181, or write it into ~/.pyiceberg.yaml."
        ) from error
    try:
        return str(catalog.load_table(table).metadata_location)
    except Exception as error:
        raise IcebergError(
            f"The catalog {name} has no {table} that can be read ({_said(error)}): name a table as {name}:db.table."
        ) from error


def _said(error: Exception) -> str:
    return without_credentials(first_line(error))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or what it is."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
