"""Messages by the hundred thousand: encoded before the clock starts, sent and read with little Python code."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from schemas.codec import codec
from schemas.records import BucketLayout, CreateBucket, CreateVolume, DeleteKey, DeleteKeys, MetadataCommand, PutKey
from schemas.topics import METADATA_COMMANDS
from services.client.plane import NamespaceCommand
from services.log.kafka import consumer_configuration, producer_configuration
from services.plane.machine.errors import StackError

FLUSH_SECONDS = 120.0
CONSUME_SECONDS = 30.0
MESSAGES_PER_CONSUME = 2_000
QUEUED_MESSAGES = 400_000
VOLUME = "bench"
KEY_BYTES = 4_096
KEYS_AT_ONCE = 100
"""Keys in a command that deletes many; ten times as many are allowed."""
FILES_PER_DIRECTORY = 50
DIRECTORY_LEVELS = 7

_quiet = logging.getLogger("deepclean.bench.connections")
_quiet.propagate = False
_quiet.addHandler(logging.NullHandler())
"""Drops librdkafka's log lines: it retries, and logs it, until a new broker is ready for idempotent producers."""


@dataclass(slots=True)
class CommandMaker:
    """Encodes the commands of one client of one shard, numbered as a client does."""

    shard: int = 0
    client_id: str = field(default_factory=lambda: str(uuid4()))
    number: int = 0

    def encoded(self, commands: Iterable[NamespaceCommand]) -> Iterator[bytes]:
        """Yield the messages of commands that need no reply."""
        encode = codec(MetadataCommand).encode_message
        for command in commands:
            self.number += 1
            yield encode(MetadataCommand(self.shard, self.client_id, self.number, command, wants_reply=False))

    def asking(self, command: NamespaceCommand) -> bytes:
        """Return the message of a command whose reply is wanted."""
        self.number += 1
        return codec(MetadataCommand).encode_message(MetadataCommand(self.shard, self.client_id, self.number, command))


def flat_puts(bucket: str, count: int, first: int = 0) -> Iterator[NamespaceCommand]:
    """Yield puts of new keys of a flat bucket, all of one size."""
    return (PutKey(VOLUME, bucket, flat_name(number), KEY_BYTES) for number in range(first, first + count))


def flat_deletes(bucket: str, count: int, first: int = 0) -> Iterator[NamespaceCommand]:
    """Yield deletes of the keys of ``flat_puts``, in the same order."""
    return (DeleteKey(VOLUME, bucket, flat_name(number)) for number in range(first, first + count))


def flat_bulk_deletes(bucket: str, count: int, first: int = 0) -> Iterator[NamespaceCommand]:
    """Yield deletes of the keys of ``flat_puts``, ``KEYS_AT_ONCE`` keys to a command."""
    for start in range(first, first + count, KEYS_AT_ONCE):
        numbers = range(start, min(start + KEYS_AT_ONCE, first + count))
        yield DeleteKeys(VOLUME, bucket, tuple(flat_name(number) for number in numbers))


def tree_puts(bucket: str, count: int, below: str = "") -> Iterator[NamespaceCommand]:
    """Yield puts of new files of a tree: some files a directory, every directory many levels deep, ``below`` a path."""
    return (PutKey(VOLUME, bucket, f"{below}{tree_path(number)}", KEY_BYTES) for number in range(count))


def flat_name(number: int) -> str:
    """Return a key like those of applications: a few parts, different from its neighbours only at the end."""
    return f"warehouse/table-{number % 16:02}/part-{number:09}.parquet"


def tree_path(number: int) -> str:
    """Return a path; its directories have ten children each, from the last level up."""
    directory = number // FILES_PER_DIRECTORY
    levels = [f"level-{level}-{directory // 10**level % 10}" for level in range(DIRECTORY_LEVELS - 1, 0, -1)]
    return "/".join([*levels, f"directory-{directory:07}", f"part-{number:09}.parquet"])


def made_places(buckets: dict[str, BucketLayout]) -> list[NamespaceCommand]:
    """Return the commands that make the volume of the measurements and its buckets."""
    return [CreateVolume(VOLUME), *(CreateBucket(VOLUME, name, layout) for name, layout in buckets.items())]


class BulkProducer:
    """Sends encoded records to one partition, with the producer settings of the services."""

    def __init__(self, bootstrap_servers: str) -> None:
        settings = {
            **producer_configuration(bootstrap_servers, "deepclean.bench"),
            "delivery.timeout.ms": int(FLUSH_SECONDS * 1000),
            "queue.buffering.max.messages": QUEUED_MESSAGES,
        }
        self._failures: list[str] = []
        self._producer = Producer({**settings, "on_delivery": self._delivered}, logger=_quiet)

    def _delivered(self, error: Any, _: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def send(self, topic: str, messages: Iterable[bytes], partition: int = 0) -> None:
        """Send messages and wait until the broker has acknowledged all."""
        self.enqueue(topic, messages, partition)
        self.flush()

    def enqueue(self, topic: str, messages: Iterable[bytes], partition: int = 0) -> None:
        """Enqueue messages without waiting, unless the producer's queue is full."""
        produce = self._producer.produce
        for message in messages:
            while True:
                try:
                    produce(topic, message, partition=partition)
                    break
                except BufferError:
                    self._producer.poll(0.1)
                    self._require_none_failed()
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until the broker has acknowledged all."""
        if self._producer.flush(FLUSH_SECONDS):
            raise StackError("The broker did not take the messages in time: measure again when the machine is idle.")
        self._require_none_failed()

    def send_commands(self, maker: CommandMaker, commands: Iterable[NamespaceCommand]) -> None:
        """Encode and send commands to their shard."""
        self.send(METADATA_COMMANDS.name, maker.encoded(commands), maker.shard)

    def _require_none_failed(self) -> None:
        if self._failures:
            raise StackError(f"The broker refused messages ({self._failures[0]}): read its log.")

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()


def produce_rate(bootstrap_servers: str, topic: str, messages: Sequence[bytes]) -> float:
    """Return the acknowledged messages a second of one producer."""
    producer = BulkProducer(bootstrap_servers)
    try:
        producer.send(topic, messages[:1])  # connected
        started = time.perf_counter()
        producer.send(topic, messages)
        return len(messages) / (time.perf_counter() - started)
    finally:
        producer.close()


def consume_rate(bootstrap_servers: str, topic: str, count: int) -> float:
    """Return the messages a second that one consumer passes to Python (value and headers), after the first batch."""
    consumer = Consumer(consumer_configuration(bootstrap_servers, "deepclean.bench"), logger=_quiet)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        first = _consumed(consumer, 1)
        started = time.perf_counter()
        left = count - first
        while left > 0:
            left -= _consumed(consumer, MESSAGES_PER_CONSUME)
        return (count - first - left) / (time.perf_counter() - started)
    finally:
        consumer.close()


def _consumed(consumer: Consumer, at_most: int) -> int:
    deadline = time.monotonic() + CONSUME_SECONDS
    while time.monotonic() < deadline:
        messages = consumer.consume(1, 1.0)
        if not messages:
            continue
        if at_most > 1:
            messages += consumer.consume(at_most - 1, 0)
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            message.value(), message.headers()
        return len(messages)
    raise StackError(f"No message came within {CONSUME_SECONDS:g} seconds: see whether the broker runs.")
