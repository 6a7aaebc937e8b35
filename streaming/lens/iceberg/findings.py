"""Compares what a table names with what its directory has: files that nobody names, and files that are missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyarrow import fs, parquet
from pyspark.sql import DataFrame, Row, SparkSession, functions

from services.domain.durations import HOUR_MS
from services.lens.iceberg.location import VERSION_HINT, FoundTable, plain_path, version_of
from services.lens.iceberg.metadata import TableMetadata
from services.lens.iceberg.neighbours import MOST_READ, metadata_of_others, tables_below
from services.lens.relation import LensFinding
from streaming.lens.iceberg.avro import plain_column
from streaming.lens.iceberg.reading import EMPTY_PART
from streaming.lens.table_files import TableNotes, file_findings, listing_of, sums

YOUNG_MS = 3 * 24 * HOUR_MS
"""Iceberg's own removal of orphans leaves younger files alone, because a writer may not have committed them yet."""
_MISSING = "A snapshot or the metadata names this file, and it is missing: restore it."
_CHECKSUM = re.compile(r"\..+\.crc")
"""Hadoop's checksum file beside each local file, which comes and goes with it."""


class Orphans:
    """The search for them in one table."""

    def __init__(self, table: FoundTable, metadata: TableMetadata, bucket: str, now_ms: int, scratch: Path) -> None:
        self._scratch = scratch
        self._table, self._metadata = table, metadata
        self._bucket, self._now_ms = bucket, now_ms
        self._root = plain_path(metadata.location).rstrip("/")

    def find(self, session: SparkSession, things: DataFrame, notes: TableNotes) -> Iterator[LensFinding]:
        """Yield the findings; ``things`` are all that the table names. What was not looked for is noted."""
        if self._table.newest_file != self._table.metadata_file:
            notes.notes.append(
                f"{self._table.newest_file} is newer than the metadata that was named. All figures are those of the "
                f"older one, and orphans were not looked for."
            )
            return
        infos = self._listed()
        known = self._known_metadata()
        others = tables_below(self._root, infos, known)
        named = things.select(plain_column(things.id).alias("path"), "bytes")
        listing = self._columns(session, infos, others)
        both = named.withColumn("is_named", functions.lit(True)).join(listing, "path", "full_outer").persist()
        unreadable = functions.col("path").contains(EMPTY_PART)
        if not both.where(unreadable).isEmpty():
            notes.remarks.append("Orphans were not looked for: files have // in their addresses, and are not listed.")
        elif self._is_alone(infos, known, notes.remarks):
            unnamed = both.where("is_named is null and not is_of_others").withColumnRenamed("found_bytes", "size")
            yield from self._findings("orphaned-file", unnamed, lambda row: self._orphan_sentence(row.changed_ms))
        absent = both.where(both.found_bytes.isNull() & ~unreadable).withColumnRenamed("bytes", "size")
        missing = absent.where(absent.path.startswith(self._root + "/"))
        yield from self._findings("missing-file", missing, lambda _: _MISSING)
        if others:
            named_first = f"{others[0]} and {len(others) - 1:,} more" if len(others) > 1 else others[0]
            sentence = f"Another table is in the directory of this one: {named_first}. Its files are not looked at."
            yield LensFinding("nested-table", self._bucket, self._shown(others[0]), others[0], 0, 0, sentence)
        count, size_bytes = sums(absent.where(~absent.path.startswith(self._root + "/")))
        if count:
            sentence = (
                f"{count:,} files of the table are not in its directory: neither they nor others were looked for."
            )
            yield LensFinding("files-elsewhere", self._bucket, "", self._root, size_bytes, size_bytes, sentence)
        both.unpersist()

    def _findings(self, kind: str, found: DataFrame, sentence_of: Callable[[Row], str]) -> Iterator[LensFinding]:
        return file_findings(kind, self._bucket, found, sentence_of, self._shown)

    def _shown(self, path: str) -> str:
        return path.removeprefix(self._root + "/")

    def _listed(self) -> dict[str, fs.FileInfo]:
        infos = self._table.files.get_file_info(fs.FileSelector(self._root, recursive=True, allow_not_found=True))
        return {info.path: info for info in infos if info.is_file and _is_ours(info.path)}

    def _columns(self, session: SparkSession, infos: Mapping[str, fs.FileInfo], others: list[str]) -> DataFrame:
        """Return the files that are there; ``is_of_others``: whether one is below the directory of another table."""
        prefixes = tuple(directory + "/" for directory in others)
        is_of_others = pa.array([path.startswith(prefixes) for path in infos], pa.bool_())
        columns = listing_of(infos).append_column("is_of_others", is_of_others)
        parquet.write_table(columns, self._scratch / "listing.parquet")  # in a task it would be too large
        return session.read.parquet(str(self._scratch / "listing.parquet"))

    def _known_metadata(self) -> set[str]:
        return {plain_path(entry.metadata_file) for entry in self._metadata.metadata_log} | {self._table.metadata_file}

    def _is_alone(self, infos: Mapping[str, fs.FileInfo], known: Collection[str], remarks: list[str]) -> bool:
        """Return whether no other table has its metadata in the same directory, and remark it if one may have."""
        start = f"{self._root}/metadata/"
        unknown = [
            info
            for path, info in infos.items()
            if path not in known and version_of(path) is not None and path.startswith(start)
        ]
        if len(unknown) > MOST_READ:
            remarks.append(
                f"Orphans were not looked for: {len(unknown):,} metadata files are not in the metadata log, and any of "
                f"them may be that of another table. Remove old ones first."
            )
            return False
        others = metadata_of_others(self._table.files, unknown, self._metadata.table_uuid)
        if others:
            remarks.append(
                f"Orphans were not looked for: {others[0]} is the metadata of another table in the same directory, "
                f"and the files may be those of the other one."
            )
        return not others

    def _orphan_sentence(self, changed_ms: int) -> str:
        if self._now_ms - changed_ms < YOUNG_MS:
            return (
                "No snapshot and no metadata names this file; it is younger than three days, so a writer that has not "
                "committed yet may own it: look again later."
            )
        return "No snapshot and no metadata names this file: Iceberg's remove_orphan_files removes it."


def _is_ours(path: str) -> bool:
    name = PurePosixPath(path).name
    return name != VERSION_HINT and not _CHECKSUM.fullmatch(name)
