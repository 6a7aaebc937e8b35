"""Spark's reader of the snapshot chain waits for a broker that is started again, and gives up on one that is not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from schemas.topics import SNAPSHOT_CHAIN
from services.plane.broker import EmbeddedBroker
from services.plane.broker_topics import create_topics
from streaming import chain
from streaming.chain import ChainReader
from streaming.errors import TryAgainError

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


def test_a_broker_that_comes_back_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
            with pytest.raises(TryAgainError, match=r"could not be asked for .*: see if the broker runs"):
                reader.advance()
        finally:
            reader.close()
