"""Appends messages that are in the log to it once more, as a sender does that never heard that they had arrived."""

from __future__ import annotations

import logging
import threading
import time

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.chaos.schedule import Fault

ANSWER_SECONDS = 30.0
RETRY_SECONDS = 0.1

_quiet = logging.getLogger("chaos.connections")
_quiet.propagate = False
_quiet.addHandler(logging.NullHandler())


def repeat_messages(bootstrap_servers: str, partitions: int, fault: Fault) -> int:
    """Repeat some messages of a topic in each partition; says how many in all."""
    return sum(_repeat(bootstrap_servers, partition, fault) for partition in range(partitions))


def _repeat(bootstrap_servers: str, partition: int, fault: Fault) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "chaos-repeats",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        },
        logger=_quiet,
    )
    first, end = _bounds(consumer, TopicPartition(fault.target, partition))
    start = max(first, end - fault.back)
    count = end - start if fault.is_to_the_end else min(fault.messages, end - start)
    consumer.assign([TopicPartition(fault.target, partition, start)])
    messages = _read(consumer, count) if count else []
    consumer.close()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True}, logger=_quiet)
    for message in messages:
        producer.produce(fault.target, message.value(), partition=partition, headers=message.headers())
    producer.flush(ANSWER_SECONDS)
    producer.close()
    return len(messages)


def _read(consumer: Consumer, count: int) -> list[Message]:
    """Messages up to the end of the partition; behind the last one are the control records of transactions."""
    messages: list[Message] = []
    while len(messages) < count:
        polled = consumer.poll(ANSWER_SECONDS)
        if polled is None or polled.error() is not None:
            break
        messages.append(polled)
    return messages


def _bounds(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """The first offset of a partition and its end; asked again while the broker is away or new."""
    deadline = time.monotonic() + ANSWER_SECONDS
    pause = threading.Event()
    while True:
        try:
            first, end = consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
            return int(first), int(end)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            pause.wait(RETRY_SECONDS)
