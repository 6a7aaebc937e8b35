"""deepclean gc over a plane in memory: what is paused waits, what is resumed goes, and the words say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.codec import codec
from schemas.records import BucketLayout, MetadataCommand, StopClaims
from schemas.topics import METADATA_COMMANDS
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.wording.figures import time_text
from services.workloads import workload
from services.workloads.replay import Replay
from tests.unit.test_space_commands import CommandLine


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    line = CommandLine(tmp_path)
    line.client = InMemoryClient(InMemoryPlane(shards=2))
    line.shard = line.json("volume", "create", "vol1", "--shard", "1")["shard"]
    for bucket in ("one", "two"):
        line.run("bucket", "create", f"vol1/{bucket}")
        line.run("key", "put", f"vol1/{bucket}/k", "--size", "1000")
        line.run("key", "put", f"vol1/{bucket}/d/below", "--size", "70")
    return line


def delete_all(line: CommandLine, bucket: str) -> None:
    line.run("key", "delete", f"vol1/{bucket}/k")
    line.run("dir", "delete", f"vol1/{bucket}/d", "--recursive")
    line.settle()


def stored_bytes(line: CommandLine) -> int:
    return line.client.scm(line.shard).totals().inventory_bytes


def test_each_pause_is_resumed_by_a_command_of_its_own(line: CommandLine) -> None:
    line.run("gc", "pause", "vol1/one")
    line.run("gc", "pause")
    assert line.run("gc", "status", "vol1/one").splitlines()[-2:] == [
        "Resume with: deepclean gc resume",
        "Resume with: deepclean gc resume vol1/one",
    ]


def test_a_paused_bucket_keeps_all_until_it_is_resumed(line: CommandLine) -> None:
    said = line.run("gc", "pause", "vol1/one", "--reason", "who deleted this?")
    assert said.splitlines() == [
        "vol1/one is paused: no further rows are claimed",
        "resume with: deepclean gc resume vol1/one",
    ]
    delete_all(line, "one")
    delete_all(line, "two")
    assert stored_bytes(line) == 1070
    (shard, paused) = line.json("gc", "status", "vol1/one")
    assert (shard["bucket"], shard["effective_state"]) == ("", "RUNNING")
    assert (paused["state"], paused["reason"]) == ("PAUSED", "who deleted this?")
    assert (paused["pending_bytes"], paused["pending_versions"], paused["unexpanded_directories"]) == (1000, 1, 1)
    printed = line.run("gc", "status")
    assert "who deleted this?" in printed
    assert printed.splitlines()[-1] == "Resume with: deepclean gc resume vol1/one"
    assert line.run("gc", "resume", "vol1/one") == "vol1/one is resumed\n"
    line.settle()
    assert stored_bytes(line) == 0
    assert line.run("gc", "status").splitlines()[-1] == "No claims are suspended."


def test_a_tree_that_was_deleted_while_paused_comes_back_whole(line: CommandLine) -> None:
    line.run("gc", "pause", "vol1/one")
    delete_all(line, "one")
    line.run("undelete", "vol1/one/d")
    line.run("gc", "resume", "vol1/one")
    line.settle()
    assert stored_bytes(line) == 1140


def test_everything_is_paused_with_new_buckets_and_resumed_but_for_what_was_paused_alone(line: CommandLine) -> None:
    line.run("gc", "pause", "vol1/two", "--reason", "an audit")
    line.run("gc", "pause", "--reason", "stop")
    line.run("bucket", "create", "vol1/new")
    line.run("key", "put", "vol1/new/k", "--size", "5")
    line.run("key", "delete", "vol1/new/k")
    delete_all(line, "one")
    delete_all(line, "two")
    assert stored_bytes(line) == 2145
    assert "claims of all buckets are suspended: paused since" in line.run("gc", "resume", "vol1/one")
    line.settle()
    assert stored_bytes(line) == 2145
    said = line.run("gc", "resume")
    assert said.splitlines()[0] == "everything is resumed"
    assert said.splitlines()[1].startswith("still suspended: vol1/two, paused since")
    line.settle()
    assert stored_bytes(line) == 1070


def test_a_bucket_that_was_deleted_while_paused_can_be_resumed(line: CommandLine) -> None:
    line.run("gc", "pause", "vol1/one")
    delete_all(line, "one")
    line.run("bucket", "delete", "vol1/one")
    line.settle()
    assert stored_bytes(line) == 2140
    assert "vol1/one (deleted, id " in line.run("gc", "status")
    line.run("gc", "resume", "vol1/one")
    line.settle()
    assert stored_bytes(line) == 1070


def test_claims_that_were_stopped_are_shown_with_the_cause_and_go_on_by_one_command(line: CommandLine) -> None:
    line.run("gc", "resume", "--reason", "said last, and about something else")
    plane, encoder = line.client.plane, codec(MetadataCommand)
    stop = MetadataCommand(line.shard, "", 0, StopClaims("snapshots: two rows follow one"), "snapshots")
    plane.log.append(METADATA_COMMANDS.name, line.shard, encoder.encode_message(stop))
    delete_all(line, "one")
    assert stored_bytes(line) == 2140
    *table, advice = line.run("gc", "status").splitlines()
    (stopped,) = [row for row in table if row.split()[2] == "stopped"]
    assert stopped.endswith("snapshots: two rows follow one")
    stopped_ms = line.json("gc", "status")[line.shard]["stopped_ms"]
    since = f"since {time_text(stopped_ms)}"
    assert time_text(stopped_ms) in stopped
    assert stopped.count(":") == 3, "when something else was said last is no part of it"
    assert advice == "Claims are stopped: repair the cause, then run deepclean gc resume --chain-is-mended"
    assert (stopped.split()[0], stopped.split()[1]) == (str(line.shard), "everything"), "the shard that is meant"
    said = line.run("gc", "resume")
    assert (
        said == f"still suspended: everything in shard {line.shard}, stopped {since}: snapshots: two rows follow one\n"
    )
    plane.log.append(METADATA_COMMANDS.name, line.shard, encoder.encode_message(stop))
    line.settle()
    assert f"all claims are stopped {since}: snapshots: two rows follow one" in line.run("explain", "vol1/one")
    assert stored_bytes(line) == 2140
    assert line.run("gc", "resume", "--chain-is-mended") == "everything is resumed\n"
    line.settle()
    assert stored_bytes(line) == 1070


def test_lines_of_several_shards_say_of_which_one_they_are(line: CommandLine) -> None:
    line.run("volume", "create", "vol0", "--shard", "0")
    line.run("bucket", "create", "vol0/three")
    for bucket in ("vol0/three", "vol1/one"):
        line.run("gc", "pause", bucket)
        line.run("breaker", "set", bucket, "--share", "50")
    for group in ("gc", "breaker"):
        heading, *rows = [row.split() for row in line.run(group, "status").splitlines()]
        assert heading[:2] == ["SHARD", "WHAT"]
        assert {("0", "everything"), ("0", "vol0/three"), ("1", "everything"), ("1", "vol1/one")} == {
            (row[0], row[1]) for row in rows if row and row[0].isdigit()
        }
        assert [one["shard"] for one in line.json(group, "status")] == [0, 0, 1, 1]
        assert line.run(group, "status", "vol1/one").split()[0] == "WHAT", "which has one shard"


def test_a_bucket_that_is_not_there_is_refused(line: CommandLine) -> None:
    assert line.run("gc", "pause", "vol1/none", status=1) == "BUCKET_NOT_FOUND: there is no bucket vol1/none\n"
    assert line.run("gc", "pause", "none/none", status=1).startswith("VOLUME_NOT_FOUND")
    assert "is not VOLUME/BUCKET" in line.run("gc", "pause", "vol1", status=2)


def test_a_bucket_of_which_too_much_is_freed_is_suspended_until_its_breaker_is_reset(line: CommandLine) -> None:
    assert line.run("breaker", "status").splitlines()[-1] == "The breaker has not tripped."
    said = line.run("breaker", "set", "--share", "50", "--floor", "100", "--floor-versions", "10")
    assert said == "each bucket without limits of its own: 50 % in an hour, but always 100 B and 10 versions\n"
    delete_all(line, "one")
    assert stored_bytes(line) == 2140
    (_, tripped) = line.json("breaker", "status", "vol1/one")
    assert tripped["state"] == "TRIPPED"
    figures = ("cause", "claimed_bytes", "most_bytes", "next_bytes")
    assert [tripped["trip"][figure] for figure in figures] == ["LIMITS", 0, 535, 1000]
    printed = line.run("breaker", "status")
    for words in (
        "vol1/one tripped at",
        "0 B in 0 versions claimed in one hour, but the maximum is 535 B in 10 versions",
        "and the next version has 1000 B",
        "deepclean deleted list vol1/one",
        "deepclean breaker reset vol1/one",
    ):
        assert words in printed
    assert line.run("gc", "status").splitlines()[-1] == "Resume with: deepclean breaker reset vol1/one"
    assert "still suspended: vol1/one, tripped since" in line.run("gc", "resume")
    assert line.run("breaker", "reset", "vol1/one") == "vol1/one resumes: 1000 B in 1 version\n"
    line.settle()
    assert stored_bytes(line) == 1070
    assert "nothing to do" in line.run("breaker", "reset")


def test_of_the_limits_what_is_not_named_stays_as_it_was(line: CommandLine) -> None:
    def limits() -> list[list[int] | None]:
        shown = [one["limits"] for one in line.json("breaker", "status")]
        return [list(one.values()) if one else None for one in shown]

    for words in (["--floor", "1KiB"], ["--floor-versions", "7", "vol1/one"], []):
        assert "Error" in line.run("breaker", "set", *words, status=2), "there is nothing that could stay"
    assert limits() == [None, None]
    line.run("breaker", "set", "--share", "20", "--floor", "1KiB", "--floor-versions", "7")
    assert limits() == [[20, 1024, 7]] * 2
    said = line.run("breaker", "set", "--floor", "2KiB")
    assert said == "each bucket without limits of its own: 20 % in an hour, but always 2.0 KiB and 7 versions\n"
    line.run("breaker", "set", "--floor-versions", "0")
    line.run("breaker", "set", "--share", "30")
    assert limits() == [[30, 2048, 0]] * 2
    assert "Error" in line.run("breaker", "set", "vol1/one", "--floor", "1", status=2), "it has no limits of its own"
    line.run("breaker", "set", "vol1/one", "--share", "5")
    line.run("breaker", "set", "vol1/one", "--floor-versions", "9")
    assert limits() == [[30, 2048, 0], [30, 2048, 0], [5, 0, 9]]


def test_limits_that_nobody_can_mean_are_refused(line: CommandLine) -> None:
    assert "Error" in line.run("breaker", "set", "--share", "101", status=2)
    assert line.run("breaker", "unset", "vol1/none", status=1).startswith("BUCKET_NOT_FOUND")
    line.run("breaker", "set", "vol1/one", "--share", "0")
    assert "no limit" in line.run("breaker", "status")
    assert line.run("breaker", "unset", "vol1/one") == "vol1/one has no limits of its own any more\n"


def test_in_the_shadow_all_is_judged_and_counted_once_and_nothing_goes(line: CommandLine) -> None:
    line.run("gc", "shadow", "vol1/one")
    delete_all(line, "one")
    line.run("gc", "pause", "vol1/one")
    line.run("gc", "shadow", "vol1/one", "--reason", "and once more")
    line.settle()
    assert stored_bytes(line) == 2140
    (_, shown) = line.json("gc", "status", "vol1/one")
    assert (shown["state"], shown["pending_bytes"], shown["unexpanded_directories"]) == ("SHADOW", 1070, 0)
    assert sum(hour["versions"] for hour in shown["shadow"]) == 2
    assert sum(hour["bytes"] for hour in shown["shadow"]) == 1070
    printed = line.run("gc", "status", "vol1/one")
    assert "would have been claimed of vol1/one, hour by hour:" in printed
    line.run("gc", "resume", "vol1/one")
    line.settle()
    assert stored_bytes(line) == 1070


def test_space_and_explain_say_what_holds_rows_back(line: CommandLine) -> None:
    line.run("gc", "pause", "vol1/one", "--reason", "who deleted this?")
    line.run("gc", "shadow")
    for bucket in ("one", "two"):
        delete_all(line, bucket)
    assert "Nothing is claimed at present: the bucket is paused since 20" in line.run("space", "vol1/one")
    assert ": who deleted this?" in line.run("space", "vol1/one")
    assert "an operator resumes collection (see deepclean gc status)" in line.run("space", "vol1/two")
    assert "Nothing is claimed at present: everything is in shadow mode since" in line.run("explain", "vol1/two")
    assert "an operator resumes collection: everything is in shadow mode" in line.run("explain", "vol1/two/k")
    assert line.json("explain", "vol1/two/k")["suspended_because"].startswith("everything is in shadow mode")
    line.run("gc", "resume")
    assert line.json("space", "vol1/two")["suspended_because"] == ""
    assert "Nothing is claimed" not in line.run("space", "vol1/two")
    line.run("gc", "resume", "vol1/one")
    line.run("key", "put", "vol1/two/k", "--size", "1000")
    line.run("breaker", "set", "vol1/two", "--share", "1")
    line.run("key", "delete", "vol1/two/k")
    line.settle()
    assert "Nothing is claimed at present: its breaker tripped at 20" in line.run("space", "vol1/two")


def test_replay_says_how_much_waits(line: CommandLine) -> None:
    line.run("gc", "pause")
    steps: list[workload.Operation] = [
        workload.CreateVolume("v"),
        workload.CreateBucket("v", "b", BucketLayout.FILE_SYSTEM_OPTIMIZED),
        workload.PutKey("v", "b", "k", 10, "tag"),
        workload.DeleteKey("v", "b", "k"),
        workload.Settle(),
        workload.Observe("end"),
    ]
    *_, observed = Replay(line.client).run(enumerate(steps))
    suspended = observed["buckets"]["v/b"]["suspended"]
    assert suspended == {"by": "paused", "bytes": 10, "versions": 1, "unexpanded_directories": 0}
