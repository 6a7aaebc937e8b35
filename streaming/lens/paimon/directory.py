"""The directory of a table: one listing of all its files, and the content of small ones. Nothing is ever written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyarrow import fs

from services.lens.paimon.metadata import PaimonError
from streaming.lens.table_files import listing_of

_READERS = 16
"""Small files that are read at once: each one waits for its store."""


class TableDirectory:
    """A table's files as they were when this object was made."""

    def __init__(self, location: str) -> None:
        """List a directory, given by a path or by the address of a store that pyarrow knows.

        Raises:
            PaimonError: it is not there, or is no table.
        """
        try:
            self._store, root = fs.FileSystem.from_uri(location) if "://" in location else _local(location)
        except (OSError, pa.ArrowInvalid) as error:
            raise _unlisted(location, error) from None
        self.root = str(root)
        self.address = location.rstrip("/") if "://" in location else f"file://{self.root}"
        self.files = self._list(fs.FileSelector(self.root, recursive=True))
        """Information on each file, by its path in the table."""

    def below(self, directory: str, prefix: str) -> list[str]:
        """Return the files of one directory, not of those in it, whose names begin with a prefix."""
        start = f"{directory}/{prefix}"
        return sorted(path for path in self.files if path.startswith(start) and "/" not in path[len(start) :])

    def contents(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Yield each path with the content of its file; None if that file is missing."""
        wanted = list(paths)
        with ThreadPoolExecutor(_READERS) as readers:
            yield from zip(wanted, readers.map(self._content, wanted), strict=True)

    def size_bytes(self, path: str) -> int | None:
        """Return the size of a file; None if it is missing. A file written since the listing counts as well."""
        info = self.files.get(path)
        if info is None and _is_inside(path):
            info = self._store.get_file_info(f"{self.root}/{path}")
        return int(info.size) if info is not None and info.type == fs.FileType.File else None

    def listing(self) -> pa.Table:
        """Return all files with their sizes and the times of their last change."""
        return listing_of(self.files)

    def written_since(self, directories: Iterable[str]) -> pa.Table:
        """Return the files of some directories that were not there when this object was made, as ``listing`` does.

        One directory at a time is in memory. An empty name is that of the table's own directory.
        """
        late: dict[str, fs.FileInfo] = {}
        for directory in directories:
            if not directory or _is_inside(directory):
                found = self._list(fs.FileSelector(str(PurePosixPath(self.root, directory)), allow_not_found=True))
                late |= {path: info for path, info in found.items() if path not in self.files}
        return listing_of(late)

    def _list(self, selector: fs.FileSelector) -> dict[str, fs.FileInfo]:
        start = len(self.root.rstrip("/")) + 1
        try:
            found = self._store.get_file_info(selector)
        except (OSError, pa.ArrowInvalid) as error:
            raise _unlisted(self.root, error) from None
        return {info.path[start:]: info for info in found if info.type == fs.FileType.File}

    def _content(self, path: str) -> bytes | None:
        if not _is_inside(path):
            return None
        try:
            with self._store.open_input_stream(f"{self.root}/{path}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException) as error:
            raise PaimonError(f"{self.root}/{path} cannot be read ({error}): check the rights.") from None


def _is_inside(path: str) -> bool:
    """Return whether a path that the table names is in its directory: the table may come from anybody."""
    return "\0" not in path and not {"", ".", ".."} & set(path.split("/"))


def _unlisted(location: str, error: Exception) -> PaimonError:
    return PaimonError(f"{location} cannot be listed ({error}): name the directory of a table.")


def _local(location: str) -> tuple[fs.FileSystem, str]:
    return fs.LocalFileSystem(), str(Path(location).resolve())
