"""``deepclean bucket versioning``, ``key versions``, ``key delete --version`` and undeletes of versions, in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from tests.unit.test_command_line import CommandLine

KEY = "vol1/tree/dir/k"


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """A bucket that keeps versions, with three of one key, and an undo window."""
    line = CommandLine(tmp_path, 1)
    line.client = InMemoryClient(InMemoryPlane(undo_window_ms=60_000))
    line.run("volume", "create", "vol1")
    line.run("bucket", "create", "vol1/tree")
    assert "versioning of vol1/tree is enabled" in line.run("bucket", "versioning", "vol1/tree", "enabled")
    for size in (1, 2, 3):
        line.run("key", "put", KEY, "--size", str(size), "--tag", f"v{size}")
    return line


def versions(line: CommandLine, *options: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = line.json("key", "versions", KEY, *options)
    return rows


def tags(line: CommandLine, *options: str) -> list[str]:
    return [row["tag"] for row in versions(line, *options)]


def test_versions_are_listed_newest_first(line: CommandLine) -> None:
    assert [(row["tag"], row["is_current"]) for row in versions(line)] == [("v3", True), ("v2", False), ("v1", False)]
    text = line.run("key", "versions", KEY)
    assert ("noncurrent" in text, "CURRENT" in text) == (True, False)
    assert "versioning" in line.run("bucket", "info", "vol1/tree")


def test_one_version_is_shown_and_deleted(line: CommandLine) -> None:
    line.run("snapshot", "create", "vol1/tree", "snap")
    chosen = str(versions(line)[1]["version"])
    assert line.json("key", "stat", KEY, "--version", chosen)["tag"] == "v2"
    line.run("key", "delete", KEY, "--version", chosen)
    assert tags(line) == ["v3", "v1"]
    assert tags(line, "--snapshot", "snap") == ["v3", "v2", "v1"]
    assert line.json("key", "stat", KEY, "--version", chosen, "--snapshot", "snap")["size_bytes"] == 2
    assert "KEY_NOT_FOUND" in line.run("key", "stat", KEY, "--version", chosen, status=1)
    assert "name one key" in line.run("key", "delete", KEY, KEY, "--version", chosen, status=2)


def test_a_deleted_key_comes_back_with_its_versions(line: CommandLine) -> None:
    line.run("key", "delete", KEY)
    assert [row["tag"] for row in line.json("deleted", "list", "vol1/tree")] != []
    line.run("undelete", KEY)
    assert tags(line) == ["v3", "v2", "v1"]
    assert line.json("deleted", "list", "vol1/tree") == []


def test_a_deleted_version_comes_back_to_its_key(line: CommandLine) -> None:
    line.run("key", "delete", KEY, "--version", str(versions(line)[2]["version"]))
    (row,) = line.json("deleted", "list", "vol1/tree")
    assert (row["returning"], row["version_of"] != 0) == ("ITSELF", True)
    line.run("undelete", KEY)
    assert tags(line) == ["v3", "v2", "v1"]


def test_files_of_an_expanded_directory_come_back_with_their_versions(line: CommandLine) -> None:
    line.run("snapshot", "create", "vol1/tree", "snap")
    line.run("dir", "delete", "vol1/tree/dir", "--recursive")
    plane = line.client.plane
    for _ in range(5):
        plane.clock.advance(60_000)
        while plane.step():
            pass
    line.run("undelete", "vol1/tree/dir", "--files")
    assert tags(line) == ["v3", "v2", "v1"]


def test_explain_shows_where_each_version_is(line: CommandLine) -> None:
    line.run("snapshot", "create", "vol1/tree", "snap")
    line.run("key", "delete", KEY, "--version", str(versions(line)[1]["version"]))
    line.run("key", "rename", KEY, "dir/moved")
    found = line.json("explain", KEY)["versions"]
    assert [(one["tag"], one["stage"]) for one in found] == [("v1", "LIVE"), ("v2", "HELD"), ("v3", "LIVE")]
    block = line.json("key", "stat", "vol1/tree/dir/moved", "--version", str(found[0]["birth"]))["blocks"]
    owner = line.json("explain", str(block["first_local_id"]))
    assert (owner["path"], owner["version"]["tag"]) == ("dir/moved", "v1")
