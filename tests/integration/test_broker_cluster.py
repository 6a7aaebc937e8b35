"""Three brokers: what is acknowledged is there when one of them is gone, and nothing is acknowledged by one alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from services.plane.broker.topics import create_topics
from tests.broker_cluster import BrokerCluster

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180), pytest.mark.long]
TOPIC = "letters"


def produce(servers: str, body: bytes, seconds: float = 30.0) -> KafkaError | None:
    """Send one message; what the cluster says of it."""
    answers: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "delivery.timeout.ms": int(seconds * 1000)}
    )
    producer.produce(TOPIC, body, partition=0, on_delivery=lambda error, _: answers.append(error))
    producer.flush(seconds + 5)
    producer.close()
    (answer,) = answers
    return answer


def consume(servers: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    messages = consumer.consume(count, timeout=30)
    consumer.close()
    return [message.value() for message in messages]


def test_one_of_three_may_be_missing_and_two_may_not(tmp_path: Path) -> None:
    cluster = BrokerCluster(tmp_path, 3).start()
    try:
        create_topics(cluster.bootstrap_servers, {TOPIC: {}}, 1)
        assert produce(cluster.bootstrap_servers, b"three") is None
        cluster.nodes[0].kill()
        assert produce(cluster.bootstrap_servers, b"two") is None
        cluster.nodes[1].kill()
        assert not cluster.is_running
        assert produce(cluster.bootstrap_servers, b"one", seconds=5.0) is not None
        cluster.start()
        assert consume(cluster.bootstrap_servers, 2) == [b"three", b"two"]
    finally:
        cluster.stop()
