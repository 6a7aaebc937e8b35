"""The check of diffs finds what is missing from one, and what ``deepclean git`` then says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.main import app
from services.domain.snapshot_diff import DiffEntry, DiffKind
from services.workloads import history_run
from services.workloads.judge.diff_check import ChangedKeys, flattened, listed_difference
from tests.git_builder import build_repository, files

BEFORE = {"a/one": "1", "a/two": "2", "same": "3", "b": "4", "gone": "5"}
AFTER = {"c/one": "1", "c/two": "9", "same": "3", "b": "6", "new": "7"}
DIFF = [
    DiffEntry(DiffKind.DELETED, "gone"),
    DiffEntry(DiffKind.RENAMED, "c", "a"),
    DiffEntry(DiffKind.CREATED, "new"),
    DiffEntry(DiffKind.MODIFIED, "b"),
    DiffEntry(DiffKind.MODIFIED, "c/two"),
    DiffEntry(DiffKind.MODIFIED, "same"),
]
SAID = ChangedKeys(frozenset({"a/one", "a/two", "gone"}), frozenset({"c/one", "c/two", "new"}), frozenset({"b"}))


def test_a_renamed_directory_is_spelled_out_and_contents_are_compared() -> None:
    assert flattened(DIFF, BEFORE, AFTER) == listed_difference(BEFORE, AFTER) == SAID


@pytest.mark.parametrize("missing", range(4))
def test_an_entry_that_is_missing_is_found(missing: int) -> None:
    left = DIFF[:missing] + DIFF[missing + 1 :]
    assert flattened(left, BEFORE, AFTER) != SAID


def test_a_history_whose_diffs_are_wrong_is_not_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = [files(a="1", b="1"), files(a="1", b="2"), files(a="2", c="1"), files(a="3", c="1"), files(a="4", c="1")]
    path = build_repository(tmp_path / "repository", trees)
    words = ["git", str(path), "--in-memory", "--every", "1"]
    report_file = tmp_path / "report.json"
    assert CliRunner().invoke(app, [*words, "--report", str(report_file)]).exit_code == 0
    assert json.loads(report_file.read_text())["check"]["wrong_diffs"] == 0
    monkeypatch.setattr(history_run, "diff", lambda *_, **__: list[Any]())
    assert CliRunner().invoke(app, [*words, "--report", str(report_file)]).exit_code == 1
    assert json.loads(report_file.read_text())["check"]["wrong_diffs"] > 0
