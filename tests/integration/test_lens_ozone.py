"""The lens on databases of an Ozone Manager: a real one with what Ozone said of it, and made ones for single cases."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from services.domain.run_space import Runs
from services.lens.ozone import tables
from services.lens.ozone.layout import OzoneLocationError
from services.lens.relation import LensFinding
from services.lens.report import Report, Thing
from streaming.lens.ozone.source import write
from streaming.lens.writer import ReportWriter
from tests.lens_reports import cells_of
from tests.ozone_databases import OzoneDatabase, key_info
from tests.spark_session import SPARK_MARKS, started_session

pytestmark = [*SPARK_MARKS, pytest.mark.timeout(300), pytest.mark.long]
SAMPLE = Path(__file__).parents[1] / "lens_samples" / "om-2.2.0-sample.tar.gz"
EVERYTHING = pc.scalar(True)


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with started_session() as started:
        yield started


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sample")
    with tarfile.open(SAMPLE) as archive:
        archive.extractall(directory, filter="data")
    return directory / "omdb-sample"


def written(session: SparkSession, location: Path, directory: Path, bucket: str = "") -> Report:
    """The report of a database."""
    report = directory / "report"
    with ReportWriter(session, report, "ozone", str(location)) as writer:
        write(str(location), argparse.Namespace(bucket=bucket), writer)
    return Report(report)


def things_of(report: Report, bucket: str) -> dict[str, list[Thing]]:
    found: dict[str, list[Thing]] = {}
    for thing in sorted(report.things(bucket, EVERYTHING), key=lambda one: (one.path, one.runs, one.bytes)):
        found.setdefault(thing.path, []).append(thing)
    return found


def held(report: Report, bucket: str) -> dict[str, list[tuple[int, Runs]]]:
    """Bytes and holders of the things at each path."""
    return {path: [(one.bytes, one.runs) for one in found] for path, found in things_of(report, bucket).items()}


def findings_of(report: Report, kind: str) -> list[LensFinding]:
    return [one for one in report.findings() if one.kind == kind]


def everything_in(directory: Path) -> dict[str, str]:
    """Names, times and digests of all files."""
    return {
        str(file.relative_to(directory)): f"{file.stat().st_mtime_ns} {hashlib.sha256(file.read_bytes()).hexdigest()}"
        if file.is_file()
        else "directory"
        for file in sorted(directory.rglob("*"))
    }


@dataclass(frozen=True)
class SampleReport:
    report: Report
    before: dict[str, Any]
    after: dict[str, Any]
    names: dict[str, Any]
    changed: bool


@pytest.fixture(scope="module")
def of_sample(session: SparkSession, sample: Path, tmp_path_factory: pytest.TempPathFactory) -> SampleReport:
    files = everything_in(sample)
    report = written(session, sample, tmp_path_factory.mktemp("report"))
    before, after, names = (
        json.loads((sample / f"{name}.json").read_text()) for name in ("expected.before", "expected.after", "names")
    )
    return SampleReport(report, before, after, names, files != everything_in(sample))


BUCKETS = {"v1/b1": "c1v1/bucket-b1", "v1/b2": "c1v1/bucket-b2"}


class TestARealDatabase:
    """Every figure is the one that Ozone gives, before its own garbage collection or after it."""

    def test_nothing_was_written_beside_the_database(self, of_sample: SampleReport) -> None:
        assert not of_sample.changed

    @pytest.mark.parametrize("bucket", BUCKETS)
    def test_what_each_snapshot_holds_alone_is_what_ozone_says_after_its_collection(
        self, of_sample: SampleReport, bucket: str
    ) -> None:
        lens = of_sample.report.buckets[BUCKETS[bucket]]
        cells = cells_of(of_sample.report, BUCKETS[bucket])
        exclusive = {
            ref.name.removeprefix("snap-"): cells[((place, place),)].bytes for place, ref in enumerate(lens.refs[:-1])
        }
        snapshots = of_sample.after["buckets"][bucket]["snapshots"]
        assert exclusive == {name: one["exclusiveSize"] for name, one in snapshots.items()}

    @pytest.mark.parametrize("bucket", BUCKETS)
    def test_pending_is_what_the_collection_freed(self, of_sample: SampleReport, bucket: str) -> None:
        report = of_sample.report
        puts = {block: put for put, blocks in of_sample.names["put_blocks"].items() for block in blocks}
        pending = {
            puts[thing.id.partition("/")[2]] for thing in report.things(BUCKETS[bucket], EVERYTHING) if not thing.runs
        }
        all_puts = {puts[one.id.partition("/")[2]] for one in report.things(BUCKETS[bucket], EVERYTHING)}
        assert pending == set(of_sample.after["blocks"]["reclaimed"]) & all_puts
        assert pending

    def test_every_block_is_in_one_thing(self, of_sample: SampleReport) -> None:
        things = [one for name in BUCKETS.values() for one in of_sample.report.things(name, EVERYTHING)]
        assert len({one.id for one in things}) == len(things) == len(of_sample.names["put_blocks"])

    @pytest.mark.parametrize("bucket", BUCKETS)
    def test_a_snapshot_references_what_its_tables_show(self, of_sample: SampleReport, bucket: str) -> None:
        """Without the files below directories that were deleted before: Ozone's referencedSize has them, too."""
        lens = of_sample.report.buckets[BUCKETS[bucket]]
        stores = of_sample.before["buckets"][bucket]["stores"]
        for place, ref in enumerate(lens.refs[:-1]):
            store = stores[f"snap:{ref.name.removeprefix('snap-')}"]
            table = store.get("keyTable") or store["fileTable"]
            readable = sum(row["size"] for row in table if row["path"] is not None)
            referenced = sum(
                thing.bytes
                for thing in of_sample.report.things(lens.name, EVERYTHING)
                if any(first <= place <= last for first, last in thing.runs)
            )
            assert referenced == readable
            unreachable = sum(row["size"] for row in table if row["path"] is None)
            assert lens.figures[f"{ref.name}/referencedSize"] == readable + unreachable

    @pytest.mark.parametrize("bucket", BUCKETS)
    def test_ozones_own_figures_are_there_and_the_rows_add_up_to_them(
        self, of_sample: SampleReport, bucket: str
    ) -> None:
        said = of_sample.before["buckets"][bucket]
        figures = of_sample.report.buckets[BUCKETS[bucket]].figures
        for name in ("usedBytes", "usedNamespace", "snapshotUsedBytes", "snapshotUsedNamespace"):
            assert figures[name] == said[name]
        assert not [one for one in of_sample.report.findings(BUCKETS[bucket]) if one.kind.startswith("wrong-")]

    def test_files_below_deleted_directories_are_told_apart(self, of_sample: SampleReport) -> None:
        """k10 was never in a snapshot, k6 is in two; both directories wait to be expanded."""
        assert held(of_sample.report, BUCKETS["v1/b2"])["w/v/k10"] == [(800, ())]
        assert held(of_sample.report, BUCKETS["v1/b2"])["z/y/k6"] == [(7, ((0, 1),))]
        found = findings_of(of_sample.report, "unreachable-file")
        assert sorted((one.id, one.bytes) for one in found) == [("", 800), ("snap-s4", 7)]
        assert not findings_of(of_sample.report, "orphaned-file")

    def test_a_deleted_snapshot_is_no_reference_and_its_garbage_counts(self, of_sample: SampleReport) -> None:
        lens = of_sample.report.buckets["c1v1/bucket-b1"]
        assert [ref.name for ref in lens.refs] == ["snap-s1", "snap-s3", "snap-s4", "active"]
        assert [one.path for one in findings_of(of_sample.report, "deleted-snapshot") if one.bucket == lens.name] == [
            "snap-s2"
        ]
        assert (100, ((0, 0),)) in held(of_sample.report, "c1v1/bucket-b1")["k3"]  # its row is in snap-s2's database


class TestLocations:
    def test_the_database_itself_and_a_bucket_of_it(
        self, session: SparkSession, sample: Path, tmp_path: Path, of_sample: SampleReport
    ) -> None:
        report = written(session, sample / "om.db", tmp_path, "c1v1/bucket-b1")
        assert list(report.buckets) == ["c1v1/bucket-b1"]
        assert cells_of(report, "c1v1/bucket-b1") == cells_of(of_sample.report, "c1v1/bucket-b1")

    def test_an_unknown_bucket_and_an_unknown_place(self, session: SparkSession, sample: Path, tmp_path: Path) -> None:
        with pytest.raises(OzoneLocationError, match="no bucket c1v1/b: it has c1v1/bucket-b1, c1v1/bucket-b2"):
            written(session, sample, tmp_path, "c1v1/b")
        with pytest.raises(OzoneLocationError, match="has no database of an Ozone Manager"):
            written(session, tmp_path, tmp_path)

    def test_a_missing_snapshot_is_named_with_what_is_still_right(
        self, session: SparkSession, sample: Path, tmp_path: Path, of_sample: SampleReport
    ) -> None:
        copy = tmp_path / "copy"
        shutil.copytree(sample, copy)
        name = f"om.db-{of_sample.names['snapshot_ids']['v1/b1:s3']}"
        shutil.rmtree(copy / "db.snapshots" / "checkpointState" / name)
        report = written(session, copy, tmp_path)
        lens = report.buckets["c1v1/bucket-b1"]
        assert any("snap-s3" in note and name in note and "live bytes are right" in note for note in lens.notes)
        assert "were not compared with the rows" in lens.not_looked_for[0]
        assert report.buckets["c1v1/bucket-b2"].not_looked_for == ()
        assert held(report, "c1v1/bucket-b1")["x/y/k6"] == [(7, ((0, 3),))]
        assert held(report, "c1v1/bucket-b1")["k1"][-1] == (4, ((1, 3),))  # transactions say so, without the database
        assert cells_of(report, "c1v1/bucket-b2") == cells_of(of_sample.report, "c1v1/bucket-b2")

    def test_what_a_missing_snapshot_may_have_deleted_is_no_orphan(
        self, session: SparkSession, sample: Path, tmp_path: Path, of_sample: SampleReport
    ) -> None:
        """z was deleted before s4, whose deletedDirectoryTable alone has it."""
        copy = tmp_path / "copy"
        shutil.copytree(sample, copy)
        name = f"om.db-{of_sample.names['snapshot_ids']['v1/b2:s4']}"
        shutil.rmtree(copy / "db.snapshots" / "checkpointState" / name)
        report = written(session, copy, tmp_path)
        assert not [one for one in report.findings() if one.kind.startswith("orphaned-")]
        sentences = report.buckets["c1v1/bucket-b2"].not_looked_for
        assert [sentence.partition(":")[0] for sentence in sentences] == [
            "snapshotUsedBytes and snapshotUsedNamespace were not compared with the rows",
            "Orphans were not looked for",
        ]

    def test_a_damaged_database(self, session: SparkSession, sample: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy"
        shutil.copytree(sample / "om.db", copy)
        next(copy.glob("MANIFEST-*")).write_bytes(b"")
        with pytest.raises(OzoneLocationError, match="cannot be opened"):
            written(session, copy, tmp_path)

    def test_a_table_that_is_damaged_behind_its_beginning(self, session: SparkSession, tmp_path: Path) -> None:
        """Found by a worker, when it comes to the block."""
        database = OzoneDatabase(tmp_path / "om")
        bucket = database.bucket("b", 2)
        for number in range(3_000):
            database.live(bucket, key_info(bucket, f"k{number:05}", 10, [(number, 5)]))
        location = database.close()
        largest = max((location / "om.db").glob("*.sst"), key=lambda file: file.stat().st_size)
        content = bytearray(largest.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 400] = bytes(400)
        largest.write_bytes(content)
        with pytest.raises(OzoneLocationError, match=r"om\.db cannot be read .*copy it again"):
            written(session, location, tmp_path)


class TestBlocksInSeveralRows:
    def test_an_hsynced_key_and_its_open_row_count_once(self, session: SparkSession, tmp_path: Path) -> None:
        """As long as the key says: its open row has the size of a whole block, and one block more."""
        database = OzoneDatabase(tmp_path / "om")
        bucket = database.bucket("b", 2)
        database.live(bucket, key_info(bucket, "k", 10, [(1, 5)]))
        database.rows.put(tables.OPEN_KEY, bucket.by_name + b"k/7", key_info(bucket, "k", 10, [(1, 256), (2, 256)]))
        report = written(session, database.close(), tmp_path)
        assert [(one.kind, one.bytes, one.runs) for one in things_of(report, "vol/b")["k"]] == [
            ("key", 5, ((0, 0),)),
            ("open-key", 256, ((0, 0),)),
        ]
        assert not findings_of(report, "shared-block")

    def test_rows_that_disagree_are_joined_and_reported(self, session: SparkSession, tmp_path: Path) -> None:
        """A deleted row that a crash has left in two stores: whoever holds one of them holds the block."""
        database = OzoneDatabase(tmp_path / "om")
        bucket = database.bucket("b", 2)
        row = key_info(bucket, "k", 10, [(1, 5)])
        database.live(bucket, row)
        database.snapshot(bucket, "one", 20, 1)
        database.remove(bucket, row)
        database.deleted(bucket, row.object_id, row)
        database.snapshot(bucket, "two", 30, 2)
        database.deleted(bucket, row.object_id, row)
        report = written(session, database.close(), tmp_path)
        assert held(report, "vol/b") == {"k": [(5, ((0, 0),))]}
        (finding,) = findings_of(report, "shared-block")
        assert (finding.bucket, finding.bytes) == ("vol/b", 5)

    def test_rows_of_two_buckets_count_in_one_and_both_are_marked(self, session: SparkSession, tmp_path: Path) -> None:
        """Places are those of a bucket: here the other one has more snapshots than the block's owner."""
        database = OzoneDatabase(tmp_path / "om")
        first, second = database.bucket("a", 2), database.bucket("b", 3)
        database.live(second, key_info(second, "l", 11, [(1, 5)]))
        for number in range(3):
            database.snapshot(second, f"s{number}", 20 + 10 * number, 10 + number)
        database.live(first, key_info(first, "k", 55, [(1, 5)]))
        report = written(session, database.close(), tmp_path)
        found = [(bucket, rows) for bucket in ("vol/a", "vol/b") for rows in held(report, bucket).values()]
        assert found in ([("vol/a", [(5, ((0, 0),))])], [("vol/b", [(5, ((0, 3),))])])
        assert {one.bucket for one in findings_of(report, "shared-block")} == {"vol/a", "vol/b"}
        for bucket in ("vol/a", "vol/b"):
            assert "Rows of several buckets name the same blocks" in report.buckets[bucket].notes[0]


def test_a_checkpoint_and_figures_that_are_wrong(session: SparkSession, tmp_path: Path) -> None:
    database = OzoneDatabase(tmp_path / "om")
    bucket = database.bucket("b", 2, used_bytes=7, used_namespace=1, snapshot_used_bytes=3, snapshot_used_namespace=-2)
    database.live(bucket, key_info(bucket, "k", 10, [(1, 5)]))
    with tarfile.open(tmp_path / "copy.tar", "w") as archive:
        archive.add(database.close(), "copy")
    report = written(session, tmp_path / "copy.tar", tmp_path)
    assert held(report, "vol/b") == {"k": [(5, ((0, 0),))]}
    assert {one.kind: one.bytes for one in report.findings()} == {
        "wrong-used-bytes": -2,
        "wrong-snapshot-used-bytes": -3,
        "negative-namespace": 0,
    }
