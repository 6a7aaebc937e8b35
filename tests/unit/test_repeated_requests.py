"""Requests over Kafka whose outcome got lost, or that are interrupted: no number goes to two of them, and no error says
that a request was not carried out which may have been.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from schemas.codec import codec
from schemas.records import CreateVolume, MetadataCommand
from services.client.errors import NotDeliveredError
from services.client.wire import kafka_commands
from services.client.wire.kafka_commands import KafkaCommands
from services.log.schema_topic import SchemaTopic

LOST, REJECTED = KafkaError._MSG_TIMED_OUT, KafkaError.TOPIC_AUTHORIZATION_FAILED
FULL, INTERRUPTED = "full", "interrupted"


class SilentConsumer:
    """A consumer of topics that stay empty."""

    def poll(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def close(self) -> None:
        pass


class ScriptedProducer:
    """A producer whose messages meet what a test says; without a word for them they are taken."""

    def __init__(self) -> None:
        self.outcomes: list[int | str] = []
        self.numbers: list[int] = []
        """Of the messages that are in its queue, or were."""
        self.is_interrupted = False
        """Whether the next poll is interrupted."""
        self._reports: list[Callable[[], None]] = []

    def produce(self, topic: str, value: bytes, *, partition: int, on_delivery: Callable[..., None]) -> None:
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome == FULL:
            self.outcomes.insert(0, FULL)
            raise BufferError
        self.numbers.append(codec(MetadataCommand).decode_message(value).number)
        if outcome == INTERRUPTED:
            raise KeyboardInterrupt
        if isinstance(outcome, int):
            self._reports.append(lambda: on_delivery(KafkaError(outcome), None))

    def poll(self, seconds: float) -> None:
        if self.is_interrupted:
            self.is_interrupted = False
            raise KeyboardInterrupt
        reports, self._reports = self._reports, []
        for report in reports:
            report()
        threading.Event().wait(seconds)

    def flush(self, seconds: float) -> int:
        return 0

    def purge(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> ScriptedProducer:
    made = ScriptedProducer()
    monkeypatch.setattr(KafkaCommands, "_new_producer", lambda _: made)
    monkeypatch.setattr(KafkaCommands, "_assigned_consumer", lambda *_: (SilentConsumer(), {}))
    monkeypatch.setattr(SchemaTopic, "require", lambda *_: None)
    return made


@pytest.fixture
def client(producer: ScriptedProducer) -> Iterator[KafkaCommands]:
    limits: dict[str, Any] = {"answer_seconds": 0.5, "settle_seconds": 0.5, "max_unanswered": 10}
    made = KafkaCommands("127.0.0.1:1", 1, check=lambda: None, **limits)
    yield made
    made.close()


@pytest.mark.parametrize("repeat", [FULL, REJECTED])
def test_a_repeat_that_is_not_taken_says_nothing_of_the_first_try(
    client: KafkaCommands, producer: ScriptedProducer, repeat: int | str
) -> None:
    producer.outcomes = [LOST, repeat]
    number = client.submit(0, CreateVolume("photos"))
    with pytest.raises(NotDeliveredError, match="whether it was carried out") as told:
        client.answer(0, number)
    assert told.value.may_be_applied
    assert isinstance(told.value.__cause__, NotDeliveredError), "the cause that can be removed is told, too"
    assert not told.value.__cause__.may_be_applied


def test_what_was_never_taken_was_not_carried_out(client: KafkaCommands, producer: ScriptedProducer) -> None:
    producer.outcomes = [REJECTED]
    number = client.submit(0, CreateVolume("photos"))
    with pytest.raises(NotDeliveredError, match="so it was not carried out") as told:
        client.answer(0, number)
    assert not told.value.may_be_applied
    assert producer.numbers == [1]


def test_a_number_whose_message_is_in_the_queue_is_given_to_no_other(
    client: KafkaCommands, producer: ScriptedProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plane would answer the second one with the answer to the first, and never apply it."""
    monkeypatch.setattr(kafka_commands, "POLL_EVERY", 1)
    producer.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        client.submit(0, CreateVolume("photos"))
    producer.outcomes = [INTERRUPTED]
    with pytest.raises(KeyboardInterrupt):
        client.submit(0, CreateVolume("letters"))
    assert client.submit(0, CreateVolume("tables")) == 3
    assert producer.numbers == [1, 2, 3]


def test_what_is_not_the_last_one_sent_is_not_repeated(client: KafkaCommands, producer: ScriptedProducer) -> None:
    """The plane knows the answer to the highest number only; here that of an interrupted request."""
    producer.outcomes = [LOST, INTERRUPTED]
    number = client.submit(0, CreateVolume("photos"))
    with pytest.raises(KeyboardInterrupt):
        client.submit(0, CreateVolume("letters"))
    with pytest.raises(NotDeliveredError):
        client.answer(0, number)
    assert producer.numbers == [1, 2]
