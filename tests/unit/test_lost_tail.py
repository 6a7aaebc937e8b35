"""Accepting a lost tail on the disk: what is shown, what is changed, and that a call that was cut off can be ended."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.codec import codec
from schemas.records import (
    AcceptLostTail,
    BucketLayout,
    CaptureSnapshot,
    CreateBucket,
    CreateVolume,
    FullChain,
    MetadataCommand,
    PositionRow,
    PutKey,
    ShardState,
    SnapshotChainRecord,
)
from schemas.stored_rows import row_codec
from schemas.topics import METADATA_COMMANDS, SCM_COMMANDS, SNAPSHOT_CHAIN
from services.domain.errors import PositionError
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.log.signing import Signer, person_command
from services.metadata.recovery.digest import digest_shard
from services.metadata.recovery.rebuild import Rebuild
from services.metadata.recovery.sent_numbers import Highest
from services.metadata.recovery.start_check import LostCommandsError, StartCheckedLog
from services.metadata.service import MetadataService
from services.metadata.state.tables import TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.plane.machine.errors import StackError
from services.plane.upkeep import lost_tail
from services.plane.upkeep.lost_tail import SKIPPED_NUMBERS, Losses, LostNumbers, LostTail, accept_losses, find_losses
from services.plane.upkeep.shard_databases import database_directory, new_database, open_database
from services.runtime.loop.positions import POSITIONS
from services.runtime.loop.runner import Runner
from services.storage.tables import TablesReader
from tests.unit.test_unauthorized_commands import SECRETS, enrolled

COMMANDS = METADATA_COMMANDS.name


def append(log: MemoryLog, *bodies: Any) -> None:
    encoder = codec(MetadataCommand)
    for body in bodies:
        if isinstance(log.clock, VirtualClock):
            log.clock.advance(10)
        log.append(COMMANDS, 0, encoder.encode_message(MetadataCommand(0, "", 0, body)))


def apply_all(home: Path, log: MemoryLog) -> None:
    store = new_database(database_directory(home, "metadata", 0), "metadata")
    try:
        rebuild = Rebuild(0, store, log)
        rebuild.run_to(rebuild.end)
        rebuild.send()
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
    bodies = [codec(MetadataCommand).decode_message(record.value).body for record in log.records(COMMANDS, 0)]
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
    lost = find_losses(log, tmp_path, 0)
    assert lost == Losses((LostTail("metadata", COMMANDS, 0, 6, 3),))
    assert not accepted_commands(log)
    command = accept_losses(log, tmp_path, 0, lost, "tested")
    assert command is not None
    assert state_of(tmp_path).epoch == 1, "it is carried out when the call ends"
    assert (command.offset, command.expected_txn, command.epoch) == (3, 6, 1)
    assert not find_losses(log, tmp_path, 0)
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

    lost = find_losses(log, tmp_path, 0)
    with monkeypatch.context() as broken:
        broken.setattr(lost_tail, "_append", crash)
        with pytest.raises(KeyboardInterrupt):
            accept_losses(log, tmp_path, 0, lost, "")
    with pytest.raises(PositionError, match="lost its tail"):
        apply_all(tmp_path, log)
    lost = find_losses(log, tmp_path, 0)
    assert lost
    accept_losses(log, tmp_path, 0, lost, "")
    assert len(accepted_commands(log)) == 1
    apply_all(tmp_path, log)
    assert state_of(tmp_path).epoch == 1


def test_nothing_is_accepted_while_somebody_writes(
    tmp_path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = find_losses(log, tmp_path, 0)
    really = MemoryLog.open_sink

    def with_another(one: MemoryLog) -> Any:
        append(one, CreateVolume("meanwhile"))
        return really(one)

    with monkeypatch.context() as busy:
        busy.setattr(MemoryLog, "open_sink", with_another)
        with pytest.raises(StackError, match=r"Another client writes to metadata\.commands: stop every client"):
            accept_losses(log, tmp_path, 0, lost, "")
    lost = find_losses(log, tmp_path, 0)
    assert lost
    command = accept_losses(log, tmp_path, 0, lost, "")
    assert command is not None
    assert command.offset == 5


def test_the_epochs_run_out(tmp_path: Path, log: MemoryLog) -> None:
    store = open_database(database_directory(tmp_path, "metadata", 0), "metadata")
    state = TablesReader(store).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
    assert state is not None
    last = row_codec(ShardState).encode(replace(state, epoch=3))
    store.write({"transactionInfoTable": {TRANSACTION_INFO_KEY: last}})
    store.close()
    with pytest.raises(StackError, match="accepted a lost tail 3 times, which is the maximum"):
        accept_losses(log, tmp_path, 0, find_losses(log, tmp_path, 0), "")
    assert not accepted_commands(log)


def test_a_recreated_topic_is_no_lost_tail(tmp_path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryLog, "topic_ids", lambda _, topics: dict.fromkeys(topics, "another"))
    with pytest.raises(StackError, match="was recreated since metadata read it: that is no lost tail"):
        find_losses(log, tmp_path, 0)


def start_on(log: MemoryLog, home: Path) -> None:
    """Start metadata, let it read to the end, and stop it."""
    store = new_database(database_directory(home, "metadata", 0), "metadata")
    try:
        checked = StartCheckedLog(log, 0, store)
        runner = Runner(MetadataService(), 0, store, checked, log.clock, must_defer=checked.must_defer)
        while runner.step():
            pass
        runner.close()
    finally:
        store.close()


def grow(log: MemoryLog, clock: VirtualClock, count: int) -> None:
    """Others write, later, to what the broker has kept."""
    clock.advance(5_000)
    append(log, *(PutKey("vol", "bucket", f"new-{number}", 5) for number in range(count)))


@pytest.fixture
def clock(log: MemoryLog) -> VirtualClock:
    assert isinstance(log.clock, VirtualClock)
    return log.clock


@pytest.mark.parametrize("grown", [3, 7])
def test_a_tail_that_was_lost_and_has_grown_again_is_shown_and_accepted(
    tmp_path: Path, log: MemoryLog, clock: VirtualClock, grown: int
) -> None:
    grow(log, clock, grown)
    with pytest.raises(PositionError, match="has lost its tail and has stored other records"):
        start_on(log, tmp_path)
    losses = find_losses(log, tmp_path, 0)
    assert losses == Losses((LostTail("metadata", COMMANDS, 0, 6, 3),))
    command = accept_losses(log, tmp_path, 0, losses, "")
    assert command is not None
    assert command.offset == 3 + grown
    assert not find_losses(log, tmp_path, 0)
    append(log, PutKey("vol", "bucket", "later", 5))
    start_on(log, tmp_path)
    assert state_of(tmp_path).txn == command.txn + 1


@pytest.mark.parametrize("grown", [0, 2, 9])
def test_a_restored_database_skips_the_numbers_that_others_know(
    tmp_path: Path, log: MemoryLog, clock: VirtualClock, grown: int
) -> None:
    """metadata's disk is lost with the tail: what is put in its place has never seen the lost commands."""
    shutil.rmtree(tmp_path / "data")
    grow(log, clock, grown)
    for _ in range(2):
        with pytest.raises(LostCommandsError, match="accept-lost-tail 0"):
            start_on(log, tmp_path)
    losses = find_losses(log, tmp_path, 0)
    assert losses == Losses((), LostNumbers(Highest(3, 0), Highest(6, 0)))
    command = accept_losses(log, tmp_path, 0, losses, "")
    assert command is not None
    assert (command.expected_txn, command.txn) == (3, 6 + SKIPPED_NUMBERS)
    start_on(log, tmp_path)
    state = state_of(tmp_path)
    assert (state.epoch, state.txn) == (1, command.txn)
    assert not find_losses(log, tmp_path, 0)


def test_a_call_that_was_cut_off_costs_no_second_epoch(tmp_path: Path, log: MemoryLog) -> None:
    """metadata has its command, the others not yet their positions; then somebody starts the plane."""
    losses = find_losses(log, tmp_path, 0)
    assert accept_losses(log, tmp_path, 0, losses, "")
    start_on(log, tmp_path)
    open_scm_that_has_read(tmp_path, 9)
    losses = find_losses(log, tmp_path, 0)
    assert losses == Losses((LostTail("mock_scm", SCM_COMMANDS.name, 0, 9, log.end_offset(SCM_COMMANDS.name, 0)),))
    assert not losses.needs_skip
    assert accept_losses(log, tmp_path, 0, losses, "") is None
    assert not find_losses(log, tmp_path, 0)
    assert state_of(tmp_path).epoch == 1
    assert len(accepted_commands(log)) == 1


def open_scm_that_has_read(home: Path, next_offset: int) -> None:
    store = new_database(database_directory(home, "mock_scm", 0), "mock_scm")
    row = PositionRow(SCM_COMMANDS.name, f"memory-{SCM_COMMANDS.name}", next_offset)
    store.write({POSITIONS.name: {SCM_COMMANDS.name.encode(): row_codec(PositionRow).encode(row)}})
    store.close()


def test_a_tail_that_only_another_service_misses_costs_no_epoch(tmp_path: Path) -> None:
    log = MemoryLog(VirtualClock())
    append(log, CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE))
    apply_all(tmp_path, log)
    open_scm_that_has_read(tmp_path, 5)
    losses = find_losses(log, tmp_path, 0)
    assert losses == Losses((LostTail("mock_scm", SCM_COMMANDS.name, 0, 5, 0),))
    assert accept_losses(log, tmp_path, 0, losses, "") is None
    assert not accepted_commands(log)
    assert not find_losses(log, tmp_path, 0)


def test_lost_markers_of_the_chain_are_published_again(tmp_path: Path) -> None:
    log = MemoryLog(VirtualClock())
    append(log, CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE))
    for number in range(3):
        capture = MetadataCommand(0, "", 0, CaptureSnapshot("vol", "bucket", f"s{number}"), "snapshots")
        log.append(COMMANDS, 0, codec(MetadataCommand).encode_message(capture))
    apply_all(tmp_path, log)
    assert not find_losses(log, tmp_path, 0)
    del log.partitions[SNAPSHOT_CHAIN.name, 0][2:]
    losses = find_losses(log, tmp_path, 0)
    assert losses == Losses((), None, is_chain_whole=False)
    accept_losses(log, tmp_path, 0, losses, "")
    assert not find_losses(log, tmp_path, 0)
    start_on(log, tmp_path)
    assert not find_losses(log, tmp_path, 0)
    last = log.records(SNAPSHOT_CHAIN.name, 0)[-1]
    assert isinstance(codec(SnapshotChainRecord).decode_message(last.value).body, FullChain)


@pytest.mark.parametrize(
    ("name", "hours", "why"),
    [("ann", 0, "is for administrators, which ann is not"), ("root", 1, "set the client's clock"), ("", 0, "signed")],
)
def test_what_would_be_refused_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, hours: int, why: str
) -> None:
    clock = VirtualClock()
    log, root = MemoryLog(clock), Signer("root", SECRETS["root"])

    def signed(*bodies: Any) -> None:
        for body in bodies:
            value = person_command(MetadataCommand(0, "", 0, body), root, clock.now_ms())
            log.append(COMMANDS, 0, value)

    append(log, *enrolled())
    signed(CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE))
    apply_all(tmp_path, log)
    before, end = state_of(tmp_path), log.end_offset(COMMANDS, 0) - 1
    log.partitions[COMMANDS, 0].pop()
    losses = find_losses(log, tmp_path, 0)
    for who, ahead in ((Signer(name, SECRETS[name]) if name else None, hours), (root, 0)):
        late = VirtualClock(clock.now_ms() + ahead * 3_600_000)
        monkeypatch.setattr(lost_tail, "person", lambda _, who=who: who)
        monkeypatch.setattr(lost_tail, "SystemClock", lambda late=late: late)
        if (who, ahead) == (root, 0):
            command = accept_losses(log, tmp_path, 0, losses, "")
            assert command is not None
            assert state_of(tmp_path).epoch == 1
        else:
            with pytest.raises(StackError, match=rf"metadata would refuse the command: .*{why}"):
                accept_losses(log, tmp_path, 0, losses, "")
            # Only the log knows what time it has: one that comes from another clock is there, and is passed over.
            assert log.end_offset(COMMANDS, 0) == end + (ahead > 0)
            assert state_of(tmp_path) == before
            with pytest.raises(PositionError):
                start_on(log, tmp_path)
