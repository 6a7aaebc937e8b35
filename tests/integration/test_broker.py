"""The embedded broker: a real one, started, used, killed and started again."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Producer, TopicPartition

from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_topics
from services.plane.machine.errors import StackError

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


def produce(bootstrap_servers: str, topic: str, partition: int, bodies: list[bytes]) -> None:
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    with Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True}) as producer:
        for body in bodies:
            producer.produce(topic, body, partition=partition, on_delivery=delivered)
        assert producer.flush(30) == 0
    assert failures == []


def consume(bootstrap_servers: str, topic: str, partition: int, count: int) -> list[tuple[bytes, int]]:
    """The partition's first records, each with the type of its timestamp."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "test", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        messages = consumer.consume(count, timeout=30)
        assert [message.error() for message in messages] == [None] * count
        return [(message.value() or b"", message.timestamp()[0]) for message in messages]
    finally:
        consumer.close()


def test_what_is_produced_is_consumed_with_the_brokers_clock(bootstrap_servers: str) -> None:
    topic = f"letters-{uuid4().hex}"
    create_topics(bootstrap_servers, {topic: {}}, partitions=2)
    produce(bootstrap_servers, topic, 1, [b"one", b"two"])
    expected = [(b"one", TIMESTAMP_LOG_APPEND_TIME), (b"two", TIMESTAMP_LOG_APPEND_TIME)]
    assert consume(bootstrap_servers, topic, 1, 2) == expected


def test_making_topics_twice_makes_them_once(bootstrap_servers: str) -> None:
    names = {f"{name}-{uuid4().hex}": {"compression.type": "lz4"} for name in ("first", "second")}
    assert create_topics(bootstrap_servers, names, partitions=1) == set(names)
    assert create_topics(bootstrap_servers, names, partitions=1) == frozenset()


def test_more_shards_add_partitions_and_fewer_are_refused(bootstrap_servers: str) -> None:
    topic = f"shards-{uuid4().hex}"
    create_topics(bootstrap_servers, {topic: {}}, partitions=1)
    create_topics(bootstrap_servers, {topic: {}}, partitions=3)
    produce(bootstrap_servers, topic, 2, [b"third shard"])
    with pytest.raises(StackError, match="has 3 partitions and the plane is set to 2 shards"):
        create_topics(bootstrap_servers, {topic: {}}, partitions=2)


def test_topics_made_by_two_processes_at_once_are_no_error(bootstrap_servers: str) -> None:
    topics: dict[str, dict[str, str]] = {f"race-{index}-{uuid4().hex}": {} for index in range(5)}
    errors: list[Exception] = []

    def make() -> None:
        try:
            create_topics(bootstrap_servers, topics, partitions=1)
        except StackError as error:
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_records_and_port_outlive_a_stop_and_a_crash(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "broker")
    with broker:
        address = broker.bootstrap_servers
        create_topics(address, {"kept": {}}, partitions=1)
        produce(address, "kept", 0, [b"before the stop"])
    with EmbeddedBroker(tmp_path / "broker") as again:
        assert again.bootstrap_servers == address
        produce(address, "kept", 0, [b"before the crash"])
        again.kill()
        assert not again.is_running
        again.start()
        bodies = [body for body, _ in consume(address, "kept", 0, 2)]
        assert bodies == [b"before the stop", b"before the crash"]


def test_a_port_in_use_is_named_with_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(StackError, match=rf"^Port {port} .* is in use: stop .*, or choose another port\.$"):
            EmbeddedBroker(tmp_path, port=port).start()


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as first:
        other_port = int(first.bootstrap_servers.rpartition(":")[2]) % 60000 + 2000
        second = EmbeddedBroker(tmp_path, port=other_port)
        with pytest.raises(StackError, match="Another broker is running on"):
            second.start()
        assert first.is_running
        assert not second.is_running


def test_a_broker_that_dies_at_its_start_says_why(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        pass
    (broker.directory / "records" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=7\n")
    with pytest.raises(StackError, match=r"stopped at its start with status 1 .*: read .*broker\.log") as caught:
        broker.start()
    assert str(caught.value).count("\n") == 0
    assert not broker.is_running
