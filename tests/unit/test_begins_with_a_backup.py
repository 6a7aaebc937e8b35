"""A shard without a database, or with one that the log does not reach back to, begins with the newest backup."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event

import pytest
from prometheus_client import CollectorRegistry

from schemas.codec import codec
from schemas.records import CreateVolume, MetadataCommand
from schemas.topics import METADATA_COMMANDS, TOPICS
from services.domain.errors import RetryableError
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.log.schema_topic import SchemaTopic
from services.metadata.__main__ import build
from services.metadata.state.tables import VOLUME_TABLE
from services.plane.upkeep.shard_databases import open_copy, positions_of
from services.runtime.copies.manifests import MANIFEST, Backup, InputPosition, ServiceCopy, write_manifest
from services.runtime.copies.restores import OUTDATED, Restores
from services.runtime.process import hosted_shard
from services.runtime.process.hosted_shard import HostedShard
from services.runtime.process.metrics import RuntimeMetrics
from services.runtime.process.settings import read_settings
from services.storage.rocks_backups import copy_files
from services.storage.store import StoreError
from services.storage.tables import TablesReader
from tests.waiting import eventually

PATIENCE_SECONDS = 30.0
METADATA = "metadata"
NAMES = ("vol-a", "vol-b", "vol-c")


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog(VirtualClock())
    SchemaTopic(log).publish(TOPICS, lambda _: None)
    return log


def send(log: MemoryLog, *volumes: str) -> None:
    for number, volume in enumerate(volumes):
        command = MetadataCommand(0, f"client-{volume}", number, CreateVolume(volume), wants_reply=True)
        log.append(METADATA_COMMANDS.name, 0, codec(MetadataCommand).encode_message(command))


class Host:
    """One process of metadata with one shard."""

    def __init__(self, log: MemoryLog, home: Path, backups: Path | None) -> None:
        options = ["--directory", str(home), *(("--backups", str(backups)) if backups else ())]
        settings = read_settings(METADATA, options)
        registry = CollectorRegistry()
        self._changed = Event()
        self.shard = HostedShard(
            *(0, build(settings, registry), settings, log, log.clock, RuntimeMetrics(registry, METADATA)),
            lambda _: self._changed.set(),
            self._changed.set,
        )
        self.home = home

    def start(self) -> None:
        self._changed.clear()
        self.shard.start()
        assert self._changed.wait(PATIENCE_SECONDS)

    def volumes(self) -> set[str]:
        assert not self.shard.failure
        store = self.shard.store
        return (
            set()
            if store is None
            else {key.decode().strip("/") for key, _ in TablesReader(store).table(VOLUME_TABLE).scan()}
        )

    def await_volumes(self, *volumes: str) -> None:
        eventually(lambda: self.volumes() == {*volumes}, PATIENCE_SECONDS)

    def back_up(self, directory: Path, name: str, made_at_ms: int, topic_id: str = "") -> InputPosition:
        """Make a backup of this shard; return its position."""
        copied = directory / name / METADATA / "0"
        copy_files(self.shard.copies.ask(name, PATIENCE_SECONDS), copied)
        with closing(open_copy(copied, METADATA)) as copy:
            row = positions_of(copy, METADATA)[METADATA_COMMANDS.name]
        position = InputPosition(row.topic, topic_id or row.topic_id, row.next_offset)
        backup = Backup(name, made_at_ms, 1, (ServiceCopy(METADATA, 0, (position,), 1),))
        write_manifest(directory / name, backup)
        return position


NewHost = Callable[..., Host]


@pytest.fixture
def new_host(log: MemoryLog, tmp_path: Path) -> Iterator[NewHost]:
    with ExitStack() as stack:

        def new(name: str, backups: Path | None = None) -> Host:
            host = Host(log, tmp_path / name, backups)
            stack.callback(host.shard.close)
            stack.callback(host.shard.stop)
            return host

        yield new


def test_one_without_a_database_begins_with_the_newest_backup(
    log: MemoryLog, tmp_path: Path, new_host: NewHost
) -> None:
    kept = tmp_path / "kept"
    one = new_host("one")
    one.start()
    for number, volume in enumerate(NAMES):
        send(log, volume)
        one.await_volumes(*NAMES[: number + 1])
        if volume != NAMES[-1]:
            trimmed = one.back_up(kept, f"backup-{volume}", number)
    one.back_up(kept, "of-another-log", 9, topic_id="another")
    (kept / "unreadable").mkdir()
    (kept / "unreadable" / MANIFEST).write_text(json.dumps({"format": 99}))
    log.trim(METADATA_COMMANDS.name, 0, trimmed.next_offset)

    two, without = new_host("two", kept), new_host("without")
    two.start()
    two.await_volumes(*NAMES)
    without.start()
    assert "needs it from 0 on: it was trimmed" in without.shard.failure


def test_a_database_that_the_log_does_not_reach_back_to_is_replaced(
    log: MemoryLog, tmp_path: Path, new_host: NewHost
) -> None:
    kept = tmp_path / "kept"
    one, two, alone = new_host("one"), new_host("two", kept), new_host("alone")
    send(log, "vol-a")
    for host in (one, two, alone):
        host.start()
        host.await_volumes("vol-a")
    for host in (two, alone):
        host.shard.stop()  # its database stays open
    send(log, "vol-b")
    one.await_volumes("vol-a", "vol-b")
    position = one.back_up(kept, "backup", 1)
    send(log, "vol-c")
    one.await_volumes(*NAMES)
    log.trim(METADATA_COMMANDS.name, 0, position.next_offset)

    assert two.shard.store is not None
    with closing(two.shard.store.reading()) as reading:
        two.start()
        two.await_volumes(*NAMES)
        with pytest.raises(StoreError, match="was closed"):
            TablesReader(reading).table(VOLUME_TABLE).get(b"/vol-a")
    assert (two.home / METADATA / f"{OUTDATED}0" / "db" / "CURRENT").exists()
    alone.start()
    assert "it was trimmed; restore a later backup" in alone.shard.failure


def test_a_standby_is_replaced_as_well(log: MemoryLog, tmp_path: Path, new_host: NewHost) -> None:
    kept = tmp_path / "kept"
    one, two = new_host("one"), new_host("two", kept)
    send(log, "vol-a")
    one.start()
    two.shard.follow()
    for host in (one, two):
        host.await_volumes("vol-a")
    two.shard.stop()
    send(log, "vol-b")
    one.await_volumes("vol-a", "vol-b")
    log.trim(METADATA_COMMANDS.name, 0, one.back_up(kept, "backup", 1).next_offset)
    two.shard.follow()
    two.await_volumes("vol-a", "vol-b")
    assert (two.home / METADATA / f"{OUTDATED}0").exists()


def test_a_standby_goes_on_when_the_log_answers_again(
    log: MemoryLog, new_host: NewHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_shard, "LONGEST_RETRY_SECONDS", 0.01)
    asked = Event()

    def silent(*_: object) -> int:
        asked.set()
        raise RetryableError("the leader did not answer")

    send(log, "vol-a")
    two = new_host("two")
    with monkeypatch.context() as unreachable:
        unreachable.setattr(MemoryLog, "end_offset", silent)
        two.shard.follow()
        assert asked.wait(PATIENCE_SECONDS)
    two.await_volumes("vol-a")


def test_a_restore_that_is_ended_leaves_no_database_and_begins_anew(
    log: MemoryLog, tmp_path: Path, new_host: NewHost
) -> None:
    one = new_host("one")
    send(log, "vol-a")
    one.start()
    one.await_volumes("vol-a")
    one.back_up(tmp_path / "kept", "backup", 1)
    restores = Restores(METADATA, 0, tmp_path / "two" / METADATA / "0", tmp_path / "kept")
    copied = 0

    def end_after_two_files() -> None:
        nonlocal copied
        copied += 1
        if copied > 2:
            raise RetryableError("ended")

    with pytest.raises(RetryableError, match="ended"):
        restores.restore(log, end_after_two_files)
    assert copied == 3
    assert not restores.has_database
    two = new_host("two", tmp_path / "kept")
    two.start()
    two.await_volumes("vol-a")
