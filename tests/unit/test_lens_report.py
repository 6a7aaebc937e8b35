"""Reports of the lens: what is read of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow.compute as pc
import pytest

from services.domain.space_matrix import SpaceCell
from services.lens.relation import LensBucket, LensFinding, Ref, RefKind
from services.lens.report import CELLS, HEAD_FILE, FindingSum, Report, ReportError
from tests.lens_reports import ACTIVE, cells_of, chain, held_at, thing, write_report

FINDING = LensFinding("orphaned-file", "vol/bucket", "a/b", "7", 10, 30, "no directory has it: ask for a repair")


def test_a_report_has_what_was_written(tmp_path: Path) -> None:
    buckets = [chain("s1", "s2"), chain("t1", bucket="vol/other", notes=["a table is missing"])]
    things = [
        thing("a", 5, 0, 2),
        thing("b", 7, 0, 2),
        thing("c", 1),
        thing("d", 9, 1),
        thing("elsewhere", 100, 0, bucket="vol/other"),
    ]
    report = Report(write_report(tmp_path / "report", buckets, things, [FINDING], notes=["cut short"]))
    assert report.head.notes == ("cut short",)
    assert report.buckets == {bucket.name: bucket for bucket in buckets}
    assert cells_of(report, "vol/bucket") == {
        held_at(0, 2): SpaceCell(12, 2, 0, 0, 0, 24),
        (): SpaceCell(1, 1, 0, 0, 0, 2),
        held_at(1): SpaceCell(9, 1, 0, 0, 0, 18),
    }
    assert list(report.things("vol/bucket", pc.field("path") == "b")) == [things[1]]
    assert list(report.findings()) == list(report.findings("vol/bucket")) == [FINDING]
    assert list(report.findings("vol/other")) == []
    assert report.finding_sums() == {"vol/bucket": [FindingSum("orphaned-file", 1, 10)]}
    assert cells_of(report, "nowhere") == {}


def test_columns_are_those_of_all_row_groups(tmp_path: Path, seed: int) -> None:
    """A filter leaves many chunks, of which most begin in the middle of a file's columns."""
    random = Random(seed)
    names = [f"b{number}" for number in range(3)]
    things = [
        thing(f"p{number}", random.randrange(100), *random.sample(range(9), random.randrange(4)), bucket=bucket)
        for number in range(600)
        for bucket in names
    ]
    report = Report(write_report(tmp_path / "report", [chain(*"abcdefgh", bucket=name) for name in names], things))
    for name in names:
        expected: dict[object, int] = {}
        for one in things:
            if one.bucket == name:
                expected[one.runs] = expected.get(one.runs, 0) + one.bytes
        together = report.columns_of_all(name)
        for found in (cells_of(report, name), dict(together.items([True] * len(together.bytes)))):
            assert {runs: cell.bytes for runs, cell in found.items()} == expected
    assert list(report.columns_of_all("nowhere").bytes) == []


def test_no_report_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="has no complete report: make one with --report"):
        Report(tmp_path)


def test_a_newer_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"written by deepclean 9, in a newer format"):
        Report(write_report(tmp_path / "report", [], format_number=99))


@pytest.mark.parametrize("head", ["{", "{}", '{"format": "many"}'])
def test_a_damaged_head_is_refused(tmp_path: Path, head: str) -> None:
    directory = write_report(tmp_path / "report", [])
    (directory / HEAD_FILE).write_text(head)
    with pytest.raises(ReportError, match="cannot be read: make the report again"):
        Report(directory)


def test_a_report_without_its_cells_is_refused(tmp_path: Path) -> None:
    directory = write_report(tmp_path / "report", [chain("s1")], [thing("a", 5, 0)])
    next((directory / CELLS).iterdir()).write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ReportError, match="cells cannot be read"):
        cells_of(Report(directory), "vol/bucket")
    next((directory / CELLS).iterdir()).unlink()
    (directory / CELLS).rmdir()
    with pytest.raises(ReportError, match="cells is missing: make the report again"):
        cells_of(Report(directory), "vol/bucket")


def test_the_head_is_plain_json(tmp_path: Path) -> None:
    directory = write_report(tmp_path / "report", [chain("s1")])
    (bucket,) = json.loads((directory / HEAD_FILE).read_text())["buckets"]
    assert [ref["name"] for ref in bucket["refs"]] == ["s1", "active"]


def test_a_bucket_ends_with_its_active_namespace() -> None:
    with pytest.raises(ValueError, match="the active reference has the last place"):
        LensBucket("vol/bucket", (ACTIVE, Ref("s1", "1")))
    with pytest.raises(ValueError, match="two references have one name"):
        LensBucket("vol/bucket", (Ref("s1", "1"), Ref("s1", "2", RefKind.TAG), ACTIVE))
