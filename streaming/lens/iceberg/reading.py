"""Reads many Avro files at once, and names those that are missing or damaged instead of failing for all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import fastavro
from py4j.protocol import Py4JJavaError
from pyarrow import fs
from pyspark.errors import PySparkException

from services.domain.run_space import Runs
from services.lens.iceberg.location import read_file

EMPTY_PART = "//"
"""Arrow reads no object with it in its key. Local paths do not have it any more."""
_AT_ONCE = 16
"""Requests that wait for an object store at once."""


@dataclass(frozen=True, slots=True)
class AvroFile:
    """A manifest list or a manifest."""

    path: str
    size_bytes: int | None
    """The size that the table's metadata says; None if it does not."""
    runs: Runs
    """The snapshots that need it."""
    local_path: str = ""
    """Where Spark reads it, in the form that Spark gives to paths."""
    damage: str = ""
    """What is wrong with it, as the end of a sentence."""


class TableFiles:
    """The file system of a table, with local copies of what Spark has to read of an object store."""

    def __init__(self, files: fs.FileSystem, copies: Path) -> None:
        self._files = files
        self._copies = copies
        self._copied = 0

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """Return the size of each file; None if it is missing, or cannot be read because of its address."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._size, paths))

    def _size(self, path: str) -> int | None:
        info = None if EMPTY_PART in path else self._files.get_file_info(path)
        return info.size if info and info.is_file else None

    def read_whole(self, wanted: Sequence[AvroFile], read: Callable[[Sequence[AvroFile]], None]) -> list[AvroFile]:
        """Call ``read`` with those files that can be read, if there are any, and return the others.

        ``read`` does all or nothing: it is called again without the damaged files if Spark fails because of them.
        """
        sizes = self.sizes([file.path for file in wanted])
        lost = [found for file, size in zip(wanted, sizes, strict=True) if (found := _missing(file, size))]
        whole = self._local(_without(wanted, lost))
        try:
            if whole:
                read(whole)
        except (PySparkException, Py4JJavaError):
            damaged = [replace(file, damage="is damaged") for file in whole if not _is_readable(file.local_path)]
            if not damaged:
                raise
            lost += damaged
            whole = _without(whole, damaged)
            if whole:
                read(whole)
        return lost

    def _local(self, files: Sequence[AvroFile]) -> list[AvroFile]:
        if isinstance(self._files, fs.LocalFileSystem):
            return [replace(file, local_path=os.path.normpath(Path(file.path).absolute())) for file in files]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            numbers = range(self._copied, self._copied + len(files))
            self._copied += len(files)
            return list(pool.map(self._copy, files, numbers))

    def _copy(self, file: AvroFile, number: int) -> AvroFile:
        """Copy a file under a name of our own: the path is what a file of the table says, and may lead anywhere."""
        target = self._copies / f"{number}.avro"
        target.write_bytes(read_file(self._files, file.path))
        return replace(file, local_path=str(target))


def _is_readable(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            for _ in fastavro.reader(file):
                pass
    except Exception:  # whatever a damaged file makes the decoder raise
        return False
    return True


def _missing(file: AvroFile, size_bytes: int | None) -> AvroFile | None:
    if EMPTY_PART in file.path:
        return replace(file, damage="has // in its address, and is not read")
    if size_bytes is None:
        return replace(file, damage="is missing")
    if file.size_bytes not in (None, size_bytes):
        return replace(file, damage=f"has {size_bytes:,} of {file.size_bytes:,} bytes")
    return None


def _without(files: Sequence[AvroFile], others: Sequence[AvroFile]) -> list[AvroFile]:
    names = {file.path for file in others}
    return [file for file in files if file.path not in names]
