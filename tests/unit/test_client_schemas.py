"""A client that meets messages by later schemas while the broker does not answer."""

from __future__ import annotations

import threading

import pytest

from schemas.codec import codec, frame
from schemas.records import MetadataReply
from services.client.errors import UnreachableError
from services.client.wire.kafka_commands import KafkaCommands
from services.domain.errors import RetryableError
from services.log.schema_topic import SchemaTopic

NOWHERE = "127.0.0.1:1"


class SilentConsumer:
    """A consumer of topics that stay empty."""

    def poll(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def close(self) -> None:
        pass


def without_an_answer(*_: object) -> None:
    raise RetryableError("the broker did not do it")


def new_client() -> KafkaCommands:
    return KafkaCommands(
        NOWHERE, 1, answer_seconds=0.1, settle_seconds=0.1, max_unanswered=1, check=lambda: None, credentials=None
    )


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaCommands, "_assigned_consumer", lambda *_: (SilentConsumer(), {}))


def test_a_message_by_a_later_schema_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SchemaTopic, "require", lambda *_: None)
    client = new_client()
    monkeypatch.setattr(SchemaTopic, "read", without_an_answer)
    try:
        with pytest.raises(UnreachableError, match=rf"{NOWHERE} does not answer .*\(deepclean status\)"):
            codec(MetadataReply).decode_message(frame(0x6463F00F))
    finally:
        client.close()


def test_a_program_of_later_commands_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SchemaTopic, "require", without_an_answer)
    with pytest.raises(UnreachableError, match=f"{NOWHERE} does not answer"):
        new_client()
