"""Whatever comes on a topic, no service stops, and all of them still do the next thing that is asked of them."""

from __future__ import annotations

import tracemalloc
import typing
from enum import StrEnum
from types import UnionType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas import records
from schemas.codec import DecodeError, codec, own_schema
from schemas.records import (
    Barrier,
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeadLetter,
    DeleteKey,
    MakeDirectory,
    PutKey,
    Settle,
)
from schemas.topics import BY_NAME, CLIENTS, DEAD_LETTERS, SNAPSHOT_CHAIN, TOPICS, Topic
from services.client.plane import NamespaceCommand
from services.plane.in_memory import InMemoryPlane
from services.plane.in_memory_client import InMemoryClient
from services.runtime.dead_letters import dead_letter
from services.runtime.log import LogRecord
from tests.hostile_values import hostile

INPUTS = [topic for topic in TOPICS if topic.consumers != (CLIENTS,) and topic is not SNAPSHOT_CHAIN]
"""A marker of the chain that cannot be read stops judging, and has tests of its own."""
EXPECTED_ERRORS = frozenset({"DecodeError", "InvalidMessageError", "UnknownDeathError", "LifetimeError"})
MAX_BYTES_PER_INPUT_BYTE = 500
QUIET_STEPS = 200


class Target:
    """A plane that has done a little, under attack."""

    def __init__(self) -> None:
        self.plane = InMemoryPlane()
        self.client = InMemoryClient(self.plane)
        self.do(CreateVolume("vol1", "owner"))
        self.do(CreateBucket("vol1", "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED))
        self.do(CreateBucket("vol1", "flat", BucketLayout.OBJECT_STORE))
        for bucket in ("tree", "flat"):
            self.do(PutKey("vol1", bucket, "dir/k", 5_000, "", 1_000))
        self.do(MakeDirectory("vol1", "tree", "dir/sub"))
        assert not self.client.request(0, CreateSnapshot("vol1", "tree", "snap1")).error
        self.do(PutKey("vol1", "tree", "dir/k", 7))

    def do(self, command: NamespaceCommand) -> None:
        reply = self.client.answer(0, self.client.submit(0, command))
        assert not reply.error, reply

    def hit(self, topic: Topic, value: bytes, fingerprint: bytes | None, key: bytes = b"") -> None:
        self.plane.log.append(topic.name, 0, value, fingerprint, key)
        for _ in range(3):
            self.plane.step()

    def rest(self) -> None:
        """Let it run until nothing moves, or as long as strangers' back-offs may go on."""
        for _ in range(QUIET_STEPS):
            if not self.plane.step():
                self.plane.clock.advance(60_000)

    def letters(self) -> list[DeadLetter]:
        """What the plane's own services have put aside."""
        letters = []
        for record in self.plane.log.records(DEAD_LETTERS.name, 0):
            try:
                letters.append(codec(DeadLetter).decode_message(record.value, record.fingerprint))
            except DecodeError:
                continue
        return letters


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.sampled_from(INPUTS).flatmap(lambda topic: st.tuples(st.just(topic), hostile(topic.record))),
        min_size=5,
        max_size=30,
    )
)
def test_no_well_formed_message_stops_a_service(messages: list[tuple[Topic, Any]]) -> None:
    target = Target()
    for topic, record in messages:
        target.hit(topic, codec(topic.record).encode(record), codec(topic.record).fingerprint)
    target.rest()
    sent_letters = [record for topic, record in messages if topic is DEAD_LETTERS]
    for letter in target.letters():
        if letter in sent_letters:
            continue
        # A barrier counts work up, and one of a stranger may be at the end of the numbers.
        assert letter.error in EXPECTED_ERRORS or (letter.error == "OverflowError" and _is_barrier(letter)), letter
    for process in target.plane.processes.values():
        assert not any(process.runner.lag().values())


def _is_barrier(letter: DeadLetter) -> bool:
    record = codec(BY_NAME[letter.topic].record).decode(letter.value)
    return isinstance(getattr(record, "body", None) or getattr(record, "barrier", None), Barrier)


RAW = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda byte, count: bytes([byte]) * count, st.integers(0, 255), st.integers(0, 3_000)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(INPUTS), RAW, st.sampled_from(["own", "none", "empty", "unknown"]), st.binary()),
        min_size=1,
        max_size=40,
    )
)
def test_after_any_bytes_on_any_topic_a_round_leaves_every_block_accounted_for(
    messages: list[tuple[Topic, bytes, str, bytes]],
) -> None:
    """Bytes that happen to be a record are left out: a stranger who may write records is another matter."""
    target = Target()
    hits = 0
    for topic, value, kind, key in messages:
        encoder = codec(topic.record)
        fingerprint = {"own": encoder.fingerprint, "none": None, "empty": b"", "unknown": b"12345678"}[kind]
        try:
            encoder.decode_message(value, fingerprint)
        except DecodeError:
            target.hit(topic, value, fingerprint, key)
            hits += len(topic.consumers)
    target.do(PutKey("vol1", "flat", "next", 100))
    target.do(DeleteKey("vol1", "flat", "next"))
    assert not target.client.request(0, Settle("round")).error
    space = {bucket: target.client.metadata(0).space("vol1", bucket) for bucket in ("tree", "flat")}
    assert (space["flat"].live_bytes, space["flat"].freed_bytes) == (5_000, 100)
    assert (space["tree"].live_bytes, space["tree"].held_bytes, space["tree"].pending_bytes) == (7, 5_000, 0)
    assert target.client.scm(0).totals().inventory_bytes == 5_000 + 7 + 5_000
    assert len(target.letters()) == hits
    open_letters = target.client.snapshots(0).dead_letters()
    assert len(open_letters) == hits


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_every_item_of_an_array_takes_a_byte(topic: Topic) -> None:
    """Else a few bytes could claim an array without end."""
    for name in _array_items(topic.record.__name__, set()):
        assert own_schema(name)["fields"], name


def _array_items(name: str, seen: set[str]) -> set[str]:
    found: set[str] = set()
    if name in seen:
        return found
    seen.add(name)
    schema = own_schema(name)
    for field in schema.get("fields", ()):
        for kind in field["type"] if isinstance(field["type"], list) else [field["type"]]:
            items = kind["items"] if isinstance(kind, dict) and kind.get("type") == "array" else None
            for reference in (items, kind):
                if isinstance(reference, str) and reference.startswith("deepclean."):
                    short = reference.removeprefix("deepclean.")
                    if items == reference and own_schema(short)["type"] == "record":
                        found.add(short)
                    found |= _array_items(short, seen)
    return found


def _long(number: int) -> bytes:
    """Avro's variable-length zigzag."""
    unsigned = (number << 1) ^ (number >> 63) if number >= 0 else ((-number) << 1) - 1
    encoded = bytearray()
    while unsigned > 0x7F:
        encoded.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    encoded.append(unsigned)
    return bytes(encoded)


BOMB_NUMBERS = (2**62, 2**63 - 1, 2**40, 2**31, -1, -(2**31), -(2**62), -(2**63))


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_bytes_that_claim_to_be_much_take_no_more_memory_than_they_are(topic: Topic) -> None:
    """A count or a length at every place of a message, larger than the message or negative."""
    decoder: Any = codec(topic.record)
    whole = decoder.encode(_example(topic.record))
    tracemalloc.start()
    try:
        for number in BOMB_NUMBERS:
            claim = _long(number)
            for place in range(len(whole) + 1):
                for bomb in (whole[:place] + claim + whole[place:], whole[:place] + claim + b"\0" * 64):
                    tracemalloc.reset_peak()
                    before = tracemalloc.get_traced_memory()[0]
                    try:
                        decoder.decode(bomb)
                    except DecodeError as error:
                        letter = dead_letter("metadata", LogRecord(topic.name, 0, 0, 0, bomb, None), error)
                        assert len(letter.message) < 10_000
                    peak = tracemalloc.get_traced_memory()[1] - before
                    assert peak < MAX_BYTES_PER_INPUT_BYTE * len(bomb) + 200_000, (number, place, peak)
    finally:
        tracemalloc.stop()


def _example(record: type[Any]) -> Any:
    """A small record with something in its arrays."""

    def value(hint: Any) -> Any:
        if isinstance(hint, UnionType):
            return value(next(branch for branch in typing.get_args(hint) if branch is not type(None)))
        if typing.get_origin(hint) is tuple:
            return (value(typing.get_args(hint)[0]),) * 2
        simple: dict[Any, Any] = {int: 3, str: "name", bytes: b"bytes", bool: True}
        if hint in simple:
            return simple[hint]
        if issubclass(hint, StrEnum):
            return next(iter(hint))
        return hint(**{name: value(kind) for name, kind in typing.get_type_hints(hint, vars(records)).items()})

    return value(record)
