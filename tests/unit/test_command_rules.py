"""What holds for every command of ``deepclean``: how it is named, answers, asks and fails."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from services.cli.exit_status import ExitStatus
from services.cli.lazy import loaded_commands
from services.cli.main import app
from services.cli.session import Session
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane

WITHOUT_JSON = {"key get": "writes the bytes of a key", "replay": "prints one JSON object a line anyway"}
FINAL = {
    "accept-lost-tail",
    "backups delete",
    "dead-letters drop",
    "retention set",
    "shards add",
    "snapshot delete",
    "snapshot rollback",
    "trim-log",
    "upgrade finish",
}
"""What cannot be undone, by deepclean or by a repeat. Keys and directories have their undo windows."""
SHOWN_FIRST = FINAL - {"accept-lost-tail", "dead-letters drop", "retention set", "shards add"}
"""Of these, what can be looked at before. ``accept-lost-tail`` only shows unless it is told --yes, and
``retention preview`` shows what a policy does."""
SYNONYMS = {
    "remove": "delete", "ls": "list", "del": "delete", "rm": "delete", "show-all": "list", "add-shard": "add",
}  # fmt: skip
"""Words that would be a second one for what another word means here."""
OTHERS = {"secret remove", "acl remove"}
"""They take something out of a set; nothing that has a name of its own is deleted."""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command without its arguments, by its words."""

    def below(command: Any, words: list[str]) -> Iterator[tuple[str, Any]]:
        inner = loaded_commands(command)
        if not inner:
            yield " ".join(words), command
        for name, one in inner:
            yield from below(one, [*words, name])

    yield from below(typer.main.get_command(app), [])


COMMANDS = dict(commands())


def options(name: str) -> dict[str, Any]:
    """The parameters of a command by the words by which they are given."""
    return {word: one for one in COMMANDS[name].params for word in (*one.opts, *one.secondary_opts)}


@pytest.mark.parametrize("name", COMMANDS)
class TestEach:
    def test_answers_as_json(self, name: str) -> None:
        assert ("--json" in options(name)) is (name not in WITHOUT_JSON)

    def test_asks_before_what_cannot_be_undone_and_only_then(self, name: str) -> None:
        assert ("--yes" in options(name)) is (name in FINAL)

    def test_shows_before_what_cannot_be_undone(self, name: str) -> None:
        assert ("--dry-run" in options(name)) is (name in SHOWN_FIRST)

    def test_has_one_word_for_one_thing(self, name: str) -> None:
        assert name in OTHERS or not SYNONYMS.keys() & set(name.split())

    def test_says_what_it_does_in_a_sentence(self, name: str) -> None:
        first = (COMMANDS[name].help or "").strip().split("\n\n")[0]
        assert re.match(r"[A-Z].*[.)]$", first, re.DOTALL), first

    def test_names_options_alike(self, name: str) -> None:
        for word, parameter in options(name).items():
            if parameter.param_type_name == "option":
                assert re.fullmatch(r"--[a-z][a-z0-9-]*|-[a-z]", word), word
                assert parameter.help, f"{word} has no help"

    def test_shows_all_of_its_help(self, name: str) -> None:
        """Words in brackets are marks for rich, which leaves them out."""
        for text in (COMMANDS[name].help, *(getattr(one, "help", "") for one in options(name).values())):
            assert not re.search(r"(?<!\\)\[[a-z]+\]", text or ""), text

    def test_writes_sizes_and_durations_alike(self, name: str) -> None:
        """A size or a duration is text that ``amounts`` reads, never a bare number of some unit in its name."""
        for word, parameter in options(name).items():
            read = getattr(parameter, "metavar", None)
            if read in ("SIZE", "DURATION"):
                kind = parameter.type_descriptor
                assert kind.annotation in (str, str | None) or kind.parameter_info.parser is not None, word
            elif parameter.param_type_name == "option":
                assert not re.search(r"bytes|size|-kb|-mb|-gb|minutes|hours|-days|-ms\b", word), word


class Line:
    """Runs commands on one plane; nobody answers questions."""

    def __init__(self, home: Path) -> None:
        self.client = InMemoryClient(InMemoryPlane(shards=1))
        self._home = home

    def run(self, *words: str) -> Any:
        return CliRunner().invoke(app, list(words), obj=Session(self._home, self.client))


@pytest.fixture
def line(tmp_path: Path) -> Line:
    line = Line(tmp_path)
    for words in (
        "volume create vol1",
        "bucket create vol1/tree",
        "key put vol1/tree/a --size 1000",
        "snapshot create vol1/tree snap1",
        "key delete vol1/tree/a",
        "key put vol1/tree/b --size 500",
        "snapshot create vol1/tree snap2",
    ):
        assert line.run(*words.split()).exit_code == 0
    return line


class TestErrorsAsJson:
    def test_a_refusal_has_its_code(self, line: Line) -> None:
        result = line.run("bucket", "list", "none", "--json")
        error = json.loads(result.stderr)["error"]
        assert (result.exit_code, result.stdout) == (ExitStatus.FAILED, "")
        assert (error["code"], error["exit_status"]) == ("VOLUME_NOT_FOUND", ExitStatus.FAILED)
        assert "none" in error["message"]

    def test_a_mistake_of_usage_too(self, line: Line) -> None:
        for words in (["key", "list", "vol1"], ["key", "list"], ["snapshot", "nothing"], ["key", "list", "--none"]):
            result = line.run(*words, "--json")
            error = json.loads(result.stderr)["error"]
            assert (result.exit_code, error["code"]) == (ExitStatus.USAGE, "USAGE"), words
            assert error["message"]

    def test_without_json_it_stays_text(self, line: Line) -> None:
        result = line.run("bucket", "list", "none")
        assert result.stderr.startswith("VOLUME_NOT_FOUND: ")

    def test_no_plane_is_told_apart_from_a_refusal(self, tmp_path: Path) -> None:
        result = CliRunner().invoke(app, ["--home", str(tmp_path), "volume", "list", "--json"])
        assert json.loads(result.stderr)["error"]["code"] == "FAILED"


class TestConfirmation:
    def test_without_a_terminal_nothing_final_is_done_unasked(self, line: Line) -> None:
        result = line.run("snapshot", "delete", "vol1/tree", "snap1")
        assert result.exit_code == ExitStatus.NOT_CONFIRMED
        assert result.stderr.startswith("Deleting snap1 would free 1000 B, 1 version.")
        assert "--yes" in result.stderr
        assert [one["name"] for one in json.loads(line.run("snapshot", "list", "vol1/tree", "--json").stdout)] == [
            "snap1",
            "snap2",
        ]

    def test_a_dry_run_says_what_it_would_free_and_does_nothing(self, line: Line) -> None:
        result = line.run("snapshot", "delete", "vol1/tree", "snap1", "snap2", "--dry-run", "--json")
        assert json.loads(result.stdout)["freed_bytes"] == 1000
        assert len(json.loads(line.run("snapshot", "list", "vol1/tree", "--json").stdout)) == 2

    def test_several_snapshots_go_together(self, line: Line) -> None:
        result = line.run("snapshot", "delete", "vol1/tree", "snap1", "snap2", "--yes", "--json")
        assert [one["name"] for one in json.loads(result.stdout)["deleted"]] == ["snap1", "snap2"]
        assert json.loads(line.run("snapshot", "list", "vol1/tree", "--json").stdout) == []

    def test_a_rollback_names_the_snapshots_that_go(self, line: Line) -> None:
        result = line.run("snapshot", "rollback", "vol1/tree", "snap1")
        assert result.exit_code == ExitStatus.NOT_CONFIRMED
        assert "deletes the newer snapshots snap2" in result.stderr
        dry = json.loads(line.run("snapshot", "rollback", "vol1/tree", "snap1", "--dry-run", "--json").stdout)
        assert dry["deletes_snapshots"] == ["snap2"]
        missing = line.run("snapshot", "rollback", "vol1/tree", "none")
        assert missing.stderr.startswith("FILE_NOT_FOUND: ")

    def test_a_rollback_that_a_tag_forbids_is_refused_before_it_is_asked_for(self, line: Line) -> None:
        assert line.run("tag", "create", "vol1/tree", "snap2", "release").exit_code == 0
        refused = line.run("snapshot", "rollback", "vol1/tree", "snap1", "--dry-run")
        assert refused.stderr == "TAGGED_SNAPSHOT: snap2 would be deleted: release\n"
        both = line.run("snapshot", "rollback", "vol1/tree", "snap1", "--tag", "release")
        assert both.exit_code == ExitStatus.USAGE

    def test_what_was_deleted_before_a_refusal_is_told(self, line: Line) -> None:
        result = line.run("snapshot", "delete", "vol1/tree", "snap1", "none", "--yes", "--json")
        assert result.exit_code == ExitStatus.FAILED
        assert [one["name"] for one in json.loads(result.stdout)["deleted"]] == ["snap1"]
        assert json.loads(result.stderr)["error"]["code"] == "FILE_NOT_FOUND"

    @pytest.mark.parametrize(
        ("answer", "status"),
        [("y\n", ExitStatus.DONE), ("n\n", ExitStatus.NOT_CONFIRMED), ("", ExitStatus.NOT_CONFIRMED)],
    )
    def test_at_a_terminal_it_asks(
        self, line: Line, monkeypatch: pytest.MonkeyPatch, answer: str, status: ExitStatus
    ) -> None:
        monkeypatch.setattr("services.cli.confirmation.is_terminal", lambda: True)
        words = ["snapshot", "delete", "vol1/tree", "snap1"]
        result = CliRunner().invoke(app, words, obj=Session(Path(), line.client), input=answer)
        assert result.exit_code == status, result.output
        assert "would free 1000 B, 1 version. Continue?" in result.stderr
        left = json.loads(line.run("snapshot", "list", "vol1/tree", "--json").stdout)
        assert ("snap1" in [one["name"] for one in left]) is (status is ExitStatus.NOT_CONFIRMED)
