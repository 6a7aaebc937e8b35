"""``deepclean undelete`` and ``deepclean deleted list`` over a plane in memory with an undo window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.stack.settings import UNDO_WINDOW_MS, undo_window_settings
from tests.unit.test_command_line import CommandLine

WINDOW_MS = 60_000


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """A tree of three files, and a window of a minute."""
    line = CommandLine(tmp_path, 1)
    line.client = InMemoryClient(InMemoryPlane(undo_window_ms=WINDOW_MS))
    line.run("volume", "create", "vol1")
    line.run("bucket", "create", "vol1/tree")
    for name, size in (("top", 5), ("dir/one", 10), ("dir/below/two", 20)):
        line.run("key", "put", f"vol1/tree/{name}", "--size", str(size), "--tag", name)
    return line


def keys(line: CommandLine) -> dict[str, str]:
    return {row["path"]: row["tag"] for row in line.json("key", "list", "vol1/tree")}


def deleted(line: CommandLine) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = line.json("deleted", "list", "vol1/tree")
    return rows


def let_windows_end(line: CommandLine) -> None:
    """The window ends, and all that was waiting for it is done."""
    plane = line.client.plane
    for _ in range(5):
        plane.clock.advance(WINDOW_MS)
        while plane.step():
            pass


def test_a_key_comes_back_with_its_id_and_its_blocks(line: CommandLine) -> None:
    before = line.json("key", "stat", "vol1/tree/dir/one")
    line.run("key", "delete", "vol1/tree/dir/one")
    assert "dir/one" not in keys(line)
    assert "dir/one is back, as objectID" in line.run("undelete", "vol1/tree/dir/one")
    after = line.json("key", "stat", "vol1/tree/dir/one")
    same = ("object_id", "birth", "blocks", "tag", "creation_time_ms")
    assert [after[name] for name in same] == [before[name] for name in same]
    assert deleted(line) == []


def test_a_directory_comes_back_whole(line: CommandLine) -> None:
    before = keys(line)
    line.run("dir", "delete", "vol1/tree/dir", "--recursive")
    assert keys(line) == {"top": "top"}
    line.run("undelete", "vol1/tree/dir")
    assert keys(line) == before
    let_windows_end(line)
    assert keys(line) == before
    space = line.client.metadata(0).space("vol1", "tree")
    assert (space.live_bytes, space.live_namespace, space.unexpanded_directories) == (35, 5, 0)


def test_it_is_too_late_after_the_window(line: CommandLine) -> None:
    line.run("key", "delete", "vol1/tree/top")
    let_windows_end(line)
    assert line.run("undelete", "vol1/tree/top", status=1).startswith("TOO_LATE: ")


def test_an_overwritten_version_comes_back_somewhere_else_as_a_new_object(line: CommandLine) -> None:
    old = line.json("key", "stat", "vol1/tree/top")
    line.run("key", "put", "vol1/tree/top", "--size", "7", "--tag", "newer")
    assert line.run("undelete", "vol1/tree/top", status=1).startswith("FILE_ALREADY_EXISTS: ")
    assert "a new object with the same blocks" in line.run("undelete", "vol1/tree/top", "--to", "old/top")
    back = line.json("key", "stat", "vol1/tree/old/top")
    assert back["blocks"] == old["blocks"]
    assert back["object_id"] != old["object_id"]
    assert keys(line)["top"] == "newer"


def test_one_of_several_deletions_is_chosen_by_its_death(line: CommandLine) -> None:
    line.run("key", "delete", "vol1/tree/top")
    first = deleted(line)[0]["death"]
    line.run("key", "put", "vol1/tree/top", "--size", "7", "--tag", "newer")
    line.run("key", "delete", "vol1/tree/top")
    line.run("undelete", "vol1/tree/top", "--death", str(first))
    assert keys(line)["top"] == "top"
    line.run("undelete", "vol1/tree/top", "--to", "vol1/tree/other")
    assert keys(line)["other"] == "newer"


def test_what_a_snapshot_holds_is_restored_at_any_time_unless_another_was_created_since(line: CommandLine) -> None:
    line.run("snapshot", "create", "vol1/tree", "before")
    line.run("key", "delete", "vol1/tree/top")
    let_windows_end(line)
    (row,) = deleted(line)
    assert (row["is_held"], row["until_ms"], row["returning"]) == (True, -1, "ITSELF")
    line.run("snapshot", "create", "vol1/tree", "after")
    assert deleted(line)[0]["returning"] == "ONLY_A_COPY"
    refused = line.run("undelete", "vol1/tree/top", status=1)
    assert refused.startswith("SNAPSHOT_IN_BETWEEN: ")
    assert "(deepclean restore vol1/tree/top --from before)" in refused, "after does not show it"
    line.run("snapshot", "delete", "--yes", "vol1/tree", "after")
    line.run("undelete", "vol1/tree/top")
    assert keys(line)["top"] == "top"


def test_a_refusal_names_the_snapshot_that_shows_the_path_and_no_other(line: CommandLine) -> None:
    line.run("snapshot", "create", "vol1/tree", "before")
    line.run("key", "delete", "vol1/tree/top")
    line.run("snapshot", "create", "vol1/tree", "after")
    elsewhere = line.run("undelete", "vol1/tree/top", "--to", "new place", status=1)
    assert "(deepclean restore vol1/tree/top --from before --to 'new place')" in elsewhere
    line.run("key", "put", "vol1/tree/top", "--size", "9", "--tag", "newer")
    line.run("snapshot", "create", "vol1/tree", "of-the-newer-one")
    elsewhere = line.run("undelete", "vol1/tree/top", "--to", "new place", status=1)
    assert "(deepclean restore vol1/tree/top --from before --to 'new place')" in elsewhere
    line.run("key", "put", "vol1/tree/other", "--size", "7")
    line.run("key", "delete", "vol1/tree/other")
    line.run("key", "put", "vol1/tree/other", "--size", "8")
    in_use = line.run("undelete", "vol1/tree/other", status=1)
    assert in_use.startswith("FILE_ALREADY_EXISTS: ")
    assert "restore" not in in_use


def test_the_files_of_an_expanded_directory_come_back_one_by_one(line: CommandLine) -> None:
    line.run("snapshot", "create", "vol1/tree", "before")
    line.run("dir", "delete", "vol1/tree/dir", "--recursive")
    let_windows_end(line)
    assert {(row["path"], row["returning"]) for row in deleted(line)} == {
        ("dir", "ONLY_ITS_FILES"),
        ("dir/below", "ONLY_ITS_FILES"),
        ("dir/one", "ITSELF"),
        ("dir/below/two", "ITSELF"),
    }
    assert line.run("undelete", "vol1/tree/dir", status=1).startswith("DIRECTORY_EXPANDED: ")
    done = line.json("undelete", "vol1/tree/dir", "--files", "--to", "again")
    assert [one["path"] for one in done["returned"]] == ["again/below/two", "again/one"]
    assert keys(line) == {"again/below/two": "dir/below/two", "again/one": "dir/one", "top": "top"}


def test_a_refused_file_keeps_no_other_one_back(line: CommandLine) -> None:
    line.run("snapshot", "create", "vol1/tree", "before")
    line.run("dir", "delete", "vol1/tree/dir", "--recursive")
    let_windows_end(line)
    line.run("key", "put", "vol1/tree/dir/one", "--size", "1", "--tag", "newer")
    assert line.run("undelete", "vol1/tree/dir", "--files", status=1).startswith("FILE_ALREADY_EXISTS: ")
    assert keys(line) == {"dir/below/two": "dir/below/two", "dir/one": "newer", "top": "top"}


def test_the_listing_says_until_when(line: CommandLine) -> None:
    line.run("key", "delete", "vol1/tree/dir/below/two")
    line.run("dir", "delete", "vol1/tree/dir/below")
    line.run("key", "delete", "vol1/tree/top")
    rows = deleted(line)
    # The directory of the first one died later, and by itself: it is in no path that can be told.
    assert [(row["path"], row["name"], row["kind"], row["size_bytes"]) for row in rows] == [
        ("", "two", "KEY", 20),
        ("dir/below", "below", "DIRECTORY", 0),
        ("top", "top", "KEY", 5),
    ]
    assert all(row["until_ms"] == row["deletion_time_ms"] + WINDOW_MS for row in rows)
    shown = line.run("deleted", "list", "vol1/tree").splitlines()
    assert shown[0].split()[:3] == ["PATH", "KIND", "SIZE"]
    assert len(shown) == 4
    behind = f"{rows[0]['death']}:{rows[0]['object_id']}"
    page = line.json("deleted", "list", "vol1/tree", "--start-after", behind, "--limit", "1")
    assert [row["path"] for row in page] == ["dir/below"]


def test_nothing_is_left_for_paths_that_never_were(line: CommandLine) -> None:
    assert line.run("undelete", "vol1/tree/none", status=1).startswith("TOO_LATE: ")
    assert line.run("undelete", "vol1/none/x", status=1).startswith("BUCKET_NOT_FOUND: ")
    assert "no file below none" in line.run("undelete", "vol1/tree/none", "--files")


def test_flat_keys_come_back_under_their_whole_name(line: CommandLine) -> None:
    line.run("bucket", "create", "vol1/flat", "--layout", "OBS")
    line.run("key", "put", "vol1/flat/a/b", "--size", "3")
    line.run("key", "delete", "vol1/flat/a/b")
    assert line.json("deleted", "list", "vol1/flat")[0]["path"] == "a/b"
    line.run("undelete", "vol1/flat/a/b")
    assert [row["path"] for row in line.json("key", "list", "vol1/flat")] == ["a/b"]


def test_a_plane_that_stays_has_a_window_unless_its_environment_says_otherwise() -> None:
    names = {f"DEEPCLEAN_{service}_UNDO_WINDOW_MS" for service in ("KEY_DELETION", "DIRECTORY_DELETION", "METADATA")}
    assert undo_window_settings({}) == dict.fromkeys(names, str(UNDO_WINDOW_MS))
    chosen = "DEEPCLEAN_KEY_DELETION_UNDO_WINDOW_MS"
    assert undo_window_settings({chosen: "0"}) == dict.fromkeys(names - {chosen}, str(UNDO_WINDOW_MS))
