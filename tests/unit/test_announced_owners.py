"""An owner serves its shard only once its address is in the log, however often that has to be tried."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest
from prometheus_client import CollectorRegistry

from schemas.topics import OWNERS, TOPICS
from services.domain.errors import RetryableError
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog, MemorySink
from services.log.owner_topic import OwnerTopic
from services.log.port import Headers
from services.log.schema_topic import SchemaTopic
from services.runtime.process import hosted_shard
from services.runtime.process.hosted_shard import HostedShard, ServiceParts
from services.runtime.process.metrics import RuntimeMetrics
from services.runtime.process.settings import read_settings
from services.snapshots.service import SnapshotsService

PATIENCE_SECONDS = 30.0
URL = "http://127.0.0.1:1"


class RefusingLog(MemoryLog):
    """A log that refuses the first addresses of owners."""

    refusals = 0

    def open_sink(self, owner: str = "") -> MemorySink:
        super().open_sink(owner)  # fences the earlier ones
        return RefusingSink(self, owner)


class RefusingSink(MemorySink):
    """Its first addresses are lost, as in a transaction that is aborted."""

    def send(self, topic: str, partition: int, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        assert isinstance(self._log, RefusingLog)
        if topic == OWNERS and self._log.refusals:
            self._log.refusals -= 1
            raise RetryableError("the broker that leads the topic is away")
        super().send(topic, partition, value, key, headers)


@pytest.mark.parametrize("refusals", [0, 1, 3])
def test_an_address_is_published_until_the_log_has_it(
    refusals: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no client would find the shard, and this process would refuse its reads, while it applies all commands."""
    monkeypatch.setattr(hosted_shard, "FIRST_RETRY_SECONDS", 0.01)
    log = RefusingLog(VirtualClock())
    log.refusals = refusals
    SchemaTopic(log).publish(TOPICS, lambda _: None)
    settings = read_settings("snapshots", ["--directory", str(tmp_path), "--instance", "one"])
    served = Event()
    hosted = HostedShard(
        *(0, ServiceParts(make_service=lambda _: SnapshotsService()), settings, log, log.clock),
        RuntimeMetrics(CollectorRegistry(), "snapshots"),
        on_ready=lambda _: served.set(),
        on_failure=served.set,
    )
    hosted.url = URL
    hosted.start()
    try:
        assert served.wait(PATIENCE_SECONDS)
        assert not hosted.failure
        owners = OwnerTopic(log)
        owners.read()
        assert owners.url("snapshots", 0) == URL
        assert not log.refusals
    finally:
        hosted.stop()
        hosted.close()
