"""``deepclean git`` and ``deepclean replay``: on which plane they run, what they refuse, with which status they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from services.cli.main import app
from services.cli.session import Session
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from tests.git_builder import build_repository, files

REVISIONS = [files(a__b=str(number), c="1", d__e="2") for number in range(4)]


class Outcome(NamedTuple):
    """What a command printed, in one line, and its status."""

    status: int
    printed: str


def run(*words: str | Path, client: InMemoryClient | None = None, home: Path = Path("nowhere")) -> Outcome:
    """Run a command; on the running plane of a home when it asks for one, which is in memory when a client is given."""
    session = None if client is None else Session(home, client)
    result = CliRunner().invoke(app, [str(word) for word in words], obj=session)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, " ".join(result.output.split()))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return build_repository(tmp_path / "repository", REVISIONS)


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    file = tmp_path / "workload.jsonl"
    file.write_text(json.dumps({"op": "create_volume", "volume": "vol"}) + "\n")
    return file


def test_the_running_plane_is_that_of_the_home(repository: Path, workload: Path, tmp_path: Path) -> None:
    home = tmp_path / "elsewhere"
    for words in (("git", repository), ("replay", workload)):
        outcome = run("--home", home, *words, "--plane")
        assert outcome.status == 1
        assert str(home) in outcome.printed


def test_a_history_is_played_on_the_running_plane_and_a_difference_fails(repository: Path, workload: Path) -> None:
    client = InMemoryClient(InMemoryPlane())
    assert run("git", repository, "--plane", client=client).status == 0
    assert len(client.metadata(0).volumes()) == 1
    again = run("git", repository, "--plane", client=client)
    assert again.status == 1, "the same names again: what is there is not this history"
    assert "The outcome is wrong" in again.printed
    assert run("replay", workload, "--plane", client=client).status == 0


def test_only_a_directory_without_a_history_gets_a_generated_one(tmp_path: Path, repository: Path) -> None:
    for wrong in (tmp_path / "nowhere", tmp_path / "repository" / "c"):
        outcome = run("git", wrong, "--in-memory")
        assert outcome.status == 1
        assert "There is no directory" in outcome.printed
    (repository / ".git" / "HEAD").write_text("nonsense\n")
    outcome = run("git", repository, "--in-memory")
    assert outcome.status == 1
    assert "Name the root of a whole clone" in outcome.printed
    (tmp_path / "archive").mkdir()
    for option in ("--tags", "--max-commits=3"):
        outcome = run("git", tmp_path / "archive", "--in-memory", option)
        assert outcome.status == 1
        assert "has no git history" in outcome.printed
    outcome = run("git", tmp_path / "archive", "--in-memory", "--every", "200")
    assert outcome.status == 0
    assert "has no git history: playing a generated one" in outcome.printed


def test_options_that_would_be_ignored_are_refused(repository: Path, workload: Path) -> None:
    for words in (
        ("git", repository, "--in-memory", "--plane"),
        ("git", repository, "--in-memory", "--tags", "--every", "2"),
        ("git", repository, "--in-memory", "--every", "0"),
        ("git", repository, "--in-memory", "--max-commits", "0"),
        ("replay", workload, "--in-memory", "--plane"),
        ("replay", workload, "--plane", "--shards", "2"),
    ):
        assert run(*words).status == 2, words
