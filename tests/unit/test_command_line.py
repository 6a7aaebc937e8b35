"""The deepclean command over a plane in memory: what it prints, and that every error is one line."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from services.cli.lazy import loaded_commands
from services.cli.main import SUB_COMMANDS, app
from services.cli.session import Session
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane


class CommandLine:
    """Runs commands one after the other on one plane."""

    def __init__(self, home: Path, shards: int) -> None:
        self.client = InMemoryClient(InMemoryPlane(shards=shards))
        self._home = home

    def run(self, *words: str, status: int = 0) -> str:
        """What a command prints, on standard output or, when it fails, on standard error."""
        result = CliRunner().invoke(app, list(words), obj=Session(self._home, self.client))
        assert result.exit_code == status, result.output
        return result.stdout if status == 0 else result.stderr

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, 1)


@pytest.fixture
def tree(line: CommandLine) -> CommandLine:
    """A plane with one bucket of two keys."""
    line.run("volume", "create", "vol1")
    line.run("bucket", "create", "vol1/tree")
    line.run("key", "put", "/vol1/tree/a/b/one", "--size", "1000", "--tag", "first")
    line.run("key", "put", "vol1/tree/two", "--size", "2048")
    return line


def test_keys_and_directories_are_listed_apart(tree: CommandLine) -> None:
    assert [(key["path"], key["size_bytes"], key["tag"]) for key in tree.json("key", "list", "vol1/tree")] == [
        ("a/b/one", 1000, "first"),
        ("two", 2048, ""),
    ]
    assert [entry["path"] for entry in tree.json("dir", "list", "vol1/tree")] == ["a", "a/b"]
    assert "2.0 KiB" in tree.run("key", "list", "vol1/tree", "--prefix", "two")


def test_a_listing_goes_on_behind_a_path_and_ends_at_its_limit(tree: CommandLine) -> None:
    for number in range(5):
        tree.run("key", "put", f"vol1/tree/numbered/{number}", "--size", "1")
    paths = [
        key["path"] for key in tree.json("key", "list", "vol1/tree", "--start-after", "numbered/1", "--limit", "2")
    ]
    assert paths == ["numbered/2", "numbered/3"]


def test_a_snapshot_shows_what_was(tree: CommandLine) -> None:
    tree.run("snapshot", "create", "vol1/tree", "before")
    tree.run("key", "delete", "vol1/tree/two")
    tree.run("dir", "rename", "vol1/tree/a", "moved")
    assert [key["path"] for key in tree.json("key", "list", "vol1/tree")] == ["moved/b/one"]
    held = tree.json("key", "list", "vol1/tree", "--snapshot", "before")
    assert [key["path"] for key in held] == ["a/b/one", "two"]
    assert tree.json("key", "stat", "vol1/tree/two", "--snapshot", "before")["size_bytes"] == 2048
    listed = tree.json("snapshot", "list", "vol1/tree")
    assert [(row["name"], row["referenced_bytes"]) for row in listed] == [("before", 3048)]
    assert tree.json("snapshot", "info", "vol1/tree", "before") == listed[0]
    assert tree.json("bucket", "info", "vol1/tree")["space"]["held_bytes"] == 2048
    assert "held" in tree.run("bucket", "info", "vol1/tree")
    tree.run("snapshot", "delete", "--yes", "vol1/tree", "before")
    assert tree.json("snapshot", "list", "vol1/tree") == []


def test_snapshots_are_compared(tree: CommandLine) -> None:
    tree.run("snapshot", "create", "vol1/tree", "before")
    tree.run("key", "put", "vol1/tree/two", "--size", "1")
    tree.run("dir", "rename", "vol1/tree/a", "moved")
    tree.run("key", "put", "vol1/tree/three", "--size", "1")
    tree.run("snapshot", "create", "vol1/tree", "after")
    tree.run("key", "delete", "vol1/tree/two")
    assert tree.run("snapshot", "diff", "vol1/tree", "before", "after") == "R a → moved\n+ three\nM two\n"
    assert tree.run("snapshot", "diff", "vol1/tree", "after") == "- two\n"
    assert tree.run("snapshot", "diff", "vol1/tree", "active", "active") == ""
    assert tree.json("snapshot", "diff", "vol1/tree", "after", "before") == [
        {"kind": "-", "path": "three", "old_path": ""},
        {"kind": "R", "path": "a", "old_path": "moved"},
        {"kind": "M", "path": "two", "old_path": ""},
    ]
    jobs = tree.json("snapshot", "diffs", "vol1/tree")
    assert [(job["status"], job["entry_count"], job["way"]) for job in jobs] == [
        ("DONE", 3, "direct"), ("DONE", 1, "direct"), ("DONE", 0, "direct"), ("DONE", 3, "direct"),
    ]  # fmt: skip
    assert "active" in tree.run("snapshot", "diffs", "vol1/tree")
    refused = tree.run("snapshot", "cancel-diff", "vol1/tree", jobs[0]["job_id"], status=1)
    assert refused.startswith("DIFF_NOT_DONE: ")


def test_many_keys_are_deleted_at_once_and_what_is_left_is_named(tree: CommandLine, tmp_path: Path) -> None:
    tree.run("bucket", "create", "vol1/other", "--layout", "OBJECT_STORE")
    for number in range(3):
        tree.run("key", "put", f"vol1/other/k{number}", "--size", "1")
    assert tree.run("key", "delete", "vol1/tree/two", "vol1/other/k0") == "2 keys deleted, 0 left\n"
    file = tmp_path / "keys"
    file.write_text("vol1/tree/a/b/one\n\nvol1/other/none\nvol1/other/k1\nvol1/none/k\nvol1/tree/a\n")
    left = tree.run("key", "delete", "vol1/other/k2", "--from-file", str(file), status=1)
    assert left.splitlines() == [
        "KEY_NOT_FOUND: vol1/other/none", "BUCKET_NOT_FOUND: vol1/none/k", "DIRECTORY_NOT_EMPTY: vol1/tree/a",
    ]  # fmt: skip
    assert [tree.json("key", "list", f"vol1/{bucket}") for bucket in ("tree", "other")] == [[], []]
    tree.run("key", "put", "vol1/other/k4", "--size", "1")
    file.write_text("vol1/other/k4\nno-path\n")
    assert "'no-path' is not VOLUME/BUCKET/PATH" in tree.run("key", "delete", "--from-file", str(file), status=2)
    assert [key["path"] for key in tree.json("key", "list", "vol1/other")] == ["k4"], "nothing is deleted then"
    file.write_text("")
    assert tree.json("key", "delete", "--from-file", str(file)) == {"deleted": 0, "last_txn": 0, "left": []}
    assert "--from-file" in tree.run("key", "delete", status=2)


def test_more_keys_than_fit_a_command_go_in_several(tree: CommandLine, tmp_path: Path) -> None:
    tree.run("key", "put", "vol1/tree/last", "--size", "1")
    file = tmp_path / "keys"
    file.write_text("\n".join(["vol1/tree/two", *(f"vol1/tree/none-{n}" for n in range(1_500)), "vol1/tree/last"]))
    left = tree.run("key", "delete", "--from-file", str(file), status=1)
    assert left.count("KEY_NOT_FOUND: vol1/tree/none-") == 1_500
    assert [key["path"] for key in tree.json("key", "list", "vol1/tree")] == ["a/b/one"]


def test_a_new_path_may_name_its_bucket(tree: CommandLine) -> None:
    tree.run("key", "rename", "vol1/tree/two", "vol1/tree/three")
    tree.run("dir", "rename", "vol1/tree/a/b", "/vol1/tree/a/c/")
    assert [key["path"] for key in tree.json("key", "list", "vol1/tree")] == ["a/c/one", "three"]


def test_everything_that_was_made_can_be_removed(tree: CommandLine) -> None:
    tree.run("key", "rename", "vol1/tree/two", "three")
    tree.run("key", "delete", "vol1/tree/three")
    tree.run("dir", "make", "vol1/tree/c")
    tree.run("dir", "delete", "vol1/tree/c", "--no-recursive")
    tree.run("dir", "delete", "vol1/tree/a")
    assert [row["bucket"] for row in tree.json("bucket", "list", "vol1")] == ["tree"]
    tree.run("bucket", "delete", "vol1/tree")
    tree.run("volume", "delete", "vol1")
    assert tree.json("volume", "list") == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["bucket", "create", "none/bucket"], "VOLUME_NOT_FOUND"),
        (["volume", "create", "vol1"], "VOLUME_ALREADY_EXISTS"),
        (["volume", "create", "No"], "INVALID_VOLUME_NAME"),
        (["key", "delete", "vol1/tree/none"], "KEY_NOT_FOUND"),
        (["key", "list", "vol1/none"], "BUCKET_NOT_FOUND"),
        (["key", "stat", "vol1/tree/two", "--snapshot", "none"], "FILE_NOT_FOUND"),
        (["dir", "delete", "vol1/tree/a", "--no-recursive"], "DIRECTORY_NOT_EMPTY"),
        (["bucket", "delete", "vol1/tree"], "BUCKET_NOT_EMPTY"),
        (["snapshot", "create", "vol1/none", "name"], "BUCKET_NOT_FOUND"),
        (["snapshot", "list", "vol1/none"], "BUCKET_NOT_FOUND"),
        (["snapshot", "delete", "--yes", "vol1/tree", "none"], "FILE_NOT_FOUND"),
        (["snapshot", "diff", "vol1/tree", "none"], "FILE_NOT_FOUND"),
        (["snapshot", "diff", "vol1/none", "active"], "BUCKET_NOT_FOUND"),
        (["snapshot", "cancel-diff", "vol1/tree", "none"], "DIFF_NOT_FOUND"),
    ],
)
def test_a_refusal_is_one_line_with_its_code(tree: CommandLine, words: list[str], code: str) -> None:
    printed = tree.run(*words, status=1)
    assert printed.startswith(f"{code}: ")
    assert printed.count("\n") == 1


@pytest.mark.parametrize("path", ["vol1", "vol1/", "vol1/tree/key", "//tree"])
def test_a_path_that_names_no_bucket_is_a_mistake_of_usage(line: CommandLine, path: str) -> None:
    assert "is not VOLUME/BUCKET" in line.run("key", "list", path, status=2)


def test_without_a_plane_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--home", str(tmp_path), "volume", "list"])
    assert result.exit_code == 1
    assert result.stderr == f"No plane runs on {tmp_path}: start one (deepclean up), or set another home (--home).\n"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["key", "put", "vol1/tree/k", "--size", "9" * 20], 2, "is too large"),
        (["space", "plan", "vol1/tree", "--free", "9" * 5_000], 2, "is too large"),
        (["space", "plan", "vol1/tree", "--free", "9" * 19], 2, "is too large"),
        (["tag", "create", "vol1/tree", "s", "t", "--time-to-live", "9" * 400 + "d"], 2, "is too long"),
        (["explain", "9" * 5_000], 2, "is not a block"),
    ],
    ids=lambda value: "_".join(value[:2]) if isinstance(value, list) else None,
)
def test_a_figure_that_is_too_large_is_refused(tree: CommandLine, words: list[str], status: int, said: str) -> None:
    assert said in " ".join(tree.run(*words, status=status).replace("│", " ").split())


def test_a_limit_beyond_all_rows_lists_them_all(tree: CommandLine) -> None:
    assert tree.json("dead-letters", "list", "--limit", "9" * 20)["letters"] == []


def test_a_name_that_is_not_utf_8_is_refused_in_one_line(tree: CommandLine, tmp_path: Path) -> None:
    assert tree.run("bucket", "list", "vol\udcff", status=1) == "/vol\\udcff/ is not UTF-8\n"
    keys = tmp_path / "keys"
    keys.write_bytes(b"vol1/tree/two\n\xff\n")
    assert tree.run("key", "delete", "--from-file", str(keys), status=1).endswith(" is not UTF-8\n")
    assert [key["path"] for key in tree.json("key", "list", "vol1/tree")] == ["a/b/one", "two"]


def test_what_the_system_refuses_is_one_line(line: CommandLine) -> None:
    assert line.run("git", "x" * 300, status=1) == f"File name too long: {'x' * 300}\n"


def test_a_shard_that_the_plane_does_not_have_is_refused(tree: CommandLine) -> None:
    assert tree.run("dead-letters", "show", "7:1", status=1).startswith("WRONG_SHARD: ")


def test_a_volume_is_found_in_whichever_shard_it_is(tmp_path: Path) -> None:
    line = CommandLine(tmp_path, 2)
    made = {name: line.json("volume", "create", name)["shard"] for name in ("vol-a", "vol-b", "vol-c", "vol-d")}
    made["vol-e"] = line.json("volume", "create", "vol-e", "--shard", "1")["shard"]
    assert set(made.values()) == {0, 1}
    assert made["vol-e"] == 1
    assert {row["volume"]: row["shard"] for row in line.json("volume", "list")} == made
    for name in made:
        line.run("bucket", "create", f"{name}/bucket", "--layout", "OBS")
        line.run("key", "put", f"{name}/bucket/key", "--size", "1")
    assert line.run("volume", "create", "vol-e", "--shard", "0", status=1).startswith("VOLUME_ALREADY_EXISTS: ")
    assert line.run("volume", "create", "other", "--shard", "2", status=1).startswith("INVALID_REQUEST: ")
    assert line.run("bucket", "list", "none", status=1).startswith("VOLUME_NOT_FOUND: ")


def test_no_line_of_a_table_or_record_ends_in_blanks(tree: CommandLine) -> None:
    """Where programs and files take it, that is; on a terminal nobody sees them."""
    for words in (("key", "list", "vol1/tree"), ("bucket", "info", "vol1/tree"), ("gc", "status")):
        printed = tree.run(*words)
        assert printed.splitlines() == [line.rstrip() for line in printed.splitlines()]


def test_the_listing_says_what_each_command_says_of_itself() -> None:
    entries = [one for group in SUB_COMMANDS.values() for one in group]
    for entry, (name, command) in zip(entries, loaded_commands(typer.main.get_command(app)), strict=True):
        said = inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ")
        assert (entry.name, entry.summary) == (name, said)


def test_the_listing_is_shown_without_what_commands_import() -> None:
    """The command starts as fast as what it prints with: modules are counted, since times depend on the machine."""
    loads = "import sys; sys.argv = ['deepclean', '--help']\n{}\nprint(len(sys.modules), *sorted(sys.modules))"
    shown = "from services.cli.main import app\ntry: app()\nexcept SystemExit: pass"
    words = subprocess.check_output([sys.executable, "-c", loads.format(shown)], text=True).splitlines()[-1].split()
    alone = subprocess.check_output([sys.executable, "-c", loads.format("import typer, rich.console")], text=True)
    assert not {"pydantic", "confluent_kafka", "rocksdict", "pyspark", "httpx", "schemas.records"} & set(words)
    assert int(words[0]) < 2 * int(alone.split()[0])
