"""The reclaim job on a real broker: what goes in on gc.deleted-entries, and what comes out of it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Never

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from schemas import formats
from schemas.codec import codec, frame
from schemas.records import (
    Barrier,
    ChainCapture,
    ChainDrop,
    DeadLetter,
    DeletedEntries,
    DeletedKind,
    JudgedDirectory,
    PurgeKeys,
    RowName,
    RowNames,
    SnapshotChainRecord,
    SweepResult,
)
from schemas.topics import (
    DEAD_LETTERS,
    DELETED_ENTRIES,
    PURGE_DIRECTORIES,
    PURGE_KEYS,
    SNAPSHOT_CHAIN,
    SWEEP_RESULTS,
    TOPICS,
    Topic,
)
from services.domain.chain_view import ChainView
from services.domain.errors import InvariantError, PositionError, RetryableError
from services.domain.full_chain import in_parts
from services.domain.judging import ROWS_PER_MESSAGE, LoggedEntry, judge_batch
from services.domain.row_columns import NO_ROWS, DeletedEntry, deleted_entries, entries_by_columns, row_names
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_plane_topics, create_topics
from services.plane.machine.home import jars_directory
from streaming.reclaiming.barriers import BarrierSender
from streaming.reclaiming.batch import DEAD_LETTER_BYTES
from streaming.reclaiming.batch_plans import PARTITIONS_OF_ONE_TASK
from streaming.reclaiming.checkpoint import LocalCheckpoint
from streaming.reclaiming.inputs import TOPIC_IDS_FILE, check_inputs
from streaming.reclaiming.metrics import ReclaimMetrics
from streaming.reclaiming.reclaim import (
    FULL_BATCH_MESSAGES,
    LONGEST_WAIT_MS,
    MESSAGES_PER_TASK,
    PREMATURE_SECONDS,
    ReclaimJob,
    ReclaimOptions,
)
from tests.spark_session import SPARK_MARKS, java_for_spark, started_session
from tests.waiting import eventually

pytestmark = [*SPARK_MARKS, pytest.mark.broker, pytest.mark.timeout(180)]

SHARDS = 2
OUTPUTS = (PURGE_KEYS, PURGE_DIRECTORIES, SWEEP_RESULTS)
NEWEST = codec(DeletedEntries).frame
ANSWER_SECONDS = 120.0


class Wire:
    """Both ends of the job: sends entries and markers, and reads what the job says of them."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.views = [ChainView() for _ in range(SHARDS + 1)]
        self.is_running: Callable[[], bool] = lambda: True
        """Whether the job may still send something."""
        self.connect()
        self._next_offsets: Counter[tuple[str, int]] = Counter()
        self._barriers = count(1)
        self._buckets = count(256)

    def connect(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 1})

    def new_bucket(self) -> int:
        return next(self._buckets)

    def send_bytes(self, message: bytes | None, shard: int = 0) -> int:
        """Send a message, whatever it is; says at which offset it lies."""
        return self._send(DELETED_ENTRIES, message, [("other", b"x")], shard)

    def send(self, *entries: DeletedEntry, shard: int = 0) -> list[int]:
        """Send entries, each as a message of its own; says at which offsets they lie."""
        return [self.send_together(entry, shard=shard) for entry in entries]

    def send_together(self, *entries: DeletedEntry, shard: int = 0) -> int:
        """Send entries of one kind as one message."""
        return self.send_bytes(codec(DeletedEntries).encode_message(entries_by_columns(entries)), shard=shard)

    def mark(self, body: ChainCapture | ChainDrop, shard: int = 0) -> int:
        """Send the next marker of a chain; says its version."""
        view = self.views[shard]
        marker = SnapshotChainRecord(view.version + 1, view.version, body)
        view.follow(marker)
        encoder = codec(SnapshotChainRecord)
        self._send(SNAPSHOT_CHAIN, encoder.encode_message(marker), [], shard)
        return view.version

    def _send(self, topic: Topic, body: bytes | None, headers: list[tuple[str, Any]], shard: int) -> int:
        offsets: list[int | None] = []
        self._producer.produce(
            topic.name,
            body,
            partition=shard,
            headers=headers,
            on_delivery=lambda error, message: offsets.append(-1 if error else message.offset()),
        )
        assert self._producer.flush(30) == 0
        (offset,) = offsets
        assert offset is not None
        assert offset >= 0
        return offset

    def whole_chain(self, shard: int) -> int:
        """Have a shard's whole chain written, a bucket and one of its snapshots in each part; says its version."""
        view = self.views[shard]
        encoder = codec(SnapshotChainRecord)
        for part in in_parts(view.buckets(), max_cells=2):
            marker = SnapshotChainRecord(view.version, view.version, part)
            self._send(SNAPSHOT_CHAIN, encoder.encode_message(marker), [], shard)
        return view.version

    def break_chain(self, shard: int) -> None:
        """Send what is no marker."""
        self._send(SNAPSHOT_CHAIN, codec(SnapshotChainRecord).frame + b"\xff", [], shard)

    def barrier(self, shard: int = 0) -> Barrier:
        """Send a barrier."""
        barrier = Barrier(f"settle-{next(self._barriers)}", 1, 3, "", collection_txn=5, passed_txn=9)
        self.send_bytes(
            codec(DeletedEntries).encode_message(DeletedEntries(0, NO_ROWS, (), barrier=barrier)), shard=shard
        )
        return barrier

    def settle(self, shard: int = 0) -> dict[Topic, list[Any]]:
        """Send a barrier, and read all topics up to where it comes out."""
        return self.read_up_to(self.barrier(shard), shard)

    def read_up_to(self, barrier: Barrier, shard: int = 0) -> dict[Topic, list[Any]]:
        """Read all topics up to where a barrier comes out."""
        read = {topic: self._read(topic, shard, barrier) for topic in OUTPUTS}
        return {**read, DEAD_LETTERS: self._read(DEAD_LETTERS, shard, None)}

    def _next(self, consumer: Consumer) -> Message:
        """The next message; fails as soon as nobody can send it any more."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            was_running = self.is_running()  # what the job sent before it ended has arrived by the next look
            for message in consumer.consume(1, timeout=1.0):
                assert message.error() is None
                return message
            assert was_running, "nothing answers: the job has ended"
            assert time.monotonic() < deadline, f"no answer within {ANSWER_SECONDS:g} s"

    def _read(self, topic: Topic, shard: int, barrier: Barrier | None) -> list[Any]:
        """Records from where the last read ended: up to a barrier, or up to the present end."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "test"})
        place = TopicPartition(topic.name, shard, self._next_offsets[topic.name, shard])
        records: list[Any] = []
        try:
            _, end = consumer.get_watermark_offsets(place, timeout=30)
            consumer.assign([place])
            while barrier is not None or place.offset + len(records) < end:
                message = self._next(consumer)
                record = codec(topic.record).decode_message(message.value() or b"")
                records.append(record)
                if barrier is not None and record.barrier and record.barrier.barrier_id == barrier.barrier_id:
                    break
        finally:
            consumer.close()
        self._next_offsets[topic.name, shard] += len(records)
        return records


@dataclass(slots=True)
class Stand:
    """A broker with topics, a session, and the checkpoint that the tests' runs share."""

    wire: Wire
    session: SparkSession
    checkpoint: Path
    shards: int = SHARDS

    @contextlib.contextmanager
    def running(
        self,
        checkpoint: Path | None = None,
        premature_seconds: float = PREMATURE_SECONDS,
        longest_wait_ms: int = LONGEST_WAIT_MS,
        full_batch_messages: int = FULL_BATCH_MESSAGES,
    ) -> Iterator[CollectorRegistry]:
        """The job, running while this lasts."""
        registry = CollectorRegistry()
        options = ReclaimOptions(
            self.wire.bootstrap_servers,
            self.shards,
            LocalCheckpoint(checkpoint or self.checkpoint),
            longest_wait_ms=longest_wait_ms,
            full_batch_messages=full_batch_messages,
            premature_seconds=premature_seconds,
        )
        check_inputs(options.bootstrap_servers, self.shards, options.checkpoint)
        job = ReclaimJob(self.session, options, ReclaimMetrics(registry))
        ended: list[BaseException | None] = []

        def wait() -> None:
            try:
                job.wait()
                ended.append(None)
            except BaseException as error:  # shown by the assertion below
                ended.append(error)

        job.start()
        waiting = threading.Thread(target=wait)
        waiting.start()
        self.wire.is_running = waiting.is_alive
        try:
            yield registry
        except BaseException as error:
            error.add_note(f"the job has ended: {ended}")
            raise
        finally:
            job.stop()
            waiting.join(30)
            job.close()
            self.wire.is_running = lambda: True
        assert ended == [None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: the job's topics have fixed names."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as started:
        create_plane_topics(started.bootstrap_servers, SHARDS)
        yield started.bootstrap_servers


@pytest.fixture(scope="module")
def stand(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with started_session() as session:
        yield Stand(Wire(broker), session, tmp_path_factory.mktemp("checkpoint"))


def named(entry: DeletedEntry) -> RowName:
    return RowName(entry.kind, entry.bucket_id, entry.object_id, entry.birth, entry.death)


def rows(read: dict[Topic, list[Any]]) -> list[RowName]:
    return row_names(purge.rows for purge in read[PURGE_KEYS])


def free_entry(wire: Wire, object_id: int = 1, bucket_id: int = 256) -> DeletedEntry:
    version = wire.views[0].version
    return DeletedEntry(bucket_id, object_id, DeletedKind.KEY, 5, 9, 0, version)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_comes_out_is_what_the_pure_judge_says(stand: Stand, shard: int) -> None:
    wire, bucket_id = stand.wire, stand.wire.new_bucket()
    wire.mark(ChainCapture(bucket_id, f"{bucket_id}/1", 1, 100), shard)
    wire.mark(ChainCapture(bucket_id, f"{bucket_id}/2", 2, 200), shard)
    version = wire.mark(ChainDrop(bucket_id, f"{bucket_id}/1", 100, 1), shard)
    entries = [
        DeletedEntry(bucket_id, number, kind, birth, death, sum(txn < death for txn in (100, 200)), version, *sweep)
        for number, (kind, birth, death, sweep) in enumerate(
            (kind, birth, death, sweep)
            for kind in DeletedKind
            for birth, death in ((50, 150), (50, 250), (150, 250), (210, 250), (1, 2), (150, 140))
            for sweep in ((), (7, 1, 30, 0), (7, 1, 30, 1), (7, 2, 31, 0))
        )
    ]
    with stand.running() as registry:
        wire.settle(shard)
        offsets = wire.send(*entries, shard=shard)
        read = wire.settle(shard)
    expected = judge_batch([LoggedEntry(*one) for one in zip(offsets, entries, strict=True)], wire.views[shard])
    assert sorted(rows(read), key=repr) == sorted(row_names(purge.rows for purge in expected.purge_keys), key=repr)
    numbers = {named(entry): entry.snapshots_before_death for entry in entries}
    is_swept = {named(entry): entry.sweep_id != 0 for entry in entries}
    for purge in read[PURGE_KEYS]:
        assert purge.chain_version == version
        assert list(purge.snapshots_before_death) == [numbers[row] for row in row_names([purge.rows])]
        assert all(is_swept[row] is purge.is_sweep for row in row_names([purge.rows]))
    assert all_directories(read[PURGE_DIRECTORIES]) == all_directories(expected.directory_verdicts)
    assert swept(read[SWEEP_RESULTS]) == swept(expected.sweep_results)
    letters = {letter.offset: letter for letter in read[DEAD_LETTERS]}
    assert {offset: letter.error for offset, letter in letters.items()} == {
        refused.logged.offset: refused.error for refused in expected.refused
    }
    for refused in expected.refused:
        letter = letters[refused.logged.offset]
        assert (letter.service, letter.topic, letter.partition) == ("streaming", DELETED_ENTRIES.name, shard)
        message = codec(DeletedEntries).decode_message(letter.value)
        assert deleted_entries(message) == [refused.logged.entry]
    assert registry.get_sample_value("deepclean_streaming_dead_letters_total") == len(letters)
    assert registry.get_sample_value("deepclean_streaming_chain_version", {"shard": str(shard)}) == version


def all_directories(messages: list[Any]) -> list[JudgedDirectory]:
    return sorted((one for message in messages for one in message.directories), key=lambda one: one.object_id)


def swept(results: list[SweepResult]) -> Counter[tuple[Any, ...]]:
    """Counts of each page, over all its parts, and the rows of each part, whichever result names it."""
    total: Counter[tuple[Any, ...]] = Counter()
    for result in results:
        if not result.barrier:
            for name in ("reclaimable_rows", "reclaimable_directories"):
                total[result.sweep_id, result.sweep_page, name] += getattr(result, name)
            for txn, number, count in parts_of(result):
                total[result.sweep_id, result.sweep_page, txn, number] = count
    return total


def parts_of(result: SweepResult) -> list[tuple[int, int, int]]:
    """Txn, number and rows of each message that a result names."""
    parts = result.parts
    return [] if parts is None else sorted(zip(parts.txns, parts.numbers, parts.rows, strict=True))


def test_a_message_of_a_sweep_that_comes_again_is_named_as_it_was(stand: Stand) -> None:
    """Metadata that starts from an older copy sends again what it sent; whoever counts rows must not count it twice."""
    wire = stand.wire
    first = [replace(free_entry(wire, number), sweep_id=7, sweep_page=1, sweep_txn=30) for number in range(3)]
    second = [replace(entry, sweep_part=1) for entry in first[:2]]
    for message in (first, second, first):
        wire.send_together(*message)
    with stand.running():
        read = wire.settle()
        wire.send_together(*second)
        again = wire.settle()
    named_parts = {part for result in read[SWEEP_RESULTS] for part in parts_of(result)}
    assert named_parts == {(30, 0, 3), (30, 1, 2)}
    assert {part for result in again[SWEEP_RESULTS] for part in parts_of(result)} == {(30, 1, 2)}


def test_a_barrier_comes_out_behind_all_that_was_sent_before_it(stand: Stand) -> None:
    wire = stand.wire
    keys = [free_entry(wire, number) for number in range(2_500)]
    directories = [replace(entry, kind=DeletedKind.DIRECTORY) for entry in keys[:1_100]]
    for first in range(0, len(keys), 700):
        wire.send_together(*keys[first : first + 700])
    wire.send_together(*directories)
    with stand.running():
        read = wire.settle()
    assert set(rows(read)) == {named(entry) for entry in keys}
    assert {one.object_id for one in all_directories(read[PURGE_DIRECTORIES])} == set(range(1_100))
    sizes = [len(purge.rows.object_ids) for purge in read[PURGE_KEYS]]
    assert max(sizes) <= ROWS_PER_MESSAGE
    assert sizes[-1] == 0
    assert read[PURGE_KEYS][-1].barrier.work == 3


def test_an_entry_is_judged_with_every_marker_that_was_there_before_it(stand: Stand) -> None:
    wire, bucket_id = stand.wire, stand.wire.new_bucket()
    with stand.running():
        for ordinal in range(1, 6):
            version = wire.mark(ChainCapture(bucket_id, f"{bucket_id}/{ordinal}", ordinal, 100 * ordinal))
            held = DeletedEntry(
                bucket_id, ordinal, DeletedKind.KEY, 100 * ordinal, 100 * ordinal + 50, ordinal, version
            )
            free = replace(held, birth=100 * ordinal + 1)
            wire.send(held, free)
            read = wire.settle()
            assert rows(read) == [named(free)]
            assert read[PURGE_KEYS][-1].chain_version == version


def test_a_batch_that_many_tasks_read_says_what_a_little_one_says(stand: Stand) -> None:
    """More messages than one task reads wait at the start: rows come together by a shuffle then."""
    wire, bucket_id = stand.wire, stand.wire.new_bucket()
    version = wire.mark(ChainCapture(bucket_id, f"{bucket_id}/1", 1, 100))
    many = MESSAGES_PER_TASK * PARTITIONS_OF_ONE_TASK + 1
    entries = [
        DeletedEntry(bucket_id, number, DeletedKind.KEY, 99 + number % 2 * 2, 200, 1, version, 9, number % 3)
        for number in range(many)
    ]
    little = entries[:5]
    offsets = wire.send(*entries)
    with stand.running() as registry:
        read = wire.settle()
        offsets_of_little = wire.send(*little)
        read_of_little = wire.settle()
    judged = {
        verdict: registry.get_sample_value("deepclean_streaming_entries_judged_total", {"verdict": verdict})
        for verdict in ("held", "reclaimable")
    }
    assert judged == {"held": 51 + 3, "reclaimable": 50 + 2}
    for one, at, sent in ((read, offsets, entries), (read_of_little, offsets_of_little, little)):
        expected = judge_batch([LoggedEntry(*pair) for pair in zip(at, sent, strict=True)], wire.views[0])
        assert sorted(rows(one), key=repr) == sorted(row_names(purge.rows for purge in expected.purge_keys), key=repr)
        assert swept(one[SWEEP_RESULTS]) == swept(expected.sweep_results)


def test_what_was_fetched_beyond_a_batch_is_let_go(stand: Stand) -> None:
    """Each part of a large batch leaves some behind, which would fill the heap of a job with a backlog."""
    wire, pool = stand.wire, fetched_data_pool(stand.session)
    created = pool.numCreated()
    wire.send(*(free_entry(wire, object_id) for object_id in range(2 * MESSAGES_PER_TASK * PARTITIONS_OF_ONE_TASK)))
    with stand.running():
        wire.settle()
        assert pool.numCreated() > created
        eventually(lambda: pool.numTotal() == 0)


def fetched_data_pool(session: SparkSession) -> Any:
    """Where Spark's reader of Kafka keeps what it has fetched; it says how much that is, but not where to find it."""
    java: Any = session._jvm
    reader: Any = java.org.apache.spark.util.Utils.classForName(
        "org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer$", True, False
    )
    field = reader.getDeclaredField("fetchedDataPool")
    field.setAccessible(True)
    return field.get(reader.getField("MODULE$").get(None))


def garbage(wire: Wire) -> dict[str, bytes | None]:
    """Messages that are no entries."""
    entry = free_entry(wire)
    message = entries_by_columns([entry])
    body = codec(DeletedEntries).encode(message)
    kind_at = body.index(codec(RowNames).encode(message.rows))
    return {
        "nothing": b"",
        "tombstone": None,
        "too short": NEWEST + body[:-1],
        "bytes behind": NEWEST + body + b"\x00",
        "another kind": NEWEST + body[:kind_at] + b"\x0e" + body[kind_at + 1 :],
        "endless": NEWEST + b"\xff" * 40,
        "rows without end": NEWEST + body[: kind_at + 1] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\x02" * 20,
        "text of a gigabyte": NEWEST + body[:-3] + b"\x02" + b"\x80\x80\x80\x80\x08" + b"x",
        "a billion rows": NEWEST + b"\x02\x00" + b"\x80\x80\x80\x80\x08" + b"\x02" * 9,
        "a billion rows in a block of nine bytes": NEWEST + b"\x02\x00" + b"\xff\xff\xff\xff\x07\x12" + b"\x02" * 9,
        "more rows than a list has": NEWEST + b"\x02\x00" + b"\x80" * 8 + b"\x40" + b"\x02" * 9,
        "page beyond 32 bits": NEWEST + body[:-4] + b"\x80\x80\x80\x80\x80\x01" + b"\x00" * 3,
        "unknown schema": frame(1) + body,
        "half a frame": NEWEST[:3],
        "no frame": body,
        "a frame alone": NEWEST,
        "longer than a dead letter may be": NEWEST + b"\xff" * (DEAD_LETTER_BYTES + 80_000),
        "another record": codec(PurgeKeys).encode_message(PurgeKeys(1, NO_ROWS, ())),
    }


def test_rows_without_a_place_in_every_list_are_dead_lettered_together(stand: Stand) -> None:
    wire = stand.wire
    whole = entries_by_columns([free_entry(wire, number) for number in range(3)])
    broken = [
        replace(whole, rows=replace(whole.rows, deaths=(9, 9))),
        replace(whole, rows=replace(whole.rows, object_ids=(1, 2, 3, 4))),
        replace(whole, snapshots_before_death=()),
    ]
    offsets = [wire.send_bytes(codec(DeletedEntries).encode_message(message)) for message in broken]
    wire.send_bytes(codec(DeletedEntries).encode_message(DeletedEntries(wire.views[0].version, NO_ROWS, ())))
    with stand.running():
        read = wire.settle()
    assert [(letter.offset, letter.error) for letter in read[DEAD_LETTERS]] == [
        (offset, "ColumnsError") for offset in offsets
    ]
    assert rows(read) == []


def test_unreadable_messages_are_dead_lettered_as_they_came(stand: Stand) -> None:
    wire = stand.wire
    sent = {wire.send_bytes(message): message for message in garbage(wire).values()}
    good = free_entry(wire, object_id=77)
    wire.send(good)
    with stand.running():
        read = wire.settle()
    letters: list[DeadLetter] = read[DEAD_LETTERS]
    assert {letter.offset: letter.value for letter in letters} == {
        offset: (message or b"")[:DEAD_LETTER_BYTES] for offset, message in sent.items()
    }
    assert {letter.error for letter in letters} == {"DecodeError"}
    for letter in letters:
        assert letter.size_bytes == len(sent[letter.offset] or b"")
        assert [(header.name, header.value) for header in letter.headers] == [("other", b"x")]
    assert rows(read) == [named(good)]


@pytest.mark.long
def test_a_start_goes_on_where_the_checkpoint_ends_and_without_one_at_the_beginning(
    stand: Stand, tmp_path: Path
) -> None:
    wire = stand.wire
    before, after = free_entry(wire, object_id=101), free_entry(wire, object_id=102)
    with stand.running():
        wire.send(before)
        wire.settle()
    wire.send(after)
    with stand.running():
        assert rows(wire.settle()) == [named(after)]
    with stand.running(tmp_path / "fresh"):
        assert {named(before), named(after)} <= set(rows(wire.settle()))


def test_topics_that_are_not_those_of_the_checkpoint_are_refused(broker: str, tmp_path: Path) -> None:
    check_inputs(broker, SHARDS, LocalCheckpoint(tmp_path))
    check_inputs(broker, SHARDS, LocalCheckpoint(tmp_path))
    file = tmp_path / TOPIC_IDS_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), DELETED_ENTRIES.name: "another"}))
    with pytest.raises(PositionError, match="was recreated"):
        check_inputs(broker, SHARDS, LocalCheckpoint(tmp_path))
    with pytest.raises(PositionError, match="has 2 partitions, but --shards says 4"):
        check_inputs(broker, 4, LocalCheckpoint(tmp_path / "other"))


def test_a_checkpoint_that_a_newer_program_has_written_is_refused(broker: str, tmp_path: Path) -> None:
    check_inputs(broker, SHARDS, LocalCheckpoint(tmp_path))
    (tmp_path / formats.FILE).write_text("2\n")
    with pytest.raises(InvariantError, match="has format 2, this program reads up to 1"):
        check_inputs(broker, SHARDS, LocalCheckpoint(tmp_path))


@pytest.fixture
def process_arguments(stand: Stand) -> Iterator[tuple[list[str], dict[str, str]]]:
    command = [sys.executable, "-m", "streaming", "--bootstrap-servers", stand.wire.bootstrap_servers]
    command += ["--shards", str(SHARDS), "--jars-directory", str(jars_directory() / "spark")]
    with java_for_spark() as environment:
        yield command, environment


@pytest.mark.long
def test_the_process_answers_and_ends_when_stopped(
    stand: Stand, process_arguments: tuple[list[str], dict[str, str]]
) -> None:
    command, environment = process_arguments
    command += ["--checkpoint", str(stand.checkpoint), "--metrics-port", "0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            port = next(json.loads(line)["metrics_port"] for line in process.stderr if '"streaming runs"' in line)
            entry = free_entry(stand.wire, object_id=201)
            stand.wire.send(entry)
            assert rows(stand.wire.settle()) == [named(entry)]
            for page, expected in (("metrics", 'verdict="reclaimable"} 1.0'), ("healthz", "yes"), ("readyz", "yes")):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10) as answer:
                    assert expected in answer.read().decode()
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_what_spark_says_of_its_batches_is_in_the_metrics(stand: Stand) -> None:
    wire = stand.wire
    with stand.running() as registry:
        wire.settle()
        offsets = wire.send(*(free_entry(wire, object_id=number) for number in range(211, 214)))
        wire.settle()

        def value(name: str, **labels: str) -> float:
            return registry.get_sample_value(f"deepclean_streaming_query_{name}_total", labels) or 0

        eventually(lambda: value("messages") >= len(offsets) + 1 and value("batches") >= 1)
        assert value("seconds", step="addBatch") > 0
        assert value("seconds", step="walCommit") > 0
        behind_barrier = offsets[-1] + 2
        eventually(
            lambda: registry.get_sample_value("deepclean_streaming_needed_offset", {"shard": "0"}) == behind_barrier
        )


def waiting_messages(registry: CollectorRegistry, shard: int) -> float:
    return registry.get_sample_value("deepclean_streaming_passed_over_messages", {"shard": str(shard)}) or 0


def is_broken(registry: CollectorRegistry, shard: int) -> bool:
    return registry.get_sample_value("deepclean_streaming_chain_broken", {"shard": str(shard)}) == 1


@pytest.mark.long
def test_a_broken_chain_keeps_its_own_shard_waiting_and_no_other(stand: Stand) -> None:
    """What was passed over is judged, in its order, as soon as the whole chain is there, whatever was restarted."""
    wire, bucket_id = stand.wire, stand.wire.new_bucket()
    taken = wire.mark(ChainCapture(bucket_id, f"{bucket_id}/1", 1, 100), 1)
    held = DeletedEntry(bucket_id, 1, DeletedKind.KEY, 50, 150, 1, taken)
    free = [replace(held, object_id=number, birth=110) for number in range(2, 7)]
    with stand.running() as registry:
        wire.settle(1)
        wire.break_chain(1)
        wire.send(held, *free[:2], shard=1)
        barriers = [wire.barrier(1)]
        other = free_entry(wire, object_id=401)
        wire.send(other)
        assert rows(wire.settle()) == [named(other)]
        eventually(lambda: waiting_messages(registry, 1) == 4)
        assert (is_broken(registry, 0), is_broken(registry, 1)) == (False, True)
        wire.send(*free[2:4], shard=1)
        eventually(lambda: waiting_messages(registry, 1) == 6)
    with stand.running() as registry:
        other = free_entry(wire, object_id=402)
        wire.send(other)
        wire.send(free[4], shard=1)
        assert rows(wire.settle()) == [named(other)]
        barriers.append(wire.barrier(1))
        eventually(lambda: waiting_messages(registry, 1) == 8)
        wire.whole_chain(1)
        first, second = [wire.read_up_to(barrier, 1) for barrier in barriers]
        assert {named(one) for one in free[:2]} <= set(rows(first)), "a barrier overtakes nothing"
        assert sorted(rows(first) + rows(second), key=repr) == [named(one) for one in free]
        assert first[DEAD_LETTERS] == second[DEAD_LETTERS] == []
        eventually(lambda: not waiting_messages(registry, 1))
        assert not is_broken(registry, 1)
        late = replace(free[0], object_id=9)
        wire.send(late, shard=1)
        assert rows(wire.settle(1)) == [named(late)]


@pytest.mark.long
def test_what_was_passed_over_waits_until_its_barriers_are_out(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = stand.wire
    entry = replace(free_entry(wire, object_id=451), chain_version=0)
    with stand.running() as registry:
        wire.break_chain(1)
        wire.send(entry, shard=1)
        barrier = wire.barrier(1)
        eventually(lambda: waiting_messages(registry, 1) == 2)
    wire.whole_chain(1)

    def die(*_: object) -> Never:
        raise RetryableError("killed before the barriers")

    options = ReclaimOptions(wire.bootstrap_servers, stand.shards, LocalCheckpoint(stand.checkpoint))
    job = ReclaimJob(stand.session, options, ReclaimMetrics(CollectorRegistry()))
    with monkeypatch.context() as patch:
        patch.setattr(BarrierSender, "send", die)
        job.start()
        with pytest.raises(RetryableError, match="killed before the barriers"):
            job.wait()
        job.close()
    with stand.running():
        assert named(entry) in rows(wire.read_up_to(barrier, 1))


def test_an_entry_ahead_of_the_chain_waits_alone_until_the_chain_comes(stand: Stand) -> None:
    wire, bucket_id = stand.wire, stand.wire.new_bucket()
    version = wire.views[0].version
    ahead = DeletedEntry(bucket_id, 1, DeletedKind.KEY, 50, 150, 1, version + 1)
    behind = free_entry(wire, object_id=501)
    with stand.running() as registry:
        wire.send(replace(ahead, birth=110), behind)
        read = wire.settle()
        assert rows(read) == [named(behind)]
        assert read[PURGE_KEYS][-1].barrier.work == 3 + 1, "the plane is not settled while it waits"
    with stand.running() as registry:
        wire.mark(ChainCapture(bucket_id, f"{bucket_id}/1", 1, 100))
        eventually(lambda: registry.get_sample_value("deepclean_streaming_premature_messages") == 0)
        read = wire.settle()
    assert rows(read) == [named(replace(ahead, birth=110))]
    assert read[PURGE_KEYS][-1].barrier.work == 3
    assert read[DEAD_LETTERS] == []


def test_an_entry_with_a_false_chain_version_is_dead_lettered_once_its_wait_is_over(stand: Stand) -> None:
    wire = stand.wire
    forged = [replace(free_entry(wire, object_id=number), chain_version=2**62) for number in (601, 602)]
    behind = free_entry(wire, object_id=603)
    with stand.running(premature_seconds=0.0) as registry:
        first, second = wire.send(*forged, behind)[:2]
        read = wire.settle()
        assert rows(read) == [named(behind)]
        eventually(lambda: registry.get_sample_value("deepclean_streaming_dead_letters_total") == 2)
        again = wire.settle()
    letters = read[DEAD_LETTERS] + again[DEAD_LETTERS]
    assert [(letter.offset, letter.error) for letter in letters] == [
        (first, "PrematureError"),
        (second, "PrematureError"),
    ]
    assert deleted_entries(codec(DeletedEntries).decode_message(letters[0].value)) == forged[:1]


def test_a_shard_that_is_added_is_judged_by_the_running_job(stand: Stand) -> None:
    """The last test here: a partition is never taken away. Its topics get theirs one after the other.

    The source hears of it between two batches, while it waits for a fuller one, and reports on it before it has it:
    here it waits for three messages, whatever the machine has to do, and only then is the one of the new shard sent.
    """
    stand.session.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1")  # else a report every ten seconds
    wire, bucket_id, new = stand.wire, stand.wire.new_bucket(), SHARDS
    with stand.running(longest_wait_ms=600_000, full_batch_messages=3) as registry:
        wire.send(*(free_entry(wire, object_id=number) for number in (703, 704)))
        wire.settle()
        add_partition(wire, [DELETED_ENTRIES])
        early = free_entry(wire, object_id=701)
        wire.send(replace(early, chain_version=0), shard=new)
        eventually(lambda: waiting_messages(registry, new) == 1)
        add_partition(wire, [topic for topic in TOPICS if topic is not DELETED_ENTRIES])
        version = wire.mark(ChainCapture(bucket_id, f"{bucket_id}/1", 1, 100), new)
        held = DeletedEntry(bucket_id, 1, DeletedKind.KEY, 50, 150, 1, version)
        wire.send(held, replace(held, object_id=2, birth=110), shard=new)
        read = wire.settle(new)
        assert rows(read) == [named(replace(early, chain_version=0)), named(replace(held, object_id=2, birth=110))]
        assert read[DEAD_LETTERS] == []
        others = [free_entry(wire, object_id=number) for number in (705, 706)]
        wire.send(*others)
        assert rows(wire.settle()) == [named(other) for other in others]


def add_partition(wire: Wire, topics: list[Topic]) -> None:
    create_topics(wire.bootstrap_servers, {topic.name: {} for topic in topics}, SHARDS + 1)
    wire.connect()  # a producer learns of partitions when it asks again, some minutes later
    consumer = Consumer({"bootstrap.servers": wire.bootstrap_servers, "group.id": "test"})
    try:
        eventually(lambda: all(is_led(consumer, TopicPartition(topic.name, SHARDS)) for topic in topics))
    finally:
        consumer.close()


def is_led(consumer: Consumer, place: TopicPartition) -> bool:
    """Whether a partition has its leader, which it gets a moment after it was made."""
    try:
        consumer.get_watermark_offsets(place, timeout=30)
    except KafkaException:
        return False
    return True
