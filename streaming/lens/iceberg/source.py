"""Reads an Iceberg table into a report: who holds its data and delete files, manifests, manifest lists and statistics.

An entry of a manifest never changes, so each manifest is read once. The snapshots whose manifest lists name it hold
what it lists.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession, functions

from services.domain.run_space import Runs, merged
from services.lens.iceberg.errors import IcebergError
from services.lens.iceberg.location import FoundTable, find_table, first_line, plain_path, read_file
from services.lens.iceberg.metadata import TableMetadata, decode_metadata
from services.lens.iceberg.references import EXPIRABLE, references
from services.lens.iceberg.retention import own_policy
from services.lens.relation import LensBucket
from streaming.lens.iceberg.avro import FILE, manifest_entries, manifest_lists
from streaming.lens.iceberg.findings import Comparison
from streaming.lens.iceberg.reading import AvroFile, TableFiles
from streaming.lens.runs import RUNS, merged_runs
from streaming.lens.table_files import ORPHANS_NOT_LOOKED_FOR, TableNotes, names_of_runs, table_name
from streaming.lens.writer import ReportWriter

_HELD_COLUMNS = f"{FILE} string, held {RUNS}"
_MANIFESTS_A_PARTITION = 100
"""So many manifests of usual size list some ten thousand files, which are grouped in memory."""
Thing = tuple[str, str, int, Runs]
"""Address, kind, bytes and holders of a file."""


def write(location: str, options: argparse.Namespace, writer: ReportWriter) -> None:
    """Write the report of the table at a location.

    Raises:
        IcebergError: there is none, or it cannot be read.
    """
    del options
    table = find_table(location)
    if not isinstance(table.files, fs.LocalFileSystem) and not _is_local(writer.session):
        raise IcebergError(f"{location} is in an object store, which is read without a cluster: leave --master out.")
    metadata = decode_metadata(read_file(table.files, table.metadata_file), table.metadata_file)
    try:
        with tempfile.TemporaryDirectory(prefix="deepclean-iceberg-") as scratch:
            _TableReport(table, metadata, writer, Path(scratch)).write()
    except (OSError, pa.ArrowException) as error:  # errors of single files are notes
        raise IcebergError(
            f"{table.metadata_file}: the table cannot be listed, or no temporary file be written "
            f"({first_line(error)}): check the rights, and the room in TMPDIR."
        ) from error


def _is_local(session: SparkSession) -> bool:
    return str(session.sparkContext.master).startswith("local")


class _TableReport:
    """The report of one table in the making."""

    def __init__(self, table: FoundTable, metadata: TableMetadata, writer: ReportWriter, scratch: Path) -> None:
        self.files = TableFiles(table.files, scratch)
        self.table, self.metadata, self.writer = table, metadata, writer
        self.session = writer.session
        now_ms = time.time_ns() // 1_000_000
        self.refs = references(metadata, now_ms)
        self.places = {int(ref.id): place for place, ref in enumerate(self.refs) if ref.id}
        self.name = table_name(metadata.location)
        self.comparison = Comparison(table, metadata, self.name, now_ms, scratch)
        self.named_files = str(scratch / "named")
        """Parquet files with all that the table names, until it is compared with the directory."""
        self.notes = TableNotes()

    def write(self) -> None:
        """Read the table, and hand its files, findings and references over."""
        self._note_metadata()
        manifests = self._manifests()
        self._name(self._small_files(manifests))
        self._name_entries(manifests)
        found = self.comparison.of(self.session.read.parquet(self.named_files))
        self._add_things(found)
        self.comparison.note_missing(found, self.notes)
        if self.notes.losses:
            self.notes.not_looked_for.append(ORPHANS_NOT_LOOKED_FOR)
            self._note_copy()
        else:
            self.writer.add_findings(self.comparison.findings(found, self.notes))
        found.unpersist()
        policy = own_policy(self.metadata, [ref.name for ref in self.refs if ref.status == EXPIRABLE])
        notes, remarks = self.notes.marking(), tuple(self.notes.remarks)
        not_looked_for = tuple(self.notes.not_looked_for)
        self.writer.add_bucket(
            LensBucket(self.name, self.refs, notes, remarks, not_looked_for=not_looked_for, own_policy=policy)
        )

    def _note_copy(self) -> None:
        if not self.table.metadata_file.startswith(plain_path(self.metadata.location).rstrip("/") + "/"):
            self.notes.losses.insert(
                0,
                f"The metadata names files below {self.metadata.location}, where it is not itself: if the table was "
                f"copied, copy it again with Iceberg's rewrite_table_path.",
            )

    def _note_metadata(self) -> None:
        if not self.table.is_certain:
            sentence = (
                f"{self.table.metadata_file} has the highest version and is taken for the current metadata: only the "
                f"table's catalog knows for certain."
            )
            if rivals := self.table.rivals:
                self.notes.notes.append(f"{sentence} Name the right one, if it is {' or '.join(rivals)}.")
            else:
                self.notes.remarks.append(sentence)
        if self.metadata.is_never_expired:
            self.notes.remarks.append("Iceberg expires no snapshot of this table: its property gc.enabled is false.")

    def _note_lost(self, what: str, file: AvroFile) -> None:
        self.notes.losses.append(
            f"The {what} {file.path} {file.damage}: the figures of {names_of_runs(self.refs, file.runs)} are "
            f"incomplete. The referenced bytes of other snapshots are right, but dropping them may free less than "
            f"shown."
        )

    def _manifests(self) -> dict[str, tuple[int, Runs]]:
        """Return the address of each manifest with its length and the snapshots that list it."""
        lists: dict[str, list[tuple[int, int]]] = defaultdict(list)
        bare: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for one in self.metadata.snapshots:
            place = self.places[one.snapshot_id]
            if one.manifest_list is not None:
                lists[plain_path(one.manifest_list)].append((place, place))
            for address in one.manifests:
                bare[address].append((place, place))
        sizes = self._sizes(list(bare))
        found = {address: (size, bare[address]) for address, size in zip(bare, sizes, strict=True)}

        def read(files: Sequence[AvroFile]) -> None:
            rows = (
                manifest_lists(self.session, [file.local_path for file in files])
                .join(functions.broadcast(self._held(files)), FILE)
                .groupBy("manifest_path")
                .agg(
                    functions.max("manifest_length").alias("bytes"),
                    functions.flatten(functions.collect_list("held")).alias("runs"),
                )
                .select("manifest_path", "bytes", merged_runs("runs").alias("runs"))
                .collect()  # the reader of the manifests wants to be told all paths
            )
            for address, size_bytes, runs in rows:
                before = found.get(address, (0, []))[1]
                found[address] = (size_bytes, [*before, *((run.first, run.last) for run in runs)])

        files = [AvroFile(path, None, merged(runs)) for path, runs in lists.items()]
        for lost in self.files.read_whole(files, read):
            self._note_lost("manifest list", lost)
        return {address: (size_bytes, merged(runs)) for address, (size_bytes, runs) in found.items()}

    def _name_entries(self, manifests: dict[str, tuple[int, Runs]]) -> None:
        """Name the data and delete files of the manifests. Several can list a file, also one that another lists."""

        def name(files: Sequence[AvroFile]) -> None:
            entries = manifest_entries(self.session, [file.local_path for file in files])
            things = (
                entries.repartition(1 + len(files) // _MANIFESTS_A_PARTITION, "file_path")
                .join(functions.broadcast(self._held(files)), FILE)
                .groupBy("file_path")
                .agg(
                    functions.max("bytes").alias("bytes"),
                    functions.max("kind").alias("kind"),
                    functions.flatten(functions.collect_set("held")).alias("runs"),
                )
                .select(functions.col("file_path").alias("id"), "kind", "bytes", merged_runs("runs").alias("runs"))
            )
            self._name_frame(things)

        files = [AvroFile(plain_path(address), size_bytes, runs) for address, (size_bytes, runs) in manifests.items()]
        for lost in self.files.read_whole(files, name):
            self._note_lost("manifest", lost)

    def _small_files(self, manifests: dict[str, tuple[int, Runs]]) -> Iterator[Thing]:
        """Yield the files that are named by the metadata and by the manifest lists."""
        for address, (size_bytes, runs) in manifests.items():
            yield address, "manifest", size_bytes, runs
        lists: dict[str, list[int]] = defaultdict(list)
        statistics: dict[str, list[int]] = defaultdict(list)
        partitions: dict[str, list[int]] = defaultdict(list)
        active = len(self.refs) - 1
        for one in self.metadata.snapshots:
            if one.manifest_list is not None:
                lists[one.manifest_list].append(self.places[one.snapshot_id])
        for found, files in ((statistics, self.metadata.statistics), (partitions, self.metadata.partition_statistics)):
            for file in files:
                # Files of a snapshot that has gone stay in the metadata: no expiry removes them.
                found[file.statistics_path].append(self.places.get(file.snapshot_id, active))
        metadata = {entry.metadata_file: [active] for entry in self.metadata.metadata_log}
        metadata[self._address_of(self.table.metadata_file)] = [active]
        kinds = (("manifest-list", lists), ("statistics", statistics), ("partition-statistics", partitions))
        for kind, holders in (*kinds, ("metadata", metadata)):
            for (address, places), size_bytes in zip(holders.items(), self._sizes(list(holders)), strict=True):
                yield address, kind, size_bytes, merged([(place, place) for place in places])

    def _address_of(self, path: str) -> str:
        """Return the path of a file of the table as the metadata would write it."""
        root = plain_path(self.metadata.location).rstrip("/") + "/"
        return self.metadata.location.rstrip("/") + "/" + path.removeprefix(root) if path.startswith(root) else path

    def _sizes(self, addresses: Sequence[str]) -> Iterator[int]:
        sizes = self.files.sizes([plain_path(address) for address in addresses])
        for address, size_bytes in zip(addresses, sizes, strict=True):
            if size_bytes is None:
                self.notes.notes.append(f"{address} is missing, and its size is not known: it counts as 0 bytes.")
            yield size_bytes or 0

    def _name(self, things: Iterator[Thing]) -> None:
        rows = [(address, kind, size_bytes, list(runs)) for address, kind, size_bytes, runs in things]
        self._name_frame(self.session.createDataFrame(rows, f"id string, kind string, bytes long, runs {RUNS}"))

    def _name_frame(self, things: DataFrame) -> None:
        things.select("id", "kind", "bytes", "runs").write.mode("append").parquet(self.named_files)

    def _add_things(self, found: DataFrame) -> None:
        """Add what the table names to the report. What is missing costs nothing."""
        things = found.where("id is not null").withColumn("bytes", functions.expr("if(is_missing, 0, bytes)"))
        root = self.metadata.location.rstrip("/") + "/"
        path = functions.when(things.id.startswith(root), functions.substring(things.id, len(root) + 1, 2**31 - 1))
        self.writer.add_things(
            things.select(
                functions.lit(self.name).alias("bucket"),
                path.otherwise(things.id).alias("path"),
                "id",
                "kind",
                "bytes",
                functions.col("bytes").alias("replicated_bytes"),
                "runs",
            )
        )

    def _held(self, files: Sequence[AvroFile]) -> DataFrame:
        return self.session.createDataFrame([(file.local_path, list(file.runs)) for file in files], _HELD_COLUMNS)
