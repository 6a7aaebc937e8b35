"""deepclean ledger and verify over a plane in memory: the rows, the words, the pages, the exit statuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from typer.testing import CliRunner, Result

from schemas import published
from schemas.codec import codec, frame
from schemas.records import LedgerRows
from schemas.topics import LEDGER, METADATA_COMMANDS
from services.cli.exit_status import ExitStatus
from services.cli.main import app
from services.cli.session import Session
from services.client.kafka_plane import KafkaPlane, PlaneAddress
from services.log.kafka import KafkaLog
from services.log.kafka_errors import translate
from tests.unit.test_space_commands import CommandLine


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """Five versions were freed in shard 1, the first one between two snapshots."""
    line = CommandLine(tmp_path)
    line.run("volume", "create", "vol1", "--shard", "1")
    line.run("bucket", "create", "vol1/flat", "--layout", "OBS")
    line.run("snapshot", "create", "vol1/flat", "before")
    line.run("key", "put", "vol1/flat/k0", "--size", "1000")
    line.run("snapshot", "create", "vol1/flat", "holder")
    line.run("key", "delete", "vol1/flat/k0")
    line.run("snapshot", "create", "vol1/flat", "after")
    line.run("snapshot", "delete", "--yes", "vol1/flat", "holder")
    for number in range(1, 5):
        line.run("key", "put", f"vol1/flat/k{number}", "--size", "10")
    line.settle()
    for number in range(1, 5):
        line.run("key", "delete", f"vol1/flat/k{number}")
    line.settle()
    return line


def _rows(line: CommandLine, *words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = line.json("ledger", "list", *words)["rows"]
    return rows


def test_rows_are_listed_page_by_page(line: CommandLine) -> None:
    rows = _rows(line, "vol1/flat")
    assert [row["size_bytes"] for row in rows] == [1000, 10, 10, 10, 10]
    assert all(row["previous_txn"] < row["birth"] < row["death"] for row in rows)
    assert rows[0]["next_txn"] > rows[0]["death"]
    assert rows == _rows(line, "--shard", "1")
    assert _rows(line, "--shard", "0") == []
    first = line.json("ledger", "list", "vol1/flat", "--limit", "2")
    assert first["rows"] == rows[:2]
    assert _rows(line, "vol1/flat", "--from", first["next"]) == rows[2:]
    assert f"--from {first['next']}" in line.run("ledger", "list", "vol1/flat", "--limit", "2")


def test_rows_are_filtered_by_bucket_and_moment(line: CommandLine) -> None:
    rows = _rows(line, "vol1/flat")
    assert _rows(line, "--shard", "1", "--bucket-id", str(rows[0]["bucket_id"])) == rows
    assert _rows(line, "--shard", "1", "--bucket-id", "1") == []
    assert _rows(line, "vol1/flat", "--since", "2999-01-01") == []
    assert _rows(line, "vol1/flat", "--before", "2999-01-01T00:00+00:00") == rows
    line.run("ledger", "list", "--since", "yesterday", status=2)
    line.run("ledger", "list", "--from", "there", status=2)
    line.run("ledger", "list", "--shard", "7", status=2)


def test_one_version_is_described_in_words(line: CommandLine) -> None:
    row = _rows(line, "vol1/flat")[0]
    output = line.run("ledger", "show", str(row["object_id"]), "--shard", "1")
    words = " ".join(output.split())
    assert f"born at txn {row['birth']} of object {row['object_id']}" in words
    assert f"snapshot before the death txn {row['previous_txn']}" in words
    assert f"snapshot after the birth txn {row['next_txn']}" in words
    assert f"at txn {row['claim_txn']}" in output
    assert line.run("ledger", "show", str(row["first_local_id"]), "--block", "--shard", "1") == output
    assert "Nothing of it was freed in shard 0" in line.run("ledger", "show", "4711")
    assert line.json("ledger", "show", "4711") == []
    assert "deepclean trace show" in line.run("ledger", "show", "vol1/flat/k", status=2)


def test_a_ledger_that_is_as_the_log_says(line: CommandLine) -> None:
    reports = line.json("verify")
    assert [(report["rows"], report["size_bytes"], report["findings"]) for report in reports] == [
        (0, 0, {}),
        (5, 1040, {}),
    ]
    said = line.run("verify", "--shard", "1")
    assert "5 versions, 5 blocks, 1.0 KiB" in said
    assert "No freed version was live or held" in said
    line.run("verify", "--shard", "2", status=2)
    assert "no broker for Spark" in line.run("verify", "--spark", status=2)


def test_the_exit_status_distinguishes_losses_from_differences(line: CommandLine) -> None:
    log = line.client.plane.log
    record = log.partitions[LEDGER.name, 1].pop()
    assert "finished, but without a record" in _output_of_verify(line, 4)
    message = codec(LedgerRows).decode_message(record.value)
    live = line.json("key", "put", "vol1/flat/live", "--size", "5")["committed"]
    forged = _naming(message, live["object_id"])
    log.append(LEDGER.name, 1, codec(LedgerRows).encode_message(forged))
    assert "no command of the log created" in _output_of_verify(line, 3)
    log.trim(METADATA_COMMANDS.name, 1, 1)
    assert "was trimmed" in line.run("verify", status=1)


def _naming(message: LedgerRows, object_id: int) -> LedgerRows:
    count = len(message.claim_places)
    return replace(message, groups=replace(message.groups, object_ids=(object_id,) * count))


def _output_of_verify(line: CommandLine, status: int) -> str:
    result = CliRunner().invoke(app, ["verify"], obj=Session(Path(), line.client))
    assert result.exit_code == status, result.output
    return result.stdout


@pytest.mark.parametrize("words", [["ledger", "list"], ["ledger", "show", "4711"], ["verify"]])
def test_a_broker_that_does_not_answer_is_one_sentence_that_promises_nothing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service would try again, and a command does not: the user has to."""

    def without_an_answer(*_: object) -> int:
        raise translate(KafkaError(KafkaError._TIMED_OUT), "asking for the ends of a topic")

    monkeypatch.setattr(KafkaLog, "_listed_offset", without_an_answer)
    with KafkaPlane(PlaneAddress("127.0.0.1:1", 1, "", "", "")) as plane:
        result = CliRunner().invoke(app, words, obj=Session(tmp_path, plane))
    _is_a_sentence_on_no_answer(result)


def test_so_is_one_that_has_the_schema_of_a_record(line: CommandLine) -> None:
    """Records by later schemas are read by what the topic of schemas says, and only then is it asked for."""
    line.client.plane.log.append(LEDGER.name, 0, frame(0x6463F00F) + b"\x00")

    def without_an_answer() -> None:
        raise translate(KafkaError(KafkaError._TIMED_OUT), "asking for the ends of deepclean.schemas")

    published.read_from(without_an_answer)
    result = CliRunner().invoke(app, ["ledger", "list"], obj=Session(Path(), line.client))
    _is_a_sentence_on_no_answer(result)


def _is_a_sentence_on_no_answer(result: Result) -> None:
    assert result.exit_code == ExitStatus.UNREACHABLE
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("UNREACHABLE: asking for the ends of")
    assert "run the command again when the plane answers (deepclean status)" in result.stderr
    assert "tried again" not in result.stderr
