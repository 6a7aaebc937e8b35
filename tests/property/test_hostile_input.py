"""Whatever comes on a topic, no service stops, and all of them still do the next thing that is asked of them."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.codec import DecodeError, codec, frame
from schemas.records import (
    Barrier,
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeadLetter,
    DeleteKey,
    DropSnapshot,
    MakeDirectory,
    MetadataCommand,
    MetadataProgress,
    PutKey,
    ScmCommand,
    Settle,
    SnapshotCommand,
)
from schemas.schema_files import own_schema
from schemas.topics import (
    BY_NAME,
    CLIENTS,
    DEAD_LETTERS,
    METADATA_COMMANDS,
    METADATA_PROGRESS,
    SCM_COMMANDS,
    SNAPSHOT_CHAIN,
    SNAPSHOTS_CHANGELOG,
    SNAPSHOTS_COMMANDS,
    TOPICS,
    Topic,
)
from services.client.plane import NamespaceCommand
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.log.port import MAX_MESSAGE_BYTES, LogRecord
from services.plane.broker.topics import PLANE_TOPICS
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.runtime.loop.dead_letters import dead_letter
from services.runtime.loop.runner import Runner
from services.runtime.loop.service import Message, Work
from services.storage.memory import MemoryStore
from services.storage.tables import TableDefinition, TablesReader
from tests.example_records import example
from tests.hostile_values import hostile

pytestmark = pytest.mark.long

INPUTS = [topic for topic in TOPICS if topic.consumers != (CLIENTS,) and topic is not SNAPSHOT_CHAIN]
"""A marker of the chain that cannot be read stops judging, and has tests of its own."""
EXPECTED_ERRORS = frozenset(
    {"DecodeError", "ColumnsError", "InvalidMessageError", "UnknownDeathError", "LifetimeError"}
)
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

    def hit(self, topic: Topic, value: bytes, key: bytes = b"") -> None:
        self.plane.log.append(topic.name, 0, value, key)
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
                letters.append(codec(DeadLetter).decode_message(record.value))
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
        target.hit(topic, codec(topic.record).encode_message(record))
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
    record = codec(BY_NAME[letter.topic].record).decode_message(letter.value)
    return isinstance(getattr(record, "body", None) or getattr(record, "barrier", None), Barrier)


def test_a_shard_stores_no_more_than_64_bits_count_until_some_of_it_is_freed() -> None:
    """Over several buckets, and with what is deleted: every sum of sizes stays writable."""
    target = Target()
    most = 2**63 - 1 - target.client.scm(0).totals().inventory_bytes
    large, one = PutKey("vol1", "flat", "large", most, "", 1 << 60), PutKey("vol1", "tree", "one", 1)
    refused = "INVALID_REQUEST"
    for _ in range(3):  # what is freed in all may be more than that: the figure stays at its end
        target.do(large)
        assert target.client.answer(0, target.client.submit(0, one)).error == refused
        target.do(PutKey("vol1", "tree", "nothing", 0))
        target.do(DeleteKey("vol1", "flat", "large"))
        # In one batch, and behind a put that is refused.
        numbers = [target.client.submit(0, command) for command in (large, one, PutKey("vol1", "tree", "none", 0))]
        assert [target.client.answer(0, number).error for number in numbers] == [refused, refused, ""]
        assert not target.client.request(0, Settle("freed")).error
    space = target.client.metadata(0).space("vol1", "flat")
    assert (space.live_bytes, space.freed_bytes) == (5_000, 2**63 - 1)
    assert target.client.scm(0).totals().deleted_bytes == 2**63 - 1
    target.do(one)
    assert target.letters() == []


@pytest.mark.parametrize(
    "sizes", [(-1, 10), (-(2**63), 10), (10, 0), (10, -1), (10, -(2**63)), (2**63 - 1, 1), (2**63 - 1, 2**31 - 1)]
)
def test_sizes_that_cannot_be_are_refused(sizes: tuple[int, int]) -> None:
    target = Target()
    size_bytes, block_size_bytes = sizes
    number = target.client.submit(0, PutKey("vol1", "flat", "x", size_bytes, "", block_size_bytes))
    assert target.client.answer(0, number).error == "INVALID_REQUEST"


HUGE = 8 * 1024 * 1024 - 100
"""Characters that, with what is around them, just make a message that a topic takes."""


@pytest.mark.parametrize(
    ("topic", "record"),
    [
        (METADATA_COMMANDS, MetadataCommand(0, "c", 1, CreateVolume("\0" * HUGE, "o"))),
        (METADATA_COMMANDS, MetadataCommand(0, "c", 1, CreateVolume("vol2", "o" * HUGE))),
        (METADATA_COMMANDS, MetadataCommand(0, "c", 1, DeleteKey("vol1", "flat", "\0" * HUGE))),
        (METADATA_COMMANDS, MetadataCommand(0, "c", 1, DeleteKey("x" * HUGE, "flat", "k"))),
        (METADATA_COMMANDS, MetadataCommand(0, "c", 1, PutKey("vol1", "flat", "k", 1, "t" * HUGE))),
        (METADATA_COMMANDS, MetadataCommand(0, "c" * HUGE, 1, DeleteKey("vol1", "flat", "none"))),
        (METADATA_COMMANDS, MetadataCommand(0, "", 0, Barrier("b" * HUGE, 0, 0, "o"), "snapshots")),
        (METADATA_COMMANDS, MetadataCommand(0, "", 0, DropSnapshot("s" * HUGE), "snapshots")),
        (METADATA_COMMANDS, MetadataCommand(0, "", 0, DropSnapshot("s"), "x" * HUGE)),
        (SNAPSHOTS_COMMANDS, SnapshotCommand(0, "c", 1, CreateSnapshot("vol1", "tree", "\0" * HUGE))),
        (SNAPSHOTS_COMMANDS, SnapshotCommand(0, "c" * HUGE, 1, CreateSnapshot("vol1", "tree", "x"))),
        (SNAPSHOTS_COMMANDS, SnapshotCommand(0, "c", 1, Settle("\0" * HUGE))),
        (SCM_COMMANDS, ScmCommand(Barrier("b" * HUGE, 0, 0, "o"))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_too_large_to_be_answered_or_passed_on_keeps_nothing_up(topic: Topic, record: Any) -> None:
    """A service must not say more than a topic takes: such a message would stand before all others for ever."""
    target = Target()
    value = codec(topic.record).encode_message(record)
    assert len(value) < MAX_MESSAGE_BYTES
    target.hit(topic, value)
    target.rest()
    for other in TOPICS:
        limit = int(PLANE_TOPICS[other.name]["max.message.bytes"])
        for sent in target.plane.log.records(other.name, 0):
            assert len(sent.value) <= (limit - 1_024 if sent.value != value else limit)
    target.do(PutKey("vol1", "flat", "next", 100))


class Fragile:
    """Fails at the end of a batch, when it is too late to undo one message, for a figure of its own making."""

    name = "metadata"
    inputs = (METADATA_PROGRESS,)
    tables = (TableDefinition("notes", Barrier),)

    def __init__(self) -> None:
        self.sum = 0

    def restore(self, tables: TablesReader) -> None:
        row = tables.table(self.tables[0]).get(b"sum")
        self.sum = row.work if row else 0

    def stands_alone(self, message: Message) -> bool:
        return False

    def apply(self, message: Message, work: Work) -> None:
        self.sum += message.record.txn
        work.table(self.tables[0]).put(b"sum", Barrier("", 0, self.sum, ""))

    def tick(self, now_ms: int, work: Work) -> None:
        """Nothing."""

    def end_batch(self, work: Work) -> None:
        """Nothing: the row itself cannot be written."""


def test_a_batch_that_cannot_be_written_costs_the_guilty_message_alone() -> None:
    log, store, service = MemoryLog(VirtualClock()), MemoryStore(), Fragile()
    runner = Runner(service, 0, store, log, VirtualClock())
    encoder = codec(MetadataProgress)
    for txn in (1, 2, 2**63 - 1, 4, 2**63 - 2, 8):
        log.append(METADATA_PROGRESS.name, 0, encoder.encode_message(MetadataProgress(txn, Barrier("", 0, 0, ""))))
    assert runner.step() == 6
    letters = [codec(DeadLetter).decode_message(record.value) for record in log.records(DEAD_LETTERS.name, 0)]
    assert [(letter.offset, letter.error) for letter in letters] == [(2, "OverflowError"), (4, "OverflowError")]
    assert service.sum == 1 + 2 + 4 + 8
    restarted = Fragile()
    runner = Runner(restarted, 0, store, log, VirtualClock())
    assert (runner.step(), restarted.sum) == (0, 15)


RAW = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda byte, count: bytes([byte]) * count, st.integers(0, 255), st.integers(0, 3_000)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(INPUTS), RAW, st.sampled_from(["own", "none", "half", "unknown"]), st.binary()),
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
    for topic, body, kind, key in messages:
        encoder = codec(topic.record)
        value = {"own": encoder.frame, "none": b"", "half": encoder.frame[:3], "unknown": frame(1)}[kind] + body
        try:
            encoder.decode_message(value)
        except DecodeError:
            target.hit(topic, value, key)
            hits += len(topic.consumers) if topic is not SNAPSHOTS_CHANGELOG else 0  # left out where it is read
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
    whole = decoder.encode(example(topic.record))
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
                        letter = dead_letter("metadata", LogRecord(topic.name, 0, 0, 0, bomb), error)
                        assert len(letter.message) < 10_000
                    peak = tracemalloc.get_traced_memory()[1] - before
                    assert peak < MAX_BYTES_PER_INPUT_BYTE * len(bomb) + 200_000, (number, place, peak)
    finally:
        tracemalloc.stop()
