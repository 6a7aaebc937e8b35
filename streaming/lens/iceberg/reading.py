"""Reads many Avro files at once, and names those that are missing or damaged instead of failing for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import fastavro
from py4j.protocol import Py4JJavaError
from pyarrow import fs
from pyspark.errors import PySparkException

from services.domain.run_space import Runs


@dataclass(frozen=True, slots=True)
class AvroFile:
    """A manifest list or a manifest."""

    path: str
    size_bytes: int | None
    """The size that the table's metadata says; None if it does not."""
    runs: Runs
    """The snapshots that need it."""
    damage: str = ""
    """What is wrong with it, as the end of a sentence."""


def read_whole(
    files: fs.FileSystem, wanted: Sequence[AvroFile], read: Callable[[Sequence[AvroFile]], None]
) -> list[AvroFile]:
    """Call ``read`` with those files that can be read, if there are any, and return the others.

    ``read`` does all or nothing: it is called again without the damaged files if Spark fails because of them.
    """
    infos = files.get_file_info([file.path for file in wanted])
    lost = [found for file, info in zip(wanted, infos, strict=True) if (found := _missing(file, info))]
    names = {file.path for file in lost}
    whole = [file for file in wanted if file.path not in names]
    try:
        if whole:
            read(whole)
    except (PySparkException, Py4JJavaError):
        damaged = [replace(file, damage="is damaged") for file in whole if not _is_readable(files, file.path)]
        if not damaged:
            raise
        rest = [file for file in whole if file.path not in {one.path for one in damaged}]
        if rest:
            read(rest)
        lost += damaged
    return lost


def _missing(file: AvroFile, info: fs.FileInfo) -> AvroFile | None:
    if not info.is_file:
        return replace(file, damage="is missing")
    if file.size_bytes is not None and info.size != file.size_bytes:
        return replace(file, damage=f"has {info.size:,} of {file.size_bytes:,} bytes")
    return None


def _is_readable(files: fs.FileSystem, path: str) -> bool:
    try:
        with files.open_input_file(path) as file:
            for _ in fastavro.reader(file):
                pass
    except Exception:  # whatever a damaged file makes the decoder raise
        return False
    return True
