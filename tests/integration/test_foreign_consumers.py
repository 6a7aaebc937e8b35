"""Consumers and producers that are not ours use the topics of a plane, with the plane as their schema registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteDirectory,
    DeleteKey,
    DeleteSnapshot,
    PutKey,
    Settle,
)
from schemas.schema_files import released_versions
from schemas.topics import METADATA_COMMANDS, SCHEMAS, SNAPSHOTS_INFO, TOPICS
from services.log.schema_topic import subject_of
from services.plane.stack.plane_file import running_plane
from services.plane.stack.stack import Stack
from tests.integration.test_stack import execute, request

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]
VOLUME = "foreign"


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """A plane that has sent a message on each topic."""
    with shared_stack.client() as plane:
        execute(
            plane, 0, CreateVolume(VOLUME), CreateBucket(VOLUME, "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED),
            *(PutKey(VOLUME, "tree", f"a/b/{number}", 10) for number in range(3)), PutKey(VOLUME, "tree", "kept", 5),
        )  # fmt: skip
        request(plane, 0, CreateSnapshot(VOLUME, "tree", "one"))
        execute(plane, 0, DeleteKey(VOLUME, "tree", "a/b/1"), DeleteDirectory(VOLUME, "tree", "a"))
        request(plane, 0, DeleteSnapshot(VOLUME, "tree", "one"))
        plane.send_again(METADATA_COMMANDS.name, 0, b"no message", b"", [])
        request(plane, 0, Settle("foreign"))
    return shared_stack


@pytest.fixture
def registry(stack: Stack) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": stack.url("snapshots")}) as client:
        yield client


def servers_of(stack: Stack) -> str:
    return running_plane(stack.home).bootstrap_servers


def messages(stack: Stack, topic: str) -> Iterator[Any]:
    """All that is on a topic's first partition."""
    consumer = Consumer({"bootstrap.servers": servers_of(stack), "group.id": "foreign", "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            (message,) = consumer.consume(1, timeout=30)
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return  # behind the last message there are the control records of transactions
            assert error is None
            yield message
    finally:
        consumer.close()


def plain(record: Any) -> Any:
    """A record as JSON has it: without a difference between lists and tuples."""
    return json.loads(json.dumps(record, default=bytes.hex))


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_a_stock_deserializer_reads_every_topic(stack: Stack, registry: SchemaRegistryClient, topic: Any) -> None:
    deserialize = AvroDeserializer(registry)
    context = SerializationContext(topic.name, MessageField.VALUE)
    count = 0
    for message in messages(stack, topic.name):
        if message.value() == b"no message":
            continue
        record = codec(topic.record).decode_message(message.value())
        assert plain(deserialize(message.value(), context)) == plain(
            msgspec.to_builtins(record, builtin_types=(bytes,))
        )
        count += 1
    assert count, "the workload has sent nothing here"


def test_a_stock_serializer_deletes_a_key(stack: Stack, registry: SchemaRegistryClient) -> None:
    serialize = AvroSerializer(registry, conf={"auto.register.schemas": False, "use.latest.version": True})
    fields = {
        "shard": 0,
        "client_id": "foreign",
        "number": 1,
        "body": ("deepclean.DeleteKey", {"volume": VOLUME, "bucket": "tree", "key": "kept"}),
        "sender": "",
        "wants_reply": True,
    }
    value = serialize(fields, SerializationContext(METADATA_COMMANDS.name, MessageField.VALUE))
    producer = Producer({"bootstrap.servers": servers_of(stack), "acks": "all"})
    producer.produce(METADATA_COMMANDS.name, value, partition=0)
    assert producer.flush(30) == 0
    with stack.client() as plane:
        request(plane, 0, Settle("deleted"))
        entries = plane.metadata(0).entries(VOLUME, "tree")
    assert not list(entries)


def test_the_registry_answers_for_each_released_schema(stack: Stack, registry: SchemaRegistryClient) -> None:
    assert registry.get_subjects() == sorted(map(subject_of, TOPICS))
    for topic in TOPICS:
        versions = released_versions(topic.record.__name__)
        assert registry.get_versions(subject_of(topic)) == list(range(1, len(versions) + 1))
        latest = registry.get_latest_version(subject_of(topic))
        assert latest.schema_id == versions[-1].schema_id
        found = registry.lookup_schema(subject_of(topic), Schema(json.dumps(versions[-1].schema), "AVRO"))
        assert (found.schema_id, found.version) == (versions[-1].schema_id, len(versions))


def test_what_is_not_released_is_not_registered(registry: SchemaRegistryClient) -> None:
    other = Schema(json.dumps({"type": "record", "name": "Other", "fields": []}), "AVRO")
    with pytest.raises(SchemaRegistryError, match="schemas come with releases"):
        registry.register_schema("gc.ledger-value", other)
    for ask in (lambda: registry.get_versions("other-value"), lambda: registry.get_version("gc.ledger-value", 99)):
        with pytest.raises(SchemaRegistryError, match="no such"):
            ask()
    with pytest.raises(SchemaRegistryError, match="no such schema"):
        registry.get_schema(7)


def test_the_topic_of_schemas_has_what_the_registry_says(stack: Stack) -> None:
    rows = [json.loads(message.value()) for message in messages(stack, SCHEMAS)]
    assert {row["subject"] for row in rows} == set(map(subject_of, TOPICS))
    for row in rows:
        answer = httpx.get(f"{stack.url('metadata')}/schemas/ids/{row['id']}", trust_env=False).json()
        assert json.loads(answer["schema"]) == json.loads(row["schema"])


def test_a_topic_that_holds_a_table_has_its_keys(stack: Stack) -> None:
    for message in messages(stack, SNAPSHOTS_INFO.name):
        record: Any = codec(SNAPSHOTS_INFO.record).decode_message(message.value())
        assert message.key() == record.snapshot_id.encode()
