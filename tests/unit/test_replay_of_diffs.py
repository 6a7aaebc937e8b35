"""The operation ``diff`` of the workload format, as a line of a file and as a line of the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.main import app
from services.metadata.state import changed_rows

OPERATIONS: list[dict[str, Any]] = [
    {"op": "create_volume", "volume": "v"},
    {"op": "create_bucket", "volume": "v", "bucket": "b", "layout": "FSO"},
    {"op": "put_key", "volume": "v", "bucket": "b", "key": "a/k", "size": 1, "tag": "1"},
    {"op": "put_key", "volume": "v", "bucket": "b", "key": "l", "size": 1, "tag": "2"},
    {"op": "create_snapshot", "volume": "v", "bucket": "b", "snapshot": "s1"},
    {"op": "rename_dir", "volume": "v", "bucket": "b", "from": "a", "to": "c"},
    {"op": "delete_key", "volume": "v", "bucket": "b", "key": "l"},
    {"op": "put_key", "volume": "v", "bucket": "b", "key": "m", "size": 1, "tag": "3"},
    {"op": "create_snapshot", "volume": "v", "bucket": "b", "snapshot": "s2"},
    {"op": "put_key", "volume": "v", "bucket": "b", "key": "c/k", "size": 1, "tag": "4"},
    {"op": "diff", "volume": "v", "bucket": "b", "from": "s1", "to": "s2"},
    {"op": "diff", "volume": "v", "bucket": "b", "from": "s1", "to": "active"},
    {"op": "diff", "volume": "v", "bucket": "b", "from": "active", "to": "s2"},
    {"op": "diff", "volume": "v", "bucket": "b", "from": "s1", "to": "s9"},
    {"op": "delete_snapshot", "volume": "v", "bucket": "b", "snapshot": "s2"},
    {"op": "diff", "volume": "v", "bucket": "b", "from": "s2", "to": "active"},
    {"op": "diff", "volume": "v", "bucket": "b", "from": "s1", "to": "s1"},
    {"op": "diff", "volume": "v", "bucket": "none", "from": "active", "to": "active"},
    {"op": "settle"},
    {"op": "diff", "volume": "v", "bucket": "b", "from": "s2", "to": "active"},
]
EXPECTED = [
    {"op": 10, "diff": [["-", "l"], ["R", "a", "c"], ["+", "m"]]},
    {"op": 11, "diff": [["-", "l"], ["R", "a", "c"], ["+", "m"], ["M", "c/k"]]},
    {"op": 12, "diff": [["M", "c/k"]]},
    {"op": 13, "error": "FILE_NOT_FOUND"},
    {"op": 15, "error": "FILE_NOT_FOUND"},
    {"op": 16, "diff": []},
    {"op": 17, "error": "BUCKET_NOT_FOUND"},
    {"op": 19, "error": "FILE_NOT_FOUND"},
]


def answers_to(operations: list[dict[str, Any]], directory: Path) -> list[Any]:
    """Play a workload by the command; says the lines that it has written."""
    file, answers = directory / "operations.jsonl", directory / "answers.jsonl"
    file.write_text("".join(f"{json.dumps(operation)}\n" for operation in operations), "utf-8")
    result = CliRunner().invoke(app, ["replay", str(file), "--in-memory", "--observations", str(answers)])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in answers.read_text("utf-8").splitlines()]


def test_diffs_are_answered_in_their_place(tmp_path: Path) -> None:
    assert answers_to(OPERATIONS, tmp_path) == EXPECTED


def test_a_diff_is_whole_while_the_changes_of_a_dropped_snapshot_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_rows, "TRIMMED_AT_ONCE", 20)
    bucket, other = {"volume": "v", "bucket": "b"}, {"volume": "v", "bucket": "other"}
    new = [f"new{number:02}" for number in range(20)]
    operations: list[dict[str, Any]] = [
        {"op": "create_volume", "volume": "v"},
        *({"op": "create_bucket", **one, "layout": "OBS"} for one in (bucket, other)),
        {"op": "create_snapshot", **bucket, "snapshot": "one"},
        *({"op": "put_key", **bucket, "key": f"k{number}", "size": 1, "tag": f"{number}"} for number in range(200)),
        {"op": "delete_snapshot", **bucket, "snapshot": "one"},
        *({"op": "put_key", **other, "key": f"k{number}", "size": 1, "tag": f"o{number}"} for number in range(3)),
        {"op": "create_snapshot", **bucket, "snapshot": "two"},
        *({"op": "put_key", **bucket, "key": key, "size": 1, "tag": key} for key in new),
        *({"op": "create_snapshot", **other, "snapshot": f"s{number}"} for number in range(40)),
        {"op": "diff", **bucket, "from": "two", "to": "active"},
    ]
    assert answers_to(operations, tmp_path) == [{"op": len(operations) - 1, "diff": [["+", key] for key in new]}]
