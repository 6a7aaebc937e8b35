"""Compares what a table names with what its directory has: files that nobody names, and files that are missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, Row, SparkSession, functions

from services.domain.durations import HOUR_MS
from services.lens.iceberg.location import VERSION_HINT, FoundTable, plain_path
from services.lens.iceberg.metadata import TableMetadata
from services.lens.relation import LensFinding
from streaming.lens.iceberg.avro import plain_column

YOUNG_MS = 3 * 24 * HOUR_MS
"""Iceberg's own removal of orphans leaves younger files alone, because a writer may not have committed them yet."""
MOST_FINDINGS = 10_000
"""Most findings of one kind; the others are summed in a note."""
_CHECKSUM = re.compile(r"\..+\.crc")
"""Hadoop's checksum file beside each local file, which comes and goes with it."""


class Orphans:
    """The search for them in one table."""

    def __init__(self, table: FoundTable, metadata: TableMetadata, bucket: str, now_ms: int) -> None:
        self._table, self._bucket, self._now_ms = table, bucket, now_ms
        self._root = plain_path(metadata.location).rstrip("/")

    def find(self, session: SparkSession, things: DataFrame, notes: list[str]) -> Iterator[LensFinding]:
        """Yield the findings; ``things`` are all that the table names."""
        if self._table.newest_file != self._table.metadata_file:
            notes.append(
                f"{self._table.newest_file} is newer than the metadata that was named: orphans were not looked for, "
                f"because the newer one names other files."
            )
            return
        listing = session.createDataFrame(self._listing())
        named = things.select(plain_column(things.id).alias("path"), "bytes")
        both = named.withColumn("is_named", functions.lit(True)).join(listing, "path", "full_outer").persist()
        unnamed = both.where("is_named is null").select("path", "found_bytes", "changed_ms")
        for path, size_bytes, changed_ms in self._largest(unnamed, "found_bytes", "orphaned files", notes):
            yield self._finding("orphaned-file", path, size_bytes, self._orphan_sentence(changed_ms))
        missing = both.where(both.found_bytes.isNull() & both.path.startswith(self._root + "/")).select("path", "bytes")
        for path, size_bytes in self._largest(missing, "bytes", "missing files", notes):
            sentence = "A snapshot or the metadata names this file, and it is missing: restore it."
            yield self._finding("missing-file", path, size_bytes, sentence)
        outside = both.where(both.found_bytes.isNull() & ~both.path.startswith(self._root + "/")).count()
        if outside:
            notes.append(f"{outside:,} files of the table are outside of its directory: nothing was looked for there.")
        both.unpersist()

    def _listing(self) -> pa.Table:
        infos = self._table.files.get_file_info(fs.FileSelector(self._root, recursive=True, allow_not_found=True))
        files = [info for info in infos if info.is_file and _is_ours(info.path)]
        return pa.table(
            {
                "path": pa.array((info.path for info in files), pa.string()),
                "found_bytes": pa.array((info.size for info in files), pa.int64()),
                "changed_ms": pa.array(((info.mtime_ns or 0) // 1_000_000 for info in files), pa.int64()),
            }
        )

    def _largest(self, found: DataFrame, size: str, what: str, notes: list[str]) -> list[Row]:
        rows = found.orderBy(functions.desc(size), "path").limit(MOST_FINDINGS).collect()
        if len(rows) == MOST_FINDINGS:
            count, size_bytes = found.agg(functions.count("*"), functions.sum(size)).first() or (0, 0)
            notes.append(f"Of {count:,} {what} with {size_bytes:,} bytes, the {len(rows):,} largest are listed.")
        return rows

    def _orphan_sentence(self, changed_ms: int) -> str:
        if self._now_ms - changed_ms < YOUNG_MS:
            return (
                "No snapshot and no metadata names this file; it is younger than three days, so a writer that has not "
                "committed yet may own it: look again later."
            )
        return "No snapshot and no metadata names this file: Iceberg's remove_orphan_files removes it."

    def _finding(self, kind: str, path: str, size_bytes: int, sentence: str) -> LensFinding:
        shown = path.removeprefix(self._root + "/")
        return LensFinding(kind, self._bucket, shown, path, size_bytes, size_bytes, sentence)


def _is_ours(path: str) -> bool:
    name = PurePosixPath(path).name
    return name != VERSION_HINT and not _CHECKSUM.fullmatch(name)
