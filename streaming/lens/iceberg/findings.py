"""Compares what a table names with what its directory has: files that are missing, and files that nobody names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyarrow import fs, parquet
from pyspark.sql import Column, DataFrame, Row, SparkSession

from services.domain.durations import HOUR_MS
from services.domain.words import counted
from services.lens.iceberg.location import VERSION_HINT, FoundTable, plain_path, version_of
from services.lens.iceberg.metadata import TableMetadata
from services.lens.iceberg.neighbours import MOST_READ, metadata_of_others, tables_below
from services.lens.relation import LensFinding
from streaming.lens.iceberg.avro import plain_column
from streaming.lens.iceberg.reading import EMPTY_PART
from streaming.lens.table_files import TableNotes, file_findings, listing_of, missing_notes, sums

YOUNG_MS = 3 * 24 * HOUR_MS
"""Iceberg's own removal of orphans leaves younger files alone, because a writer may not have committed them yet."""
_MISSING = "A snapshot or the metadata names this file, and it is missing: restore it."
_CHECKSUM = re.compile(r"\..+\.crc")
"""Hadoop's checksum file beside each local file, which comes and goes with it."""
_NOTED_KINDS = ("manifest", "manifest-list", "statistics", "partition-statistics", "metadata")
"""Each of these files has a note of its own if it is missing."""


class Comparison:
    """The files that a table names, and those that its directory has.

    The directory is listed when this object is made, after the metadata was read: a file that the table names and that
    is not listed is missing. Of files elsewhere nobody knows it.
    """

    def __init__(self, table: FoundTable, metadata: TableMetadata, bucket: str, now_ms: int, scratch: Path) -> None:
        self._scratch = scratch
        self._table, self._metadata = table, metadata
        self._bucket, self._now_ms = bucket, now_ms
        self._root = plain_path(metadata.location).rstrip("/")
        self._infos = self._listed()
        self._known = self._known_metadata()
        self._others = tables_below(self._root, self._infos, self._known)

    def of(self, named: DataFrame) -> DataFrame:
        """Return all files, with the columns of those that the table names: ``id``, ``kind``, ``bytes``, ``runs``.

        Further columns: ``path`` in the file system, ``found_bytes``, ``changed_ms``, ``is_of_others``, ``is_missing``.
        """
        paths = named.withColumn("path", plain_column(named.id))
        found = paths.join(self._columns(named.sparkSession), "path", "full_outer")
        return found.withColumn("is_missing", self._is_inside(found) & found.found_bytes.isNull()).persist()

    def note_missing(self, found: DataFrame, notes: TableNotes) -> None:
        """Note which data and delete files are missing."""
        missing = found.where(found.is_missing & ~found.kind.isin(*_NOTED_KINDS)).withColumnRenamed("bytes", "size")
        notes.notes += missing_notes(missing, self._shown)

    def _is_inside(self, found: DataFrame) -> Column:
        """Return whether a file is in the directory, under a name that Arrow lists."""
        return found.path.startswith(self._root + "/") & ~found.path.contains(EMPTY_PART)

    def findings(self, found: DataFrame, notes: TableNotes) -> Iterator[LensFinding]:
        """Yield the findings. What was not looked for is noted."""
        if self._table.newest_file != self._table.metadata_file:
            notes.notes.append(
                f"{self._table.newest_file} is newer than the metadata that was named: all figures are those of the "
                f"older one."
            )
            notes.not_looked_for.append(
                "Orphans and missing files were not looked for: the files of newer metadata would count as orphans."
            )
            return
        if not found.where(found.path.contains(EMPTY_PART)).isEmpty():
            notes.not_looked_for.append(
                "Orphans were not looked for: files have // in their addresses, and are not listed."
            )
        elif self._is_alone(notes.not_looked_for):
            unnamed = found.where("id is null and not is_of_others").withColumnRenamed("found_bytes", "size")
            yield from self._findings("orphaned-file", unnamed, lambda row: self._orphan_sentence(row.changed_ms))
        missing = found.where("is_missing").withColumnRenamed("bytes", "size")
        yield from self._findings("missing-file", missing, lambda _: _MISSING)
        if others := self._others:
            named_first = f"{others[0]} and {len(others) - 1:,} more" if len(others) > 1 else others[0]
            sentence = (
                f"Another table is in the directory of this one: {named_first}. The lens does not look at its files."
            )
            notes.not_looked_for.append(f"The files in directories of other tables were not looked at: {named_first}.")
            yield LensFinding("nested-table", self._bucket, self._shown(others[0]), others[0], 0, 0, sentence)
        elsewhere = found.where(~found.path.startswith(self._root + "/") & ~found.path.contains(EMPTY_PART))
        count, size_bytes = sums(elsewhere.withColumnRenamed("bytes", "size"))
        if count:
            sentence = (
                f"The table has {counted(count, 'file')} outside of its directory. The lens lists no other directory, "
                f"so it finds neither missing nor orphaned files there."
            )
            notes.not_looked_for.append(f"Orphans and missing files outside of {self._root} were not looked for.")
            yield LensFinding("files-elsewhere", self._bucket, "", self._root, size_bytes, size_bytes, sentence)

    def _findings(self, kind: str, found: DataFrame, sentence_of: Callable[[Row], str]) -> Iterator[LensFinding]:
        return file_findings(kind, self._bucket, found, sentence_of, self._shown)

    def _shown(self, path: str) -> str:
        return path.removeprefix(self._root + "/")

    def _listed(self) -> dict[str, fs.FileInfo]:
        infos = self._table.files.get_file_info(fs.FileSelector(self._root, recursive=True, allow_not_found=True))
        return {info.path: info for info in infos if info.is_file and _is_ours(info.path)}

    def _columns(self, session: SparkSession) -> DataFrame:
        """Return the files that are there; ``is_of_others``: whether one is below the directory of another table."""
        prefixes = tuple(directory + "/" for directory in self._others)
        is_of_others = pa.array([path.startswith(prefixes) for path in self._infos], pa.bool_())
        columns = listing_of(self._infos).append_column("is_of_others", is_of_others)
        parquet.write_table(columns, self._scratch / "listing.parquet")  # in a task it would be too large
        return session.read.parquet(str(self._scratch / "listing.parquet"))

    def _known_metadata(self) -> set[str]:
        return {plain_path(entry.metadata_file) for entry in self._metadata.metadata_log} | {self._table.metadata_file}

    def _is_alone(self, not_looked_for: list[str]) -> bool:
        """Return whether no other table has its metadata in the same directory; if one may have, add a sentence."""
        start = f"{self._root}/metadata/"
        unknown = [
            info
            for path, info in self._infos.items()
            if path not in self._known and version_of(path) is not None and path.startswith(start)
        ]
        if len(unknown) > MOST_READ:
            not_looked_for.append(
                f"Orphans were not looked for: {len(unknown):,} metadata files are not in the metadata log, and any of "
                f"them may be that of another table. Remove old ones first."
            )
            return False
        if unknown and not self._table.metadata_file.startswith(self._root + "/"):
            not_looked_for.append(
                f"Orphans were not looked for: the metadata is not in {self._root}, which has metadata files of its "
                f"own. Name the table there."
            )
            return False
        others = metadata_of_others(self._table.files, unknown, self._metadata.table_uuid)
        if others:
            not_looked_for.append(
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
