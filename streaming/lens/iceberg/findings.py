"""Compares what a table names with what its directory has: files that nobody names, and files that are missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from pyarrow import fs, parquet
from pyspark.sql import DataFrame, Row, SparkSession, functions

from services.domain.durations import HOUR_MS
from services.lens.iceberg.location import VERSION_HINT, FoundTable, plain_path
from services.lens.iceberg.metadata import TableMetadata
from services.lens.relation import LensFinding
from streaming.lens.iceberg.avro import plain_column
from streaming.lens.table_files import listing_of

YOUNG_MS = 3 * 24 * HOUR_MS
"""Iceberg's own removal of orphans leaves younger files alone, because a writer may not have committed them yet."""
MOST_FINDINGS = 10_000
"""Most findings of one kind; the others are summed in a note."""
_MISSING = "A snapshot or the metadata names this file, and it is missing: restore it."
_CHECKSUM = re.compile(r"\..+\.crc")
"""Hadoop's checksum file beside each local file, which comes and goes with it."""


class Orphans:
    """The search for them in one table."""

    def __init__(self, table: FoundTable, metadata: TableMetadata, bucket: str, now_ms: int, scratch: Path) -> None:
        self._scratch = scratch
        self._table, self._bucket, self._now_ms = table, bucket, now_ms
        self._root = plain_path(metadata.location).rstrip("/")

    def find(self, session: SparkSession, things: DataFrame, notes: list[str]) -> Iterator[LensFinding]:
        """Yield the findings; ``things`` are all that the table names."""
        if self._table.newest_file != self._table.metadata_file:
            notes.append(
                f"{self._table.newest_file} is newer than the metadata that was named. All figures are those of the "
                f"older one, and orphans were not looked for."
            )
            return
        listing = self._listing(session)
        named = things.select(plain_column(things.id).alias("path"), "bytes")
        both = named.withColumn("is_named", functions.lit(True)).join(listing, "path", "full_outer").persist()
        unnamed = both.where("is_named is null").withColumnRenamed("found_bytes", "size")
        yield from self._largest("orphaned-file", unnamed, lambda row: self._orphan_sentence(row.changed_ms))
        absent = both.where(both.found_bytes.isNull()).withColumnRenamed("bytes", "size")
        missing = absent.where(absent.path.startswith(self._root + "/"))
        yield from self._largest("missing-file", missing, lambda _: _MISSING)
        outside = absent.where(~absent.path.startswith(self._root + "/"))
        count, size_bytes = _sums(outside)
        if count:
            sentence = (
                f"{count:,} files of the table are not in its directory: neither they nor others were looked for."
            )
            yield self._finding("files-elsewhere", self._root, size_bytes, sentence)
        both.unpersist()

    def _largest(self, kind: str, found: DataFrame, sentence: Callable[[Row], str]) -> Iterator[LensFinding]:
        rows = found.orderBy(functions.desc("size"), "path").limit(MOST_FINDINGS + 1).collect()
        for row in rows[:MOST_FINDINGS]:
            yield self._finding(kind, row.path, row["size"], sentence(row))
        if len(rows) > MOST_FINDINGS:
            count, size_bytes = _sums(found)
            rest_bytes = size_bytes - sum(row["size"] for row in rows[:MOST_FINDINGS])
            more = f"{count - MOST_FINDINGS:,} more files, smaller than those that are listed, are as these."
            yield self._finding(kind, self._root, rest_bytes, more)

    def _listing(self, session: SparkSession) -> DataFrame:
        infos = self._table.files.get_file_info(fs.FileSelector(self._root, recursive=True, allow_not_found=True))
        columns = listing_of({info.path: info for info in infos if info.is_file and _is_ours(info.path)})
        parquet.write_table(columns, self._scratch / "listing.parquet")  # in a task it would be too large
        return session.read.parquet(str(self._scratch / "listing.parquet"))

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


def _sums(found: DataFrame) -> tuple[int, int]:
    (row,) = found.agg(functions.count("*"), functions.sum("size")).collect()
    return row[0], row[1] or 0


def _is_ours(path: str) -> bool:
    name = PurePosixPath(path).name
    return name != VERSION_HINT and not _CHECKSUM.fullmatch(name)
