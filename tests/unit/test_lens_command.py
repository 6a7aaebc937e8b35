"""``deepclean lens``: what it prints, its JSON, its refusals. The job that reads a source is a stand-in here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.lens import reading
from services.cli.main import app
from services.lens.relation import LensBucket, LensFinding
from services.lens.report import Thing
from services.plane.machine import spark_jobs
from services.plane.machine.spark_jobs import SparkJobError
from services.runtime.process.child_job import ChildJobError
from tests.lens_reports import chain, thing, write_report

THINGS = [
    thing("d/old", 1_000, 0, 1),
    thing("d/new", 200, 1),
    thing("d/kept", 7, 0, 1, 2),
    thing("d/gone", 30),
]
FINDING = LensFinding("orphaned-file", "vol/bucket", "lost/file", "12", 10, 30, "No directory has it.")


def run(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["lens", *map(str, words)])
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def answer(*words: object) -> Any:
    return json.loads(run(*words, "--json"))


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return write_report(tmp_path / "report", [chain("s1", "s2")], THINGS, [FINDING])


def several(tmp_path: Path) -> Path:
    buckets = [chain("s1"), chain("t1", bucket="vol/other")]
    return write_report(tmp_path / "several", buckets, [thing("a", 1, 0)], source="ozone")


def test_space_as_json_is_what_was_promised(report: Path) -> None:
    found = answer("report", report, "space")
    expected = {
        "bucket": "vol/bucket",
        "live_bytes": 7,
        "live_replicated_bytes": 21,
        "held_bytes": 1_200,
        "held_replicated_bytes": 3_600,
        "pending_bytes": 30,
        "pending_replicated_bytes": 90,
    }
    assert expected.items() <= found.items()
    snapshots = [
        {
            "name": "s1",
            "referenced_bytes": 1_007,
            "referenced_replicated_bytes": 3_021,
            "exclusive_bytes": 0,
            "exclusive_replicated_bytes": 0,
            "shared_with_previous_bytes": 0,
            "shared_with_previous_replicated_bytes": 0,
            "shared_with_next_bytes": 1_007,
            "shared_with_next_replicated_bytes": 3_021,
        },
        {
            "name": "s2",
            "referenced_bytes": 1_207,
            "exclusive_bytes": 200,
            "exclusive_replicated_bytes": 600,
            "shared_with_previous_bytes": 1_007,
            "shared_with_next_bytes": 7,
        },
    ]
    for wanted, one in zip(snapshots, found["snapshots"], strict=True):
        assert wanted.items() <= one.items()


def test_a_namespace_of_buckets_answers_with_a_list_unless_one_is_named(tmp_path: Path) -> None:
    directory = several(tmp_path)
    assert [one["bucket"] for one in answer("report", directory, "space")] == ["vol/bucket", "vol/other"]
    assert answer("report", directory, "space", "--bucket", "vol/other")["bucket"] == "vol/other"
    assert "Name one bucket with --bucket: it has vol/bucket, vol/other." in run(
        "report", directory, "what-if", "s1", status=1
    )
    assert answer("report", directory, "what-if", "s1", "--bucket", "vol/bucket")["freed_bytes"] == 1


def test_other_answers_as_json_are_what_was_promised(report: Path) -> None:
    freed = answer("report", report, "what-if", "s1", "s2")
    expected = {
        "bucket": "vol/bucket",
        "snapshots": ["s1", "s2"],
        "freed_bytes": 1_200,
        "freed_replicated_bytes": 3_600,
        "freed_versions": 2,
    }
    assert expected.items() <= freed.items()
    plan = answer("report", report, "plan", "--free", "201")
    assert {"snapshots": ["s1", "s2"], "freed_bytes": 1_200}.items() <= plan.items()
    assert answer("report", report, "plan", "--free", "600", "--on-disks")["snapshots"] == ["s2"]
    assert answer("report", report, "plan", "--free", "1", "--keep", "s2")["snapshots"] == []
    explained = answer("report", report, "explain", "d/old")
    assert {"held_by": ["s1", "s2"], "bytes": 1_000}.items() <= explained.items()
    assert explained["versions"][0]["id"] == "id-of-d/old"
    (finding,) = answer("report", report, "orphans")["findings"]
    assert (finding["kind"], finding["bytes"]) == ("orphaned-file", 10)
    policy = ["--num-retained-min", "1", "--time-retained", "1m"]
    preview = answer("report", report, "retention", *policy)
    assert [one["snapshot"] for one in preview["expired"]] == ["s1"]
    assert (preview["bucket"], preview["freed_bytes"], preview["kept"][0]["snapshot"]) == ("vol/bucket", 0, "s2")


def test_the_words_are_those_of_a_plane(report: Path) -> None:
    space = [line.split() for line in run("report", report, "space").splitlines()]
    assert [
        "held",
        "1.2",
        "KiB",
        "3.5",
        "KiB",
        "2",
        *["the", "snapshots", "that", "hold", "it", "are", "deleted"],
    ] in space
    heading = ["SNAPSHOT", "CREATED", "REFERENCED", "EXCLUSIVE", "SHARED", "WITH", "PREVIOUS", "SHARED", "WITH", "NEXT"]
    assert heading in space
    assert any(line[:3] == ["s2", "1970-01-01", "00:01:00"] for line in space)
    freed = run("report", report, "what-if", "s2")
    assert freed == "deleting s2 would free 200 B (600 B on disks), 1 version\n"
    plan = run("report", report, "plan", "--free", "1GiB").splitlines()
    assert plan[:3] == [
        "s1",
        "s2",
        "deleting these 2 snapshots would free 1.2 KiB (3.5 KiB on disks), 2 versions",
    ]
    assert plan[3].startswith("1 GiB cannot be freed")
    assert "100 MB on disks cannot be freed" in run("report", report, "plan", "--free", "100m", "--on-disks")
    assert "\n4096 B cannot be freed" in run("report", report, "plan", "--free", "4096")
    explained = run("report", report, "explain", "d/old")
    assert "held by    s1, s2" in explained
    assert "held: goes when the snapshots that hold it are deleted" in explained
    assert "pending: goes when the source's garbage collection runs" in run("report", report, "explain", "d/gone")
    assert "lost/file" in run("report", report, "orphans")
    assert "one of the newest 10" in run("report", report, "retention")


def test_notes_are_shown_and_mark_figures(tmp_path: Path) -> None:
    report = write_report(tmp_path / "report", [chain("s1", notes=["one manifest is missing"])], [thing("a", 5, 0)])
    freed = run("report", report, "what-if", "s1").splitlines()
    assert freed == ["deleting s1 would free ~5 B (15 B on disks), 1 version", "note: one manifest is missing"]


def test_every_figure_is_marked(tmp_path: Path) -> None:
    report = write_report(tmp_path / "report", [chain("s1", notes=["one manifest is missing"])], [thing("a", 5, 0)])
    words = " ".join(run("report", report, "space").split())
    assert "held ~5 B ~15 B 1" in words
    assert "live ~0 B ~0 B 0" in words
    assert "~5 B ~15 B held s1" in " ".join(run("report", report, "explain", "a").split())
    assert run("report", report, "orphans").startswith("Nothing was found")


def test_what_was_not_looked_for_is_said(tmp_path: Path) -> None:
    sentence = "Orphans were not looked for: a list is damaged."
    bucket = replace(chain("s1", notes=["a list is damaged"]), not_looked_for=(sentence,))
    report = write_report(tmp_path / "report", [bucket, chain("t1", bucket="vol/other")], [thing("a", 5, 0)])
    shown = run("report", report, "orphans").splitlines()
    assert shown == [
        "Nothing was found, but the search was incomplete:",
        f"note: {sentence}",
        "note: a list is damaged",
    ]
    found = answer("report", report, "orphans")
    assert (found["not_looked_for"], found["notes"]) == ([sentence], ["a list is damaged"])
    assert answer("report", report, "orphans", "--bucket", "vol/other")["not_looked_for"] == []
    assert answer("report", report, "what-if", "s1", "--bucket", "vol/bucket")["notes"] == ["a list is damaged"]


def test_statuses_and_protection_have_columns_if_there_are_any(report: Path, tmp_path: Path) -> None:
    plain = run("report", report, "space")
    assert "PROTECTED BY" not in plain
    assert plain.endswith("\n1 finding: 1 orphaned-file of 10 B. The question orphans shows the details.\n")
    bucket = chain("s1", "s2")
    first, *others = bucket.refs
    tagged = replace(bucket, refs=(replace(first, status="EXPIRABLE", protected_by=("release",)), *others))
    shown = run("report", write_report(tmp_path / "tagged", [tagged], THINGS), "space")
    header, line = (next(one for one in shown.splitlines() if one.startswith(name)) for name in ("SNAPSHOT", "s1"))
    assert header.split()[-3:] == ["STATUS", "PROTECTED", "BY"]
    assert line.split()[-2:] == ["EXPIRABLE", "release"]


def test_own_figures_stand_beside_those_of_the_lens_with_their_units(tmp_path: Path) -> None:
    figures = {"usedBytes": 2_048, "usedNamespace": 2_048, "s1/exclusiveSize": 3_072}
    report = write_report(tmp_path / "report", [replace(chain("s1", "s2"), figures=figures)], THINGS, source="ozone")
    lines = {line.split("  ")[0]: line.split() for line in run("report", report, "space").splitlines()}
    assert lines["ozone says usedBytes"][-2:] == ["2.0", "KiB"]
    assert lines["ozone says usedNamespace"][-1] == "2,048"
    assert lines["SNAPSHOT"][-2:] == ["ozone:", "exclusiveSize"]
    assert lines["s1"][-2:] == ["3.0", "KiB"]
    assert not [name for name in lines if "says s1" in name]


@pytest.mark.parametrize(("source", "noun"), [("iceberg", "table"), ("paimon", "table"), ("ozone", "bucket")])
def test_a_bucket_is_called_what_its_source_calls_it(tmp_path: Path, source: str, noun: str) -> None:
    report = write_report(
        tmp_path / "report", [chain("s1", bucket="db.t")], [], [replace(FINDING, bucket="db.t")], source=source
    )
    assert run("report", report, "space").split()[:2] == [noun, "db.t"]
    assert run("report", report, "orphans").split()[:2] == ["FINDING", noun.upper()]
    assert f"has no {noun} db.u: it has db.t" in run("report", report, "space", "--bucket", "db.u", status=1)
    space = answer("report", report, "space")
    assert (space[0] if source == "ozone" else space)["bucket"] == "db.t"


def test_a_retention_that_is_not_exact_is_marked(tmp_path: Path) -> None:
    report = write_report(tmp_path / "report", [chain("s1", "s2", notes=["a list is missing"])], [thing("a", 5, 0)])
    shown = run("report", report, "retention", "--num-retained-min", "1", "--time-retained", "1m")
    assert "1 expires, 1 stays; that frees ~5 B" in shown


def test_what_is_live_is_said_to_be_held_by_that(report: Path) -> None:
    assert "held by    the live state and s1, s2" in run("report", report, "explain", "d/kept")
    assert "held by    no snapshot" in run("report", report, "explain", "d/gone")


def test_explain_fits_120_columns_and_json_has_ids_in_full(tmp_path: Path) -> None:
    names = [f"a-snapshot-with-a-name-that-is-as-long-as-{number:021}-may-be" for number in range(9)]
    blob = "0123456789abcdef" * 4
    places = {"d/first": (range(9), 1), "d/second": (range(2), 2), "d/third": (range(1), 1_023 * 1024**5)}
    things = [
        Thing("vol/bucket", path, blob, "partition-statistics", size, 3 * size, ((held[0], held[-1]),))
        for path, (held, size) in places.items()
    ]
    bucket = chain(*names, notes=["A sentence that says what is missing. " * 9])
    report = write_report(tmp_path / "report", [bucket], things)
    shown = run("report", report, "explain", blob)
    assert max(map(len, shown.splitlines())) <= 120
    assert "".join(shown.split()).count(names[1]) == 1, "names are broken, not cut"
    assert "(9 in all)" in shown
    assert "d/first:" in shown
    assert "01234567…3456789abcdef" in shown
    assert answer("report", report, "explain", blob)["versions"][0]["id"] == blob


def test_a_name_with_a_line_break_is_escaped_also_where_lines_are_broken(tmp_path: Path) -> None:
    report = write_report(tmp_path / "report", [chain("a\nb", notes=["of\nthat"])], [thing("d", 5, 0)])
    shown = run("report", report, "explain", "d")
    assert r"held by    a\nb" in shown
    assert r"note: of\nthat" in shown


def test_nothing_to_free_needs_no_plan(report: Path) -> None:
    assert "name the bytes to free" in run("report", report, "plan", "--free", "0", status=2)


def test_questions_on_nothing_are_answered(tmp_path: Path) -> None:
    empty = write_report(tmp_path / "none", [], source="ozone")
    assert answer("report", empty, "space") == []
    assert run("report", empty, "space") == "/some/where has no bucket.\n"
    assert "Nothing was found" in run("report", empty, "orphans")
    assert "--bucket: it has none" in run("report", empty, "what-if", "s1", status=1)


@pytest.mark.parametrize("words", [["iceberg", "--help"], ["--help"], ["git", "."], ["git", "-h"], ["git", ".", "-h"]])
def test_help_and_the_error_without_a_question_list_the_questions(words: list[str]) -> None:
    is_help = words != ["git", "."]
    shown = " ".join(run(*words, status=0 if is_help else 2).split())
    assert ("Usage: deepclean lens" in shown) or not is_help
    for question in ("space", "what-if", "plan", "explain", "orphans", "retention"):
        assert question in shown


def test_a_question_has_help_of_its_own() -> None:
    assert "--free" in run("git", ".", "plan", "--help")


def test_what_cannot_be_asked_is_refused(report: Path, tmp_path: Path) -> None:
    assert "has no complete report" in run("report", tmp_path / "nowhere", "space", status=1)
    assert "leave --report out" in run("report", report, "space", "--report", tmp_path / "again", status=2)
    assert "has no snapshot s9" in run("report", report, "what-if", "s9", status=1)
    assert "is not a size" in run("report", report, "plan", "--free", "much", status=2)


class Job:
    """A stand-in for the Spark job: it writes a report where the command wants one."""

    def __init__(self, bucket: LensBucket, things: Sequence[Thing], error: str = "") -> None:
        self.bucket, self.things, self.error = bucket, things, error
        self.module, self.arguments, self.master = "", [""], ""

    def __call__(
        self, module: str, arguments: list[str], on_line: Callable[[Mapping[str, Any]], None], **options: Any
    ) -> None:
        self.module, self.arguments, self.master = module, arguments, options["master"]
        on_line({"progress": 40, "rows": 1_000})
        if self.error:
            raise SparkJobError(self.error)
        write_report(Path(arguments[arguments.index("--report") + 1]), [self.bucket], self.things)


def test_a_source_is_read_and_its_report_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = Job(chain("s1"), [thing("a", 5, 0)])
    monkeypatch.setattr(reading, "run_spark_job", job)
    kept = tmp_path / "kept"
    options = ("--bucket", "vol/bucket", "--master", "spark://one:1", "--report", kept)
    shown = CliRunner().invoke(app, [str(one) for one in ("lens", "git", ".", "what-if", "s1", "--json", *options)])
    assert json.loads(shown.stdout)["freed_bytes"] == 5
    assert "reading git: reading (25 %), 1,000 rows" in shown.stderr
    assert job.module == "streaming.lens"
    assert job.arguments == ["git", ".", "--report", str(kept), "--bucket", "vol/bucket"]
    assert job.master == "spark://one:1"
    assert answer("report", kept, "what-if", "s1")["freed_bytes"] == 5


def test_a_report_that_is_not_kept_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(chain("s1"), [thing("a", 5, 0)])
    monkeypatch.setattr(reading, "run_spark_job", job)
    run("git", ".", "space")
    assert not Path(job.arguments[3]).parent.exists()
    assert job.master == "local[*]"


def test_the_sentence_of_a_job_is_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "run_spark_job", Job(chain("s1"), [], "it has no commit: name a clone"))
    assert run("git", ".", "space", status=1).splitlines()[-1] == "it has no commit: name a clone"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("git", "nowhere"), "There is no directory nowhere: name the root of a clone."),
        (("ozone", "nowhere"), "nowhere is missing: name the directory that holds om.db"),
        (("paimon", "nowhere"), "nowhere has no schema/schema-0: name the directory of a Paimon table."),
        (("paimon", "."), ". has no schema/schema-0"),
        (("iceberg", "."), ". has no metadata/*.metadata.json"),
        (("iceberg", "lake:events"), "name it as CATALOG:NAMESPACE.TABLE, as in lake:db.events."),
        (("git", ".", "--report", "full"), "full is no empty directory: remove it"),
        (("git", ".", "--report", "full/file"), "full/file is no empty directory"),
        (("git", ".", "--report", "full/file/below"), "full/file/below cannot be created in"),
    ],
)
def test_a_wrong_place_is_noticed_before_spark_starts(
    words: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    source, location, *options = words
    shown = run(source, location, "space", *options, status=1)
    assert sentence in shown
    assert "starting Spark" not in shown


class ChildJob:
    """A stand-in for the job's process."""

    def __init__(self, error: str) -> None:
        self.error, self.command, self.scratch = error, [""], ""
        self.environment = dict[str, str]()

    def __call__(
        self, command: list[str], log: Path, on_line: Callable[[Mapping[str, Any]], None], **options: Any
    ) -> None:
        self.command, self.scratch, self.environment = command, str(log.parent), options["environment"]
        on_line({"error": self.error})
        raise ChildJobError("ended with status 1")


def test_a_password_in_an_address_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    job = ChildJob("s3://KEY:SECRET@lake/t is missing: name a table's directory.")
    monkeypatch.setattr(spark_jobs, "run_child_job", job)
    shown = run("iceberg", "s3://KEY:SECRET@lake/t", "space", status=1)
    assert "s3://KEY:SECRET@lake/t" in job.command
    assert "s3://lake/t is missing" in shown
    assert "SECRET" not in shown


def test_temporary_files_are_where_the_command_removes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    job = ChildJob("no table")
    monkeypatch.setattr(spark_jobs, "run_child_job", job)
    names = ("TMPDIR", "SPARK_LOCAL_DIRS")
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    run("git", ".", "space", status=1)
    assert {name: job.environment[name] for name in names} == dict.fromkeys(names, job.scratch)
    assert not Path(job.scratch).exists()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/large/one,/large/two")
    run("git", ".", "space", status=1)
    assert [job.environment[name] for name in names] == [job.scratch, "/large/one,/large/two"]


def test_a_report_is_read_without_what_a_plane_needs(report: Path) -> None:
    """Counted in modules, since times depend on the machine."""
    code = "import sys\nfrom services.cli.main import app\ntry: app()\nexcept SystemExit: pass\nprint(*sys.modules)"
    command = [sys.executable, "-c", code, "lens", "report", str(report), "what-if", "s1"]
    loaded = set(subprocess.check_output(command, text=True).splitlines()[-1].split())
    assert "services.lens.questions" in loaded
    assert not {"pyspark", "confluent_kafka", "rocksdict", "httpx", "services.client.plane"} & loaded
