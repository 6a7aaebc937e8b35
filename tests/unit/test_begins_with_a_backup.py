"""A shard without a database, or with one that the log does not reach back to, begins with the newest backup."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from schemas.codec import codec
from schemas.records import CreateVolume, MetadataCommand
from schemas.topics import METADATA_COMMANDS, TOPICS
from services.domain.errors import RetryableError
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.log.schema_topic import SchemaTopic
from services.metadata.__main__ import build
from services.metadata.service import MetadataService
from services.metadata.state.tables import VOLUME_TABLE
from services.plane.upkeep.shard_databases import open_copy, positions_of
from services.runtime.copies import restores
from services.runtime.copies.manifests import MANIFEST, Backup, InputPosition, ServiceCopy, write_manifest
from services.runtime.copies.restores import OUTDATED, RESTORED, Restores
from services.runtime.process import hosted_shard
from services.runtime.process.hosted_shard import HostedShard
from services.runtime.process.metrics import RuntimeMetrics
from services.runtime.process.settings import read_settings
from services.storage.rocks_backups import copy_files, has_database
from services.storage.rocks_checkpoints import MAKING
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
        self._has_ended = False

    def start(self) -> None:
        self._changed.clear()
        self.shard.start()
        assert self._changed.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        """End the process, if it has not ended."""
        self.shard.stop()
        if not self._has_ended:
            self.shard.close()
        self._has_ended = True

    def volumes(self) -> set[str]:
        assert not self.shard.failure
        if (store := self.shard.store) is None:
            return set()
        return {key.decode().strip("/") for key, _ in TablesReader(store).table(VOLUME_TABLE).scan()}

    def await_volumes(self, *volumes: str) -> None:
        eventually(lambda: self.volumes() == {*volumes}, PATIENCE_SECONDS)

    def back_up(
        self, directory: Path, name: str, made_at_ms: int, topic_id: str = "", checkpoints: int = 0
    ) -> InputPosition:
        """Make a backup of this shard; return its position."""
        copied = directory / name / METADATA / "0"
        copy_files(self.shard.copies.ask(name, PATIENCE_SECONDS), copied)
        with closing(open_copy(copied, METADATA)) as copy:
            row = positions_of(copy, METADATA)[METADATA_COMMANDS.name]
        position = InputPosition(row.topic, topic_id or row.topic_id, row.next_offset)
        backup = Backup(name, made_at_ms, 1, (ServiceCopy(METADATA, 0, (position,), 1, checkpoints=checkpoints),))
        write_manifest(directory / name, backup)
        return position


def back_up_and_trim(log: MemoryLog, one: Host, kept: Path, name: str) -> int:
    """Send the other two names, with a backup between them; trim what is before it, and return where the log begins."""
    send(log, "vol-b")
    one.await_volumes("vol-a", "vol-b")
    first = one.back_up(kept, name, 1).next_offset
    send(log, "vol-c")
    one.await_volumes(*NAMES)
    log.trim(METADATA_COMMANDS.name, 0, first)
    return first


NewHost = Callable[..., Host]


@pytest.fixture
def new_host(log: MemoryLog, tmp_path: Path) -> Iterator[NewHost]:
    with ExitStack() as stack:

        def new(name: str, backups: Path | None = None) -> Host:
            host = Host(log, tmp_path / name, backups)
            stack.callback(host.end)
            return host

        yield new


def test_one_without_a_database_begins_with_the_newest_backup(
    log: MemoryLog, tmp_path: Path, new_host: NewHost
) -> None:
    kept = tmp_path / "kept"
    one = new_host("one")
    one.start()
    positions = []
    for number, volume in enumerate(NAMES):
        send(log, volume)
        one.await_volumes(*NAMES[: number + 1])
        if volume != NAMES[-1]:
            positions.append(one.back_up(kept, f"backup-{volume}", number))
    one.back_up(kept, "z-of-another-log", 9, topic_id="another")
    (kept / "lost+found").mkdir()
    (kept / "z-a-file").touch()
    (kept / "z-in-progress").mkdir()
    (kept / "z-unreadable").mkdir()
    (kept / "z-unreadable" / MANIFEST).write_text(json.dumps({"format": 99}))
    log.trim(METADATA_COMMANDS.name, 0, positions[0].next_offset)

    two, without = new_host("two", kept), new_host("without")
    with capture_logs() as said:
        two.start()
    two.await_volumes(*NAMES)
    assert [line["backup"] for line in said if line["event"] == RESTORED] == ["backup-vol-b"], "the newest one"
    without.start()
    assert "needs it from 0 on: it was trimmed" in without.shard.failure


def test_a_backup_that_the_log_does_not_reach_back_to_is_left_out(
    log: MemoryLog, tmp_path: Path, new_host: NewHost
) -> None:
    kept = tmp_path / "kept"
    one, two, three = new_host("one"), new_host("two", kept), new_host("three", kept)
    one.start()
    send(log, "vol-a")
    one.await_volumes("vol-a")
    one.back_up(kept, "z-finished-late", 9)
    trimmed_until = back_up_and_trim(log, one, kept, "a-finished-early")
    two.start()
    two.await_volumes(*NAMES)

    log.trim(METADATA_COMMANDS.name, 0, trimmed_until + 1)  # behind all backups
    three.start()
    assert f"{kept} has no backup of this shard that fits the log" in three.shard.failure
    assert "needs it from 0 on" in three.shard.failure


def test_a_database_is_kept_where_no_backup_fits(log: MemoryLog, tmp_path: Path, new_host: NewHost) -> None:
    one = new_host("one")
    one.start()
    send(log, *NAMES)
    one.await_volumes(*NAMES)
    old = new_host("old", tmp_path / "kept")
    old.start()
    old.await_volumes(*NAMES)
    old.end()
    send(log, "vol-d", "vol-e")
    one.await_volumes(*NAMES, "vol-d", "vol-e")
    one.back_up(tmp_path / "kept", "trimmed-away", 1)
    log.trim(METADATA_COMMANDS.name, 0, len(NAMES) + 3)
    for directory in (tmp_path / "kept", tmp_path / "missing"):
        again = new_host("old", directory)
        again.start()
        assert "has no backup of this shard that fits the log" in again.shard.failure
        again.end()
    assert has_database(old.home / METADATA / "0")
    assert not (old.home / METADATA / f"{OUTDATED}0").exists()


def test_a_database_that_the_log_reaches_back_to_is_not_replaced_by_a_newer_backup(
    log: MemoryLog, tmp_path: Path, new_host: NewHost
) -> None:
    kept = tmp_path / "kept"
    one, two = new_host("one"), new_host("two", kept)
    send(log, "vol-a")
    for host in (one, two):
        host.start()
        host.await_volumes("vol-a")
    two.end()
    send(log, "vol-b")
    one.await_volumes("vol-a", "vol-b")
    one.back_up(kept, "newer", 1)
    again = new_host("two", kept)
    again.start()
    again.await_volumes("vol-a", "vol-b")
    assert not (two.home / METADATA / f"{OUTDATED}0").exists()


def test_a_log_that_has_lost_its_tail_is_no_reason_to_restore(
    log: MemoryLog, tmp_path: Path, new_host: NewHost
) -> None:
    kept = tmp_path / "kept"
    one = new_host("one")
    one.start()
    send(log, *NAMES)
    one.await_volumes(*NAMES)
    position = one.back_up(kept, "backup", 1)
    shorter = MemoryLog(VirtualClock())
    SchemaTopic(shorter).publish(TOPICS, lambda _: None)
    send(shorter, "vol-a")
    two = Host(shorter, tmp_path / "two", kept)
    two.start()
    two.end()
    assert f"has read {METADATA_COMMANDS.name} up to {position.next_offset}, but it ends at 1" in two.shard.failure
    assert not has_database(two.home / METADATA / "0")


@pytest.mark.parametrize("is_following", [False, True])
def test_a_database_that_the_log_does_not_reach_back_to_is_replaced(
    log: MemoryLog, tmp_path: Path, new_host: NewHost, is_following: bool
) -> None:
    kept = tmp_path / "kept"
    one, two = new_host("one"), new_host("two", kept)
    send(log, "vol-a")
    for host in (one, two):
        host.start()
        host.await_volumes("vol-a")
    two.shard.stop()  # its database stays open
    back_up_and_trim(log, one, kept, "backup")

    two.start()
    assert "started again, this process may begin with a backup" in two.shard.failure, "it may still be read"
    two.end()
    again = new_host("two", kept)
    if is_following:
        again.shard.follow()
    else:
        again.start()
    again.await_volumes(*NAMES)
    assert has_database(two.home / METADATA / f"{OUTDATED}0")


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


def _removed(backup: Path) -> None:
    (backup / MANIFEST).unlink()


def _removed_in_part(backup: Path) -> None:
    shutil.rmtree(backup / METADATA)


def _ended(_: Path) -> None:
    raise RetryableError("the process ends")


def _full(_: Path) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (_removed, r"\(the backup is being removed\): free some space, or repair the disk"),
        (_removed_in_part, r"\(No such file or directory\): free some space, or repair the disk"),
        (_ended, "the process ends"),
        (_full, r"\(No space left on device\): free some space"),
    ],
)
def test_what_happens_amid_a_restore_leaves_the_database_as_it_was(
    log: MemoryLog, tmp_path: Path, new_host: NewHost, happens: Callable[[Path], None], said: str
) -> None:
    one = new_host("one")
    send(log, "vol-a")
    one.start()
    one.await_volumes("vol-a")
    one.back_up(tmp_path / "kept", "backup", 1)
    target = tmp_path / "two" / METADATA / "0"
    copy_files(tmp_path / "kept" / "backup" / METADATA / "0", target)
    before = sorted(path.relative_to(target) for path in target.rglob("*"))
    copied = 0

    def after_two_files() -> None:
        nonlocal copied
        copied += 1
        if copied == 3:
            happens(tmp_path / "kept" / "backup")

    restoring = Restores(MetadataService(), 0, target, tmp_path / "kept")
    with pytest.raises(RetryableError, match=said):
        restoring.restore(log, after_two_files)
    assert copied >= 3
    assert sorted(path.relative_to(target) for path in target.rglob("*")) == before
    assert [path.name for path in target.parent.iterdir()] == ["0"]


def test_a_backup_that_lacks_a_checkpoint_is_left_out(log: MemoryLog, tmp_path: Path, new_host: NewHost) -> None:
    kept = tmp_path / "kept"
    one, two = new_host("one"), new_host("two", kept)
    send(log, "vol-a")
    one.start()
    one.await_volumes("vol-a")
    one.back_up(kept, "a-whole", 1)
    one.back_up(kept, "b-in-part", 2, checkpoints=1)
    with capture_logs() as said:
        two.start()
    two.await_volumes("vol-a")
    assert [line["backup"] for line in said if line["event"] == RESTORED] == ["a-whole"]
    assert [line["reason"] for line in said if line["event"] == "a backup is left out"] == [
        "[Errno 2] a snapshot checkpoint is missing in the backup"
    ]


def test_what_a_killed_restore_has_left_is_removed_and_is_no_database(
    log: MemoryLog, tmp_path: Path, new_host: NewHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files take no room from the next one, which begins anew."""
    kept = tmp_path / "kept"
    one, two = new_host("one"), new_host("two", kept)
    send(log, "vol-a")
    one.start()
    one.await_volumes("vol-a")
    one.back_up(kept, "whole", 1)
    place = two.shard.directory.parent.parent
    left = place / f"{MAKING}0"
    copy_files(kept / "whole" / METADATA / "0", left)
    (left / "of-the-killed-one").touch()
    asked_room = []

    def room_for(copies: list[Path], directory: Path) -> None:
        asked_room.append((copies, [path.name for path in directory.iterdir()]))

    monkeypatch.setattr(restores, "require_room", room_for)
    with capture_logs() as said:
        two.start()
    two.await_volumes("vol-a")
    assert asked_room == [([kept / "whole" / METADATA / "0"], [])], "it is gone before the room is looked at"
    assert [line["backup"] for line in said if line["event"] == RESTORED] == ["whole"]
    assert [path.name for path in place.iterdir()] == ["0"]
    assert not list(place.rglob("of-the-killed-one"))
