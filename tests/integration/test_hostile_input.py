"""The real plane under fire: raw bytes on every topic, and what is asked next is done as if nothing had come."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from schemas.codec import DecodeError, codec
from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeadLetterState,
    DeleteDirectory,
    DeleteSnapshot,
    MessageHeader,
    PutKey,
    Settle,
)
from schemas.topics import CHANGELOGS, CLIENTS, SNAPSHOT_CHAIN, TOPICS, Topic
from services.cli.main import app
from services.cli.session import Session
from services.client.kafka_plane import KafkaPlane
from services.log.port import MAX_MESSAGE_BYTES
from services.plane.stack.stack import Stack
from tests.integration.test_stack import execute, request

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.long]
INPUTS = [topic for topic in TOPICS if topic is not SNAPSHOT_CHAIN]
"""A marker that cannot be read stops judging, which has tests of its own."""
MESSAGES_PER_TOPIC = 40
FRAMING_BYTES = 1_000


def garbage(topic: Topic, random: Random) -> list[tuple[bytes, list[MessageHeader]]]:
    """Bytes that are no message of the topic, behind every kind of frame."""
    encoder = codec(topic.record)
    found: list[tuple[bytes, list[MessageHeader]]] = []
    while len(found) < MESSAGES_PER_TOPIC:
        size = random.randrange(400)
        frame = random.choice([encoder.frame, b"", b"\0", encoder.frame[:4], b"\0" + random.randbytes(4)])
        value = frame + random.choice([random.randbytes(size), b"\0" * size, b"\xff" * size])
        try:
            encoder.decode_message(value)
        except DecodeError:
            found.append((value, [MessageHeader("from", random.randbytes(5))]))
    return found


def test_after_raw_bytes_on_every_topic_all_blocks_of_a_round_are_accounted_for(tmp_path: Path) -> None:
    random = Random(7)
    with Stack(tmp_path) as stack, stack.client() as plane:
        execute(plane, 0, CreateVolume("vol"), CreateBucket("vol", "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED))
        before = execute(plane, 0, *(PutKey("vol", "tree", f"a/b/{number}", 1_000) for number in range(20)))
        expected: dict[str, int] = {}
        for topic in INPUTS:
            for value, headers in garbage(topic, random):
                plane.send_again(topic.name, 0, value, random.randbytes(3), headers)
            # What cannot be read of a changelog is left out where it is read, at a start.
            readers = [reader for reader in topic.consumers if reader != CLIENTS and topic not in CHANGELOGS.values()]
            expected[topic.name] = MESSAGES_PER_TOPIC * len(readers)
        largest = os.urandom(MAX_MESSAGE_BYTES - FRAMING_BYTES)
        for topic_name in ("metadata.commands", "gc.deleted-entries"):
            plane.send_again(topic_name, 0, largest, b"", [])
            expected[topic_name] += 1
        request(plane, 0, CreateSnapshot("vol", "tree", "held"))
        behind = execute(plane, 0, *(PutKey("vol", "tree", f"a/c/{number}", 1_000) for number in range(20)))
        execute(plane, 0, DeleteDirectory("vol", "tree", "a"))
        request(plane, 0, Settle("held"))
        assert plane.scm(0).exist([*before, *behind]) == [True] * 20 + [False] * 20
        request(plane, 0, DeleteSnapshot("vol", "tree", "held"))
        request(plane, 0, Settle("freed"))
        assert plane.scm(0).exist([*before, *behind]) == [False] * 40
        space = plane.metadata(0).space("vol", "tree")
        assert (space.live_bytes, space.held_bytes, space.pending_bytes, space.claimed_bytes) == (0, 0, 0, 0)
        assert space.freed_bytes == 40_000
        check_letters(plane, expected, largest)
        deal_with_letters(plane, tmp_path)


def check_letters(plane: KafkaPlane, expected: dict[str, int], largest: bytes) -> None:
    """One letter of each message and reader, with all of its bytes; the Spark job's longest is cut, and says so."""
    reads = plane.snapshots(0)
    counted: dict[str, int] = {}
    for count in reads.dead_letter_counts():
        counted[count.topic] = counted.get(count.topic, 0) + count.count
    assert counted == {topic: count for topic, count in expected.items() if count}
    (whole,) = [row for row in reads.dead_letters(topic="metadata.commands") if row.size_bytes == len(largest)]
    assert bytes.fromhex(reads.dead_letter(whole.number).value_hex) == largest
    (cut,) = [row for row in reads.dead_letters(topic="gc.deleted-entries") if row.size_bytes == len(largest)]
    assert (whole.is_cut, cut.is_cut) == (False, True)


def deal_with_letters(plane: KafkaPlane, home: Path) -> None:
    """On the command line, over the real broker: a retry fails again and says so, a drop is kept."""
    first = plane.snapshots(0).dead_letters(topic="scm.replies")[0]
    run(home, "retry", f"0:{first.number}", "--by", "ann")
    request(plane, 0, Settle("retried"))
    rows = plane.snapshots(0).dead_letters(topic="scm.replies", with_resolved=True)
    (second,) = [row for row in rows if row.retry_of == first.number]
    assert (second.attempts, second.state, second.size_bytes) == (1, DeadLetterState.OPEN, first.size_bytes)
    run(home, "drop", f"0:{second.number}", "--reason", "noise", "--yes")
    states = {row.number: row.state for row in plane.snapshots(0).dead_letters(with_resolved=True)}
    assert (states[first.number], states[second.number]) == (DeadLetterState.RETRIED, DeadLetterState.DROPPED)


def run(home: Path, *words: str) -> None:
    """One command, over a connection of its own to the running plane."""
    result = CliRunner().invoke(app, ["dead-letters", *words], obj=Session(home))
    assert result.exit_code == 0, result.output
