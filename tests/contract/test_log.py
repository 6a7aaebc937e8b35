"""One suite for every log: what the loop relies on holds on a real broker as it does in memory."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from services.domain.errors import FencedError, InvariantError, PositionError, RetryableError
from services.log import kafka as kafka_log
from services.log import stalls
from services.log.clock import SystemClock
from services.log.kafka import KafkaLog, KafkaSource, producer_configuration
from services.log.kafka_sinks import KafkaSink, OwnedKafkaSink
from services.log.memory import MemoryLog
from services.log.port import Log, LogRecord, Sink, Source
from services.log.reads import all_records, end_of_records, last_record
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_topics

pytestmark = pytest.mark.timeout(120)
PATIENCE_SECONDS = 20.0


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.broker)])
def log(request: pytest.FixtureRequest) -> Log:
    if request.param == "memory":
        return MemoryLog(SystemClock(), has_control_records=True)
    return KafkaLog(request.getfixturevalue("bootstrap_servers"), "contract-test")


@pytest.fixture
def topics(log: Log) -> list[str]:
    names = [f"{name}-{uuid4().hex}" for name in ("first", "second")]
    if isinstance(log, KafkaLog):
        create_topics(log.bootstrap_servers, {name: {} for name in names}, partitions=2)
    return names


def take(source: Source, count: int) -> list[LogRecord]:
    """Poll until so many messages are there."""
    taken: list[LogRecord] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(taken) < count and time.monotonic() < deadline:
        taken += source.poll(100, 0.2)
    assert len(taken) == count
    return taken


def poll_for_long(source: Source) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        source.poll(10, 0.2)


def first_end(log: Log, topic: str) -> int:
    """A partition that was just made may not have its leader yet: the loop would try again too."""
    for _ in range(50):
        try:
            return log.end_offset(topic, 0)
        except RetryableError:
            time.sleep(0.1)
    return log.end_offset(topic, 0)


def publish(log: Log, topic: str, partition: int, *values: bytes) -> None:
    sink = log.open_sink()
    for value in values:
        sink.send(topic, partition, value)
    sink.flush()
    sink.close()


def test_what_was_sent_is_polled_in_order(log: Log, topics: list[str]) -> None:
    before_ms = int(time.time() * 1000) - 1
    publish(log, topics[0], 1, *[b"%d" % number for number in range(250)])
    source = log.open_source(topics, 1, {})
    records = take(source, 250)
    assert [record.value for record in records] == [b"%d" % number for number in range(250)]
    assert [record.offset for record in records] == list(range(250))
    assert {(record.topic, record.partition, record.key) for record in records} == {(topics[0], 1, b"")}
    assert before_ms <= records[0].timestamp_ms <= records[-1].timestamp_ms <= int(time.time() * 1000) + 1
    source.close()


def test_a_source_reads_only_its_partition_and_topics(log: Log, topics: list[str]) -> None:
    publish(log, topics[0], 0, b"other partition")
    publish(log, topics[1], 1, b"other topic")
    publish(log, topics[0], 1, b"wanted")
    source = log.open_source([topics[0]], 1, {})
    assert [record.value for record in take(source, 1)] == [b"wanted"]
    assert source.poll(10, 0.2) == []
    source.close()


def test_a_source_starts_at_its_positions(log: Log, topics: list[str]) -> None:
    publish(log, topics[0], 0, b"a", b"b", b"c")
    publish(log, topics[1], 0, b"d", b"e")
    source = log.open_source(topics, 0, {topics[0]: 2, topics[1]: 1})
    assert sorted(record.value for record in take(source, 2)) == [b"c", b"e"]
    source.close()


def test_a_source_at_the_end_gets_what_comes_later(log: Log, topics: list[str]) -> None:
    publish(log, topics[0], 0, b"a")
    source = log.open_source([topics[0]], 0, {topics[0]: 1})
    assert source.poll(10, 0.1) == []
    publish(log, topics[0], 0, b"b")
    assert [record.value for record in take(source, 1)] == [b"b"]
    source.close()


def test_no_more_is_polled_than_asked_for(log: Log, topics: list[str]) -> None:
    publish(log, topics[0], 0, *[b"%d" % number for number in range(10)])
    source = log.open_source([topics[0]], 0, {})
    polled: list[LogRecord] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(polled) < 10 and time.monotonic() < deadline:
        more = source.poll(3, 0.2)
        assert len(more) <= 3
        polled += more
    assert [record.value for record in polled] == [b"%d" % number for number in range(10)]
    source.close()


def test_a_position_beyond_the_end_is_refused(log: Log, topics: list[str]) -> None:
    publish(log, topics[0], 0, b"a")
    source = log.open_source([topics[0]], 0, {topics[0]: 5})
    with pytest.raises(PositionError):
        poll_for_long(source)
    source.close()


def test_the_end_counts_what_was_sent(log: Log, topics: list[str]) -> None:
    assert first_end(log, topics[0]) == 0
    publish(log, topics[0], 0, b"a", b"b")
    assert log.end_offset(topics[0], 0) == 2
    assert log.end_offset(topics[0], 1) == 0


def test_lag_is_what_lies_ahead(log: Log, topics: list[str]) -> None:
    publish(log, topics[0], 0, *[b"%d" % number for number in range(10)])
    source = log.open_source([topics[0]], 0, {})
    polled = 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while polled < 4 and time.monotonic() < deadline:
        polled += len(source.poll(4 - polled, 0.2))
    assert source.lag() == {topics[0]: 6}
    source.close()


def test_topic_ids_are_stable_and_differ(log: Log, topics: list[str]) -> None:
    ids = log.topic_ids(topics)
    assert ids == log.topic_ids(topics)
    assert len(set(ids.values())) == 2
    assert log.topic_ids([]) == {}


# What only a broker has to promise.


@pytest.fixture
def kafka(bootstrap_servers: str) -> KafkaLog:
    return KafkaLog(bootstrap_servers, "contract-test")


@pytest.fixture
def topic(kafka: KafkaLog) -> str:
    name = f"only-{uuid4().hex}"
    create_topics(kafka.bootstrap_servers, {name: {}}, partitions=1)
    return name


@pytest.mark.broker
def test_a_recreated_topic_has_another_id(kafka: KafkaLog, topic: str) -> None:
    before = kafka.topic_ids([topic])[topic]
    with AdminClient({"bootstrap.servers": kafka.bootstrap_servers}) as admin:
        admin.delete_topics([topic])[topic].result()
    create_topics(kafka.bootstrap_servers, {topic: {}}, partitions=1)
    assert kafka.topic_ids([topic])[topic] != before


@pytest.mark.broker
def test_a_topic_that_is_not_there_is_one_sentence(kafka: KafkaLog) -> None:
    with pytest.raises(InvariantError, match="make the topics"):
        kafka.topic_ids(["never-made"])


@pytest.mark.broker
def test_a_message_comes_at_once_when_it_is_there(kafka: KafkaLog, topic: str) -> None:
    """Not only when as many as were asked for are there, or when the time is over."""
    source = kafka.open_source([topic], 0, {})
    source.poll(10, 1.0)
    sink = kafka.open_sink()
    delays = []
    for _ in range(10):
        sink.send(topic, 0, b"x")
        sink.flush()
        sent = time.monotonic()
        while not source.poll(2_000, 2.0):
            pass
        delays.append(time.monotonic() - sent)
    assert sorted(delays)[5] < 0.5
    sink.close()
    source.close()


def test_a_message_has_its_key(log: Log, topics: list[str]) -> None:
    sink = log.open_sink()
    sink.send(topics[0], 0, b"with", b"the key")
    sink.send(topics[0], 0, b"without")
    sink.flush()
    sink.close()
    source = log.open_source([topics[0]], 0, {})
    assert [(record.value, record.key) for record in take(source, 2)] == [(b"with", b"the key"), (b"without", b"")]
    source.close()


@pytest.mark.broker
def test_a_tombstone_and_headers_of_others_are_read(kafka: KafkaLog, topic: str) -> None:
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        producer.produce(topic, b"other", partition=0, headers=[("trace", b"1")])
        producer.produce(topic, None, partition=0, headers=[("trace", None)])
        producer.flush()
    source = kafka.open_source([topic], 0, {})
    found = [(record.value, record.headers) for record in take(source, 2)]
    assert found == [(b"other", [("trace", b"1")]), (b"", [("trace", None)])]
    source.close()


@pytest.mark.broker
def test_more_messages_than_the_queue_holds_go_out(kafka: KafkaLog, topic: str) -> None:
    sink = KafkaSink(
        producer_configuration(kafka.bootstrap_servers, "contract-test") | {"queue.buffering.max.messages": 100}
    )
    for number in range(1_000):
        sink.send(topic, 0, b"%d" % number)
    sink.flush()
    sink.close()
    source = kafka.open_source([topic], 0, {})
    assert [record.value for record in take(source, 1_000)] == [b"%d" % number for number in range(1_000)]
    source.close()


@pytest.mark.broker
def test_a_message_that_is_too_large_says_what_to_set(kafka: KafkaLog, topic: str) -> None:
    sink = kafka.open_sink()
    with pytest.raises(InvariantError, match=r"max\.message\.bytes"):
        sink.send(topic, 0, b"x" * 11_000_000)
    sink.send(topic, 0, b"goes on")
    sink.flush()
    assert kafka.end_offset(topic, 0) == 1
    sink.close()


@pytest.mark.long
@pytest.mark.broker
def test_the_log_goes_on_after_the_broker_was_away(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        log = KafkaLog(broker.bootstrap_servers, "contract-test", answer_seconds=1.0)
        create_topics(broker.bootstrap_servers, {"orders": {}}, partitions=1)
        sink = KafkaSink(producer_configuration(broker.bootstrap_servers, "contract-test"), flush_seconds=3.0)
        source = log.open_source(["orders"], 0, {})
        sink.send("orders", 0, b"before")
        sink.flush()
        assert [record.value for record in take(source, 1)] == [b"before"]
        broker.kill()
        sink.send("orders", 0, b"while away")
        with pytest.raises(RetryableError, match="not acknowledge"):
            sink.flush()
        with pytest.raises(RetryableError):
            poll_for_long(source)
        with pytest.raises(RetryableError):
            log.end_offset("orders", 0)
        broker.start()
        sink.send("orders", 0, b"again")
        _retry(sink)
        assert [record.value for record in _taken_again(source)] == [b"again"]
        source.close()
        sink.close()


@pytest.mark.broker
def test_a_reader_ends_while_the_broker_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client waits for an answer about the positions for lag tools, as long as there is none."""
    monkeypatch.setattr(kafka_log, "POLLS_BETWEEN_COMMITS", 1)
    monkeypatch.setattr(kafka_log, "CLOSE_SECONDS", 0.5)
    with EmbeddedBroker(tmp_path) as broker:
        create_topics(broker.bootstrap_servers, {"orders": {}}, partitions=1)
        source = KafkaLog(broker.bootstrap_servers, "contract-test").open_source(["orders"], 0, {})
        source.poll(1, 1.0)
        process_id = broker.process_id
        assert process_id is not None
        os.kill(process_id, signal.SIGSTOP)
        try:
            source.poll(1, 0.1)
            began = time.monotonic()
            source.close()
            assert time.monotonic() - began < 10 * kafka_log.CLOSE_SECONDS
        finally:
            os.kill(process_id, signal.SIGCONT)
        for thread in threading.enumerate():
            if thread.name == "closed reader":
                thread.join(PATIENCE_SECONDS)


def _retry(sink: KafkaSink) -> None:
    """As the loop does: until it is acknowledged, all of it again."""
    for _ in range(20):
        try:
            sink.flush()
        except RetryableError:
            sink.send("orders", 0, b"again")
        else:
            return
    pytest.fail("the broker did not come back")


def _taken_again(source: Source) -> list[LogRecord]:
    """As the loop does: the client may tell once more that nobody answered, after somebody does again."""
    for _ in range(100):
        with contextlib.suppress(RetryableError):
            return take(source, 1)
    pytest.fail("the source did not go on")


@pytest.fixture
def source_and_topic(kafka: KafkaLog, topic: str) -> Iterator[tuple[KafkaSource, str]]:
    source = kafka.open_source([topic], 0, {})
    yield source, topic
    source.close()


@pytest.mark.broker
@pytest.mark.parametrize("owner", ["", "an-owner"])
def test_a_reader_that_fetches_nothing_more_is_opened_again(
    kafka: KafkaLog, topic: str, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind the control records of transactions, of which one was aborted."""
    monkeypatch.setattr(stalls, "LOOK_SECONDS", 0.3)
    name = f"{owner}-{uuid4().hex}" if owner else ""
    with (
        contextlib.closing(kafka.open_sink(name)) as sink,
        contextlib.closing(kafka.open_source([topic], 0, {})) as source,
    ):
        sink.send(topic, 0, b"first")
        sink.flush()
        assert [record.value for record in take(source, 1)] == [b"first"]
        assert not source.poll(10, 0.5), "the end, behind what a transaction has left there"
        stalled = source._consumer
        stalled.pause([TopicPartition(topic, 0)])  # as seen from here, what librdkafka does when it has lost a leader
        sink.send(topic, 0, b"second")
        sink.flush()
        assert [record.value for record in take(source, 1)] == [b"second"]
        assert source._consumer is not stalled
        again = source._consumer
        quiet_until = time.monotonic() + 10 * stalls.LOOK_SECONDS
        while time.monotonic() < quiet_until:
            assert not source.poll(10, 0.1)
        assert source._consumer is again, "a partition without messages is not stalled"


@pytest.mark.broker
def test_a_reader_says_that_an_open_transaction_holds_messages_back(
    kafka: KafkaLog,
    source_and_topic: tuple[KafkaSource, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They count as lag, so that an alert can tell that the reader does not go on."""
    monkeypatch.setattr(stalls, "LOOK_SECONDS", 0.3)
    source, topic = source_and_topic
    settings = producer_configuration(kafka.bootstrap_servers, "stranger")
    stranger = Producer({**settings, "transactional.id": f"stranger-{uuid4().hex}"})
    stranger.init_transactions(PATIENCE_SECONDS)
    stranger.begin_transaction()
    stranger.produce(topic, b"never committed", partition=0)
    stranger.flush(PATIENCE_SECONDS)
    with contextlib.closing(kafka.open_sink()) as sink:
        sink.send(topic, 0, b"behind it")
        sink.flush()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "wait from offset 0 on behind an open transaction" not in caplog.text and time.monotonic() < deadline:
        assert not source.poll(10, 0.1)
    assert caplog.text.count("open transaction") == 1
    assert source.lag() == {topic: 2}
    stranger.abort_transaction(PATIENCE_SECONDS)
    assert [record.value for record in take(source, 1)] == [b"behind it"]
    assert not source.poll(10, 0.5), "the end, behind what the transaction has left there"
    assert not any(source.lag().values())


@pytest.mark.broker
def test_fetching_ahead_does_not_stop_for_a_second(kafka: KafkaLog, source_and_topic: tuple[KafkaSource, str]) -> None:
    """With librdkafka's defaults a full queue stands still for a second each time."""
    source, topic = source_and_topic
    assert any(_longest_poll(kafka, source, topic, 150_000) < 0.9 for _ in range(5)), (
        "a busy machine stands still less often"
    )


def _longest_poll(kafka: KafkaLog, source: KafkaSource, topic: str, messages: int) -> float:
    """Send more messages than the queue takes, and read them; return the seconds of the longest poll but the first."""
    sink = kafka.open_sink()
    for _ in range(messages):
        sink.send(topic, 0, b"x" * 50)
    sink.flush()
    sink.close()
    take_until = time.monotonic() + PATIENCE_SECONDS
    taken, longest = 0, 0.0
    while taken < messages and time.monotonic() < take_until:
        began = time.monotonic()
        taken += len(source.poll(2_000, 2.0))
        longest = max(longest, time.monotonic() - began) if taken else 0.0
    assert taken == messages
    return longest


@pytest.mark.broker
def test_a_reader_that_has_much_to_do_waits_for_more(
    kafka: KafkaLog, source_and_topic: tuple[KafkaSource, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.log.kafka.GATHER_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr("services.log.kafka.BUSY_MESSAGES", 1)
    source, topic = source_and_topic
    publish(kafka, topic, 0, b"first")
    assert _polled_at_once(source, 6) == 1, "it has had nothing yet, so it takes what is there"

    def send_apart() -> None:
        for number in range(5):
            publish(kafka, topic, 0, b"%d" % number)

    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr("services.log.kafka.LULL_SECONDS", PATIENCE_SECONDS)
        sending = pool.submit(send_apart)
        assert len(source.poll(5, PATIENCE_SECONDS)) == 5
        sending.result()
    publish(kafka, topic, 0, b"last")
    assert _polled_at_once(source, 6) == 1, "nothing more comes, so nothing more is waited for"


def _polled_at_once(source: KafkaSource, most: int) -> int:
    began = time.monotonic()
    polled = source.poll(most, PATIENCE_SECONDS)
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
    return len(polled)


def all_values(log: Log, topic: str, count: int) -> list[bytes]:
    """Return what can be read, once there is so much: readers see it shortly after a flush."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(values := [one.value for one in all_records(log, topic, 0)]) < count:
        assert time.monotonic() < deadline, f"{len(values)} messages can be read"
    return values


def _publish_as(log: Log, owner: str, topic: str, *values: bytes) -> None:
    sink = log.open_sink(owner)
    for value in values:
        sink.send(topic, 0, value)
    sink.flush()
    sink.close()


def test_a_second_owner_fences_the_first_one(log: Log, topics: list[str]) -> None:
    owner = f"owner-of-{topics[0]}"
    elder = log.open_sink(owner)
    elder.send(topics[0], 0, b"before")
    elder.flush()
    younger = log.open_sink(owner)
    with pytest.raises(FencedError, match=f"another process publishes for {owner} since"):
        _send_all(elder, topics[0])
    younger.send(topics[0], 0, b"after")
    younger.flush()
    assert all_values(log, topics[0], 2) == [b"before", b"after"]
    assert log.end_offset(topics[0], 0) > 2, "the ends of transactions have offsets, too"
    for sink in (elder, younger):
        sink.close()


def _send_all(sink: Sink, topic: str) -> None:
    sink.send(topic, 0, b"too late")
    sink.flush()


def test_what_an_owner_has_not_flushed_does_not_outlive_it(log: Log, topics: list[str]) -> None:
    if isinstance(log, MemoryLog):
        pytest.skip("in memory nothing waits for a flush")
    owner = f"owner-of-{topics[0]}"
    elder = log.open_sink(owner)
    for number in range(100):
        elder.send(topics[0], 0, b"%d" % number)
    _publish_as(log, owner, topics[0], b"after")
    assert all_values(log, topics[0], 1) == [b"after"]
    elder.close()


def test_owners_of_other_names_do_not_fence_each_other(log: Log, topics: list[str]) -> None:
    sinks = [log.open_sink(f"{name}-of-{topics[0]}") for name in ("a", "b")]
    for number in range(4):
        sinks[number % 2].send(topics[0], 0, b"%d" % number)
        sinks[number % 2].flush()
    assert all_values(log, topics[0], 4) == [b"0", b"1", b"2", b"3"]
    for sink in sinks:
        sink.close()


def test_the_last_record_is_found_before_the_control_records_behind_it(log: Log, topics: list[str]) -> None:
    assert last_record(log, topics[0], 0) is None
    assert end_of_records(log, topics[0], 0) == 0
    _publish_as(log, f"owner-of-{topics[0]}", topics[0], b"a", b"b")
    all_values(log, topics[0], 2)
    last = last_record(log, topics[0], 0)
    assert last is not None
    assert (last.value, end_of_records(log, topics[0], 0)) == (b"b", 2)
    assert log.end_offset(topics[0], 0) == 3
    source = log.open_source([topics[0]], 0, {topics[0]: 2})
    assert list(take_until_end(source, topics[0], 3)) == []
    source.close()


def take_until_end(source: Source, topic: str, end: int) -> list[LogRecord]:
    """Poll until the position is at an offset, behind a control record."""
    found: list[LogRecord] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while source.positions()[topic] < end:
        assert time.monotonic() < deadline, f"it stays at {source.positions()}"
        found += source.poll(10, 0.2)
    return found


def test_an_owner_sends_more_than_its_queue_holds(log: Log, topics: list[str]) -> None:
    values = [b"%d" % number for number in range(1_000)]
    if isinstance(log, KafkaLog):
        settings = producer_configuration(log.bootstrap_servers, "contract-test")
        sink: Sink = OwnedKafkaSink(settings | {"queue.buffering.max.messages": 100}, f"owner-of-{topics[0]}")
    else:
        sink = log.open_sink(f"owner-of-{topics[0]}")
    for value in values:
        sink.send(topics[0], 0, value)
    sink.start_flush()
    sink.send(topics[0], 0, b"next")
    sink.flush()
    assert all_values(log, topics[0], 1_001) == [*values, b"next"]
    sink.close()


@pytest.mark.broker
def test_a_message_of_an_owner_that_is_too_large_says_what_to_set(kafka: KafkaLog, topic: str) -> None:
    sink = kafka.open_sink(f"owner-of-{topic}")
    sink.send(topic, 0, b"is sent again by its unit of work")
    with pytest.raises(InvariantError, match=r"max\.message\.bytes"):
        sink.send(topic, 0, b"x" * 11_000_000)
    sink.send(topic, 0, b"goes on")
    sink.flush()
    assert all_values(kafka, topic, 1) == [b"goes on"]
    sink.close()


@pytest.mark.broker
def test_an_owner_whose_broker_does_not_answer_is_retried() -> None:
    settings = producer_configuration("127.0.0.1:1", "contract-test")
    with pytest.raises(RetryableError, match="becoming the owner nobody"):
        OwnedKafkaSink(settings, "nobody", flush_seconds=1.0)
