"""Copies for audits: of one moment, whatever is written, dropped or opened meanwhile; bounded, and given back."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import httpx
import pytest

from schemas.answers import AuditCopy
from schemas.codec import codec
from schemas.records import BucketLayout, CountRow, DropSnapshot, MetadataCommand, PutKey
from schemas.topics import METADATA_COMMANDS
from services.client.errors import PlaneError, UnreachableError
from services.client.wire.http_reads import HttpShard, http_client
from services.metadata.recovery.audit_copy import make_copy
from services.runtime.copies.audit_copies import MAX_AUDITS, MAX_COPIES, audit_routes
from services.runtime.copies.kept_copies import DAY_SECONDS, KeptCopies
from services.storage.memory import MemoryStore
from services.storage.rocks import RocksStore
from services.storage.tables import TableDefinition
from streaming.rocksdb.checkpoint_rows import CheckpointRows
from tests.contract.test_http_reads import serving
from tests.diffed_shard import DiffedShard

ONE, OTHER = TableDefinition("one", CountRow), TableDefinition("other", CountRow)
EVERYTHING = (b"", b"\xff")


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[DiffedShard]:
    made = DiffedShard(tmp_path, BucketLayout.FILE_SYSTEM_OPTIMIZED)
    made.random_steps(Random(1), 60)
    yield made
    made.store.close()


@pytest.fixture
def copies(shard: DiffedShard) -> Iterator[HttpShard]:
    with serving(audit_routes({0: shard.store, 1: MemoryStore()}, make_copy)) as address, http_client() as http:
        yield HttpShard(http, "metadata", address, 0)


def ask(copies: HttpShard, audit_id: str, name: str = "all") -> AuditCopy:
    made: AuditCopy = copies.ask_for("POST", "/audit-copies", AuditCopy, {"audit_id": audit_id, "name": name})
    return made


def rows_of(place: str, *families: str) -> list[tuple[bytes, bytes]]:
    with CheckpointRows(place, families) as rows:
        return [row for family in families for row in rows.scan(family, *EVERYTHING)]


def drop(shard: DiffedShard, snapshot_id: str) -> None:
    encoder = codec(MetadataCommand)
    command = MetadataCommand(0, "", 0, DropSnapshot(snapshot_id), "snapshots")
    shard.log.append(METADATA_COMMANDS.name, 0, encoder.encode_message(command))
    shard.do(PutKey("vol", "bucket", "later", 1))
    shard.store.remove_checkpoint(snapshot_id)


def test_a_copy_of_a_database_is_of_one_moment_beside_a_writer(tmp_path: Path) -> None:
    """Both families get the same number in every batch: a copy that has another in one than in the other is torn."""
    store = RocksStore(tmp_path / "db", (ONE, OTHER))
    stop, written = threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            batch = {b"%04d" % (number % 500): b"%d" % number + b"." * 2_000, b"newest": b"%d" % number}
            store.write({"one": batch, "other": {b"newest": b"%d" % number}})
            written.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        written.wait()
        for attempt in range(15):
            place = tmp_path / "copies" / str(attempt)
            view = store.copy_to(place)
            with CheckpointRows(str(place), ("one", "other")) as rows:
                copied = [next(rows.scan(family, b"newest", b"o"))[1] for family in ("one", "other")]
            assert copied[0] == copied[1] == view.get("one", b"newest") == view.get("other", b"newest")
            view.close()
    finally:
        stop.set()
        writer.join()
        store.close()


def test_a_copy_stays_whatever_becomes_of_the_snapshot(shard: DiffedShard, copies: HttpShard) -> None:
    shard.snapshot("held")
    shard.random_steps(Random(2), 60)
    made = ask(copies, "audit-1")
    families = ("fileTable", "directoryTable", "deletedTable", "snapshotListTable")
    before = rows_of(made.directory, *families), rows_of(made.snapshots["held"], *families[:2])
    assert all(before)
    assert made.txn > 0
    drop(shard, "held")
    shard.random_steps(Random(3), 60)
    assert shard.store.checkpoints() == []
    assert (rows_of(made.directory, *families), rows_of(made.snapshots["held"], *families[:2])) == before
    assert ask(copies, "audit-2").snapshots == {}
    assert copies.ask_for("DELETE", "/audit-copies", bool, {"audit_id": "audit-1"}) is True
    assert copies.ask_for("DELETE", "/audit-copies", bool, {"audit_id": "audit-1"}) is False
    assert not Path(made.directory).exists()


def test_a_copy_of_a_checkpoint_that_somebody_has_open_is_whole(shard: DiffedShard, copies: HttpShard) -> None:
    shard.snapshot("held")
    view = shard.store.open_checkpoint("held")  # opening frees what it need not keep
    made = ask(copies, "audit-1")
    assert rows_of(made.snapshots["held"], "fileTable") == list(view.scan("fileTable", *EVERYTHING))
    shard.store.remove_checkpoint("held")
    with pytest.raises(KeyError):  # it is still there for who has it open, and for nobody else
        shard.store.copy_checkpoint("held", Path(made.directory).parent / "again")
    view.close()


def test_when_snapshots_go_during_each_attempt_the_copy_is_refused_and_leaves_nothing(
    shard: DiffedShard, copies: HttpShard
) -> None:
    shard.snapshot("held")
    shard.store.remove_checkpoint("held")  # as if it was dropped between the list and the copy, each time
    with pytest.raises(UnreachableError, match=r"cannot answer now: snapshots were dropped .* audit again"):
        ask(copies, "audit-1")
    assert not list((shard.store.path.parent / "audits" / "audit-1").iterdir())


def test_so_many_audits_may_have_copies_and_no_more(shard: DiffedShard, copies: HttpShard) -> None:
    for number in range(MAX_AUDITS):
        ask(copies, f"audit-{number}")
    ask(copies, "audit-0", "another")
    with pytest.raises(PlaneError) as caught:
        ask(copies, "one-more")
    assert caught.value.code == "AUDITS_RUNNING"
    old = shard.store.path.parent / "audits" / "audit-1"
    os.utime(old, (0, old.stat().st_mtime - DAY_SECONDS - 60))
    ask(copies, "one-more")
    assert not old.exists()
    KeptCopies(old.parent, DAY_SECONDS).remove_all()
    assert not old.parent.exists()


def test_one_audit_has_so_many_copies_and_no_more(shard: DiffedShard, copies: HttpShard) -> None:
    for number in range(MAX_COPIES):
        ask(copies, "audit-1", f"copy-{number}")
    with pytest.raises(PlaneError) as caught:
        ask(copies, "audit-1", "one-more")
    assert caught.value.code == "TOO_MANY_COPIES"
    assert copies.ask_for("DELETE", "/audit-copies", bool, {"audit_id": "audit-1"}) is True
    assert not list((shard.store.path.parent / "audits").iterdir())
    ask(copies, "audit-1", "one-more")


@pytest.mark.parametrize("audit_id", ["", "../db", "a/b", "A", "x" * 65, "."])
def test_an_audit_names_no_other_place(audit_id: str, shard: DiffedShard, copies: HttpShard) -> None:
    for method in ("POST", "DELETE"):
        with pytest.raises(PlaneError) as caught:
            copies.ask_for(method, "/audit-copies", bool, {"audit_id": audit_id, "name": "all"})
        assert caught.value.code == "INVALID_REQUEST"
    assert (shard.store.path / "CURRENT").exists()


def test_the_same_copy_is_made_once_and_one_in_memory_not_at_all(copies: HttpShard) -> None:
    ask(copies, "audit-1")
    with pytest.raises(PlaneError, match="has a copy all already"):
        ask(copies, "audit-1")
    refused = httpx.post(
        copies.address + "/v1/shards/1/audit-copies", params={"audit_id": "a", "name": "b"}, trust_env=False
    )
    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_REQUEST")
