"""``deepclean snapshot rollback`` and ``deepclean restore`` over a plane in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_command_line import CommandLine


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """A tree with three snapshots: ``dir/k`` grows, and is gone by now."""
    line = CommandLine(tmp_path, 1)
    line.run("volume", "create", "vol1")
    line.run("bucket", "create", "vol1/tree")
    for number in range(1, 4):
        line.run("key", "put", "vol1/tree/dir/k", "--size", str(1000 * number), "--tag", f"v{number}")
        line.run("key", "put", f"vol1/tree/dir/below/k{number}", "--size", "10")
        line.run("snapshot", "create", "vol1/tree", f"snap{number}")
    line.run("dir", "delete", "vol1/tree/dir", "--recursive")
    return line


def keys(line: CommandLine) -> dict[str, str]:
    return {row["path"]: row["tag"] for row in line.json("key", "list", "vol1/tree")}


def snapshots(line: CommandLine) -> list[str]:
    return [row["name"] for row in line.json("snapshot", "list", "vol1/tree")]


def test_a_rollback_brings_the_names_back_and_drops_newer_snapshots(line: CommandLine) -> None:
    assert keys(line) == {}
    assert line.run("snapshot", "rollback", "--yes", "vol1/tree", "snap2").startswith(
        "tree has the content of snap2 again"
    )
    assert keys(line) == {"dir/below/k1": "", "dir/below/k2": "", "dir/k": "v2"}
    assert snapshots(line) == ["snap1", "snap2"]
    line.run("key", "put", "vol1/tree/dir/k", "--size", "5")  # the fence is gone
    assert line.json("snapshot", "rollback", "--yes", "vol1/tree", "snap2")["name"] == "snap2"
    assert keys(line)["dir/k"] == "v2"


def test_a_tag_names_a_snapshot_and_holds_those_that_would_go(line: CommandLine) -> None:
    line.run("tag", "create", "vol1/tree", "snap3", "release")
    refused = line.run("snapshot", "rollback", "--yes", "vol1/tree", "snap1", status=1)
    assert refused.startswith("TAGGED_SNAPSHOT: snapshot snap3 is kept by a tag: release")
    assert snapshots(line) == ["snap1", "snap2", "snap3"]
    line.run("snapshot", "rollback", "--yes", "vol1/tree", "--tag", "release")
    assert keys(line)["dir/k"] == "v3"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("none",), "FILE_NOT_FOUND"),
        (("--tag", "none"), "FILE_NOT_FOUND"),
    ],
)
def test_what_cannot_be_rolled_back_to(line: CommandLine, arguments: tuple[str, ...], code: str) -> None:
    assert line.run("snapshot", "rollback", "--yes", "vol1/tree", *arguments, status=1).startswith(f"{code}: ")
    assert len(snapshots(line)) == 3


@pytest.mark.parametrize("arguments", [(), ("snap1", "--tag", "release")])
def test_one_place_to_roll_back_to_is_named(line: CommandLine, arguments: tuple[str, ...]) -> None:
    assert "a snapshot or" in line.run("snapshot", "rollback", "--yes", "vol1/tree", *arguments, status=2)


def test_a_key_and_a_tree_are_restored_with_blocks_of_their_own(line: CommandLine) -> None:
    output = line.run("restore", "vol1/tree/dir/k", "--from", "snap1")
    assert output.startswith("1 key (1000 B) and 0 directories of dir/k are back from snap1")
    assert keys(line) == {"dir/k": "v1"}
    restored = line.json("restore", "vol1/tree/dir", "--from", "snap2", "--to", "old/dir")
    assert restored == {"keys": 3, "directories": 2, "size_bytes": 2020}
    assert keys(line) == {"dir/k": "v1", "old/dir/below/k1": "", "old/dir/below/k2": "", "old/dir/k": "v2"}
    now = line.json("key", "stat", "vol1/tree/dir/k")["blocks"]
    then = line.json("key", "stat", "vol1/tree/dir/k", "--snapshot", "snap1")["blocks"]
    assert now["first_local_id"] != then["first_local_id"]
    assert line.run("restore", "vol1/tree/none", "--from", "snap1", status=1).startswith("KEY_NOT_FOUND: ")
    assert line.run("restore", "vol1/tree/dir/k", "--from", "none", status=1).startswith("FILE_NOT_FOUND: ")
