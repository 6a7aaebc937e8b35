"""The logs of a plane's processes: read from the end, merged by time, filtered and followed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from services.cli.main import app
from services.plane.machine.errors import StackError
from services.plane.upkeep import process_logs
from services.plane.upkeep.process_logs import Level, LogFilter, followed, last_lines, log_files, parsed

SECOND_MS = 1_795_759_772_000


def structured(second: int, event: str, level: str = "info", **fields: Any) -> str:
    time = f"2026-11-27T06:09:{32 + second:02}.000000Z"
    return json.dumps({"event": event, "level": level, "timestamp": time, "service": "x", **fields}) + "\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "metadata.log").write_text(
        structured(0, "starts") + structured(2, "a shard is slow", "warning", shard=3) + structured(5, "ends")
    )
    (logs / "broker.log").write_text(
        "2026-11-27T06:09:33.500Z WARN Broker is late\n  at some.Place\n  at another\n"
        "2026-11-27T06:09:36.000Z INFO Broker is well\n"
    )
    return tmp_path


def test_lines_of_all_processes_are_merged_and_a_stack_trace_stays_together(home: Path) -> None:
    lines = last_lines(log_files(home), LogFilter(), 100)
    assert [(line.process, line.event) for line in lines] == [
        ("metadata", "starts"),
        ("broker", "Broker is late"),
        ("broker", "  at some.Place"),
        ("broker", "  at another"),
        ("metadata", "a shard is slow"),
        ("broker", "Broker is well"),
        ("metadata", "ends"),
    ]
    assert [line.time_ms - SECOND_MS for line in lines] == [0, 1_500, 1_500, 1_500, 2_000, 4_000, 5_000]
    assert lines[4].fields == {"shard": 3}


def test_the_last_lines_are_those_that_are_wanted(home: Path) -> None:
    files = log_files(home)
    assert [line.event for line in last_lines(files, LogFilter(), 2)] == ["Broker is well", "ends"]
    warned = last_lines(files, LogFilter(Level.WARNING), 100)
    assert [line.event for line in warned] == ["Broker is late", "  at some.Place", "  at another", "a shard is slow"]
    late = last_lines(files, LogFilter(since_ms=SECOND_MS + 4_000), 100)
    assert [line.event for line in late] == ["Broker is well", "ends"]
    assert [line.event for line in last_lines(files, LogFilter(text='"SHARD": 3'), 100)] == ["a shard is slow"]


@given(sizes=st.lists(st.integers(0, 40), max_size=30), block=st.integers(1, 50), ends=st.booleans())
def test_a_file_read_from_its_end_has_every_line(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], block: int, ends: bool
) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / "logs").mkdir()
    written = [f"{'é' * size}{number}" for number, size in enumerate(sizes)]
    (home / "logs" / "metadata.log").write_text("\n".join(written) + ("\n" if ends and written else ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_logs, "BLOCK_BYTES", block)
        lines = last_lines(log_files(home), LogFilter(), 1_000)
    assert [line.event for line in lines] == written


def test_what_is_written_later_is_followed_line_by_line(home: Path) -> None:
    file = home / "logs" / "metadata.log"
    written = iter(
        [structured(6, "first") + structured(7, "half")[:20], structured(7, "half")[20:] + structured(8, "no", "debug")]
    )

    def pause() -> bool:
        more = next(written, None)
        if more is None:
            return False
        with file.open("a") as log:
            log.write(more)
        return True

    lines = followed(log_files(home), LogFilter(Level.INFO), pause)
    assert [line.event for line in lines] == ["first", "half"]


@pytest.mark.parametrize(
    ("text", "level", "event"),
    [
        ("26/11/27 06:09:32 WARN TaskSetManager: Lost task", Level.WARNING, "TaskSetManager: Lost task"),
        ('{"event": "without a time"}', None, "without a time"),
        ('{"no": "event"}', None, '{"no": "event"}'),
        ("{broken", None, "{broken"),
        ("2026-99-99T06:00:00 WARN x", Level.WARNING, "x"),
    ],
)
def test_each_kind_of_line_is_read(text: str, level: Level | None, event: str) -> None:
    line = parsed("streaming", text)
    assert (line.level, line.event) == (level, event)


def test_what_is_older_is_not_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "logs" / "metadata.log").write_text("".join(structured(second % 20, "x" * 100) for second in range(5_000)))
    read: list[str] = []
    known = process_logs.parsed

    def noted(process: str, text: str) -> process_logs.LogLine:
        read.append(text)
        return known(process, text)

    monkeypatch.setattr(process_logs, "parsed", noted)
    last_lines(log_files(home, ["metadata"]), LogFilter(since_ms=SECOND_MS + 19_000), 100)
    assert len(read) < 100


def test_a_process_without_a_log_is_named(home: Path) -> None:
    with pytest.raises(StackError, match="no log of none; it has: broker, metadata"):
        log_files(home, ["none"])


def test_the_command_prints_lines_or_objects(home: Path) -> None:
    words = ["--home", str(home), "logs", "metadata", "--level", "warning"]
    assert CliRunner().invoke(app, words).stdout == (
        "2026-11-27 06:09:34  metadata  warning   a shard is slow  shard=3\n"
    )
    (line,) = CliRunner().invoke(app, [*words, "--json"]).stdout.splitlines()
    assert json.loads(line) == {
        "time_ms": SECOND_MS + 2_000,
        "process": "metadata",
        "level": "warning",
        "event": "a shard is slow",
        "fields": {"shard": 3},
    }
