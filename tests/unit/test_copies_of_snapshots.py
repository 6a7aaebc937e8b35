"""A copy of a database of snapshots has no unit of work that the log may still refuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from prometheus_client import CollectorRegistry

from schemas.codec import codec
from schemas.records import CreateTag, SnapshotCommand
from schemas.topics import SNAPSHOTS_COMMANDS, TOPICS
from services.domain.errors import RetryableError
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog, MemorySink
from services.log.schema_topic import SchemaTopic
from services.runtime.process.hosted_shard import HostedShard, ServiceParts
from services.runtime.process.metrics import RuntimeMetrics
from services.runtime.process.settings import read_settings
from services.snapshots.service import SnapshotsService

PATIENCE_SECONDS = 30.0


class UnreachableLog(MemoryLog):
    """A log that acknowledges nothing for a while."""

    is_reachable = True
    was_asked = Event()
    """Whether it was to acknowledge something meanwhile."""

    def open_sink(self, owner: str = "") -> MemorySink:
        return UnreachableSink(self, owner)


class UnreachableSink(MemorySink):
    """Its messages are on the way for as long as the log is unreachable."""

    def flush(self) -> None:
        assert isinstance(self._log, UnreachableLog)
        if not self._log.is_reachable:
            self._log.was_asked.set()
            raise RetryableError("the log does not answer")
        super().flush()


@pytest.fixture
def log() -> UnreachableLog:
    return UnreachableLog(VirtualClock())


@pytest.fixture
def shard(log: UnreachableLog, tmp_path: Path) -> Iterator[HostedShard]:
    SchemaTopic(log).publish(TOPICS, lambda _: None)
    settings = read_settings("snapshots", ["--directory", str(tmp_path)])
    metrics = RuntimeMetrics(CollectorRegistry(), "snapshots")
    parts, ready = ServiceParts(make_service=lambda _: SnapshotsService()), Event()
    hosted = HostedShard(0, parts, settings, log, log.clock, metrics, lambda _: ready.set(), ready.set)
    hosted.start()
    assert ready.wait(PATIENCE_SECONDS)
    assert not hosted.failure
    yield hosted
    hosted.stop()
    hosted.close()


def test_a_copy_waits_for_the_acknowledgement_of_all_that_it_has(log: UnreachableLog, shard: HostedShard) -> None:
    log.is_reachable = False
    tag = CreateTag("vol", "bucket", "none", "tag", "ann", "", 0)
    log.append(SNAPSHOTS_COMMANDS.name, 0, codec(SnapshotCommand).encode_message(SnapshotCommand(0, "client", 1, tag)))
    assert log.was_asked.wait(PATIENCE_SECONDS)
    with pytest.raises(TimeoutError):
        shard.copies.ask("too-early", timeout_seconds=0.3)
    log.is_reachable = True
    assert shard.copies.ask("in-time", PATIENCE_SECONDS).is_dir()
