"""Accepting a lost tail on the disk: what is shown, what is changed, and that a call that was cut off can be ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.codec import codec
from schemas.records import (
    AcceptLostTail,
    BucketLayout,
    CreateBucket,
    CreateVolume,
    MetadataCommand,
    PutKey,
    ShardState,
)
from schemas.topics import METADATA_COMMANDS
from services.metadata.digest import digest_shard
from services.metadata.rebuild import Rebuild
from services.metadata.tables import TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.plane import lost_tail
from services.plane.errors import StackError
from services.plane.lost_tail import LostTail, accept_lost_tail, find_lost_tails
from services.plane.shard_databases import database_directory, new_database, open_database
from services.runtime.clock import VirtualClock
from services.runtime.errors import PositionError
from services.runtime.memory_log import MemoryLog
from services.storage.tables import TablesReader

COMMANDS = METADATA_COMMANDS.name


def append(log: MemoryLog, *bodies: Any) -> None:
    encoder = codec(MetadataCommand)
    for body in bodies:
        log.append(COMMANDS, 0, encoder.encode(MetadataCommand(0, "", 0, body)), encoder.fingerprint)


def apply_all(home: Path, log: MemoryLog) -> None:
    store = new_database(database_directory(home, "metadata", 0), "metadata")
    try:
        rebuild = Rebuild(0, store, log)
        rebuild.run_to(rebuild.end)
        rebuild.close()
    finally:
        store.close()


@pytest.fixture
def log(tmp_path: Path) -> MemoryLog:
    """A log that has lost three of its six commands, and a home whose metadata has applied all six."""
    log = MemoryLog(VirtualClock())
    append(log, CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE))
    append(log, *(PutKey("vol", "bucket", f"key-{number}", 5) for number in range(4)))
    apply_all(tmp_path, log)
    del log.partitions[COMMANDS, 0][3:]
    return log


def accepted_commands(log: MemoryLog) -> list[AcceptLostTail]:
    bodies = [codec(MetadataCommand).decode(record.value).body for record in log.records(COMMANDS, 0)]
    return [body for body in bodies if isinstance(body, AcceptLostTail)]


def state_of(home: Path) -> ShardState:
    store = open_database(database_directory(home, "metadata", 0), "metadata")
    try:
        digest_shard(store)
        state = TablesReader(store).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
    finally:
        store.close()
    assert state is not None
    return state


def test_what_was_lost_is_shown_and_accepted_once(tmp_path: Path, log: MemoryLog) -> None:
    lost = find_lost_tails(log, tmp_path, 0)
    assert lost == [LostTail("metadata", COMMANDS, 0, 6, 3)]
    assert not accepted_commands(log)
    command = accept_lost_tail(log, tmp_path, 0, lost, "tested")
    assert (command.offset, command.expected_txn, command.epoch) == (3, 6, 1)
    assert find_lost_tails(log, tmp_path, 0) == []
    append(log, PutKey("vol", "bucket", "later", 5))
    apply_all(tmp_path, log)
    state = state_of(tmp_path)
    assert (state.epoch, state.txn) == (1, command.txn + 1)


@pytest.mark.parametrize("lost_commands", [1, 3])
@pytest.mark.parametrize("is_sent", [False, True])
def test_one_that_was_cut_off_is_ended_by_the_next_call(
    tmp_path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch, lost_commands: int, *, is_sent: bool
) -> None:
    append(log, *[CreateVolume("of-somebody-who-did-not-know")] * (3 - lost_commands))

    really = lost_tail._append

    def crash(*arguments: Any) -> None:
        if is_sent:
            really(*arguments)
        raise KeyboardInterrupt

    lost = find_lost_tails(log, tmp_path, 0)
    with monkeypatch.context() as broken:
        broken.setattr(lost_tail, "_append", crash)
        with pytest.raises(KeyboardInterrupt):
            accept_lost_tail(log, tmp_path, 0, lost, "")
    with pytest.raises(PositionError, match="lost its tail"):
        apply_all(tmp_path, log)
    lost = find_lost_tails(log, tmp_path, 0)
    assert lost
    accept_lost_tail(log, tmp_path, 0, lost, "")
    assert len(accepted_commands(log)) == 1
    apply_all(tmp_path, log)
    assert state_of(tmp_path).epoch == 1


def test_nothing_is_accepted_while_somebody_writes(
    tmp_path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = find_lost_tails(log, tmp_path, 0)
    really = MemoryLog.open_sink

    def with_another(one: MemoryLog) -> Any:
        append(one, CreateVolume("meanwhile"))
        return really(one)

    with monkeypatch.context() as busy:
        busy.setattr(MemoryLog, "open_sink", with_another)
        with pytest.raises(StackError, match=r"Somebody writes to metadata\.commands: stop every client"):
            accept_lost_tail(log, tmp_path, 0, lost, "")
    lost = find_lost_tails(log, tmp_path, 0)
    assert lost
    assert accept_lost_tail(log, tmp_path, 0, lost, "").offset == 5


def test_the_epochs_run_out(tmp_path: Path, log: MemoryLog) -> None:
    store = open_database(database_directory(tmp_path, "metadata", 0), "metadata")
    state = TablesReader(store).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
    assert state is not None
    last = codec(ShardState).encode(replace(state, epoch=3))
    store.write({"transactionInfoTable": {TRANSACTION_INFO_KEY: last}})
    store.close()
    with pytest.raises(StackError, match="3 times, which is the most it can"):
        accept_lost_tail(log, tmp_path, 0, find_lost_tails(log, tmp_path, 0), "")
    assert not accepted_commands(log)


def test_a_topic_made_anew_is_no_lost_tail(tmp_path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryLog, "topic_ids", lambda _, topics: dict.fromkeys(topics, "another"))
    with pytest.raises(StackError, match="was made anew since metadata read it: that is no lost tail"):
        find_lost_tails(log, tmp_path, 0)
