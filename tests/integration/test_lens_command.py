"""``deepclean lens git`` from the command to the answer: the job on Spark, its report, later questions on it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.main import app
from tests.lens_histories import random_repository, sizes_in_git

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def answer(*words: object) -> Any:
    shown = CliRunner().invoke(app, ["lens", *map(str, words), "--json"])
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)


def content_of(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_answers_are_what_git_lists_and_nothing_is_written(tmp_path: Path, seed: int) -> None:
    repository = random_repository(tmp_path / "repository", Random(seed))
    before = content_of(repository)
    report = tmp_path / "report"
    space = answer("git", repository, "space", "--report", report)
    assert content_of(repository) == before
    commits = [*(one["id"] for one in space["snapshots"]), "HEAD"]
    listed = [sizes_in_git(repository, commit) for commit in commits]
    ever = {thing: size for names in listed for thing, size in names.items()}
    assert space["live_bytes"] == sum(listed[-1].values())
    assert space["held_bytes"] == sum(size for thing, size in ever.items() if thing not in listed[-1])
    assert [one["referenced_bytes"] for one in space["snapshots"]] == [sum(one.values()) for one in listed[:-1]]
    dropped = [1, 2, 5, 8]
    kept = {thing for place, names in enumerate(listed) if place not in dropped for thing in names}
    freed = answer("report", report, "what-if", *(commits[place] for place in dropped))
    assert freed["freed_bytes"] == sum(size for thing, size in ever.items() if thing not in kept)
    path, blob = next(iter(listed[0]))
    explained = answer("report", report, "explain", path)
    (version,) = (one for one in explained["versions"] if one["id"] == blob)
    holders = [one["name"] for one, names in zip(space["snapshots"], listed, strict=False) if (path, blob) in names]
    assert version["held_by"] == holders


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    report = tmp_path / "report"
    shown = CliRunner().invoke(app, ["lens", "git", str(tmp_path), "space", "--report", str(report)])
    assert shown.exit_code == 1
    assert shown.stderr.splitlines()[-1] == f"{tmp_path} is no git repository: name the root of a clone."
    assert not any(tmp_path.iterdir())
