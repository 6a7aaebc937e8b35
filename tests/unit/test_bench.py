"""The parts of ``python -m bench`` that need no broker: figures as table and JSON, made commands, the rule's rounds."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import tempfile
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import bulk, small
from bench import compare as comparing
from bench.__main__ import app
from bench.alone import POLL_SECONDS, Sample, ServiceAlone, parse_metrics, reached
from bench.ceilings import put_rate
from bench.conditions import Benchmark, Conditions
from bench.figures import (
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
from bench.growth import MOST_SLOPE, MOST_STEP, Growth, growth_figures, sizes_up_to
from bench.loaded_shard import LoadedShard
from bench.metadata_commands import COMMANDS_PER_SECOND, KINDS, kind_figures
from bench.offered import Offered, percentile
from bench.passing_log import PassingLog
from bench.process_figures import session_cpu_seconds, session_peak_bytes
from bench.rule_cost import BUCKET_ID, SNAPSHOT_COUNTS, chain_of, flat_figures, judge_rates, questions
from bench.run import BENCHMARKS, run_benchmarks
from bench.shards import MODELLED, count_at, modelled_deletions, rate_together
from bench.shared_plane import Burst, pause_seconds
from bench.sizes import SizeError, Sizes
from bench.sustained import backlog_figure, offered_rate
from bench.tree_delete import tree_figures
from schemas.codec import codec
from schemas.records import BucketLayout, DeleteKey, MetadataCommand, PutKey
from schemas.topics import METADATA_COMMANDS
from services.log.clock import VirtualClock
from services.plane.machine.errors import StackError


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
    commands = [codec(MetadataCommand).decode_message(body) for body in bodies]
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


def test_few_commands_that_do_much_are_not_timed_as_if_each_did_little() -> None:
    """A hundred deletes in bulk between thousands of puts were said to take no longer than a hundred puts."""
    keys, commands = [10_000] * 5, [10_000, 10_000, 10_000, 100, 10_000]
    ends = list(accumulate(commands, initial=4))
    # All kinds apply as many keys a second, after a start that is no work; a reading has part of several kinds.
    samples = [Sample(0.0, 0, 0.5), Sample(1.0, 0, 1.0), Sample(1.2, 10_004, 1.2), Sample(1.55, 27_504, 1.55)]
    samples += [Sample(1.9, 35_104, 1.9), Sample(2.0, 40_104, 2.0)]
    figures = {figure.name.rpartition("/")[2]: figure for figure in kind_figures(samples, ends, keys, None)}
    for name, figure in figures.items():
        per_cpu_second = figure.details[f"{figure.unit.removesuffix('/s')}_per_cpu_second"]
        assert [figure.value, per_cpu_second] == pytest.approx([50_000, 50_000], rel=0.01), name
    assert figures["bulk-deletes"].details["commands"] == 100
    assert {name: figure.details["samples"] for name, figure in figures.items()} == {
        "puts": 0,
        "deletes": 0,
        "bulk-deletes": 0,
        "tree-puts": 1,
    }


def test_in_the_small_bench_bulk_deletes_take_as_long_as_several_readings_lie_apart(tmp_path: Path) -> None:
    small_run = Conditions(tmp_path, small.SECONDS)
    (kind,) = (kind for kind in KINDS if kind.name == "bulk-deletes")
    keys = small_run.count(COMMANDS_PER_SECOND, kind.least_keys)
    assert keys / (2 * kind.target.bound if kind.target else 0) >= 5 * POLL_SECONDS
    (puts,) = (one for one in KINDS if one.name == "puts for what follows")
    assert puts.least_keys == kind.least_keys, "each key that is deleted was put"


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


def test_time_and_memory_of_a_session_are_those_of_its_processes() -> None:
    busy = ["python3", "-c", "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"]
    child = subprocess.Popen(busy, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    child.stdout.readline()
    assert session_cpu_seconds(child.pid) >= 0.25
    assert session_peak_bytes(child.pid) > 1_000_000
    child.communicate(b"\n")
    assert session_cpu_seconds(child.pid) == 0
    assert session_peak_bytes(child.pid) == 0


def test_scratch_directories_differ_and_sizes_follow_from_the_seconds(tmp_path: Path) -> None:
    conditions = Conditions(tmp_path, seconds=2.0)
    assert conditions.count(1_000) == 2_000
    assert conditions.count(1) == 200
    first, second = conditions.scratch("a"), conditions.scratch("a")
    assert first != second
    assert first.is_dir()
    assert second.is_dir()


def test_sizes_are_set_by_name() -> None:
    sizes = Sizes().with_settings(["tree-files=7", "few-keys=8"])
    assert (sizes.tree_files, sizes.few_keys, sizes.held_versions) == (7, 8, Sizes().held_versions)


@pytest.mark.parametrize("setting", ["tree-files", "tree-files=", "tree-files=0", "tree-files=-1", "tree_files=1"])
def test_what_is_no_size_is_refused_with_the_names_that_there_are(setting: str) -> None:
    with pytest.raises(SizeError, match="held-versions"):
        Sizes().with_settings([setting])
    result = CliRunner().invoke(app, ["--only", "disk", "--size", setting])
    assert result.exit_code == 2


def test_an_option_that_would_be_ignored_is_refused() -> None:
    assert CliRunner().invoke(app, ["--seconds", "2", "growth"]).exit_code == 2


class _Sent(bulk.BulkProducer):
    """Keeps what is sent, and refuses one message if so."""

    def __init__(self, refused: bytes = b"") -> None:
        self.bodies: list[bytes] = []
        self._refused = refused

    def enqueue(self, topic: str, messages: Iterable[bytes], partition: int = 0) -> None:
        self.bodies += messages
        if self._refused in self.bodies:
            raise StackError("refused")

    def flush(self) -> None:
        """Nothing waits."""


def test_commands_are_offered_by_a_schedule() -> None:
    bodies, producer = [b"%d" % number for number in range(50)], _Sent()
    with Offered(producer, bodies, 10_000.0) as offered:
        offered.finish()
    assert producer.bodies == bodies
    assert offered.count == 50
    assert offered.is_done
    assert offered.due_at(20_000) - offered.due_at(0) == pytest.approx(2.0)


def test_a_sender_that_fails_is_not_passed_over() -> None:
    with pytest.raises(StackError, match="refused"), Offered(_Sent(b"3"), [b"1", b"2", b"3"], 10_000.0):
        pass


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1.0)) == (51.0, 100.0, 100.0)
    assert percentile([3.0], 0.99) == 3.0


@pytest.mark.parametrize(
    ("done", "seconds", "left", "pause"),
    [(0, 1.0, 1_000, 0.05), (1_000, 1.0, 3_000, 0.3), (1_000, 1.0, 100, 0.05), (1_000, 1.0, 90_000, 0.5)],
)
def test_who_waits_looks_less_often_while_much_is_left(done: int, seconds: float, left: int, pause: float) -> None:
    assert pause_seconds(done, seconds, left) == pytest.approx(pause)


@pytest.mark.parametrize(("last", "is_bounded"), [(500, True), (600, True), (601, False)])
def test_a_backlog_is_bounded_when_its_last_third_is_hardly_above_the_middle_one(last: int, is_bounded: bool) -> None:
    backlog = [(1.0, 5_000), (10.0, 300), (15.0, 500), (19.0, 900), (20.0, 100), (25.0, last), (29.0, 2_000)]
    figure = backlog_figure("sustained", backlog, 30.0)
    assert (figure.value, figure.is_met) == (last, is_bounded)
    peaks = {"first_third_peak": 5_000, "middle_third_peak": 900, "last_third_peak": 2_000}
    assert figure.details == {"first_third_median": 5_000, **peaks}


def test_a_backlog_that_grows_all_the_time_is_not_bounded() -> None:
    figure = backlog_figure("sustained", [(float(second), 100 * second) for second in range(1, 31)], 30.0)
    assert figure.is_met is False


@pytest.mark.parametrize(("burst", "offered"), [(10_000, 9_000), (18_900, 17_010), (19_000, 20_200), (30_000, 20_200)])
def test_just_above_the_target_is_offered_to_a_plane_that_comes_near_it_in_a_burst(burst: int, offered: int) -> None:
    assert offered_rate(burst) == pytest.approx(offered)


def test_of_a_trees_answers_the_median_counts_and_all_files_for_the_rate() -> None:
    answer, freed = tree_figures([0.005, 0.1, 0.007], 100.0, 1_000_000, Ceiling(600_000.0, "kafka produce"))
    assert answer.value == pytest.approx(7.0)
    assert answer.is_met is True
    assert answer.details["slowest_ms"] == 100.0
    assert (freed.value, freed.details["trees"]) == (30_000.0, 3)


class TestLoadedShard:
    def test_its_files_are_in_memory_when_read_and_not_when_forgotten(self, tmp_path: Path) -> None:
        shard = LoadedShard(tmp_path)
        shard.make_bucket("bucket", BucketLayout.OBJECT_STORE)
        shard.apply(bulk.flat_puts("bucket", 1_000))
        shard.snapshot("snapshot", "bucket")  # has all that is written flushed
        shard.close()
        files = sorted(tmp_path.glob("db/*.sst"))
        assert files
        shard.forget_files()
        is_kept = _is_kept_when_dropped(tmp_path / "file")
        assert [_is_in_memory(file) for file in files] == [is_kept] * len(files)
        shard.read_files()
        assert all(_is_in_memory(file) for file in files)


def _is_in_memory(file: Path) -> bool:
    """Whether the machine has its first page in memory: mincore(2), which reads nothing."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 1, access=mmap.ACCESS_COPY) as mapped:
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        resident = ctypes.c_ubyte()
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(1), ctypes.byref(resident)) == 0
        return bool(resident.value & 1)


def _is_kept_when_dropped(file: Path) -> bool:
    """Whether the file system keeps what it is asked to drop, as one without a disk does (tmpfs)."""
    with file.open("wb") as opened:
        opened.write(bytes(8192))
        opened.flush()
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return _is_in_memory(file)


class TestGrowth:
    @pytest.mark.parametrize(
        ("costs", "is_bent"),
        [
            ([10.0, 10.0, 10.0, 10.0], False),
            ([10.0, 12.0, 14.0, 16.0], False),  # a little for each level of a tree
            ([10.0, 100.0, 1_000.0, 10_000.0], True),  # as the keys
            ([10.0, 10.0, 10.0, 25.0], True),  # a cliff at the end
            ([10.0, 19.0, 36.0, 68.0], True),  # no step is steep, all are
            ([10.0, 5.0, 5.0, 5.0], False),
        ],
    )
    def test_a_cost_that_grows_with_the_keys_is_bent(self, costs: list[float], is_bent: bool) -> None:
        grown = Growth("put", dict(zip((10**4, 10**5, 10**6, 10**7), costs, strict=True)))
        assert grown.is_bent is is_bent

    def test_slope_and_step_are_those_of_the_figures(self) -> None:
        grown = Growth("put", {100: 1.0, 1_000: 10**MOST_SLOPE, 10_000: 10 ** (2 * MOST_SLOPE)})
        assert grown.slope == pytest.approx(MOST_SLOPE)
        assert grown.steepest_step == pytest.approx(10**MOST_SLOPE)
        assert grown.steepest_step < MOST_STEP
        assert growth_figures([grown])[0].name == "growth/put-at-100-keys"
        assert Growth("put", {100: 1.0}).is_bent is False

    def test_what_waits_for_the_disk_is_reported_and_not_bounded(self) -> None:
        grown = Growth("delete-with-files-on-disk", {10**6: 20.0, 10**7: 200.0})
        assert (grown.is_bounded, grown.is_bent) == (False, False)
        assert Growth("delete", grown.costs).is_bent

    def test_sizes_go_in_powers_of_ten_up_to_the_largest(self) -> None:
        assert sizes_up_to(10**7) == [10**4, 10**5, 10**6, 10**7]
        assert sizes_up_to(50_000) == [10_000, 50_000]
        assert sizes_up_to(400) == [400]

    def test_every_operation_is_measured_and_the_outcome_is_the_exit_status(self, tmp_path: Path) -> None:
        file = tmp_path / "growth.json"
        result = CliRunner().invoke(app, ["growth", "--max-keys", "400", "--json", str(file)])
        assert result.exit_code == 0, result.output
        names = {figure["name"] for figure in json.loads(file.read_text())["figures"]}
        of_a_key = {"put", "overwrite", "delete", "delete-with-files-on-disk", "claim", "finish"}
        assert names == {f"growth/{operation}-at-400-keys" for operation in of_a_key | {"snapshot-capture", "explain"}}

    def test_a_bent_cost_fails_the_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bent = Growth("explain", {100: 1.0, 1_000: 10.0})
        monkeypatch.setattr("bench.__main__.measure_growth", lambda *_: [bent])
        result = CliRunner().invoke(app, ["growth"])
        assert result.exit_code == 1
        assert "Bent: explain" in result.output


def test_processes_are_compared_while_they_are_together_at_work() -> None:
    early = [Sample(0.0, 0, 0.0), Sample(10.0, 1_000, 1.0)]
    late = [Sample(5.0, 0, 0.0), Sample(15.0, 1_000, 1.0)]
    assert count_at(early, 4.0) == 400
    assert count_at(late, 4.0) == 0
    assert count_at(early, 20.0) == 1_000
    assert rate_together([early], 1_000) == pytest.approx(100.0)
    assert rate_together([early, late], 1_000) == pytest.approx(200.0)
    apart = [Sample(100.0, 0, 0.0), Sample(110.0, 1_000, 1.0)]
    assert rate_together([early, apart], 1_000) == pytest.approx(1_950 / 109.5)


class Asked(ServiceAlone):
    """A service that gives prepared answers."""

    def __init__(self, *answers: Sample | None) -> None:
        self.name = "metadata"
        self._answers = list(answers)

    def applied(self, topic: str, shard: int = 0) -> Sample | None:
        return self._answers.pop(0)


def test_a_load_that_is_applied_before_the_first_answer_has_taken_time() -> None:
    samples = Asked(None, Sample(1e9, 400, 0.5)).watch(METADATA_COMMANDS.name, 400, lambda _: None)
    assert [sample.count for sample in samples] == [0.0, 400]
    assert rate_together([samples], 400) > 0
    partly = Asked(None, Sample(10.0, 100, 0.5), Sample(11.0, 400, 0.6))
    assert [sample.count for sample in partly.watch(METADATA_COMMANDS.name, 400, lambda _: None)] == [100, 400]


def test_the_model_takes_the_busiest_process_of_one_thread() -> None:
    used = {"metadata": 2.0, "key_deletion": 0.5, "streaming": 4.0, "broker": 1.5}
    figure = modelled_deletions(Burst(100_000, 5.0, used))
    assert figure.value == pytest.approx(MODELLED * 100_000 / 2.0)
    assert figure.details["cores_needed"] == pytest.approx(MODELLED * 4.0)
    assert figure.details["measured_on_one_shard"] == 20_000


def test_a_passing_log_hands_out_once_and_keeps_what_was_said() -> None:
    log = PassingLog("in", 0, VirtualClock())
    for number in range(3):
        log.append(b"%d" % number)
    source = log.open_source(["in"], 0, {})
    assert [record.value for record in source.poll(2, 0.0)] == [b"0", b"1"]
    assert (log.first_offset("in", 0), log.end_offset("in", 0), log.end_offset("out", 0)) == (2, 3, 0)
    assert source.lag() == {"in": 1}
    assert [record.offset for record in source.poll(2, 0.0)] == [2]
    log.open_sink().send("out", 0, b"x")
    assert [record.value for record in log.said.records("out", 0)] == [b"x"]


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


def test_rows_run_in_their_own_order_however_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def noting(name: str) -> Benchmark:
        def measure(_: Conditions) -> list[Figure]:
            ran.append(name)
            return []

        return Benchmark(name, measure)

    for name in ("what-if", "drop"):
        monkeypatch.setitem(BENCHMARKS, name, noting(name))
    assert list(run_benchmarks(["drop", "what-if"], 1.0, lambda _: None)) == []
    assert ran == ["what-if", "drop"]


def test_an_unknown_name_is_refused_with_the_names_that_there_are() -> None:
    result = CliRunner().invoke(app, ["--only", "speed"])
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
        outcome = CliRunner().invoke(app, ["compare", *map(str, files)])
        assert outcome.exit_code == 0
        assert "cost is in one of them only" in outcome.output
        assert "rate" in outcome.output
        as_json = CliRunner().invoke(app, ["compare", *map(str, files), "--json"])
        assert [one["gain"] for one in json.loads(as_json.output)] == [1.0]

    @pytest.mark.parametrize("content", ["", "{}", '{"figures": [{"name": "x"}]}', "[]"])
    def test_another_file_is_refused(self, content: str, tmp_path: Path) -> None:
        file = tmp_path / "other.json"
        file.write_text(content)
        outcome = CliRunner().invoke(app, ["compare", str(file), str(file)])
        assert outcome.exit_code == 1
        assert f"{file} is no report" in outcome.output

    def test_several_runs_are_one_whose_noise_is_how_far_apart_they_were(self, tmp_path: Path) -> None:
        files = [tmp_path / f"{number}.json" for number in range(3)]
        for file, value in zip(files, (80.0, 100.0, 120.0), strict=True):
            rate = Figure("rate", value, "x/s", None, Ceiling(1_000.0, "of it"))
            alone = [Figure("alone", 1.0, "s")] if value == 100 else []
            file.write_text(json.dumps(report([rate, *alone], {})))
        whole = tmp_path / "whole.json"
        outcome = CliRunner().invoke(app, ["merge", *map(str, files), "--json", str(whole)])
        assert outcome.exit_code == 0, outcome.output
        assert "1 row of 3 runs" in outcome.output
        (row,) = json.loads(whole.read_text())["figures"]
        assert (row["ratio"], row["noise"]) == (0.1, 1.5)
        for value, verdict in ((67.0, ""), (66.0, "worse"), (150.0, ""), (151.0, "better")):
            after = reported(Figure("rate", value, "x/s", None, Ceiling(1_000.0, "of it")))
            assert [one.verdict for one in comparing.compare(comparing.read_report(whole), after)] == [verdict]

    def test_what_is_no_several_runs_of_one_commit_is_refused(self, tmp_path: Path) -> None:
        file, other = tmp_path / "a.json", tmp_path / "b.json"
        file.write_text(json.dumps(reported(self.RATE)))
        other.write_text(json.dumps({**reported(self.RATE), "commit": "another"}))
        for runs, said in (([file], "two runs or more are wanted"), ([file, other], "runs of different commits")):
            outcome = CliRunner().invoke(app, ["merge", *map(str, runs), "--json", str(tmp_path / "c.json")])
            assert outcome.exit_code == 1
            assert said in outcome.output


def test_the_small_bench_has_rows_that_exist_and_a_reference_for_them() -> None:
    assert set(small.NAMES) <= set(BENCHMARKS)
    kept = comparing.read_report(Path(__file__).parents[2] / "docs" / "figures" / "release.json")
    assert kept["runs"] >= 2
    assert {row["name"].partition("/")[0] for row in kept["figures"]} == set(small.NAMES)
    assert all(row["noise"] >= 1 for row in kept["figures"])
