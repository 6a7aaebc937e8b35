"""deepclean trace over a plane in memory: the steps of deletions, what they wait for, and their traces."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from schemas.records import DeletedKind, DirectoriesRemoved, DirectoryRemoval, MetadataProgress, PutKeys, RemovalOutcome
from services.cli.exit_status import ExitStatus
from services.cli.operate import trace_sending
from services.domain.errors import RetryableError
from services.log.memory import MemoryLog, MemorySource
from services.log.port import LogRecord
from services.tracing.followed import FollowedShard
from services.tracing.reader import TRACED
from services.tracing.spans import spans_of
from services.tracing.steps import Station, Step, StepsOfShard, Version
from services.tracing.trace_ids import is_chosen, trace_id
from services.tracing.ways import GRACE_MS, Way, Ways
from tests.otlp_receiver import Receiver, receiver
from tests.unit.test_space_commands import CommandLine

EVER = "30000d"
WHOLE_WAY = [
    *("requested", "deleted", "judged reclaimable", "judged again", "claimed", "block deletion sent", "blocks deleted"),
    *("finish sent", "freed"),
]


def test_of_many_keys_that_were_put_at_once_each_version_died_by_its_own_path(line: CommandLine) -> None:
    keys = ("k2", "k9", "k3")
    client = line.client
    put = PutKeys("vol1", "flat", keys, (5, 5, 5), (), 100)
    first, second = (client.answer(1, client.submit(1, put)) for _ in range(2))
    assert second.txn == first.txn + len(keys)
    line.settle()
    for key, death in (("k2", second.txn - 2), ("k3", second.txn)):
        (way,) = [way for way in shown(line, f"vol1/flat/{key}") if way["death"] == death]
        assert (way["request"]["name"], way["request"]["paths"]) == ("PutKeys", [key])


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """Key k0 is freed after its snapshot went, k1 is held by snapshot "kept", k2 and k3 were deleted at once."""
    line = CommandLine(tmp_path)
    line.run("volume", "create", "vol1", "--shard", "1")
    line.run("bucket", "create", "vol1/flat", "--layout", "OBS")
    line.run("key", "put", "vol1/flat/k0", "--size", "1000")
    line.run("snapshot", "create", "vol1/flat", "first")
    line.run("key", "delete", "vol1/flat/k0")
    line.settle()
    line.run("snapshot", "delete", "--yes", "vol1/flat", "first")
    line.settle()
    for number in range(1, 4):
        line.run("key", "put", f"vol1/flat/k{number}", "--size", "10")
    line.run("snapshot", "create", "vol1/flat", "kept")
    line.run("key", "put", "vol1/flat/k2", "--size", "20")
    line.run("key", "put", "vol1/flat/k3", "--size", "30")
    line.run("key", "delete", "vol1/flat/k1")
    line.run("key", "delete", "vol1/flat/k2", "vol1/flat/k3")
    line.settle()
    return line


def shown(line: CommandLine, target: str) -> list[dict[str, Any]]:
    words = ("--shard", "1") if target.isdecimal() else ()
    found: list[dict[str, Any]] = line.json("trace", "show", target, "--since", EVER, *words)
    return found


def stations(way: dict[str, Any]) -> list[str]:
    return [step["station"] for step in way["steps"]]


def test_a_freed_version_has_come_to_each_station(line: CommandLine) -> None:
    (way,) = shown(line, "vol1/flat/k0")
    assert stations(way) == [*WHOLE_WAY[:2], "sent again by a sweep", *WHOLE_WAY[2:]]
    assert (way["state"], way["is_over"], way["kind"]) == ("freed", True, "KEY")
    assert way["request"]["name"] == "DeleteKey"
    assert way["steps"][-1]["bytes"] == 1000
    assert len({step["task"] for step in way["steps"] if "task" in step}) == 1
    (row,) = [one for one in line.json("ledger", "list", "vol1/flat")["rows"] if one["size_bytes"] == 1000]
    names = ("bucket_id", "object_id", "birth", "death")
    assert [way[name] for name in names] == [row[name] for name in names]
    assert shown(line, str(way["death"])) == [way]


def test_a_held_version_says_what_it_waits_for(line: CommandLine) -> None:
    (way,) = shown(line, "vol1/flat/k1")
    assert stations(way) == ["requested", "deleted"]
    assert (way["is_over"], way["state"]) == (
        False,
        "waits for the first judge, or for a drop of the snapshots that hold it",
    )


def test_the_versions_of_a_path_are_told_apart(line: CommandLine) -> None:
    """The version that the overwrite ended is held; of the two that one command deleted both are shown, once freed."""
    ways = shown(line, "vol1/flat/k2")
    held = [way for way in ways if not way["is_over"]]
    assert [way["request"]["name"] for way in held] == ["PutKey"]
    freed = [way for way in ways if way["is_over"]]
    assert {way["steps"][-1]["bytes"] for way in freed} >= {20}


def test_deletions_are_listed_and_those_that_are_not_over(line: CommandLine) -> None:
    everything = line.json("trace", "list", "vol1/flat", "--since", EVER)
    assert (everything["found"], everything["given_up"]) == (6, 0)
    assert sum(way["is_over"] for way in everything["deletions"]) == 3
    still = line.json("trace", "list", "--since", EVER, "--open")
    assert [way["is_over"] for way in still["deletions"]] == [False] * 3
    words = line.run("trace", "list", "--since", EVER, "--limit", "2")
    assert "6 deletions in all; these took longest" in words
    assert line.json("trace", "list", "--since", EVER, "--shard", "0")["found"] == 0
    line.run("trace", "list", "vol1/flat", "--shard", "1", status=2)
    line.run("trace", "list", "--since", "yesterday", status=2)


def test_a_way_is_shown_in_words(line: CommandLine) -> None:
    words = " ".join(line.run("trace", "show", "vol1/flat/k0", "--since", EVER).split())
    assert "request DeleteKey vol1/flat/k0" in words
    assert "blocks deleted mock_scm scm.replies/1/" in words
    line.run("trace", "show", "vol1/flat/k0", "--shard", "1", status=2)
    assert "Nothing of vol1/flat/none died" in line.run("trace", "show", "vol1/flat/none", "--since", EVER)


def test_a_directory_and_what_was_below_it(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    line.run("volume", "create", "vol1", "--shard", "1")
    line.run("bucket", "create", "vol1/tree")
    line.run("key", "put", "vol1/tree/a/b/k", "--size", "7")
    line.run("dir", "delete", "vol1/tree/a")
    line.settle()
    ways = shown(line, "vol1/tree/a")
    assert [way["request"]["name"] for way in ways] == ["DeleteDirectory"] * 3
    of_kind = {way["kind"]: way for way in ways}
    assert stations(of_kind["DIRECTORY"]) == ["requested", "deleted", "judged", "removed"]
    assert stations(of_kind["KEY"]) == WHOLE_WAY
    assert [way["kind"] for way in shown(line, "vol1/tree/a/b/k") if way["kind"] == "KEY"] == ["KEY"]


# Traces


def exported(line: CommandLine, *words: str) -> Receiver:
    with receiver() as received:
        line.run("trace", "export", "--endpoint", received.url, "--since", EVER, *words)
    return received


def test_a_trace_has_a_span_for_each_step_and_one_for_the_whole(line: CommandLine) -> None:
    (way,) = shown(line, "vol1/flat/k0")
    received = exported(line)
    spans = [(name, span) for name, span in received.spans if span.trace_id.hex() == way["trace_id"]]
    ((name, whole),) = [pair for pair in spans if not pair[1].parent_span_id]
    assert (name, whole.name) == ("deepclean.plane", "deletion")
    parts = sorted((pair for pair in spans if pair[1].parent_span_id), key=lambda pair: pair[1].end_time_unix_nano)
    assert {pair[1].parent_span_id for pair in parts} == {whole.span_id}
    assert sorted(pair[1].name for pair in parts) == sorted(stations(way))
    assert {pair[0] for pair in parts} == {
        f"deepclean.{one}" for one in ("client", "metadata", "streaming", "key_deletion", "mock_scm")
    }
    assert whole.start_time_unix_nano == way["steps"][0]["time_ms"] * 1_000_000
    assert whole.end_time_unix_nano == way["steps"][-1]["time_ms"] * 1_000_000
    attributes = {one.key: one.value for one in whole.attributes}
    assert attributes["deepclean.object_id"].int_value == way["object_id"]
    assert len({span.trace_id for _, span in received.spans}) == 6


def test_a_repeat_has_the_same_ids_and_a_share_is_part_of_a_larger_one(line: CommandLine) -> None:
    def ids(*words: str) -> set[tuple[bytes, bytes]]:
        return {(span.trace_id, span.span_id) for _, span in exported(line, *words).spans}

    everything = ids()
    assert ids() == everything
    assert ids("--share", "0") == set()
    small, large = ids("--share", "0.3"), ids("--share", "0.7")
    assert small <= large <= everything


def test_a_share_is_about_so_much_of_all() -> None:
    chosen = [is_chosen(trace_id(0, Version(DeletedKind.KEY, 1, one, 2, 3)), 0.1) for one in range(10_000)]
    assert 900 < sum(chosen) < 1_100


def test_a_collector_that_refuses_is_an_error_that_says_what_to_do(line: CommandLine) -> None:
    with receiver() as received:
        received.status = 400
        words = ("trace", "export", "--endpoint", received.url, "--since", EVER)
        said = line.run(*words, status=ExitStatus.UNREACHABLE)
    assert "see that it runs, and that --endpoint is its address" in said


def test_following_sends_each_way_once_it_is_over_and_again_until_it_is_taken(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector refuses at first. A deletion that comes later is sent, too; what is held is not."""
    with receiver() as received:
        received.status = 400
        rounds = 0

        def pause() -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 2:
                assert received.spans == []
                received.status = 200
            elif rounds == 3:
                line.run("key", "put", "vol1/flat/late", "--size", "5")
                line.run("key", "delete", "vol1/flat/late")
                line.settle()
            elif rounds == 5:
                raise KeyboardInterrupt

        monkeypatch.setattr(trace_sending, "pause", pause)
        words = ("trace", "export", "--follow", "--endpoint", received.url, "--since", EVER)
        assert line.json(*words) == {"deletions": 4}
    assert_sent_whole(received, 4)
    assert received.refused.is_set()


def assert_sent_whole(received: Receiver, count: int) -> None:
    """So many freed deletions have arrived, each with all of its steps, and nothing twice."""
    whole = [span for _, span in received.spans if not span.parent_span_id]
    states = [one.value.string_value for span in whole for one in span.attributes if one.key == "deepclean.state"]
    assert states == ["freed"] * count
    for one in whole:
        names = [span.name for _, span in received.spans if span.trace_id == one.trace_id and span.parent_span_id]
        assert sorted(name for name in names if name != "sent again by a sweep") == sorted(WHOLE_WAY)
    ids = [(span.trace_id, span.span_id) for _, span in received.spans]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("topic", [topic.name for topic in TRACED])
def test_a_deletion_that_runs_while_it_is_followed_is_sent_whole(
    topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes just before a topic's end is asked for: behind the ends that were asked for before."""
    line = CommandLine(tmp_path)
    line.run("volume", "create", "vol1", "--shard", "1")
    line.run("bucket", "create", "vol1/flat", "--layout", "OBS")
    asked, pauses, delete = MemoryLog.end_offset, 0, [True]

    def end_offset(self: MemoryLog, name: str, partition: int) -> int:
        if name == topic and partition == 1 and delete and delete.pop():
            line.run("key", "put", "vol1/flat/key", "--size", "5")
            line.run("key", "delete", "vol1/flat/key")
            line.settle()
        return asked(self, name, partition)

    def pause() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 3:
            raise KeyboardInterrupt

    with receiver() as received:
        monkeypatch.setattr(trace_sending, "pause", pause)
        monkeypatch.setattr(MemoryLog, "end_offset", end_offset)
        line.json("trace", "export", "--follow", "--endpoint", received.url, "--since", EVER, "--shard", "1")
    assert_sent_whole(received, 1)


def test_what_is_given_up_is_sent_as_it_is_and_a_list_says_so(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.tracing.followed.FollowedShard.__init__", few(2))
    received = exported(line)
    assert len({span.trace_id for _, span in received.spans}) == 6
    whole = [span for _, span in received.spans if not span.parent_span_id]
    assert len({span.span_id for span in whole}) == len(whole) >= 6
    listed = line.json("trace", "list", "--since", EVER)
    assert listed["found"] == 6
    assert 0 < listed["given_up"] <= 6
    assert f"{listed['given_up']} deletions are shown in parts" in line.run("trace", "list", "--since", EVER)


def few(most: int) -> Any:
    """The constructor, for no more ways than this."""
    return functools.partialmethod(FollowedShard.__init__, most=most)


@pytest.mark.parametrize("endpoint", ["localhost:4318", "grpc://127.0.0.1:4317"])
def test_what_is_no_endpoint_is_refused(line: CommandLine, endpoint: str) -> None:
    assert "is not a URL" in line.run("trace", "export", "--endpoint", endpoint, status=2)


def test_an_endpoint_may_have_the_path_of_the_traces(line: CommandLine) -> None:
    with receiver() as received:
        line.run("trace", "export", "--endpoint", f"{received.url}/v1/traces/", "--since", EVER)
    assert received.spans


# Ways


def version(number: int) -> Version:
    return Version(DeletedKind.KEY, 1, number, 2, 3)


def step(number: int, station: Station, time_ms: int, offset: int = 0) -> Step:
    return Step(version(number), station, time_ms, "topic", offset)


def test_steps_are_put_in_order_whatever_topic_was_read_first() -> None:
    way = Way(version(1))
    for station, time_ms in ((Station.FREED, 9), (Station.JUDGED, 4), (Station.CLAIMED, 4), (Station.DELETED, 1)):
        way.add(step(1, station, time_ms))
    assert [one.station for one in way.steps] == [Station.DELETED, Station.JUDGED, Station.CLAIMED, Station.FREED]
    assert [wait for _, wait in way.waits()] == [0, 3, 0, 5]
    assert (way.total_ms, way.longest()[0].station) == (8, Station.FREED)


def test_the_first_ways_are_given_up_when_there_are_too_many() -> None:
    ways = Ways(lambda _: True, most=2)
    given_up = [ways.add(step(number, Station.DELETED, number)) for number in range(3)]
    given_up += [ways.add(step(0, Station.JUDGED, 4)), ways.add(step(3, Station.DELETED, 5))]
    assert [[way.version.object_id for way in some] for some in given_up] == [[], [], [0], [1], [2]]
    ways.add(step(4, Station.DELETED, 6))
    assert (ways.given_up, len(ways.known)) == (3, 2), "what is left of the first one counts no second time"


def test_what_is_over_is_given_out_once_after_a_while() -> None:
    """A step that comes a little later, by the clock of another broker, is still part of it."""
    ways = Ways(lambda _: True)
    assert ways.add(step(1, Station.DELETED, 10)) == []
    assert ways.add(step(2, Station.FREED, 20)) == []
    assert ways.add(step(3, Station.MISSING, 30)) == []
    assert ways.add(step(2, Station.FINISH_SENT, 31)) == []
    assert ways.pop_over(20) == []
    (over,) = ways.add(step(4, Station.DELETED, 21 + GRACE_MS))
    assert [one.station for one in over.steps] == [Station.FREED, Station.FINISH_SENT]
    assert (over.is_over, over.state) == (True, "freed")
    assert [way.version.object_id for way in ways.pop_over(40)] == [3]
    assert ways.pop_over(1_000_000) == []


def test_refused_and_failed_steps_are_errors_of_their_spans() -> None:
    way = Way(version(1), [step(1, Station.CLAIM_SENT, 1), step(1, Station.REFUSED, 2)])
    assert [span.status.is_ok for span in spans_of(0, way)] == [True, True, False]


def test_each_station_says_what_comes_next() -> None:
    for station in Station:
        assert Way(version(1), [step(1, station, 1)]).state


def test_a_read_that_fails_goes_on_where_it_was(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    log = line.client.plane.log
    whole = FollowedShard(log, 1, 0)
    assert list(whole.read()) == []
    one, polled, polls = FollowedShard(log, 1, 0), MemorySource.poll, 0

    def fails(self: MemorySource, *arguments: Any) -> Any:
        nonlocal polls
        polls += 1
        if polls == 7:
            raise RetryableError("away")
        return polled(self, 3, *arguments[1:])

    monkeypatch.setattr(MemorySource, "poll", fails)
    with pytest.raises(RetryableError):
        list(one.read())
    assert list(one.read()) == []
    assert [way.steps for way in one.all()] == [way.steps for way in whole.all()]


def test_requests_that_are_too_many_are_forgotten(monkeypatch: pytest.MonkeyPatch, line: CommandLine) -> None:
    monkeypatch.setattr("services.tracing.requests.MOST_PATHS", 5)
    everything = line.json("trace", "list", "--since", EVER)["deletions"]
    requests = [one["request"] for one in everything if one["request"] is not None]
    assert 0 < len(requests) < len(everything)
    assert sum(1 + len(one["paths"]) for one in {one["offset"]: one for one in requests}.values()) <= 5


def test_a_key_is_not_below_another_key_and_a_link_is_its_bucket(line: CommandLine) -> None:
    line.run("key", "put", "vol1/flat/a/b", "--size", "3")
    line.run("key", "put", "vol1/flat/a", "--size", "4")
    line.run("bucket", "link", "vol1/same", "vol1/flat")
    line.run("key", "delete", "vol1/same/a")
    line.settle()
    assert [way["request"]["paths"] for way in shown(line, "vol1/flat/a")] == [["a"]]
    assert shown(line, "vol1/flat/a/b") == []
    assert [way["request"]["bucket"] for way in shown(line, "vol1/same/a")] == ["same"]


def test_each_outcome_of_a_directorys_row_is_a_station() -> None:
    rows = tuple(DirectoryRemoval(1, number, 3, 0, outcome) for number, outcome in enumerate(RemovalOutcome))
    record = LogRecord("metadata.progress", 0, 7, 1_000, b"")
    steps = StepsOfShard().of_message(record, MetadataProgress(9, DirectoriesRemoved(rows)))
    found = {list(RemovalOutcome)[one.version.object_id]: one.station for one in steps}
    assert found == {
        RemovalOutcome.REMOVED: Station.REMOVED,
        RemovalOutcome.MISSING: Station.MISSING,
        RemovalOutcome.HELD: Station.REFUSED,
        RemovalOutcome.SUSPENDED: Station.SUSPENDED,
    }
