"""deepclean space and explain over a plane in memory: the figures, the words, the refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from schemas.records import Settle
from schemas.space_answers import VersionStage
from services.cli.amounts import parse_size
from services.cli.main import app
from services.cli.session import Session
from services.domain.table_keys import local_id
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.wording.space import goes_when


class CommandLine:
    """Runs commands one after the other on one plane."""

    def __init__(self, home: Path) -> None:
        self.client = InMemoryClient(InMemoryPlane(shards=2))
        self._home = home
        self.shard = 0

    def run(self, *words: str, status: int = 0) -> str:
        result = CliRunner().invoke(app, list(words), obj=Session(self._home, self.client))
        assert result.exit_code == status, result.output
        return result.stdout if status == 0 else result.stderr

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def settle(self) -> None:
        for shard in range(2):
            assert not self.client.request(shard, Settle(f"now-{shard}")).error


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """Three snapshots: s1 and s2 hold `old` together, s2 alone holds the first version of `new`; s3 is like now."""
    line = CommandLine(tmp_path)
    line.run("volume", "create", "first")
    line.shard = line.json("volume", "create", "vol1", "--shard", "1")["shard"]
    line.run("bucket", "create", "vol1/tree")
    line.run("key", "put", "vol1/tree/d/old", "--size", "1000")
    line.run("key", "put", "vol1/tree/d/kept", "--size", "7")
    line.run("snapshot", "create", "vol1/tree", "s-one")
    line.run("key", "put", "vol1/tree/d/new", "--size", "200")
    line.run("snapshot", "create", "vol1/tree", "s-two")
    line.run("key", "put", "vol1/tree/d/new", "--size", "30")
    line.run("key", "delete", "vol1/tree/d/old")
    line.run("snapshot", "create", "vol1/tree", "s-three")
    return line


def test_a_bucket_is_shown_with_what_its_snapshots_share(line: CommandLine) -> None:
    shown = line.json("space", "vol1/tree")
    assert (shown["live_bytes"], shown["held_bytes"], shown["accounted_bytes"]) == (37, 1200, 1237)
    assert shown["snapshots_txn"] == shown["txn"]
    figures = ("name", "referenced_bytes", "exclusive_bytes", "shared_with_previous_bytes", "shared_with_next_bytes")
    assert [tuple(row[figure] for figure in figures) for row in shown["snapshots"]] == [
        ("s-one", 1007, 0, 0, 1007),
        ("s-two", 1207, 200, 1007, 7),
        ("s-three", 37, 0, 7, 37),
    ]
    assert line.client.scm(line.shard).totals().inventory_bytes <= shown["accounted_bytes"]
    line.settle()
    assert line.client.scm(line.shard).totals().inventory_bytes == line.json("space", "vol1/tree")["accounted_bytes"]
    printed = line.run("space", "vol1/tree")
    assert "in the store" in printed
    assert "s-three" in printed
    assert line.run("space", "show", "vol1/tree") == printed
    assert line.run("space", "--json", "vol1/tree").startswith("{")


def test_a_what_if_accepts_any_set(line: CommandLine) -> None:
    assert line.json("space", "what-if", "vol1/tree", "s-two")["freed_bytes"] == 200
    both = line.json("space", "what-if", "vol1/tree", "s-two", "s-one")
    assert (both["freed_bytes"], both["freed_versions"], both["is_exact"]) == (1200, 2, True)
    assert "1.2 KiB, 2 versions" in line.run("space", "what-if", "vol1/tree", "s-one", "s-two", "s-three")
    assert line.run("space", "what-if", "vol1/tree", "none", status=1).startswith("FILE_NOT_FOUND: ")
    assert line.run("space", "what-if", "vol1/none", "s-one", status=1).startswith("BUCKET_NOT_FOUND: ")


def test_a_snapshot_that_is_being_deleted_counts_no_more(line: CommandLine) -> None:
    """Between the answer to a delete and the drop it has no name, and metadata still counts it."""
    line.run("snapshot", "delete", "--yes", "vol1/tree", "s-two")
    assert line.json("space", "what-if", "vol1/tree", "s-one")["freed_bytes"] == 1000
    assert line.run("space", "what-if", "vol1/tree", "s-two", status=1).startswith("FILE_NOT_FOUND: ")
    assert line.json("space", "plan", "vol1/tree", "--free", "1")["snapshots"] == ["s-one"]
    assert line.json("explain", "vol1/tree/d/old")["held_by"] == ["s-one"]
    assert "being deleted" in line.run("space", "vol1/tree")


def test_a_plan_names_the_fewest(line: CommandLine) -> None:
    assert line.json("space", "plan", "vol1/tree", "--free", "200")["snapshots"] == ["s-two"]
    plan = line.json("space", "plan", "vol1/tree", "--free", "1KB")
    assert (plan["snapshots"], plan["freed_bytes"], plan["is_enough"], plan["is_smallest"]) == (
        ["s-one", "s-two"],
        1200,
        True,
        True,
    )
    kept = line.json("space", "plan", "vol1/tree", "--free", "1KiB", "--keep", "s-one")
    assert (kept["snapshots"], kept["freed_bytes"], kept["is_enough"]) == (["s-two"], 200, False)
    assert "1 GiB cannot be freed" in line.run("space", "plan", "vol1/tree", "--free", "1GiB")
    assert line.run("space", "plan", "vol1/tree", "--free", "200").startswith(
        "s-two\ndeleting this snapshot would free 200 B, 1 version "
    )
    assert "is not a size" in line.run("space", "plan", "vol1/tree", "--free", "much", status=2)
    assert line.run("space", "plan", "vol1/tree", "--free", "1", "--keep", "x", status=1).startswith("FILE_NOT_FOUND")


def test_a_plan_keeps_to_the_policy_and_explain_says_why_a_snapshot_stays(line: CommandLine) -> None:
    assert "it stays because" in line.run("explain", "vol1/tree/.snapshot/s-one")
    assert "no retention policy" in line.run("explain", "vol1/tree/.snapshot/s-one")
    line.run("tag", "create", "vol1/tree", "s-two", "audit")
    one = line.json("explain", "vol1/tree/.snapshot/s-two")
    assert (one["has_policy"], [reason["reason"] for reason in one["reasons"]]) == (False, ["TAG"])
    assert line.json("space", "plan", "vol1/tree", "--free", "1")["snapshots"] == []
    line.run("tag", "delete", "vol1/tree", "audit")
    assert line.json("space", "plan", "vol1/tree", "--free", "1")["snapshots"] == ["s-two"]
    line.run("retention", "set", "vol1/tree", "--num-retained-min", "2", "--time-retained", "0s", "--yes")
    kept = line.json("explain", "vol1/tree/.snapshot/s-two")
    assert (kept["has_policy"], [reason["reason"] for reason in kept["reasons"]]) == (True, ["MINIMUM"])
    assert line.json("space", "plan", "vol1/tree", "--free", "1")["snapshots"] == []
    assert "the next run expires it" in line.run("explain", "vol1/tree/.snapshot/s-one")


def test_a_plan_leaves_alone_what_is_tagged_still_to_be_read_or_always_kept(line: CommandLine) -> None:
    def planned() -> list[str]:
        found: list[str] = line.json("space", "plan", "vol1/tree", "--free", "1KB")["snapshots"]
        return found

    line.run("tag", "create", "vol1/tree", "s-one", "audit")
    assert planned() == ["s-two"]
    line.run("tag", "delete", "vol1/tree", "audit")
    line.run("consumer", "set", "vol1/tree", "reader", "--next", "s-two")
    assert planned() == []
    line.run("consumer", "delete", "vol1/tree", "reader")
    assert planned() == ["s-one", "s-two"]
    line.run("retention", "set", "vol1/tree", "--num-retained-min", "2", "--time-retained", "1000d")
    assert planned() == []


def test_a_path_is_explained_by_its_versions(line: CommandLine) -> None:
    old = line.json("explain", "vol1/tree/d/old")
    assert (old["held_by"], old["bytes"]) == (["s-one", "s-two"], 1000)
    assert [(version["stage"], version["size_bytes"]) for version in old["versions"]] == [("HELD", 1000)]
    new = line.json("explain", "vol1/tree/d/new")
    assert (new["held_by"], new["bytes"]) == (["s-two", "s-three"], 230)
    assert [(version["stage"], version["size_bytes"]) for version in new["versions"]] == [("HELD", 200), ("LIVE", 30)]
    assert "s-two is deleted" in line.run("explain", "vol1/tree/d/new")
    directory = line.json("explain", "vol1/tree/d")
    assert (directory["held_by"], directory["bytes"]) == (["s-one", "s-two", "s-three"], 1237)
    assert "a directory, live; held by s-one, s-two, s-three" in line.run("explain", "vol1/tree/d")
    assert "1.2 KiB in 4 versions" in line.run("explain", "vol1/tree/d")
    nothing = line.json("explain", "vol1/tree/d/none")
    assert (nothing["held_by"], nothing["bytes"], nothing["versions"]) == ([], 0, [])
    assert "Nothing of it is left" in line.run("explain", "vol1/tree/d/none")
    assert line.run("explain", "vol1/tree/d//x", status=1).startswith("INVALID_PATH: ")


def test_a_snapshot_and_a_bucket_are_explained(line: CommandLine) -> None:
    one = line.json("explain", "vol1/tree/.snapshot/s-one")
    assert (one["held_by"], one["bytes"], one["held_bytes"]) == (["s-one", "s-two", "s-three"], 1007, 1000)
    assert "freed when it is deleted" in line.run("explain", "vol1/tree/.snapshot/s-two")
    assert line.run("explain", "vol1/tree/.snapshot/none", status=1).startswith("FILE_NOT_FOUND: ")
    assert line.json("explain", "vol1/tree")["held_bytes"] == 1200
    assert "the snapshots that hold it are deleted" in line.run("explain", "/vol1/tree")


def test_a_block_is_explained_by_the_version_that_owns_it(line: CommandLine) -> None:
    born = line.json("explain", "vol1/tree/d/old")["versions"][0]["birth"]
    block = str(local_id(line.shard, born, 0))
    for words in ([block], [block, "--bucket", "vol1/tree"]):
        found = line.json("explain", *words)
        assert (found["volume"], found["bucket"], found["path"], found["birth"]) == ("vol1", "tree", "d/old", born)
        assert (found["held_by"], found["version"]["stage"]) == (["s-one", "s-two"], "HELD")
    assert "s-one, s-two are deleted" in line.run("explain", block)
    line.run("snapshot", "delete", "--yes", "vol1/tree", "s-one")
    line.run("snapshot", "delete", "--yes", "vol1/tree", "s-two")
    line.settle()
    assert "it was freed" in line.run("explain", block)
    assert line.run("explain", str(local_id(0, 1, 3) + (1 << 60)), status=1).startswith("INVALID_REQUEST: ")
    assert line.run("explain", "7", status=1).startswith("INVALID_REQUEST: ")


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("4096", 4096), ("10GiB", 10 << 30), ("1.5 MB", 1_500_000), ("2k", 2_000), ("1TiB", 1 << 40), ("0", 0)],
)
def test_sizes_are_read_as_people_write_them(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "ten", "10 iB", "-1", "1e3", "10 GiBs"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_size(text)


def test_what_lets_a_version_go() -> None:
    assert goes_when(VersionStage.LIVE, [], "") == "it is deleted"
    assert goes_when(VersionStage.LIVE, ["a"], "") == "it is deleted, and a is deleted"
    assert goes_when(VersionStage.HELD, list("abcdef"), "") == "a, b … f (6 snapshots) are deleted"
    assert "an operator resumes collection" in goes_when(VersionStage.PENDING, [], "the chain is broken")
    assert "automatically" in goes_when(VersionStage.PENDING, [], "")
    assert "expanded" in goes_when(VersionStage.UNEXPANDED, [], "")
    assert "confirms" in goes_when(VersionStage.CLAIMED, [], "the chain is broken")
