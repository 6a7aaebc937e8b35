"""Finds other tables whose files are in the directory of a table: those files are no orphans of this one."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath

import pyarrow as pa
from pyarrow import fs

from services.lens.iceberg.location import version_of

MOST_READ = 10_000
"""Most metadata files of which it is read whose they are."""
_HEAD_BYTES = 4096
"""Writers put the table's id in front."""
_GZIP = 31
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"')
_AT_ONCE = 16


def tables_below(root: str, paths: Iterable[str], own: Iterable[str]) -> list[str]:
    """Return the directories of other tables below a table's directory, which have ``metadata/*.metadata.json``.

    ``own`` are metadata files of the table itself, which may have them in any directory.
    """
    found = set()
    for path in paths:
        directory = PurePosixPath(path).parent
        if version_of(path) is not None and directory.name == "metadata" and str(directory.parent) != root:
            found.add(str(directory.parent))
    return sorted(found - {str(PurePosixPath(path).parent.parent) for path in own})


def metadata_of_others(files: fs.FileSystem, infos: Collection[fs.FileInfo], table_uuid: str | None) -> list[str]:
    """Return which metadata files are those of another table. A file that does not say whose it is, is not returned."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        ids = list(pool.map(lambda info: _table_uuid(files, info.path), infos))
    return [info.path for info, found in zip(infos, ids, strict=True) if found not in (None, table_uuid)]


def _table_uuid(files: fs.FileSystem, path: str) -> str | None:
    try:
        with files.open_input_stream(path, compression=None) as file:
            head = bytes(file.read(_HEAD_BYTES))
        if head.startswith(b"\x1f\x8b"):
            head = zlib.decompressobj(_GZIP).decompress(head)
    except (OSError, pa.ArrowException, zlib.error):
        return None
    found = _UUID.search(head)
    return found[1].decode(errors="replace") if found else None
