"""Commands over a real broker: numbered, in order, bounded in flight, answered once, by metadata itself."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from schemas.codec import codec
from schemas.records import (
    AnnounceSchema,
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    MetadataCommand,
    MetadataReply,
    PutKey,
    SetFeatureLevel,
    SnapshotCommand,
)
from schemas.topics import METADATA_COMMANDS, METADATA_REPLIES, SNAPSHOTS_COMMANDS, SNAPSHOTS_REPLIES, TOPICS
from services.client.errors import AnswerExpiredError, NotDeliveredError, PlaneTimeoutError, UnreachableError
from services.client.kafka_plane import KafkaPlane, PlaneAddress
from services.domain.errors import RetryableError
from services.log import stalls
from services.log.clock import SystemClock
from services.log.first_commands import first_commands
from services.log.kafka import KafkaLog
from services.log.port import MAX_CHANGE_MESSAGE_BYTES
from services.log.reads import all_records
from services.metadata.service import MetadataService
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import TOPIC_SETTINGS, create_plane_topics, create_topics
from services.runtime.loop.runner import Runner
from services.storage.memory import MemoryStore
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]
SHARDS = 2
TOPIC_BYTES = 1_000_000
"""What the topic of commands takes here; the client would send larger messages."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: the plane's topics have fixed names."""
    with EmbeddedBroker(tmp_path_factory.mktemp("plane")) as broker:
        settings = {topic.name: TOPIC_SETTINGS for topic in TOPICS}
        settings[METADATA_COMMANDS.name] = {**TOPIC_SETTINGS, "max.message.bytes": str(TOPIC_BYTES)}
        create_topics(broker.bootstrap_servers, settings, SHARDS)
        create_plane_topics(broker.bootstrap_servers, SHARDS)
        yield broker.bootstrap_servers


@contextmanager
def metadata_running(servers: str) -> Iterator[None]:
    """metadata of all shards, from the beginning of the log, with its tables in memory."""
    stop = threading.Event()
    log = KafkaLog(servers, "metadata")
    runners = [Runner(MetadataService(), shard, MemoryStore(), log, SystemClock()) for shard in range(SHARDS)]

    def run() -> None:
        while not stop.is_set():
            for runner in runners:
                with contextlib.suppress(RetryableError):  # as when a test has stopped the broker
                    runner.step(0.01)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for runner in runners:
            runner.close()


def plane_of(servers: str, **options: float) -> KafkaPlane:
    nowhere = "http://127.0.0.1:1"
    return KafkaPlane(PlaneAddress(servers, SHARDS, nowhere, nowhere, nowhere), **options)  # type: ignore[arg-type]


def test_answers_find_their_commands_in_any_order_of_asking(servers: str) -> None:
    with metadata_running(servers), plane_of(servers, max_unanswered=500) as plane:
        for shard in range(SHARDS):
            plane.submit(shard, CreateVolume(f"any-order-{shard}"))
            bucket = CreateBucket(f"any-order-{shard}", "bucket", BucketLayout.OBJECT_STORE)
            assert plane.submit(shard, bucket) == 2
        puts = [
            (shard, plane.submit(shard, PutKey(f"any-order-{shard}", "bucket", f"key-{number}", number)))
            for number in range(3_000)
            for shard in range(SHARDS)
        ]
        assert [number for shard, number in puts if shard == 1] == list(range(3, 3_003))
        replies = {put: plane.answer(*put) for put in reversed(puts)}
        assert {reply.error for reply in replies.values()} == {""}
        for shard in range(SHARDS):
            txns = [replies[put].txn for put in puts if put[0] == shard]
            assert txns == list(range(txns[0], txns[0] + 3_000))
        assert plane.answer(0, 1).error in ("", "VOLUME_ALREADY_EXISTS")
        with pytest.raises(AnswerExpiredError, match="fetched before"):  # at once, and not after a minute of waiting
            plane.answer(0, 1)
        with pytest.raises(ValueError, match="was not sent"):
            plane.answer(0, 10_000)


def test_two_clients_do_not_take_each_others_answers(servers: str) -> None:
    with metadata_running(servers), plane_of(servers) as first, plane_of(servers) as second:
        first.answer(0, first.submit(0, CreateVolume("shared")))
        numbers = [(plane, plane.submit(0, CreateVolume("shared"))) for plane in (first, second, first, second)]
        assert [plane.answer(0, number).error for plane, number in numbers] == ["VOLUME_ALREADY_EXISTS"] * 4


def test_silence_ends_in_an_error_and_a_repeated_answer_is_used_once(servers: str) -> None:
    with plane_of(servers, answer_seconds=0.5, max_unanswered=3) as plane:
        numbers = [plane.submit(0, CreateVolume("nobody-listens")) for _ in range(3)]
        with pytest.raises(PlaneTimeoutError, match="3 commands are unanswered"):
            plane.submit(0, CreateVolume("nobody-listens"))
        with pytest.raises(PlaneTimeoutError, match="no answer to number 1 within"):
            plane.answer(0, numbers[0])
        with pytest.raises(PlaneTimeoutError, match="no answer to number 1 within"):
            plane.request(0, CreateSnapshot("nobody", "listens", "here"))
        client_id = plane._commands().client_id
        with Producer({"bootstrap.servers": servers}) as producer:
            encoder = codec(MetadataReply)
            for txn in (7, 8):
                reply = encoder.encode_message(MetadataReply(client_id, numbers[0], txn))
                producer.produce(METADATA_REPLIES.name, reply, partition=0)
                producer.flush()
        assert plane.answer(0, numbers[0]).txn == 7
    with metadata_running(servers):  # what nobody answered is in the log and does not disturb the next test
        pass


def _noise(length: int) -> str:
    """Text that no compression makes shorter."""
    return os.urandom(length // 2).hex()


def test_what_the_broker_refuses_fails_alone(servers: str) -> None:
    with metadata_running(servers), plane_of(servers) as plane:
        too_large_for_the_topic = PutKey("refused", "bucket", "key", 1, _noise(2 * TOPIC_BYTES))
        too_large_for_any = PutKey("refused", "bucket", "key", 1, _noise(2 * MAX_CHANGE_MESSAGE_BYTES))
        number = plane.submit(0, too_large_for_the_topic)
        with pytest.raises(NotDeliveredError, match="it was not carried out") as refused:
            plane.answer(0, number)
        assert not refused.value.may_be_applied
        with pytest.raises(NotDeliveredError, match="it was not carried out"):
            plane.submit(0, too_large_for_any)
        again = plane.submit(0, CreateVolume("refused"))
        assert again == number + 1
        assert plane.answer(0, again).error in ("", "VOLUME_ALREADY_EXISTS")


def _stands_still(process_id: int) -> bool:
    """Whether each thread of a process has come to its stop: until then some answer."""
    threads = Path(f"/proc/{process_id}/task").glob("*/status")
    return all("\nState:\tT" in thread.read_text() for thread in threads)


def test_logs_that_were_created_and_not_begun_are_begun_once(servers: str) -> None:
    """As after an ``up`` that died between the topics and the first commands: those of ``servers`` existed before."""
    create_plane_topics(servers, SHARDS)
    log = KafkaLog(servers, "reader")
    for shard in range(SHARDS):
        records = all_records(log, METADATA_COMMANDS.name, shard)
        bodies = [codec(MetadataCommand).decode_message(record.value).body for record in records]
        expected = [codec(MetadataCommand).decode_message(value).body for value in first_commands(shard, None, 0)]
        assert bodies[: len(expected)] == expected
        assert sum(isinstance(body, SetFeatureLevel) for body in bodies) == 1


@pytest.mark.long
def test_an_older_plane_gets_no_first_commands(tmp_path: Path) -> None:
    """It has published its schemas; an empty shard of it is no new one, and may have to go back to its program."""
    with EmbeddedBroker(tmp_path) as broker:
        create_plane_topics(broker.bootstrap_servers, 1)
        before = KafkaLog(broker.bootstrap_servers, "reader").end_offset(METADATA_COMMANDS.name, 0)
        create_plane_topics(broker.bootstrap_servers, 2)
        after = KafkaLog(broker.bootstrap_servers, "reader")
        assert after.end_offset(METADATA_COMMANDS.name, 0) == before
        (record,) = all_records(after, METADATA_COMMANDS.name, 1)
        body = codec(MetadataCommand).decode_message(record.value).body
        assert isinstance(body, AnnounceSchema), "commands by later schemas are allowed; the level is not raised"


@pytest.mark.long
def test_a_broker_that_was_away_fails_what_was_under_way_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.client.wire.kafka_commands.DELIVERY_SECONDS", 2.0)
    with EmbeddedBroker(tmp_path) as broker:
        create_plane_topics(broker.bootstrap_servers, SHARDS)
        with (
            metadata_running(broker.bootstrap_servers),
            plane_of(broker.bootstrap_servers, answer_seconds=5.0) as plane,
        ):
            assert plane.answer(0, plane.submit(0, CreateVolume("before"))).error == ""
            process_id = broker.process_id
            assert process_id is not None
            os.kill(process_id, signal.SIGSTOP)
            eventually(partial(_stands_still, process_id))
            try:
                numbers = [plane.submit(0, CreateVolume("meanwhile")) for _ in range(2)]
                with pytest.raises(NotDeliveredError, match="whether it was carried out") as failed:
                    plane.answer(0, numbers[0])
            finally:
                os.kill(process_id, signal.SIGCONT)
            assert failed.value.may_be_applied
            assert plane.answer(0, numbers[1]).error in ("", "VOLUME_ALREADY_EXISTS"), "it was sent again"
            assert plane.answer(0, plane.submit(0, CreateVolume("before"))).error == "VOLUME_ALREADY_EXISTS"


def _fail_once(plane: KafkaPlane, error: Exception) -> threading.Event:
    """Have the first answers that the client reads be lost to an error."""
    commands, failed = plane._commands(), threading.Event()

    def breaks_once(messages: list[Any]) -> None:
        del commands._receive
        failed.set()
        raise error

    commands._receive = breaks_once  # type: ignore[method-assign]
    return failed


def test_reading_goes_on_where_an_error_was(servers: str) -> None:
    with plane_of(servers) as plane:
        failed = _fail_once(plane, KafkaException(KafkaError(KafkaError._BAD_MSG)))
        numbers = [plane.submit(0, CreateVolume("goes-on")) for _ in range(3)]
        with metadata_running(servers):
            assert failed.wait(30)
            replies = [plane.answer(0, number).error for number in numbers]
    assert replies == ["", "VOLUME_ALREADY_EXISTS", "VOLUME_ALREADY_EXISTS"]


def test_an_answer_is_read_though_a_consumer_fetches_nothing_more(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "LOOK_SECONDS", 0.3)
    with plane_of(servers) as plane:
        (reader,) = plane._commands()._readers
        stalled: Any = Stalled(reader.consumer)
        reader.consumer = stalled
        number = plane.submit(0, CreateVolume("though-it-stands-still"))
        with metadata_running(servers):
            assert plane.answer(0, number).error == ""
            replaced = reader.consumer
            assert replaced is not stalled
            assert plane.answer(0, plane.submit(0, CreateVolume("goes-on-reading"))).error == ""
        late = plane.submit(0, CreateVolume("nobody-answers"))
        with pytest.raises(PlaneTimeoutError):
            plane._commands()._next_reply(METADATA_REPLIES, 0, late, 0.0, time.monotonic() + 3.0)
        assert reader.consumer is replaced, "where nothing comes, nothing is stalled"


class Stalled:
    """A consumer that fetches nothing more, and says no word of it."""

    def __init__(self, consumer: Consumer) -> None:
        self.close = consumer.close
        self.get_watermark_offsets = consumer.get_watermark_offsets

    def poll(self, timeout_seconds: float) -> None:
        """Wait in vain."""
        threading.Event().wait(timeout_seconds)


def test_a_lost_answer_is_asked_for_again_by_its_number(servers: str) -> None:
    """The newest command is repeated and is applied once; of the one before the plane keeps no answer."""
    with plane_of(servers) as plane:
        failed = _fail_once(plane, KafkaException(KafkaError(KafkaError._AUTO_OFFSET_RESET)))
        before, newest = (plane.submit(0, CreateVolume(f"asked-again-{number}")) for number in range(2))
        with metadata_running(servers):
            assert failed.wait(30)
            with pytest.raises(NotDeliveredError, match=r"cannot be read .* whether it was carried out"):
                plane.answer(0, before)
            reply = plane.answer(0, newest)
            assert reply.error == ""
            later = plane.answer(0, plane.submit(0, CreateVolume("asked-again-2")))
            assert (later.error, later.txn) == ("", reply.txn + 1), "the repeat took no txn"


def test_a_request_is_not_carried_out_twice_either(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers here: what counts is that the same number is sent again, and nothing else."""
    with plane_of(servers, answer_seconds=3.0) as plane:
        commands = plane._commands()
        asked = CreateSnapshot("nobody", "answers", "here")
        fail_once = iter([True])
        next_reply = commands._next_reply

        def lost_once(*arguments: Any) -> Any:
            if next(fail_once, False):
                commands._answers[SNAPSHOTS_REPLIES.name, 0].unanswered.clear()
                raise NotDeliveredError("lost", may_be_applied=True)
            return next_reply(*arguments)

        monkeypatch.setattr(commands, "_next_reply", lost_once)
        end = KafkaLog(servers, "reader").end_offset(SNAPSHOTS_COMMANDS.name, 0)
        with pytest.raises(PlaneTimeoutError):
            plane.request(0, asked)
        records = all_records(KafkaLog(servers, "reader"), SNAPSHOTS_COMMANDS.name, 0)
        sent = [codec(SnapshotCommand).decode_message(one.value) for one in records if one.offset >= end]
        assert [(one.number, one.body) for one in sent] == [(1, asked)] * 2


def test_no_use_in_waiting_is_noticed(servers: str) -> None:
    def has_ended() -> None:
        raise UnreachableError("metadata has ended")

    nowhere = "http://127.0.0.1:1"
    with KafkaPlane(PlaneAddress(servers, SHARDS, nowhere, nowhere, nowhere), check=has_ended) as plane:
        number = plane.submit(0, CreateVolume("nobody-listens"))
        with pytest.raises(UnreachableError, match="metadata has ended"):
            plane.answer(0, number)


def test_a_broker_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.client.wire.kafka_commands.CONNECT_SECONDS", 1.0)
    with plane_of("127.0.0.1:1") as plane, pytest.raises(UnreachableError, match=r"^the broker at 127.0.0.1:1 .*\)$"):
        plane.submit(0, CreateVolume("nowhere"))
