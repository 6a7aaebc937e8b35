"""Backups on disk: only a complete one counts, nothing is replaced, and what it holds is what was copied."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from typer.testing import CliRunner

from schemas.records import PositionRow, ShardState
from schemas.stored_rows import row_codec
from schemas.topics import DELETED_ENTRIES, METADATA_COMMANDS, TOPICS
from services.cli.main import app
from services.cli.session import Session
from services.domain.errors import InvariantError, TopicMissingError
from services.log.kafka import KafkaLog
from services.metadata.state.tables import TRANSACTION_INFO_KEY
from services.plane.machine.errors import StackError
from services.plane.machine.ports import HOST
from services.plane.machine.processes import identify
from services.plane.stack.plane_file import PlaneFile, PlaneProcess, PlaneState
from services.plane.stack.process_names import METADATA, SERVICES
from services.plane.upkeep import backups, log_trims
from services.plane.upkeep.backups import copy_of_running, find_backup, missing_from, restore_backup
from services.plane.upkeep.shard_databases import (
    database_directory,
    new_database,
    open_copy,
    open_database,
    positions_of,
)
from services.plane.upkeep.trimming import plan_trims
from services.runtime.copies import restores
from services.runtime.copies.manifests import (
    MANIFEST,
    Backup,
    BackupError,
    InputPosition,
    PlacedBackup,
    ServiceCopy,
    placed_backups,
    write_manifest,
)
from services.runtime.http.server import HttpServer, http_app
from services.runtime.loop.positions import POSITIONS
from services.storage import rocks_backups
from services.storage.linked_files import exclusive_bytes, tree_bytes
from services.storage.rocks_backups import copy_files
from services.storage.store import StoreError
from streaming.reclaiming.checkpoint import LocalCheckpoint
from streaming.reclaiming.position import finished_ends


def made_backup(home: Path, directory: Path, name: str, txn: int = 7) -> Backup:
    """A backup of metadata alone, as the command leaves it."""
    store = new_database(database_directory(home, "metadata", 0), "metadata")
    state = row_codec(ShardState).encode(ShardState(txn, 1, 0, 0, 0, ""))
    position = row_codec(PositionRow).encode(PositionRow(METADATA_COMMANDS.name, "id", txn))
    store.write(
        {
            "transactionInfoTable": {TRANSACTION_INFO_KEY: state},
            POSITIONS.name: {METADATA_COMMANDS.name.encode(): position},
        }
    )
    store.checkpoint(f"snapshot-{txn}")
    store.back_up_to(directory / name / "metadata" / "0")
    store.close()
    backup = Backup(name, txn, 1, (ServiceCopy("metadata", 0, (), 1),))
    write_manifest(directory / name, backup)
    return backup


def placed(directory: Path, backup: Backup) -> PlacedBackup:
    return PlacedBackup(directory / backup.name, backup)


def test_one_without_its_manifest_is_no_backup(tmp_path: Path) -> None:
    older = made_backup(tmp_path / "home", tmp_path / "kept", "older", 7)
    newer = made_backup(tmp_path / "home", tmp_path / "kept", "newer", 8)
    assert [found.backup for found in placed_backups(tmp_path / "kept")] == [older, newer]
    assert find_backup(tmp_path / "kept").backup == newer
    assert find_backup(tmp_path / "kept", "older").backup == older
    (tmp_path / "kept" / "newer" / MANIFEST).unlink()
    (tmp_path / "kept" / "older").rename(tmp_path / "kept" / ".making-older")
    with pytest.raises(StackError, match=r"holds no complete backup: make one \(deepclean backup\)"):
        find_backup(tmp_path / "kept")
    with pytest.raises(StackError, match="no complete backup newer"):
        find_backup(tmp_path / "kept", "newer")


def test_a_manifest_of_another_version_is_refused(tmp_path: Path) -> None:
    made_backup(tmp_path / "home", tmp_path / "kept", "one")
    manifest = tmp_path / "kept" / "one" / MANIFEST
    for content, reason in (
        ("{}", r"has no format: a deepclean before 0\.2\.0"),
        ('{"format": 2}', "has format 2, this program reads up to 1"),
        ('{"format": 1}', r"was not written by deepclean: move this backup elsewhere\.$"),
        ("[]", r"was not written by deepclean: move this backup elsewhere\.$"),
    ):
        manifest.write_text(content)
        with pytest.raises(BackupError, match=reason):
            placed_backups(tmp_path / "kept")


def test_a_restored_copy_is_the_one_that_was_made_and_leaves_the_backup_alone(tmp_path: Path) -> None:
    kept, restored = tmp_path / "kept", tmp_path / "restored"
    backup = made_backup(tmp_path / "home", kept, "one")
    for place in (restored, tmp_path / "again"):
        restore_backup(place, placed(kept, backup), ["metadata"])
        store = open_database(database_directory(place, "metadata", 0), "metadata")
        assert positions_of(store, "metadata")[METADATA_COMMANDS.name].next_offset == 7
        assert store.checkpoints() == ["snapshot-7"]
        store.write({"keyTable": {b"/vol/bucket/key": b"row"}})
        store.remove_checkpoint("snapshot-7")
        store.close()
    copy = open_copy(kept / "one" / "metadata" / "0", "metadata")
    assert copy.get("keyTable", b"/vol/bucket/key") is None
    copy.open_checkpoint("snapshot-7").close()
    copy.close()


def test_the_homes_own_backups_pin_beside_those_that_are_named(tmp_path: Path) -> None:
    home, shared, elsewhere = tmp_path / "home", tmp_path / "shared", tmp_path / "mnt"
    plane = PlaneFile(PlaneState.RUNNING, str(home), 1, identify(os.getpid()))
    assert backups.known_backups(plane) == []
    assert backups.shared_backups(plane) is None
    own = made_backup(home, backups.backups_directory(home), "own", 7)
    other = made_backup(tmp_path / "other", elsewhere, "other", 8)
    assert backups.known_backups(plane) == [own]
    assert backups.known_backups(plane, elsewhere) == [own, other]
    assert backups.known_backups(plane, *[backups.backups_directory(home)] * 2, elsewhere) == [own, other]
    sharing = replace(plane, backups=str(shared))
    for ask in (backups.known_backups, backups.shared_backups):
        with pytest.raises(StackError, match=r"shared cannot be read .* see that its disk is mounted"):
            ask(sharing)  # what is in it may need the log
    third = made_backup(tmp_path / "third", shared, "third", 9)
    assert backups.known_backups(sharing, elsewhere) == [own, other, third]
    assert backups.shared_backups(sharing) == [third]


def test_copies_that_cannot_be_restored_are_named(tmp_path: Path) -> None:
    home = tmp_path / "home"
    plane = PlaneFile(PlaneState.RUNNING, str(home), 1, identify(os.getpid()))
    own = made_backup(home, backups.backups_directory(home), "own", 7)
    assert backups.damaged_copies(plane) == {}
    shutil.rmtree(backups.backups_directory(home) / "own" / "metadata" / "0")
    assert backups.damaged_copies(plane) == {("own", "metadata", 0): "it has no database of metadata, shard 0"}
    assert backups.known_backups(plane) == [own], "what it needs is kept: it may be mended"


def test_a_damaged_copy_is_no_backup_and_keeps_what_it_needs() -> None:
    """Else the log would be trimmed, and the shard could not be built again from anything."""

    def backup(name: str, read: int) -> Backup:
        positions = tuple([InputPosition(topic.name, "id", read) for topic in TOPICS])
        return Backup(name, read, 1, tuple([ServiceCopy(one, 0, positions, 1) for one in SERVICES]))

    firsts = dict.fromkeys([(topic.name, 0) for topic in TOPICS], 0)
    known = {(reader, topic.name, 0): 100 for topic in TOPICS for reader in topic.consumers}

    def planned(*damaged: str) -> tuple[int, str]:
        names = {(name, "metadata", 0) for name in damaged}
        kept = [backup("older", 50), backup("newer", 90)]
        trims = plan_trims(1, firsts, known, kept, lambda *_: None, damaged=names)
        (trim,) = [one for one in trims if one.topic == METADATA_COMMANDS.name]
        return trim.until, trim.pinned_by

    assert planned() == planned("older") == planned("newer") == (49, "backup older of metadata")
    assert planned("older", "newer") == (0, "no backup of metadata that can be restored")


def test_a_process_that_ends_while_it_copies_is_one_sentence(tmp_path: Path) -> None:
    """It answers 500, and its server has no reason to tell."""
    is_asked, may_end = threading.Event(), threading.Event()

    def copy(_: Request) -> Response:
        is_asked.set()
        may_end.wait(30)
        return Response()

    routes = [Route("/v1/shards/0/copies/{name}", copy, methods=["POST"])]
    server = HttpServer(http_app(CollectorRegistry(), tuple, tuple, routes, token=""), HOST, 0)
    me = identify(os.getpid())
    process = PlaneProcess(me, server.url, str(tmp_path / "metadata.log"))
    plane = PlaneFile(PlaneState.RUNNING, str(tmp_path), 1, me, processes={METADATA: process})
    server.start()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: copy_of_running(plane, METADATA, 0, "copy").__enter__())
        assert is_asked.wait(30)
        server.stop()
        may_end.set()
        with pytest.raises(StackError, match=r"^metadata made no copy of shard 0: it ended, or failed; read .*\.$"):
            asked.result(30)


def test_nothing_is_replaced(tmp_path: Path) -> None:
    backup = made_backup(tmp_path / "home", tmp_path / "kept", "one")
    with pytest.raises(StackError, match="is not empty: move it away first"):
        restore_backup(tmp_path / "home", placed(tmp_path / "kept", backup), ["metadata"])
    with pytest.raises(StackError, match="has nothing of snapshots: name another backup"):
        restore_backup(tmp_path / "other", placed(tmp_path / "kept", backup), ["metadata", "snapshots"])
    with pytest.raises(StackError, match="has no copy of metadata, shard 1"):
        restore_backup(tmp_path / "other", placed(tmp_path / "kept", backup), ["metadata"], [0, 1])
    with pytest.raises(StackError, match="has nothing of shard 1: name another backup"):
        restore_backup(tmp_path / "other", placed(tmp_path / "kept", backup), shards=[1])
    assert not (tmp_path / "other" / "data").exists()


def test_a_backup_of_one_of_several_hosts_restores_what_it_has(tmp_path: Path) -> None:
    made = made_backup(tmp_path / "home", tmp_path / "kept", "one")
    backup = replace(made, shards=2, copies=(*made.copies, ServiceCopy("snapshots", 1, (), 1)))
    assert ("snapshots", 0) in missing_from(backup)
    assert ("metadata", 0) not in missing_from(backup)
    for place, services, shards in (("one", ("metadata",), ()), ("two", (), (0,)), ("three", ("metadata",), (0,))):
        restored = restore_backup(tmp_path / place, placed(tmp_path / "kept", backup), services, shards)
        assert [(copy.service, copy.shard) for copy in restored] == [("metadata", 0)]
    restored = restore_backup(tmp_path / "four", placed(tmp_path / "kept", made))
    assert [(copy.service, copy.shard) for copy in restored] == [("metadata", 0)]


def test_hosts_that_keep_their_backups_in_one_directory_leave_each_others_alone(tmp_path: Path) -> None:
    kept, homes = tmp_path / "kept", (tmp_path / "one", tmp_path / "two")
    making = [kept / backups.unfinished_name(home, "now") for home in homes]
    for directory in making:
        (directory / "metadata" / "0").mkdir(parents=True)
    backups._remove_what_was_cut_off(homes[0], 1, kept)
    assert [directory.exists() for directory in making] == [False, True]
    os.utime(making[1], (0, 0))
    backups._remove_what_was_cut_off(homes[0], 1, kept)
    assert not making[1].exists(), "nobody makes a backup for longer than a day"


def test_a_manifest_names_no_copy_that_is_gone(tmp_path: Path) -> None:
    backup = made_backup(tmp_path / "home", tmp_path / "kept", "one")
    with pytest.raises(StackError, match="back up again"):
        backups._require_copies(
            tmp_path / "kept" / "one", replace(backup, copies=(*backup.copies, ServiceCopy("snapshots", 0, (), 1)))
        )
    assert find_backup(tmp_path / "kept").backup == backup


def test_a_restore_that_is_cut_off_leaves_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backup = made_backup(tmp_path / "home", tmp_path / "kept", "one")

    def half(source: Path, target: Path, _: object) -> None:
        copy_files(source, target)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rocks_backups, "copy_files", half)
    with pytest.raises(StackError, match="is full"):
        restore_backup(tmp_path / "new", placed(tmp_path / "kept", backup), ["metadata"])
    assert not database_directory(tmp_path / "new", "metadata", 0).exists()
    monkeypatch.undo()
    assert restore_backup(tmp_path / "new", placed(tmp_path / "kept", backup), ["metadata"])


@pytest.fixture
def on_two_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file below ``mnt`` can be linked from outside of it, and none outside from there."""
    link = os.link

    def within_a_disk(file: Path, target: Path) -> None:
        if file.is_relative_to(tmp_path / "mnt") != target.is_relative_to(tmp_path / "mnt"):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        link(file, target)

    monkeypatch.setattr(os, "link", within_a_disk)


def tables_of(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.sst"))


def inodes_of(directory: Path) -> set[int]:
    return {file.stat().st_ino for file in tables_of(directory)}


def content_of(directory: Path) -> dict[Path, bytes]:
    return {file.relative_to(directory): file.read_bytes() for file in tables_of(directory)}


@pytest.mark.usefixtures("on_two_disks")
def test_what_checkpoints_share_is_copied_to_another_disk_and_back_once(tmp_path: Path) -> None:
    with closing(new_database(tmp_path / "shard", "metadata")) as store:
        for number in range(5):
            store.write({"keyTable": {b"/vol/bucket/%d" % number: b"row" * 1_000}})
            store.checkpoint(f"snapshot-{number}")
        store.back_up_to(tmp_path / "copy")
    shared = len(tables_of(tmp_path / "copy")), len(inodes_of(tmp_path / "copy"))
    assert shared[0] > 2 * shared[1], "the checkpoints share files"
    for source, target in (
        (tmp_path / "copy", tmp_path / "mnt" / "kept"),
        (tmp_path / "mnt" / "kept", tmp_path / "new"),
    ):
        copy_files(source, target)
        assert (len(tables_of(target)), len(inodes_of(target))) == shared
        assert not inodes_of(source) & inodes_of(target), "the other disk has files of its own"
        assert content_of(target) == content_of(source)
        assert exclusive_bytes([target]) == tree_bytes(target) == tree_bytes(source)


@pytest.mark.usefixtures("on_two_disks")
def test_a_later_backup_shares_the_table_files_of_an_earlier_one(tmp_path: Path) -> None:
    kept = tmp_path / "mnt"
    with closing(new_database(tmp_path / "shard", "metadata")) as store:
        for number in range(3):
            store.write({"keyTable": {b"/vol/bucket/%d" % number: b"row" * 1_000}})
            store.checkpoint(f"snapshot-{number}")
            store.back_up_to(tmp_path / f"copy-{number}")
    copy_files(tmp_path / "copy-0", kept / "first")
    copy_files(tmp_path / "copy-1", kept / "second", earlier=kept / "first")
    assert inodes_of(kept / "first") < inodes_of(kept / "second")
    copy_files(tmp_path / "copy-1", kept / "alone")
    assert exclusive_bytes([kept / "first"]) < exclusive_bytes([kept / "second"]) < tree_bytes(kept / "second")
    both = exclusive_bytes([kept / "first", kept / "second"])
    assert both == tree_bytes(kept / "second") + exclusive_bytes([kept / "first"]), "what both share goes with both"
    older, foreign, *_ = {file.stat().st_ino: file for file in tables_of(kept / "second")}.values()
    os.utime(older, ns=(0, 0))  # not of this time
    before = foreign.stat()
    foreign.write_bytes(bytes(before.st_size))  # of another database, with the same name, size and time
    os.utime(foreign, ns=(before.st_atime_ns, before.st_mtime_ns))
    copy_files(tmp_path / "copy-2", kept / "third", earlier=kept / "second")
    assert not {older.stat().st_ino, foreign.stat().st_ino} & inodes_of(kept / "third")
    assert inodes_of(kept / "second") & inodes_of(kept / "third")
    assert content_of(kept / "third") == content_of(tmp_path / "copy-2"), "each file is of this database"
    shutil.rmtree(kept / "first")
    shutil.rmtree(kept / "second")
    for number, name in ((1, "alone"), (2, "third")):
        assert content_of(kept / name) == content_of(tmp_path / f"copy-{number}")
    with closing(open_copy(kept / "third", "metadata")) as copy:
        assert copy.get("keyTable", b"/vol/bucket/2") == b"row" * 1_000
        copy.open_checkpoint("snapshot-1").close()


def test_a_backup_that_lacks_a_checkpoint_or_is_being_removed_is_not_restored(tmp_path: Path) -> None:
    backup = made_backup(tmp_path / "home", tmp_path / "kept", "one")
    (copy,) = backup.copies
    with pytest.raises(StackError, match="checkpoint is missing"):
        restore_backup(
            tmp_path / "new",
            placed(tmp_path / "kept", replace(backup, copies=(replace(copy, checkpoints=7),))),
            ["metadata"],
        )
    (tmp_path / "kept" / "one" / MANIFEST).unlink()
    with pytest.raises(StackError, match="being removed"):
        restore_backup(tmp_path / "new", placed(tmp_path / "kept", backup), ["metadata"])
    assert not database_directory(tmp_path / "new", "metadata", 0).exists()


def test_a_restore_needs_room_and_what_a_crash_has_left_of_one_takes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = made_backup(tmp_path / "home", tmp_path / "kept", "one")
    target = database_directory(tmp_path / "new", "metadata", 0)
    left = target.with_name(f".making-{target.name}") / "db" / "000012.sst"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half of it")
    needed = tree_bytes(tmp_path / "kept" / "one" / "metadata")
    free = [needed - 1, needed, needed]
    monkeypatch.setattr(restores, "_is_on_one_disk", lambda *_: False)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0 if left.exists() else free.pop(0)))
    with pytest.raises(StackError, match=r"has no room .* needs .* bytes, and .* are free"):
        restore_backup(tmp_path / "new", placed(tmp_path / "kept", backup), ["metadata"])
    assert restore_backup(tmp_path / "new", placed(tmp_path / "kept", backup), ["metadata"])
    assert not free


def test_all_copies_and_their_room_are_looked_at_before_one_is_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, kept = made_backup(tmp_path / "home", tmp_path / "kept", "one"), tmp_path / "kept"
    both = replace(backup, copies=(*backup.copies, replace(backup.copies[0], service="snapshots")))
    with pytest.raises(StackError, match="no database of snapshots, shard 0"):
        restore_backup(tmp_path / "new", placed(kept, both))
    shutil.copytree(kept / "one" / "metadata", kept / "one" / "snapshots")
    monkeypatch.setattr(restores, "_is_on_one_disk", lambda *_: False)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=tree_bytes(kept / "one" / "metadata")))
    with pytest.raises(StackError, match="has no room"):
        restore_backup(tmp_path / "new", placed(kept, both))
    assert not database_directory(tmp_path / "new", "metadata", 0).exists()
    assert restore_backup(tmp_path / "new", placed(kept, both), ["metadata"])


def test_a_copy_is_made_under_a_new_name_or_not_at_all(tmp_path: Path) -> None:
    store = new_database(tmp_path / "shard", "metadata")
    store.back_up_to(tmp_path / "copy")
    with pytest.raises(StoreError, match="exists already"):
        store.back_up_to(tmp_path / "copy")
    store.close()
    with pytest.raises(StoreError, match="holds no database"):
        open_copy(tmp_path / "nothing", "metadata")


def test_spark_is_where_its_last_finished_batch_ended(tmp_path: Path) -> None:
    checkpoint = LocalCheckpoint(tmp_path)
    assert finished_ends(checkpoint) == {}
    for folder in ("commits", "offsets"):
        (tmp_path / folder).mkdir()
    assert finished_ends(checkpoint) == {}
    for batch in (9, 10, 11):
        ends = {DELETED_ENTRIES.name: {"0": batch * 100, "1": 5}}
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(ends)}')
    for batch in (9, 10):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    (tmp_path / "commits" / ".10.crc").write_text("")
    assert finished_ends(checkpoint) == {0: 1_000, 1: 5}
    for broken in ("broken", "null", "[]", '{"gc.deleted-entries": null}', "{}"):
        (tmp_path / "offsets" / "10").write_text(f"v1\n{broken}")
        with pytest.raises(InvariantError, match="every entry is judged again"):
            finished_ends(checkpoint)
    (tmp_path / "offsets" / "10").unlink()
    with pytest.raises(InvariantError, match="offsets/10 is missing"):
        finished_ends(checkpoint)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["backup"], "No plane runs on"),
        (["trim-log", "--yes"], "No plane runs on"),
        (["restore-backup"], "holds no complete backup"),
        (["digest", "0"], "holds no database of metadata"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, arguments, obj=Session(tmp_path))
    assert result.exit_code == 1
    assert sentence in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_shards_have_moved_where_owners_were_published_and_a_missing_topic_says_that_none_were() -> None:
    log = mock.create_autospec(KafkaLog, instance=True)
    for end, has_moved in ((0, False), (3, True)):
        log.end_offset.return_value = end
        assert log_trims._has_moved(log) is has_moved
    log.topic_ids.side_effect = TopicMissingError("there is no topic deepclean.owners")
    assert not log_trims._has_moved(log)
