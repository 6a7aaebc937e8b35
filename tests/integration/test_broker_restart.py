"""Who asks for the ends of topics gets an answer again soon after its broker was started again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from schemas.topics import SNAPSHOT_CHAIN
from services.domain.errors import RetryableError
from services.log.kafka import KafkaLog
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_topics
from streaming.reclaiming import chain
from streaming.reclaiming.chain import ChainReader

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120), pytest.mark.long]


def test_spark_waits_for_a_broker_that_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        create_topics(broker.bootstrap_servers, {SNAPSHOT_CHAIN.name: {}}, 2)
        reader = ChainReader(broker.bootstrap_servers, 2)
        try:
            assert reader.advance() == set()
            broker.kill()
            starter = threading.Thread(target=broker.start)
            starter.start()
            assert reader.advance() == set()
            starter.join()
            broker.kill()
            monkeypatch.setattr(chain, "RETURN_SECONDS", 1.0)
            monkeypatch.setattr(chain, "ANSWER_SECONDS", 1.0)
            with pytest.raises(RetryableError, match=r"could not be asked for .*: see if the broker runs"):
                reader.advance()
        finally:
            reader.close()


def end_soon(log: KafkaLog) -> int:
    """The end of the topic, asked for until it is told, as a service does, for a few seconds."""
    pause = threading.Event()
    for _ in range(50):
        try:
            return log.end_offset(SNAPSHOT_CHAIN.name, 0)
        except RetryableError:
            pause.wait(0.1)
    return log.end_offset(SNAPSHOT_CHAIN.name, 0)


def test_a_service_is_answered_again_after_a_restart(tmp_path: Path) -> None:
    """An old leader epoch is refused for as long as a client keeps it: for minutes."""
    with EmbeddedBroker(tmp_path) as broker:
        create_topics(broker.bootstrap_servers, {SNAPSHOT_CHAIN.name: {}}, 1)
        log = KafkaLog(broker.bootstrap_servers, "test")
        assert end_soon(log) == 0
        broker.kill()
        broker.start()
        assert end_soon(log) == 0
