"""The lens on Iceberg tables: Iceberg's own expiry removes what was foretold, and damage is said in one sentence."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from services.lens.iceberg.errors import IcebergError
from services.lens.iceberg.location import plain_path
from services.lens.questions import BucketQuestions, questions
from services.lens.report import Report
from streaming.lens.iceberg.avro import plain_column
from streaming.lens.iceberg.source import write
from streaming.lens.table_files import ORPHANS_NOT_LOOKED_FOR
from streaming.lens.writer import ReportWriter
from tests.iceberg_at_scale import LargeTable
from tests.spark_session import SPARK_MARKS, started_session

pytestmark = [*SPARK_MARKS, pytest.mark.timeout(400)]
TABLES = 6
WAIT_SECONDS = 900


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with started_session() as started:
        yield started


@pytest.fixture
def table(tmp_path: Path) -> LargeTable:
    """A line of 12 snapshots and 240 data files."""
    made = LargeTable(tmp_path / "lake" / "db.db" / "t", 12, 20, Random(5))
    made.write()
    made.write_empty_data()
    return made


@pytest.fixture
def asked(session: SparkSession, tmp_path: Path) -> Callable[[Path], BucketQuestions]:
    def ask(location: Path) -> BucketQuestions:
        report = tmp_path / "report"
        with ReportWriter(session, report, "iceberg", str(location)) as writer:
            write(str(location), Namespace(), writer)
        return questions(Report(report))[0]

    return ask


@pytest.mark.timeout(WAIT_SECONDS + 60)
@pytest.mark.long
def test_icebergs_expiry_removes_what_was_foretold(seed: int) -> None:
    """In a process of its own, because its JVM has Iceberg's jar: tests.table_formats.iceberg_judge says how."""
    command = [sys.executable, "-m", "tests.table_formats.iceberg_judge", "--tables", str(TABLES), "--seed", str(seed)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_SECONDS)
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert len(found) == TABLES, run.stderr[-2_000:]
    assert [one for one in found if not one["is_right"]] == []
    assert sum(len(one["vanished"]) for one in found) > TABLES
    assert sum(map(len, (one["refused"] for one in found))) < sum(map(len, (one["done"] for one in found))) / 10


def test_a_report_equals_a_recount_of_each_snapshot(
    table: LargeTable, asked: Callable[[Path], BucketQuestions]
) -> None:
    answers = asked(table.directory)
    assert answers.notes == ()
    assert answers.bucket.name == "db.t"
    things = {one.id: one for one in answers.report.things("db.t", pc.field("kind") == "data")}
    expected = {table.path_of(file): (table.size_of(file), runs) for file, runs in table.runs()}
    assert {path: (one.bytes, one.runs) for path, one in things.items()} == expected
    manifests = {one.path: one.runs for one in answers.report.things("db.t", pc.field("kind") == "manifest")}
    assert set(manifests) == {f"metadata/{name}" for name in table.entries}
    assert all(one.path == f"data/{one.id.split('/data/')[1]}" for one in things.values())
    assert list(answers.report.findings()) == []


@pytest.mark.long
def test_a_missing_manifest_and_a_damaged_list_are_named_and_the_rest_is_right(
    table: LargeTable, asked: Callable[[Path], BucketQuestions]
) -> None:
    lost = table.lists[0][0]
    (table.directory / "metadata" / lost).unlink()
    damaged = table.directory / "metadata" / "snap-3.avro"
    damaged.write_bytes(damaged.read_bytes()[:-40])
    answers = asked(table.directory)
    first, second = answers.notes
    assert first == (
        f"The manifest list {damaged} is damaged: the figures of 3 are incomplete. The referenced bytes of other "
        f"snapshots are right, but dropping them may free less than shown."
    )
    assert f"{lost} is missing: the figures of 1" in second
    assert len(second.split()) < 34
    assert answers.bucket.not_looked_for == (ORPHANS_NOT_LOOKED_FOR,)
    assert not answers.space().is_exact
    expected = {table.path_of(file): runs for file, runs in table.runs() if runs[0][0] > 3}
    found = {one.id: one.runs for one in answers.report.things("db.t", pc.field("kind") == "data")}
    assert expected.items() <= found.items()


@pytest.mark.long
def test_a_manifest_cut_short_between_blocks_is_named(
    table: LargeTable, asked: Callable[[Path], BucketQuestions]
) -> None:
    cut = table.directory / "metadata" / table.lists[-1][-1]
    size = cut.stat().st_size
    cut.write_bytes(cut.read_bytes()[: size // 2])
    answers = asked(table.directory)
    assert [f"{cut.name} has {size // 2:,} of {size:,} bytes" in note for note in answers.notes] == [True]


@pytest.mark.long
def test_orphans_and_missing_files_are_findings(
    table: LargeTable, asked: Callable[[Path], BucketQuestions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.lens.table_files.MOST_FINDINGS", 2)
    for number in range(4):
        (table.directory / "data" / f"left-{number}.parquet").write_bytes(b"x" * (10 + number))
    held = [file for file, runs in table.runs() if runs[-1][1] < table.snapshots - 1]
    lost = held.pop()
    Path(table.path_of(lost)).unlink()
    name = table.path_of(lost).removeprefix(f"{table.directory}/")
    answers = asked(table.directory)
    found = [(one.kind, one.path, one.bytes) for one in answers.report.findings()]
    assert found == [
        ("orphaned-file", "data/left-3.parquet", 13),
        ("orphaned-file", "data/left-2.parquet", 12),
        ("orphaned-file", "", 21),
        ("missing-file", name, table.size_of(lost)),
    ]
    freed = answers.what_if([ref.name for ref in answers.bucket.refs[:-1]])
    manifests = pc.field("kind").isin(["manifest", "manifest-list"])
    small = sum(one.bytes for one in answers.report.things("db.t", manifests) if one.runs[-1][1] < table.snapshots - 1)
    assert freed.freed_bytes - small == sum(map(table.size_of, held)), "what is missing frees nothing"
    assert not freed.is_exact
    (note,) = freed.notes
    assert note.startswith(f"{name} is missing: {table.size_of(lost):,} bytes by the metadata, which count as 0")


@pytest.mark.long
def test_files_of_another_table_are_no_orphans(
    table: LargeTable, asked: Callable[[Path], BucketQuestions], tmp_path: Path
) -> None:
    inner = table.directory / "inner" / "metadata"
    inner.mkdir(parents=True)
    (inner / "v1.metadata.json").write_text("{}")
    (table.directory / "inner" / "a.parquet").write_bytes(b"x")
    left = table.directory / "data" / "left.parquet"
    left.write_bytes(b"xx")
    answers = asked(table.directory)
    assert answers.space().is_exact
    findings = {(one.kind, one.path) for one in answers.report.findings()}
    assert findings == {("orphaned-file", "data/left.parquet"), ("nested-table", "inner")}

    metadata = table.directory / "metadata"
    ours = json.loads((metadata / "v1.metadata.json").read_text())
    (metadata / "v1.metadata.json").write_text(json.dumps({**ours, "table-uuid": "ours"}))
    (metadata / "00000-other.metadata.json").write_text(json.dumps({**ours, "table-uuid": "theirs"}))
    shutil.rmtree(tmp_path / "report")
    answers = asked(table.directory)
    assert [one.kind for one in answers.report.findings()] == ["nested-table"]
    first, second = answers.bucket.not_looked_for
    assert "00000-other.metadata.json is the metadata of another table" in first
    assert second.startswith("The files in directories of other tables were not looked at: ")
    assert answers.space().is_exact, "what is not looked for makes no figure wrong"


@pytest.mark.long
def test_metadata_that_was_named_and_is_not_the_newest_shows_no_orphans(
    table: LargeTable, asked: Callable[[Path], BucketQuestions]
) -> None:
    metadata = table.directory / "metadata"
    shutil.copy(metadata / "v1.metadata.json", metadata / "v2.metadata.json")
    answers = asked(metadata / "v1.metadata.json")
    assert ["v2.metadata.json is newer than the metadata that was named" in note for note in answers.notes] == [True]
    assert list(answers.report.findings()) == []
    assert answers.bucket.not_looked_for[0].startswith("Orphans and missing files were not looked for")


@pytest.mark.long
def test_a_copy_of_the_metadata_does_not_make_the_original_an_orphan(
    table: LargeTable, asked: Callable[[Path], BucketQuestions]
) -> None:
    copy = table.directory.with_name("copy")
    shutil.copytree(table.directory / "metadata", copy / "metadata")
    answers = asked(copy)
    assert [one.kind for one in answers.report.findings()] == ["files-elsewhere"]
    assert "which has metadata files of its own" in answers.bucket.not_looked_for[0]


@pytest.mark.long
def test_metadata_of_a_catalog_is_remarked_and_marks_figures_only_if_two_have_one_version(
    table: LargeTable, asked: Callable[[Path], BucketQuestions], tmp_path: Path
) -> None:
    metadata = table.directory / "metadata"
    (metadata / "v1.metadata.json").rename(metadata / "00001-a.metadata.json")
    (metadata / "version-hint.text").unlink()
    answers = asked(table.directory)
    assert ["only the table's catalog knows for certain" in note for note in answers.notes] == [True]
    assert answers.is_exact
    assert answers.bucket.own_policy.startswith("The table's own policy (history.expire.max-snapshot-age-ms=432000000")
    shutil.copy(metadata / "00001-a.metadata.json", metadata / "00001-b.metadata.json")
    shutil.rmtree(tmp_path / "report")
    answers = asked(table.directory)
    assert "Name the right one, if it is " in answers.notes[0]
    assert not answers.is_exact


@pytest.mark.long
def test_a_copy_says_that_it_is_one_although_all_its_lists_are_missing(
    table: LargeTable, asked: Callable[[Path], BucketQuestions], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each snapshot has a note then: the one that says why comes before them, and is not cut off."""
    monkeypatch.setattr("streaming.lens.writer.MOST_NOTES", 4)
    copy = table.directory.with_name("copy")
    table.directory.rename(copy)
    notes = asked(copy).notes
    assert "copy it again with Iceberg's rewrite_table_path" in notes[0]
    assert "the figures of 1 are incomplete" in notes[1]
    assert len(notes) == 5
    assert notes[4].startswith("There are ")


@pytest.mark.long
def test_a_full_directory_for_temporary_files_is_one_sentence(
    table: LargeTable, asked: Callable[[Path], BucketQuestions], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("streaming.lens.iceberg.findings.parquet.write_table", full)
    with pytest.raises(IcebergError, match=r"No space left on device\): check the rights, and the room in TMPDIR"):
        asked(table.directory)


def test_an_address_is_no_place_for_a_password(session: SparkSession, tmp_path: Path) -> None:
    with ReportWriter(session, tmp_path / "report", "iceberg", "s3://KEY:SECRET@lake/t"):
        pass
    assert Report(tmp_path / "report").head.location == "s3://lake/t"
    assert b"SECRET" not in (tmp_path / "report" / "report.json").read_bytes()


def test_addresses_are_the_same_paths_in_spark(session: SparkSession) -> None:
    addresses = ["/a/b", "//a//b", "file:/a//b", "file:///a/b", "s3://b//c", "s3a://b/c", "gs://b/c:d/e"]
    frame = session.createDataFrame([(address,) for address in addresses], "address string")
    found = frame.select("address", plain_column(frame.address).alias("path")).collect()
    assert {row.address: row.path for row in found} == {address: plain_path(address) for address in addresses}


def test_the_table_is_only_read(table: LargeTable, asked: Callable[[Path], BucketQuestions]) -> None:
    def everything() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path in table.directory.rglob("*")
        }

    before = everything()
    asked(table.directory)
    assert everything() == before


@pytest.mark.long
def test_what_spark_cannot_read_by_itself_is_copied_first(
    tmp_path: Path, asked: Callable[[Path], BucketQuestions], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store is any file system of Arrow's but the local one: here one that has the lake as its root."""
    lake = fs.SubTreeFileSystem(str(tmp_path / "lake"), fs.LocalFileSystem())
    monkeypatch.setattr("services.lens.iceberg.location._file_system", lambda _: (lake, "bucket/t"))
    table = LargeTable(tmp_path / "lake" / "bucket" / "t", 6, 10, Random(5), "s3a://bucket/t")
    table.write()
    table.write_empty_data()
    answers = asked(Path("any"))
    assert answers.notes == ()
    found = {one.id: (one.path, one.runs) for one in answers.report.things("t", pc.field("kind") == "data")}
    assert found == {
        table.path_of(file): (table.path_of(file).removeprefix("s3a://bucket/t/"), runs) for file, runs in table.runs()
    }
    assert list(answers.report.findings()) == []


@pytest.mark.long
def test_a_path_that_leads_out_of_a_store_is_copied_to_no_other_place(
    table: LargeTable, tmp_path: Path, asked: Callable[[Path], BucketQuestions], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store's keys are any text. What a table names is a key, and no path of this machine."""
    file = table.directory / "metadata" / "v1.metadata.json"
    content = json.loads(file.read_text())
    evil = "s3://bucket/../../escaped.avro"

    class Store:
        """Has the table, and a manifest list of the evil name."""

        def __getattr__(self, name: str) -> Any:
            return getattr(fs.LocalFileSystem(), name)

        def get_file_info(self, wanted: Any) -> Any:
            return fs.LocalFileSystem().get_file_info(self._path(wanted) if isinstance(wanted, str) else wanted)

        def open_input_stream(self, path: str, **options: Any) -> Any:
            return fs.LocalFileSystem().open_input_stream(self._path(path), **options)

        def _path(self, path: str) -> str:
            return content["snapshots"][0]["manifest-list"] if "escaped" in path else path

    changed = json.loads(file.read_text())
    changed["snapshots"][0]["manifest-list"] = evil
    file.write_text(json.dumps(changed))
    monkeypatch.setattr("services.lens.iceberg.location._file_system", lambda _: (Store(), str(table.directory)))
    before = {path for path in tmp_path.rglob("*") if "report" not in path.parts}
    written = list[Path]()
    write_bytes = Path.write_bytes

    def noted(path: Path, data: bytes) -> int:
        written.append(path)
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", noted)
    asked(Path("any"))
    copies = [path for path in written if path.suffix == ".avro"]
    assert copies
    assert not [path for path in copies if path.resolve() != path or "deepclean-iceberg-" not in str(path)]
    assert {path for path in tmp_path.rglob("*") if "report" not in path.parts} == before


@pytest.mark.long
def test_snapshots_that_list_their_manifests_themselves(
    table: LargeTable, asked: Callable[[Path], BucketQuestions]
) -> None:
    """The first version of the format may do without manifest lists."""
    file = table.directory / "metadata" / "v1.metadata.json"
    content = json.loads(file.read_text())
    for one, names in zip(content["snapshots"], table.lists, strict=True):
        Path(one.pop("manifest-list")).unlink()
        one["manifests"] = [f"{table.address}/metadata/{name}" for name in names]
    file.write_text(json.dumps({**content, "format-version": 1}))
    answers = asked(table.directory)
    assert answers.notes == ()
    found = {one.id: one.runs for one in answers.report.things("db.t", pc.field("kind") == "data")}
    assert found == {table.path_of(file): runs for file, runs in table.runs()}
    sizes = {one.id: one.bytes for one in answers.report.things("db.t", pc.field("kind") == "manifest")}
    assert sizes == {f"{table.address}/metadata/{name}": size for name, size in table.lengths.items()}
