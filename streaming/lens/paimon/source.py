"""Reads an Apache Paimon table into a report: its references, its files and who holds them. The table is only read."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as f

from services.domain.durations import HOUR_MS
from services.domain.run_space import Runs
from services.lens.paimon.holdings import ManifestUse, manifest_uses, named_files, runs_of, unprotected
from services.lens.paimon.metadata import SchemaFile
from services.lens.paimon.partitions import bucket_directory
from services.lens.relation import LensBucket, LensFinding
from services.lens.report import RUNS
from streaming.lens.paimon.directory import TableDirectory
from streaming.lens.paimon.lists import index_manifests, manifest_lists
from streaming.lens.paimon.manifests import data_files, incomplete, located
from streaming.lens.paimon.table import Table, read_table
from streaming.lens.table_files import ORPHANS_NOT_LOOKED_FOR, file_findings, missing_notes, names_of_runs, table_name
from streaming.lens.writer import ReportWriter

YOUNG_MS = 24 * HOUR_MS
"""A file that nobody names and that is younger may belong to a commit that is not complete."""
_NOTED_KINDS = ("manifest", "manifest-list", "index-manifest")
"""Each of these files has a note of its own if it is missing."""
Row = tuple[str, str, int | None, Runs]
"""A path in the table, its kind, the size that the metadata says (None: no metadata says it), and its holders."""


def write(location: str, options: argparse.Namespace, writer: ReportWriter) -> None:
    """Write the report of the table whose directory is ``location``.

    Raises:
        PaimonError: there is no table, or it uses something that is not known here.
    """
    del options
    directory = TableDirectory(location)
    table = read_table(directory)
    name = table_name(directory.root)
    _Report(writer, directory, table, name).write()


class _Report:
    """A table on its way into a report."""

    def __init__(self, writer: ReportWriter, directory: TableDirectory, table: Table, name: str) -> None:
        self._writer, self._session = writer, writer.session
        self._directory, self._table, self._name = directory, table, name
        self._notes = table.notes

    def write(self) -> None:
        places = self._table.places
        uses = manifest_uses(places, manifest_lists(self._directory, places, self._notes))
        readable = {name: use for name, use in uses.items() if self._is_whole(use)}
        things = self._rows([*self._small_files(), *_manifests(uses.values())])
        if readable:
            files = data_files(self._session, self._directory.address, list(readable.values())).persist()
            self._note_incomplete(files, readable)
            things = things.unionByName(located(self._session, files, self._table.schema))
        listing = self._session.createDataFrame(self._directory.listing())
        found = things.join(listing, "path", "full_outer").persist()
        self._writer.add_findings(self._add_things(found))
        if self._notes.losses:
            self._notes.not_looked_for.append(ORPHANS_NOT_LOOKED_FOR)
        else:
            self._writer.add_findings(self._orphans(found))
        self._writer.add_findings(self._unprotected(found))
        refs = tuple(place.ref for place in places)
        schema = self._table.schema
        self._writer.add_bucket(
            LensBucket(
                self._name,
                refs,
                self._notes.marking(),
                tuple(self._notes.remarks),
                schema.retention(),
                tuple(self._notes.not_looked_for),
                schema.own_policy(),
            )
        )

    def _is_whole(self, use: ManifestUse) -> bool:
        """Return whether a manifest has the size that its manifest list says, and note it if not."""
        path = f"manifest/{use.manifest.name}"
        size_bytes = self._directory.size_bytes(path)
        if size_bytes == use.manifest.size_bytes:
            return True
        what = "is missing" if size_bytes is None else f"has {size_bytes} of {use.manifest.size_bytes} bytes"
        self._note_manifest(use, what)
        return False

    def _note_manifest(self, use: ManifestUse, what: str) -> None:
        names = names_of_runs([place.ref for place in self._table.places], use.holders)
        self._notes.losses.append(
            f"The manifest manifest/{use.manifest.name} {what}: the figures of {names} are wrong. The referenced bytes "
            f"of other snapshots are right, but dropping them may free more or less than shown."
        )

    def _note_incomplete(self, files: DataFrame, uses: dict[str, ManifestUse]) -> None:
        for name in incomplete(files, self._session, self._directory.address, uses):
            self._note_manifest(uses[name], "is damaged")

    def _small_files(self) -> Iterator[Row]:
        places = self._table.places
        for path, kind, runs in named_files(places, self._table.other_files):
            yield path, kind, None, runs
        manifests = index_manifests(self._directory, places, self._notes)
        holders: dict[str, set[int]] = {}
        for place, reference in enumerate(places):
            for file in manifests.get(reference.index_manifest or "", ()):
                holders.setdefault(file.name, set()).add(place)
        files = {file.name: file for found in manifests.values() for file in found}
        for name, file in files.items():
            kind = "deletion-vectors" if file.type == "DELETION_VECTORS" else "index"
            path = file.external_path or f"{_index_directory(self._table.schema, file.partition, file.bucket)}/{name}"
            yield path, kind, file.size_bytes, runs_of(holders[name])

    def _rows(self, rows: Iterable[Row]) -> DataFrame:
        columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
        runs = ([{"first": first, "last": last} for first, last in held] for held in columns[3])
        return self._session.createDataFrame(
            pa.table(
                {
                    "path": pa.array(columns[0], pa.string()),
                    "kind": pa.array(columns[1], pa.string()),
                    "recorded_bytes": pa.array(columns[2], pa.int64()),
                    "runs": pa.array(runs, RUNS),
                }
            )
        )

    def _add_things(self, found: DataFrame) -> Iterator[LensFinding]:
        """Add what is there; what is missing costs nothing and becomes a finding."""
        is_outside = f.col("path").startswith("/") | f.col("path").contains("://")
        size_bytes = f.coalesce("found_bytes", f.when(is_outside, f.col("recorded_bytes")))
        held = found.filter("runs is not null")
        self._writer.add_things(self._things(held.withColumn("bytes", size_bytes).filter("bytes is not null")))
        absent = held.filter(size_bytes.isNull() & ~is_outside)  # extra files outside have no size anywhere
        if changelogs := [place for place, one in enumerate(self._table.places) if one.is_changelog]:
            # Changelogs do not say what an expired snapshot took with it.
            held_by_others = f.exists(
                "runs", lambda run: f.exists(f.sequence(run["first"], run["last"]), lambda one: ~one.isin(changelogs))
            )
            absent = absent.filter(held_by_others)
        if absent.isEmpty():
            return iter(())
        directory = f.regexp_extract("path", "^(.*)/", 1)
        directories = (row[0] for row in absent.select(directory).distinct().toLocalIterator())
        listing = self._session.createDataFrame(self._directory.written_since(directories))
        late = absent.drop("found_bytes", "changed_ms").join(listing, "path")  # written while the table was listed
        self._writer.add_things(self._things(late.withColumnRenamed("found_bytes", "bytes")))
        missing = absent.join(listing, "path", "left_anti").withColumnRenamed("recorded_bytes", "size")
        self._notes.notes += missing_notes(missing.filter(~f.col("kind").isin(*_NOTED_KINDS)))
        return file_findings("missing-file", self._name, missing, self._missing_sentence)

    def _things(self, rows: DataFrame) -> DataFrame:
        return rows.select(
            f.lit(self._name).alias("bucket"),
            "path",
            f.col("path").alias("id"),
            "kind",
            "bytes",
            f.col("bytes").alias("replicated_bytes"),
            "runs",
        )

    def _missing_sentence(self, row: SparkRow) -> str:
        names = [self._table.places[place].ref.name for place in (row["runs"][0]["first"], row["runs"][-1]["last"])]
        return (
            f"This {row['kind']} file is missing, and the references from {names[0]} to {names[1]} need it: reads of "
            f"them fail; restore it."
        )

    def _orphans(self, found: DataFrame) -> Iterator[LensFinding]:
        now_ms = time.time_ns() // 1_000_000

        def sentence_of(row: SparkRow) -> str:
            if now_ms - row["changed_ms"] < YOUNG_MS:
                return "Nothing refers to this file, which is younger than a day: a writer may still commit it."
            return "Nothing refers to this file: remove it with Paimon's remove_orphan_files."

        unnamed = found.filter("runs is null").withColumnRenamed("found_bytes", "size")
        return file_findings("orphaned-file", self._name, unnamed, sentence_of)

    def _unprotected(self, found: DataFrame) -> Iterator[LensFinding]:
        places = self._table.places
        if len({place.branch for place in places}) == 1:
            return
        sums = found.filter("runs is not null").groupBy("runs").agg(f.sum("found_bytes").alias("bytes")).collect()
        cells = {tuple((run["first"], run["last"]) for run in row["runs"]): row["bytes"] or 0 for row in sums}
        for branch, size_bytes in unprotected(places, cells).items():
            sentence = (
                f"Expiry in the branch {branch} will delete these bytes, which another branch holds: no tag of "
                f"{branch} protects them; create one on a snapshot that holds them before any snapshot expires."
            )
            yield LensFinding("unprotected-branch", self._name, branch, branch, size_bytes, size_bytes, sentence)


def _manifests(uses: Iterable[ManifestUse]) -> Iterator[Row]:
    for use in uses:
        yield f"manifest/{use.manifest.name}", "manifest", use.manifest.size_bytes, use.holders


def _index_directory(schema: SchemaFile, partition: bytes, bucket: int) -> str:
    if schema.options.get("index-file-in-data-file-dir", "false").lower() == "true":
        return bucket_directory(schema, partition, bucket)
    return "index"
