"""``deepclean retention``, ``tag`` and ``consumer`` over a plane in memory: what they print and what they refuse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from services.cli.amounts import duration_ms
from services.cli.exit_status import ExitStatus
from services.wording.amounts import duration_text
from tests.unit.test_command_line import CommandLine


@pytest.fixture
def tree(tmp_path: Path) -> CommandLine:
    """A plane with a bucket of four snapshots, each of which holds a version of its own."""
    line = CommandLine(tmp_path, 2)
    line.run("volume", "create", "vol1")
    line.run("bucket", "create", "vol1/tree")
    for number in range(1, 5):
        line.run("key", "put", "vol1/tree/k", "--size", str(1000 * number))
        line.run("snapshot", "create", "vol1/tree", f"snap{number}")
    line.run("key", "delete", "vol1/tree/k")
    return line


def test_a_preview_says_what_goes_why_the_rest_stays_and_what_it_frees(tree: CommandLine) -> None:
    tree.run("retention", "set", "vol1/tree", "--num-retained-min", "1", "--time-retained", "1d")
    tree.run("tag", "create", "vol1/tree", "snap1", "audit", "--owner", "ann", "--reason", "year end")
    assert tree.json("retention", "preview", "vol1/tree")["expired"] == []
    tried = ("retention", "preview", "vol1/tree", "--time-retained", "0", "--expire-limit", "3")
    plan = tree.json(*tried)
    assert [one["snapshot"] for one in plan["expired"]] == ["snap2", "snap3"]
    assert (plan["freed_bytes"], plan["freed_versions"], plan["is_exact"]) == (5000, 2, True)
    held = {one["snapshot"]: [reason["reason"] for reason in one["reasons"]] for one in plan["kept"]}
    assert held == {"snap1": ["TAG"], "snap4": ["MINIMUM", "LIMIT", "AGE"]}
    text = tree.run(*tried)
    assert "tagged audit" in text
    assert "one of the newest 1; not among the oldest 3, which one run considers" in text
    assert [line.split()[0] for line in text.splitlines()[1:5]] == ["snap1", "snap2", "snap3", "snap4"]
    assert "no later snapshot exists" in text
    assert "2 expire, 2 stay; that frees 4.9 KiB in 2 versions" in text
    assert len(tree.json("snapshot", "list", "vol1/tree")) == 4


def test_a_policy_is_set_shown_run_and_unset(tree: CommandLine) -> None:
    tree.run("retention", "set", "vol1/tree", "--num-retained-min", "1", "--time-retained", "0", "--mode", "async",
             "--snapshot-every", "1d", "--tag-every", "7d", "--tag-num-retained-max", "4", "--yes")  # fmt: skip
    shown = tree.json("retention", "show", "vol1/tree")
    assert shown["policy"]["execution_mode"] == "ASYNC"
    assert shown["policy"]["snapshot_every_ms"] == 86_400_000
    assert shown["failure"] == ""
    text = tree.run("retention", "show", "vol1/tree")
    assert re.search(r"^snapshot every +1d$", text, re.MULTILINE)
    assert "last run" in text
    tree.run("retention", "set", "vol1/tree", "--num-retained-min", "2", "--time-retained", "1000d")
    assert tree.json("retention", "show", "vol1/tree")["policy"]["snapshot_every_ms"] == 0
    assert "nothing expires now" in tree.run("retention", "run", "vol1/tree")
    assert "stay" in tree.run("retention", "set", "vol1/tree", "--num-retained-min", "3", "--time-retained", "1000d",
                              "--num-retained-max", "3", "--yes")  # fmt: skip
    assert tree.json("retention", "unset", "vol1/tree")["policy"] is None
    assert tree.run("retention", "run", "vol1/tree", status=1).startswith("RETENTION_NOT_FOUND: ")
    assert tree.run("retention", "show", "vol1/tree", status=1).startswith("RETENTION_NOT_FOUND: ")
    assert tree.run("retention", "preview", "vol1/tree", status=1).startswith("RETENTION_NOT_FOUND: ")


def test_a_policy_that_expires_something_is_set_when_that_is_confirmed(tree: CommandLine) -> None:
    policy = ("--num-retained-min", "3", "--num-retained-max", "3")
    asked = tree.run("retention", "set", "vol1/tree", *policy, status=ExitStatus.NOT_CONFIRMED)
    assert asked.startswith("The first run, a minute from now, expires snap1: that frees 1000 B in 1 version.")
    assert tree.run("retention", "show", "vol1/tree", status=1).startswith("RETENTION_NOT_FOUND: ")
    assert "the newest 3 snapshots stay; all others expire with the next run" in tree.run(
        "retention", "set", "vol1/tree", *policy, "--yes"
    )
    assert "with the next run, all beyond the newest 9" in tree.run(
        "retention", "set", "vol1/tree", "--num-retained-min", "3", "--num-retained-max", "9", "--time-retained", "1d"
    )


def test_a_run_says_what_expired(tree: CommandLine) -> None:
    tree.run("retention", "set", "vol1/tree", "--num-retained-min", "2", "--num-retained-max", "3", "--yes")
    plan = tree.json("retention", "preview", "vol1/tree")
    ran = tree.json("retention", "run", "vol1/tree")
    assert [one["snapshot"] for one in plan["expired"]] == ran["snapshots"] == ["snap1"]
    assert [row["name"] for row in tree.json("snapshot", "list", "vol1/tree")] == ["snap2", "snap3", "snap4"]
    refused = tree.run("key", "list", "vol1/tree", "--snapshot", "snap1", status=1)
    assert refused.startswith("SNAPSHOT_EXPIRED: ")
    assert "reopen at snap2" in refused


def test_tags_are_made_listed_and_deleted(tree: CommandLine) -> None:
    made = tree.json("tag", "create", "vol1/tree", "snap2", "audit", "--time-to-live", "30d")
    assert made["snapshot"] == "snap2"
    tree.run("tag", "create", "vol1/tree", "snap3", "build", "--owner", "ann")
    listed = tree.json("tag", "list", "vol1/tree")
    assert [(tag["tag"], tag["snapshot"], tag["owner"]) for tag in listed] == [
        ("audit", "snap2", ""),
        ("build", "snap3", "ann"),
    ]
    assert listed[0]["expiry_time_ms"] - listed[0]["creation_time_ms"] == 30 * 86_400_000
    assert "snap3" in tree.run("tag", "list", "vol1/tree")
    assert "build" in tree.run("snapshot", "list", "vol1/tree").splitlines()[3]
    assert "tags                build" in tree.run("snapshot", "info", "vol1/tree", "snap3")
    refused = tree.run("snapshot", "delete", "--yes", "vol1/tree", "snap3", status=1)
    assert refused.startswith("TAGGED_SNAPSHOT: ")
    assert "build (of ann)" in refused
    assert tree.json("tag", "delete", "vol1/tree", "build")["tag"] == "build"
    tree.run("snapshot", "delete", "--yes", "vol1/tree", "snap3")
    assert tree.run("tag", "delete", "vol1/tree", "build", status=1).startswith("FILE_NOT_FOUND: ")


def test_consumers_are_set_listed_and_deleted(tree: CommandLine) -> None:
    tree.run("consumer", "set", "vol1/tree", "reader", "--next", "snap2")
    assert tree.json("consumer", "list", "vol1/tree")[0]["next_snapshot"] == "snap2"
    plan = tree.json("retention", "preview", "vol1/tree", "--num-retained-min", "1", "--time-retained", "0")
    assert [one["snapshot"] for one in plan["expired"]] == ["snap1"]
    assert plan["kept"][0]["reasons"] == [{"reason": "CONSUMER", "bound": 0, "names": ["reader"], "until_ms": -1}]
    assert "reads next the snapshot after snap4" in tree.run(
        "consumer", "set", "vol1/tree", "reader", "--after", "snap4"
    )
    assert "has read all" in tree.run("consumer", "list", "vol1/tree")
    tree.run("consumer", "set", "vol1/tree", "reader", status=2)
    tree.run("consumer", "set", "vol1/tree", "reader", "--next", "snap1", "--after", "snap1", status=2)
    assert tree.json("consumer", "delete", "vol1/tree", "reader") == {"consumer": "reader"}
    assert tree.json("consumer", "list", "vol1/tree") == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("retention", "set", "vol1/none"), "BUCKET_NOT_FOUND"),
        (("retention", "set", "vol1/tree", "--num-retained-min", "0"), "INVALID_REQUEST"),
        (("retention", "set", "vol1/tree", "--num-retained-max", "9"), "INVALID_REQUEST"),
        (("retention", "preview", "vol1/tree", "--expire-limit", "0"), "INVALID_REQUEST"),
        (("retention", "unset", "vol1/tree"), "RETENTION_NOT_FOUND"),
        (("tag", "list", "vol1/none"), "BUCKET_NOT_FOUND"),
        (("tag", "create", "vol1/tree", "none", "keep"), "FILE_NOT_FOUND"),
        (("consumer", "set", "vol1/tree", "reader", "--next", "none"), "FILE_NOT_FOUND"),
        (("consumer", "delete", "vol1/tree", "reader"), "FILE_NOT_FOUND"),
        (("snapshot", "info", "vol1/tree", "none"), "FILE_NOT_FOUND"),
    ],
    ids=" ".join,
)
def test_refusals_are_one_line(tree: CommandLine, words: tuple[str, ...], code: str) -> None:
    said = tree.run(*words, status=1)
    assert said.startswith(f"{code}: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("90s", 90_000),
        ("15m", 900_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
        ("1d12h", 129_600_000),
        ("0.5s", 500),
    ],
)
def test_durations_there_and_back(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds
    assert duration_ms(duration_text(milliseconds)) == milliseconds


@pytest.mark.parametrize("text", ["", "1", "h", "1w", "-1h", "1h 2", "1e3s"])
def test_what_is_no_duration_is_a_mistake_of_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="7d"):
        duration_ms(text)


def test_a_policy_creates_and_expires_snapshots_by_itself(tree: CommandLine) -> None:
    """A whole plane over five hours: what expires on the way gives its bytes back."""
    tree.run(
        "retention",
        "set",
        "vol1/tree",
        "--num-retained-min",
        "2",
        "--time-retained",
        "0",
        "--snapshot-every",
        "1h",
        "--yes",
    )
    plane = tree.client.plane

    def names() -> list[str]:
        return [row["name"] for row in tree.json("snapshot", "list", "vol1/tree")]

    taken = set()
    for _ in range(5):
        plane.clock.advance(3_600_000)
        assert plane.run_until(lambda: names()[-1].startswith("auto-") and names()[-1] not in taken)
        assert plane.run_until(lambda: len(names()) == 2)
        taken.add(names()[-1])
    assert len(taken) == 5
    assert names() == sorted(taken)[-2:]
    tree.run("retention", "unset", "vol1/tree")
    assert plane.run_until(lambda: tree.json("bucket", "info", "vol1/tree")["space"]["freed_bytes"] == 10_000)
