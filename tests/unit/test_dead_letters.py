"""Dead letters from the message that nobody can read to the person who has dealt with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from schemas.codec import codec, frame
from schemas.records import (
    DeadLetter,
    DeadLetterState,
    MessageHeader,
    MetadataCommand,
    PutKey,
    ResolveDeadLetter,
    Settle,
    SnapshotCommand,
    SnapshotReply,
    StopClaims,
)
from schemas.signatures import sign
from schemas.topics import (
    CHANGELOGS,
    DEAD_LETTERS,
    METADATA_COMMANDS,
    SCM_REPLIES,
    SNAPSHOT_CHAIN,
    SNAPSHOTS_COMMANDS,
    TOPICS,
    Topic,
)
from services.cli.operate.dead_letter_advice import advice_for
from services.domain.authorization import SIGNED_FOR_MS
from services.domain.dead_letters import (
    FIRST_TIME,
    MAX_LETTER_BYTES,
    MAX_REASON_CHARACTERS,
    RETRY_HEADER,
    RetryMark,
    contents,
    mark_header,
    retry_mark,
    shortened,
)
from services.log.clock import SystemClock
from services.log.port import MAX_LETTER_MESSAGE_BYTES, MAX_MESSAGE_BYTES, LogRecord
from services.log.signing import Signer, signed_command
from services.plane.broker.topics import PLANE_TOPICS
from services.runtime.loop.dead_letters import dead_letter
from services.snapshots.dead_letters import SOURCES
from services.snapshots.metrics import SnapshotsMetrics
from services.snapshots.service import SnapshotsService
from tests.unit.service_harness import Harness
from tests.unit.test_command_line import CommandLine

COMMAND = codec(MetadataCommand)


def a_put(size_bytes: int = 10) -> bytes:
    body = PutKey("vol1", "tree", "k", size_bytes, "", 1024)
    return COMMAND.encode_message(MetadataCommand(0, "", 0, body, wants_reply=False))


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    line = CommandLine(tmp_path, 1)
    line.run("volume", "create", "vol1")
    line.run("bucket", "create", "vol1/tree")
    return line


def send(line: CommandLine, value: bytes, topic: str = METADATA_COMMANDS.name) -> int:
    return line.client.plane.log.append(topic, 0, value, b"the key", [("origin", b"elsewhere")])


def listed(line: CommandLine, *words: str) -> list[dict[str, Any]]:
    while line.client.plane.step():
        pass
    letters: list[dict[str, Any]] = line.json("dead-letters", "list", *words)["letters"]
    return letters


def test_a_letter_has_the_message_as_it_came_and_says_what_it_means(line: CommandLine) -> None:
    offset = send(line, frame(7) + b"\xffno command\x00")
    (letter,) = listed(line)
    assert (letter["service"], letter["topic"], letter["offset"]) == ("metadata", "metadata.commands", offset)
    assert (letter["error"], letter["state"], letter["attempts"]) == ("DecodeError", "OPEN", 0)
    shown = line.json("dead-letters", "show", f"0:{letter['number']}")
    assert bytes.fromhex(shown["value_hex"]) == frame(7) + b"\xffno command\x00"
    assert bytes.fromhex(shown["key_hex"]) == b"the key"
    assert {"name": "origin", "value_hex": b"elsewhere".hex()} in shown["headers"]
    assert (shown["decoded"], shown["consequence"]) == (None, advice_for("metadata.commands").consequence)
    printed = line.run("dead-letters", "show", f"0:{letter['number']}")
    assert "ff 6e 6f 20 63 6f 6d" in printed
    assert "nobody has published a schema with the id 7" in printed


def test_a_letter_whose_schema_is_known_is_shown_decoded(line: CommandLine) -> None:
    send(line, COMMAND.encode_message(MetadataCommand(0, "", 0, StopClaims("whatever"), "a stranger")))
    (letter,) = listed(line)
    assert letter["error"] == "InvalidMessageError"
    decoded = line.json("dead-letters", "show", f"0:{letter['number']}")["decoded"]
    assert decoded["MetadataCommand"]["sender"] == "a stranger"


def test_a_retry_goes_where_it_came_from_and_a_second_failure_is_seen_as_one(line: CommandLine) -> None:
    send(line, b"\xff" * 5)
    (first,) = listed(line)
    line.run("dead-letters", "retry", f"0:{first['number']}", "--by", "ann", "--reason", "upgraded")
    (second,) = listed(line)
    assert (second["attempts"], second["retry_of"]) == (1, first["number"])
    sent_again = line.client.plane.log.records(METADATA_COMMANDS.name, 0)[-1]
    assert (sent_again.value, sent_again.key) == (b"\xff" * 5, b"the key")
    assert ("origin", b"elsewhere") in sent_again.headers
    refused = line.run("dead-letters", "retry", f"0:{second['number']}", status=1)
    assert "was sent again 1 time and has failed each time" in refused
    line.run("dead-letters", "retry", f"0:{second['number']}", "--again")
    (third,) = listed(line)
    assert (third["attempts"], third["retry_of"]) == (2, second["number"])
    states = {letter["number"]: (letter["state"], letter["who"]) for letter in listed(line, "--all")}
    assert states[first["number"]] == ("RETRIED", "ann")
    assert len(states) == 3


def test_a_retry_that_works_leaves_nothing_open(line: CommandLine) -> None:
    """The message was good; whoever put it aside was at fault, and is mended now."""
    letter = DeadLetter("metadata", METADATA_COMMANDS.name, 0, 999, "E", "m", a_put(), len(a_put()), b"", ())
    line.client.plane.log.append(DEAD_LETTERS.name, 0, codec(DeadLetter).encode_message(letter))
    (row,) = listed(line)
    line.run("dead-letters", "retry", f"0:{row['number']}")
    assert listed(line) == []
    assert line.json("key", "stat", "vol1/tree/k")["size_bytes"] == 10


def letter_about(line: CommandLine, topic: Topic, value: bytes) -> str:
    """A letter about a message of somebody, as ``retry`` wants it named."""
    letter = DeadLetter("metadata", topic.name, 0, 999, "E", "m", value, len(value), b"", ())
    line.client.plane.log.append(DEAD_LETTERS.name, 0, codec(DeadLetter).encode_message(letter))
    (row,) = listed(line)
    return f"0:{row['number']}"


def signed_by_ann(topic: Topic, age_ms: int) -> bytes:
    signer, at_ms = Signer("ann", b"x" * 32), SystemClock().now_ms() - age_ms
    if topic is METADATA_COMMANDS:
        put = MetadataCommand(0, "ann/1", 1, PutKey("vol1", "tree", "k", 10, "", 1024))
        return signed_command(topic, put, signer, at_ms)
    return signed_command(topic, SnapshotCommand(0, "ann/1", 1, Settle("b")), signer, at_ms)


@pytest.mark.parametrize("topic", [METADATA_COMMANDS, SNAPSHOTS_COMMANDS])
@pytest.mark.parametrize("age_ms", [SIGNED_FOR_MS + 60_000, -SIGNED_FOR_MS - 60_000])
def test_a_command_whose_signature_is_too_old_is_not_sent_again(line: CommandLine, topic: Topic, age_ms: int) -> None:
    """metadata would refuse it, and its answer would go to a client that has long gone."""
    letter = letter_about(line, topic, signed_by_ann(topic, age_ms))
    sent_before = len(line.client.plane.log.records(topic.name, 0))
    for again in ((), ("--again",)):
        refused = line.run("dead-letters", "retry", letter, *again, status=1)
        assert "more than 30 minutes" in refused
        assert "Issue the command again" in refused
        assert "drop this letter" in refused
    assert "Issue the command again" in line.json("dead-letters", "show", letter)["action"]
    assert len(line.client.plane.log.records(topic.name, 0)) == sent_before
    assert [row["state"] for row in listed(line)] == ["OPEN"]
    line.run("dead-letters", "drop", "--yes", letter, "--reason", "issued again")
    assert listed(line) == []


def test_a_command_that_was_signed_just_now_is_sent_again(line: CommandLine) -> None:
    letter = letter_about(line, METADATA_COMMANDS, signed_by_ann(METADATA_COMMANDS, SIGNED_FOR_MS - 60_000))
    line.run("dead-letters", "retry", letter)
    assert listed(line) == []
    assert line.json("key", "stat", "vol1/tree/k")["size_bytes"] == 10


def test_a_services_command_has_no_age_and_is_sent_again(line: CommandLine) -> None:
    stop = COMMAND.encode_message(MetadataCommand(0, "", 0, StopClaims("the chain"), "snapshots"))
    signed = sign(b"x" * 32, METADATA_COMMANDS.name, stop)
    letter = letter_about(line, METADATA_COMMANDS, signed)
    line.run("dead-letters", "retry", letter)
    assert listed(line) == []


def test_a_dropped_letter_says_who_and_why_and_cannot_be_dealt_with_twice(line: CommandLine) -> None:
    send(line, b"\xff")
    (letter,) = listed(line)
    name = f"0:{letter['number']}"
    assert line.run("dead-letters", "drop", "--yes", name, "--by", "ann", status=2)  # a reason is wanted
    line.run("dead-letters", "drop", "--yes", name, "--by", "ann", "--reason", "a test of the network")
    assert listed(line) == []
    printed = line.run("dead-letters", "show", name)
    assert "dropped by ann on" in printed
    assert "a test of the network" in printed
    for again in (("retry", name), ("drop", "--yes", name, "--reason", "x")):
        assert line.run("dead-letters", *again, status=1).startswith("DEAD_LETTER_RESOLVED")
    assert line.run("dead-letters", "show", "0:77", status=1).startswith("DEAD_LETTER_NOT_FOUND")


def test_letters_are_filtered_counted_and_newest_first(line: CommandLine) -> None:
    for _ in range(3):
        send(line, b"\xff")
    send(line, b"\xff", topic=SCM_REPLIES.name)
    assert [letter["number"] for letter in listed(line)] == [3, 2, 1, 0]
    assert len(listed(line, "--limit", "2")) == 2
    assert [letter["service"] for letter in listed(line, "--topic", SCM_REPLIES.name)] == ["key_deletion"]
    assert len(listed(line, "--service", "metadata", "--reason", "DecodeError")) == 3
    assert listed(line, "--reason", "Other") == []
    assert (len(listed(line, "--since", "1h")), len(listed(line, "--since", "20000d"))) == (0, 4)  # its clock is behind
    counts = line.json("dead-letters", "list")["counts"]
    assert [(count["topic"], count["count"]) for count in counts] == [("scm.replies", 1), ("metadata.commands", 3)]


def test_a_letter_that_comes_twice_is_one(line: CommandLine) -> None:
    """A service that repeats itself says again what it has put aside; also after that was dealt with."""
    send(line, b"\xff")
    (row,) = listed(line)
    letter = line.client.plane.log.records(DEAD_LETTERS.name, 0)[0]
    line.client.plane.log.append(DEAD_LETTERS.name, 0, letter.value)
    assert len(listed(line)) == 1
    line.run("dead-letters", "drop", "--yes", f"0:{row['number']}", "--reason", "x")
    line.client.plane.log.append(DEAD_LETTERS.name, 0, letter.value)
    assert listed(line) == []
    line.client.plane.start("snapshots", 0)
    assert listed(line) == []


def test_the_metric_counts_open_letters_by_service_also_after_a_restart() -> None:
    registry = CollectorRegistry()
    metrics = SnapshotsMetrics(registry)
    harness = Harness(lambda: SnapshotsService(metrics=metrics), is_restored=True)
    for offset, service in enumerate(("metadata", "metadata", "streaming", "a stranger")):
        letter = DeadLetter(service, METADATA_COMMANDS.name, 0, offset, "E", "m", b"v", 1, b"", ())
        harness.give((DEAD_LETTERS, letter))
    dropped = ResolveDeadLetter(0, DeadLetterState.DROPPED, "ann", "x")
    harness.give((SNAPSHOTS_COMMANDS, SnapshotCommand(0, "c", 1, dropped)))

    def open_letters(source: str) -> float | None:
        labels = {"shard": "0", "source": source}
        return registry.get_sample_value("deepclean_snapshots_dead_letters_open", labels)

    assert {source: open_letters(source) for source in SOURCES if open_letters(source)} == {
        "metadata": 1.0,
        "streaming": 1.0,
        "other": 1.0,
    }
    assert open_letters("mock_scm") == 0.0


def test_garbage_among_the_letters_makes_one_letter_and_no_loop(line: CommandLine) -> None:
    send(line, b"\xff\xff garbage", topic=DEAD_LETTERS.name)
    (row,) = listed(line)
    assert (row["topic"], row["service"]) == (DEAD_LETTERS.name, "snapshots")
    assert len(line.client.plane.log.records(DEAD_LETTERS.name, 0)) == 2
    refused = line.run("dead-letters", "retry", f"0:{row['number']}", status=1)
    assert "is not sent again" in refused


@pytest.mark.parametrize("topic", [SNAPSHOT_CHAIN.name, "no.such.topic", ""])
def test_what_must_not_be_sent_again_is_refused(line: CommandLine, topic: str) -> None:
    letter = DeadLetter("x\x1b[31m", topic, 0, 1, "E", "m\x07", b"v", 1, b"", ())
    line.client.plane.log.append(DEAD_LETTERS.name, 0, codec(DeadLetter).encode_message(letter))
    (row,) = listed(line)
    assert "is not sent again" in line.run("dead-letters", "retry", f"0:{row['number']}", status=1)
    assert "\x1b" not in line.run("dead-letters", "list") + line.run("dead-letters", "show", f"0:{row['number']}")


def test_a_letter_that_was_cut_is_not_sent_again(line: CommandLine) -> None:
    letter = DeadLetter("metadata", METADATA_COMMANDS.name, 0, 1, "E", "m", b"beginning", 4_000, b"", ())
    line.client.plane.log.append(DEAD_LETTERS.name, 0, codec(DeadLetter).encode_message(letter))
    (row,) = listed(line)
    assert row["is_cut"]
    refused = line.run("dead-letters", "retry", f"0:{row['number']}", status=1)
    assert "read the original from metadata.commands, partition 0, offset 1" in refused


@pytest.mark.parametrize(
    "resolution",
    [
        ResolveDeadLetter(0, DeadLetterState.OPEN, "ann", "x"),
        ResolveDeadLetter(0, DeadLetterState.DROPPED, "", "x"),
        ResolveDeadLetter(0, DeadLetterState.DROPPED, "ann", ""),
        ResolveDeadLetter(0, DeadLetterState.DROPPED, "a" * 129, "x"),
        ResolveDeadLetter(0, DeadLetterState.RETRIED, "ann", "x" * 1_025),
        ResolveDeadLetter(-1, DeadLetterState.DROPPED, "ann", "x"),
        ResolveDeadLetter(2**63 - 1, DeadLetterState.DROPPED, "ann", "x"),
    ],
)
def test_a_resolution_that_says_too_little_or_too_much_is_refused(
    line: CommandLine, resolution: ResolveDeadLetter
) -> None:
    send(line, b"\xff")
    assert len(listed(line)) == 1
    reply: SnapshotReply = line.client.request(0, resolution)
    assert reply.error in ("INVALID_REQUEST", "DEAD_LETTER_NOT_FOUND")
    assert len(listed(line)) == 1


def test_every_input_of_a_service_has_advice() -> None:
    unknown = advice_for("no.such.topic")
    without_letters = {topic.name for topic in CHANGELOGS.values()}
    for topic in TOPICS:
        expected = topic.consumers == ("clients",) or topic.name in without_letters
        assert (advice_for(topic.name) is unknown) == expected, topic.name


HEADERS = st.lists(st.builds(MessageHeader, st.text(max_size=20), st.binary(max_size=20)), max_size=5)


@given(st.binary(max_size=200), st.binary(max_size=50), HEADERS, st.integers(0, 300))
def test_a_letter_carries_all_that_fits_and_says_what_does_not(
    value: bytes, key: bytes, headers: list[MessageHeader], max_bytes: int
) -> None:
    carried = contents(value, key, headers, max_bytes)
    surrounding = sum(len(header.name.encode()) + len(header.value) for header in carried.headers) + len(carried.key)
    assert len(carried.value) + surrounding <= max_bytes
    assert value.startswith(carried.value)
    is_whole = (carried.value, carried.key, carried.headers) == (value, key, tuple(headers))
    assert is_whole == (carried.note == "")


def test_the_largest_message_of_a_topic_fits_into_a_letter_and_the_letter_into_its_topic() -> None:
    record = LogRecord("t", 0, 0, 0, b"\xff" * MAX_MESSAGE_BYTES, b"k", [("h", b"v"), ("empty", None)])
    letter = dead_letter("metadata", record, ValueError("\ud800" + "x" * 10_000_000))
    assert (letter.value, letter.size_bytes) == (record.value, MAX_MESSAGE_BYTES)
    encoded = codec(DeadLetter).encode(letter)
    assert len(encoded) + 1_024 < MAX_LETTER_MESSAGE_BYTES == int(PLANE_TOPICS[DEAD_LETTERS.name]["max.message.bytes"])
    assert MAX_LETTER_BYTES > MAX_MESSAGE_BYTES
    larger = LogRecord("t", 0, 0, 0, b"\xff" * (2 * MAX_MESSAGE_BYTES), b"k" * MAX_MESSAGE_BYTES)
    cut = dead_letter("metadata", larger, ValueError("?"))
    assert len(codec(DeadLetter).encode(cut)) < MAX_LETTER_MESSAGE_BYTES
    assert "only the first" in cut.message
    assert "key and headers" in cut.message


def test_a_long_reason_is_cut_and_says_so() -> None:
    assert shortened("short") == "short"
    assert shortened("x" * 5_000) == "x" * MAX_REASON_CHARACTERS + "… (5000 characters)"


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**18 - 1))
def test_a_mark_is_read_as_it_was_written(attempts: int, number: int) -> None:
    mark = RetryMark(attempts, number)
    assert retry_mark([MessageHeader("other", b"1:1"), mark_header(mark)]) == mark


@given(st.binary(max_size=30))
def test_an_unauthorized_retry_mark_is_never_an_error(value: bytes) -> None:
    mark = retry_mark([MessageHeader(RETRY_HEADER, value)])
    assert mark == FIRST_TIME or (0 <= mark.attempts < 2**31 and 0 <= mark.number < 2**63)
