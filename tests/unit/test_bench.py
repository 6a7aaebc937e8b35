"""The parts of ``deepclean bench`` that need no broker: figures as table and JSON, made commands, the rule's rounds."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from schemas.codec import codec
from schemas.records import BucketLayout, DeleteKey, MetadataCommand, PutKey
from services.client.main import app
from services.plane.bench import bulk
from services.plane.bench import compare as comparing
from services.plane.bench.alone import Sample, parse_metrics, reached
from services.plane.bench.ceilings import put_rate
from services.plane.bench.conditions import Benchmark, Conditions
from services.plane.bench.deletions import session_cpu_seconds
from services.plane.bench.figures import (
    COLUMNS,
    Ceiling,
    Figure,
    Target,
    commit,
    details_text,
    machine_description,
    number_text,
    report,
    table_row,
)
from services.plane.bench.rule_cost import BUCKET_ID, SNAPSHOT_COUNTS, chain_of, flat_figures, judge_rates, questions
from services.plane.bench.run import BENCHMARKS, run_benchmarks
from services.plane.errors import StackError


@pytest.mark.parametrize(
    ("figure", "ratio", "is_met"),
    [
        (Figure("plain", 5.0, "s"), None, None),
        (Figure("floor", 5.0, "x/s", Target(5.0)), None, True),
        (Figure("floor", 4.9, "x/s", Target(5.0), Ceiling(9.8, "of it")), 0.5, False),
        (Figure("most", 5.0, "ms", Target(5.0, is_upper=True)), None, True),
        (Figure("most", 5.1, "ms", Target(5.0, is_upper=True)), None, False),
        (Figure("flat", 8.0, "x/s", Target(0.8, is_of_ratio=True), Ceiling(10.0, "of it")), 0.8, True),
        (Figure("flat", 7.9, "x/s", Target(0.8, is_of_ratio=True), Ceiling(10.0, "of it")), 0.79, False),
        (Figure("same", 15.0, "ms", Target(1.5, is_of_ratio=True, is_upper=True), Ceiling(10.0, "of it")), 1.5, True),
        (Figure("without", 15.0, "ms", Target(1.5, is_of_ratio=True)), None, None),
    ],
)
def test_a_figure_knows_its_ratio_and_whether_its_target_is_met(
    figure: Figure, ratio: float | None, is_met: bool | None
) -> None:
    assert figure.ratio == (None if ratio is None else pytest.approx(ratio))
    assert figure.is_met is is_met


def test_a_row_for_people() -> None:
    figure = Figure("puts", 31_234.5, "commands/s", Target(30_000), Ceiling(100_000.0, "kafka produce"), {"keys": 2e5})
    row = ("puts", "31,234", "commands/s", "≥ 30,000", "100,000 (kafka produce)", "0.31", "met")
    assert table_row(figure) == row
    assert len(COLUMNS) == len(row)
    assert details_text(figure) == "keys 200,000"
    assert table_row(Figure("plain", 0.0123, "s")) == ("plain", "0.0123", "s", "", "", "", "")
    assert str(Target(1.5, is_of_ratio=True, is_upper=True)) == "ratio ≤ 1.5"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (2.0, "2"), (0.12345, "0.123"), (12.345, "12.3"), (123.45, "123.5"), (1e6, "1,000,000")],
)
def test_numbers_for_people(value: float, text: str) -> None:
    assert number_text(value) == text


def test_the_report_is_json_with_machine_and_commit() -> None:
    figure = Figure("puts", 10.0, "commands/s", Target(30.0), Ceiling(20.0, "kafka"), {"keys": 5})
    written = json.loads(json.dumps(report([figure], machine_description())))
    assert written["machine"]["cpu_count"] >= 1
    assert {"measured_at", "commit", "machine", "figures"} == set(written)
    assert written["figures"] == [
        {
            "name": "puts",
            "value": 10.0,
            "unit": "commands/s",
            "target": {"bound": 30.0, "is_of_ratio": False, "is_upper": False},
            "ceiling": {"value": 20.0, "what": "kafka"},
            "details": {"keys": 5},
            "ratio": 0.5,
            "is_met": False,
        }
    ]


def test_the_commit_is_that_of_the_directory_and_says_when_files_differ(tmp_path: Path) -> None:
    assert commit(tmp_path) == ""
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    (tmp_path / "file").write_text("1")
    for arguments in (("init", "-q"), ("add", "file"), ("commit", "-q", "-m", "one")):
        subprocess.run(["git", *arguments], cwd=tmp_path, env={**os.environ, **identity}, check=True)
    clean = commit(tmp_path)
    assert len(clean) == 40
    (tmp_path / "file").write_text("2")
    assert commit(tmp_path) == f"{clean}+"


def test_commands_are_numbered_want_no_reply_and_undo_one_another() -> None:
    maker = bulk.CommandMaker(shard=1)
    bodies = [*maker.encoded(bulk.flat_puts("b", 3, 7)), *maker.encoded(bulk.flat_deletes("b", 3, 7))]
    commands = [codec(MetadataCommand).decode(body) for body in bodies]
    assert [command.number for command in commands] == [1, 2, 3, 4, 5, 6]
    assert {(command.shard, command.wants_reply) for command in commands} == {(1, False)}
    puts, deletes = commands[:3], commands[3:]
    assert [put.body.key for put in puts if isinstance(put.body, PutKey)] == [
        delete.body.key for delete in deletes if isinstance(delete.body, DeleteKey)
    ]
    places = bulk.made_places({"b": BucketLayout.OBJECT_STORE})
    assert [type(place).__name__ for place in places] == ["CreateVolume", "CreateBucket"]


def test_trees_are_deep_and_their_paths_differ() -> None:
    paths = [bulk.tree_path(number) for number in range(1_000)]
    assert len(set(paths)) == 1_000
    assert {path.count("/") for path in paths} == {bulk.DIRECTORY_LEVELS}
    assert len({path.rpartition("/")[0] for path in paths}) == 1_000 // bulk.FILES_PER_DIRECTORY


def test_a_moment_between_two_readings_lies_on_a_straight_line() -> None:
    samples = [Sample(10.0, 0, 1.0), Sample(11.0, 100, 2.0), Sample(13.0, 300, 2.5)]
    assert reached(samples, 0) == Sample(10.0, 0, 1.0)
    assert reached(samples, 50) == Sample(10.5, 50, 1.5)
    assert reached(samples, 200) == Sample(12.0, 200, 2.25)
    assert reached(samples[1:], 20).at_seconds == 11.0
    with pytest.raises(ValueError, match="never reached"):
        reached(samples, 301)


def test_metrics_are_read_by_name_with_labels() -> None:
    page = '# HELP a_total Text.\n# TYPE a_total counter\na_total{shard="0",topic="x y"} 12.0\n\nb_seconds 1e-3\n'
    assert parse_metrics(page) == {'a_total{shard="0",topic="x y"}': 12.0, "b_seconds": 0.001}


def test_the_rule_is_measured_at_every_length_of_the_chain() -> None:
    rates = judge_rates(rounds=2, verdicts=50)
    assert set(rates) == set(SNAPSHOT_COUNTS)
    assert min(rates.values()) > 0
    figures = flat_figures("judge", rates)
    assert [figure.name for figure in figures] == [f"rule-cost/judge-at-{count}-snapshots" for count in SNAPSHOT_COUNTS]
    assert [figure.ratio is None for figure in figures] == [True, False, False]


def test_questions_fit_their_chain_and_have_both_answers() -> None:
    view = chain_of(30)
    verdicts = {view.judge(BUCKET_ID, *question).name for question in questions(30, 500)}
    assert verdicts == {"RECLAIMABLE", "EXCLUSIVE_TO_PREVIOUS", "SHARED"}


def test_rocksdb_alone_gives_a_rate(tmp_path: Path) -> None:
    assert put_rate(tmp_path / "rows", 1_200) > 0


def test_the_time_of_a_session_is_that_of_its_processes() -> None:
    busy = ["python3", "-c", "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"]
    child = subprocess.Popen(busy, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    child.stdout.readline()
    assert session_cpu_seconds(child.pid) >= 0.25
    child.communicate(b"\n")
    assert session_cpu_seconds(child.pid) == 0


def test_scratch_directories_differ_and_sizes_follow_from_the_seconds(tmp_path: Path) -> None:
    conditions = Conditions(tmp_path, seconds=2.0)
    assert conditions.count(1_000) == 2_000
    assert conditions.count(1) == 200
    first, second = conditions.scratch("a"), conditions.scratch("a")
    assert first != second
    assert first.is_dir()
    assert second.is_dir()


def test_every_benchmark_says_what_it_measures() -> None:
    assert all(name == benchmark.name and len(benchmark.summary) > 40 for name, benchmark in BENCHMARKS.items())


@pytest.mark.parametrize("error", [StackError("it did not start"), KeyboardInterrupt()])
def test_the_logs_are_kept_only_when_something_did_not_start(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(conditions: Conditions) -> list[Figure]:
        (conditions.scratch("broker") / "broker.log").write_text("why")
        raise error

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(BENCHMARKS, "broken", Benchmark("broken", measure))
    with pytest.raises(type(error)):
        list(run_benchmarks(["broken"], 0.1, lambda _: None))
    assert bool(list(tmp_path.glob("*/broker/broker.log"))) == isinstance(error, StackError)


def test_an_unknown_name_is_refused_with_the_names_that_there_are() -> None:
    result = CliRunner().invoke(app, ["bench", "--only", "speed"])
    assert result.exit_code == 2
    assert "metadata-commands" in result.output


def reported(*figures: Figure) -> dict[str, object]:
    return json.loads(json.dumps(report(figures, {})))  # type: ignore[no-any-return]


class TestCompare:
    RATE = Figure("rate", 100.0, "x/s", Target(90.0), Ceiling(1_000.0, "of it"))
    COST = Figure("cost", 10.0, "ms", Target(50.0, is_upper=True))

    @pytest.mark.parametrize(
        ("after", "gain", "verdict"),
        [
            (Figure("rate", 200.0, "x/s", Target(90.0), Ceiling(2_000.0, "of it")), 1.0, ""),
            (Figure("rate", 100.0, "x/s", Target(90.0), Ceiling(500.0, "of it")), 2.0, "better"),
            (Figure("rate", 104.0, "x/s", Target(90.0), Ceiling(1_000.0, "of it")), 1.04, ""),
            (Figure("rate", 90.0, "x/s", Target(90.0), Ceiling(1_000.0, "of it")), 0.9, "worse"),
            (Figure("rate", 200.0, "x/s", Target(90.0)), 2.0, "better"),
        ],
    )
    def test_what_counts_is_the_ratio_where_there_is_one(self, after: Figure, gain: float, verdict: str) -> None:
        (one,) = comparing.compare(reported(self.RATE), reported(after))
        assert one.gain == pytest.approx(gain)
        assert comparing.table_rows([one])[0][-1] == verdict

    @pytest.mark.parametrize(("milliseconds", "verdict"), [(5.0, "better"), (20.0, "worse"), (10.2, "")])
    def test_less_is_better_where_the_target_says_so(self, milliseconds: float, verdict: str) -> None:
        after = Figure("cost", milliseconds, "ms", Target(50.0, is_upper=True))
        (one,) = comparing.compare(reported(self.COST), reported(after))
        assert comparing.table_rows([one])[0][-1] == verdict

    def test_without_a_target_a_rate_is_a_gain_and_all_else_a_cost(self) -> None:
        before = reported(Figure("rate", 1.0, "x/s"), Figure("disk", 1.0, "bytes/row"))
        after = reported(Figure("rate", 2.0, "x/s"), Figure("disk", 2.0, "bytes/row"))
        assert [one.gain for one in comparing.compare(before, after)] == [2.0, 0.5]

    def test_what_one_report_has_alone_is_named(self, tmp_path: Path) -> None:
        files = tmp_path / "a.json", tmp_path / "b.json"
        for file, figures in zip(files, ([self.RATE, self.COST], [self.RATE]), strict=True):
            file.write_text(json.dumps(report(figures, {})))
        outcome = CliRunner().invoke(app, ["bench", "compare", *map(str, files)])
        assert outcome.exit_code == 0
        assert "cost is in one of them only" in outcome.output
        assert "rate" in outcome.output
        as_json = CliRunner().invoke(app, ["bench", "compare", *map(str, files), "--json"])
        assert [one["gain"] for one in json.loads(as_json.output)] == [1.0]

    @pytest.mark.parametrize("content", ["", "{}", '{"figures": [{"name": "x"}]}', "[]"])
    def test_another_file_is_refused(self, content: str, tmp_path: Path) -> None:
        file = tmp_path / "other.json"
        file.write_text(content)
        outcome = CliRunner().invoke(app, ["bench", "compare", str(file), str(file)])
        assert outcome.exit_code == 1
        assert f"{file} is no report" in outcome.output
