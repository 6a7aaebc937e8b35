"""What both table formats need of a table's directory: its name, and its files as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

import pyarrow as pa
from pyarrow import fs


def table_name(location: str) -> str:
    """Return the name of a table: that of its directory, and of its database where a directory is called so."""
    path = PurePosixPath(location)
    database = path.parent.name
    return f"{database.removesuffix('.db')}.{path.name}" if database.endswith(".db") else path.name


def listing_of(files: Mapping[str, fs.FileInfo]) -> pa.Table:
    """Return files by their paths as columns ``path``, ``found_bytes`` and ``changed_ms``."""
    infos: Iterable[fs.FileInfo] = files.values()
    return pa.table(
        {
            "path": pa.array(files.keys(), pa.string()),
            "found_bytes": pa.array((info.size for info in infos), pa.int64()),
            "changed_ms": pa.array(((info.mtime_ns or 0) // 1_000_000 for info in infos), pa.int64()),
        }
    )
