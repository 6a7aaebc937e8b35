"""What librdkafka says in passing, and what it must not be taken for."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo

from schemas.codec import codec
from schemas.records import ChainCapture, SnapshotChainRecord
from services.domain.errors import RetryableError
from services.log.kafka import KafkaLog
from services.log.patience import patiently
from streaming.reclaiming import chain
from streaming.reclaiming.chain import RETURN_SECONDS, ChainReader

NOWHERE = "127.0.0.1:1"


class Admin:
    """Answers with the offsets that it is given, one for each question."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = list(offsets)

    def __exit__(self, *_: object) -> None:
        pass

    def list_offsets(self, asked: Mapping[TopicPartition, Any], **_: Any) -> Mapping[TopicPartition, Any]:
        offset = self.offsets.pop(0)
        answers: dict[TopicPartition, Any] = {}
        for partition in asked:
            answers[partition] = Future()
            answers[partition].set_result(ListOffsetsResultInfo(offset, 0, -1))
        return answers


def test_a_leader_that_went_away_is_no_end_of_a_log() -> None:
    """Otherwise its tail would seem lost, and a log to rebuild from empty."""
    log = KafkaLog(NOWHERE, "test")
    log._admin = Admin(OFFSET_INVALID)  # type: ignore[assignment]
    with pytest.raises(RetryableError, match="asking for the ends of orders, partition 0: the leader did not answer"):
        log.end_offset("orders", 0)
    log._admin = Admin(7)  # type: ignore[assignment]
    assert log.end_offset("orders", 0) == 7
    log._admin = Admin(OFFSET_INVALID)  # type: ignore[assignment]
    with pytest.raises(RetryableError):
        log.first_offset("orders", 0)


def test_a_client_that_got_no_answer_does_not_wait_for_the_garbage_collector() -> None:
    """It would end its threads wherever that runs, in a callback of another client for one."""
    log = KafkaLog(NOWHERE, "test", answer_seconds=0.2)
    replaced = weakref.ref(log._admin)
    gc.disable()
    try:
        with contextlib.suppress(RetryableError):
            log.end_offset("orders", 0)
            pytest.fail("nobody could have answered")
        assert log._admin is not replaced()
        assert replaced() is None
    finally:
        gc.enable()


def test_spark_asks_again_for_ends_that_no_leader_said(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Admin(OFFSET_INVALID, OFFSET_INVALID, 0)
    monkeypatch.setattr(chain, "AdminClient", lambda _: admin)
    reader = ChainReader(NOWHERE, 2)
    assert patiently(reader._ends, RETURN_SECONDS) == [0, 0]
    assert admin.offsets == []
    admin.offsets.append(OFFSET_INVALID)
    with pytest.raises(RetryableError, match="a leader did not answer"):
        patiently(reader._ends, 0.0)
    reader.close()


class Marker:
    """A message of the snapshot chain, as the broker's client returns it."""

    def __init__(self, shard: int) -> None:
        self._shard = shard

    def partition(self) -> int:
        return self._shard

    def offset(self) -> int:
        return 0

    def error(self) -> None:
        return None

    def value(self) -> bytes:
        return codec(SnapshotChainRecord).encode_message(SnapshotChainRecord(1, 0, ChainCapture(7, "s", 1, 10)))


class Markers:
    """A consumer that returns what it is given, in these portions."""

    def __init__(self, *portions: list[Marker]) -> None:
        self._portions = list(portions)

    def consume(self, _count: int, timeout: float) -> list[Marker]:
        del timeout
        return self._portions.pop(0)

    def close(self) -> None:
        """Nothing."""


def test_what_a_failed_look_at_the_chain_has_followed_is_told_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else buckets would be judged by their old rows, under the new chain version."""
    monkeypatch.setattr(chain, "AdminClient", lambda _: Admin())
    monkeypatch.setattr(chain, "ANSWER_SECONDS", -1.0)
    reader = ChainReader(NOWHERE, 2)
    monkeypatch.setattr(reader, "_ends", lambda: [1, 1])
    monkeypatch.setattr(reader, "_consumer", Markers([Marker(0)], [], [Marker(1)]))
    with pytest.raises(RetryableError, match="did not come"):
        reader.advance()
    assert reader.advance() == {(0, 7), (1, 7)}
    reader.close()
