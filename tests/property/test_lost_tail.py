"""After a lost tail of the log was accepted nothing is named twice, readers of the chain go on, and state is kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import codec
from schemas.records import (
    AcceptLostTail,
    BlocksWritten,
    BucketLayout,
    CreateBucket,
    CreateVolume,
    DeadLetter,
    MetadataCommand,
    PositionRow,
    PutKey,
    ScmCommand,
    ShardState,
    SnapshotChainRecord,
)
from schemas.stored_rows import row_codec
from schemas.topics import DEAD_LETTERS, METADATA_COMMANDS, SCM_COMMANDS, SNAPSHOT_CHAIN, TOPICS
from services.domain.chain_view import ChainView
from services.domain.errors import InvariantError, PositionError
from services.log.memory import MemoryLog
from services.metadata.checkpoints.unfinished import first_offset_of_txn
from services.metadata.recovery.digest import digest_shard
from services.metadata.recovery.rebuild import Rebuild
from services.metadata.recovery.sent_numbers import highest_of, sent_numbers
from services.metadata.service import MetadataService
from services.metadata.state.tables import CHECKPOINTED, TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.upkeep.lost_tail import SKIPPED_NUMBERS
from services.runtime.loop.positions import POSITIONS
from services.runtime.loop.runner import Runner
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader
from services.workloads.replay import Replay
from tests.rollback_workload import random_workload
from tests.shard_copies import same_commands


class LostTail:
    """A shard with a past, whose log has lost its newest commands."""

    def __init__(self, seed: int, kept_share: float) -> None:
        self.plane = InMemoryPlane()
        list(Replay(InMemoryClient(self.plane)).run(random_workload(seed, "vol")))
        self.store = self.plane.processes["metadata", 0].store
        self.whole = self.plane.log
        self.log = MemoryLog(self.whole.clock)
        for topic in TOPICS:
            records = self.whole.records(topic.name, 0)
            self.log.partitions[topic.name, 0] = records[: int(len(records) * kept_share)]
        self.state = self.present_state()

    def present_state(self) -> ShardState:
        state = TablesReader(self.store).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
        assert state is not None
        return state

    def command(self, **changes: int) -> AcceptLostTail:
        highest = sent_numbers(self.log, 0).highest.and_of(highest_of(self.state))
        fields = {
            "offset": self.log.end_offset(METADATA_COMMANDS.name, 0),
            "expected_txn": self.state.txn,
            "expected_log_time_ms": self.state.log_time_ms,
            "epoch": self.state.epoch + 1,
            "txn": highest.txn + SKIPPED_NUMBERS,
            "chain_version": highest.chain_version + SKIPPED_NUMBERS,
        }
        return AcceptLostTail(**(fields | changes), reason="lost")

    def append(self, body: object) -> None:
        encoder = codec(MetadataCommand)
        value = encoder.encode_message(MetadataCommand(0, "", 0, body))  # type: ignore[arg-type]
        self.log.append(METADATA_COMMANDS.name, 0, value)

    def accept(self) -> AcceptLostTail:
        command = self.command()
        self.append(command)
        row = PositionRow(METADATA_COMMANDS.name, f"memory-{METADATA_COMMANDS.name}", command.offset)
        self.store.write({POSITIONS.name: {METADATA_COMMANDS.name.encode(): row_codec(PositionRow).encode(row)}})
        return command

    def runner(self) -> Runner:
        return Runner(MetadataService(), 0, self.store, self.log, self.log.clock)


def _block_ids(log: MemoryLog) -> Iterator[int]:
    for record in log.records(SCM_COMMANDS.name, 0):
        body = codec(ScmCommand).decode_message(record.value).body
        if isinstance(body, BlocksWritten):
            for first, count in zip(body.first_local_ids, body.block_counts, strict=True):
                yield from range(first, first + count)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), kept=st.floats(0, 0.9), batch=st.sampled_from((1, 7, 2_000)))
def test_the_shard_goes_on_and_names_nothing_twice(seed: int, kept: float, batch: int) -> None:
    lost = LostTail(seed, kept)
    with pytest.raises(PositionError, match=r"deepclean accept-lost-tail"):
        lost.runner()
    view = ChainView()
    for record in lost.whole.records(SNAPSHOT_CHAIN.name, 0):
        view.follow(codec(SnapshotChainRecord).decode_message(record.value))
    kept_until = {topic.name: lost.log.end_offset(topic.name, 0) for topic in TOPICS}
    command = lost.accept()
    copy = lost.store.clone()
    runner = lost.runner()
    while runner.step():
        pass
    # A reader that knows the lost markers leaps with the shard.
    for record in lost.log.records(SNAPSHOT_CHAIN.name, 0)[kept_until[SNAPSHOT_CHAIN.name] :]:
        view.follow(codec(SnapshotChainRecord).decode_message(record.value))
    assert view.version == command.chain_version
    state = lost.present_state()
    assert (state.epoch, state.txn, state.chain_version) == (1, command.txn, command.chain_version)
    used = set(_block_ids(lost.whole))
    lost.append(CreateVolume("later"))
    lost.append(CreateBucket("later", "bucket", BucketLayout.OBJECT_STORE))
    sent_before = len(list(_block_ids(lost.log)))
    for number in range(4):
        lost.append(PutKey("later", "bucket", f"key-{number}", 5))
    while runner.step():
        pass
    new = list(_block_ids(lost.log))[sent_before:]
    assert new
    assert not used & set(new)
    state = lost.present_state()
    assert state.txn == command.txn + 6
    # The newest command is the last of the log: a transaction that began with it pins no more and no less.
    assert first_offset_of_txn(lost.store, state.txn) == lost.log.end_offset(METADATA_COMMANDS.name, 0) - 1
    # From a copy that was made after it, the rest of the log gives the same state; from nothing it does not go.
    rebuild = Rebuild(0, copy, same_commands(lost.log), max_batch_messages=batch)
    rebuild.run_to(rebuild.end)
    assert digest_shard(copy) == digest_shard(lost.store)
    from_nothing = Rebuild(0, MemoryStore(CHECKPOINTED), same_commands(lost.log), max_batch_messages=batch)
    with pytest.raises(InvariantError, match=r"built without them.*\(deepclean restore-backup\)"):
        from_nothing.run_to(from_nothing.end)


def test_one_at_another_place_is_dead_lettered() -> None:
    lost = LostTail(7, 1.0)
    before = digest_shard(lost.store)
    runner = lost.runner()
    lost.append(lost.command(offset=0))
    runner.step()
    letter = codec(DeadLetter).decode_message(lost.log.records(DEAD_LETTERS.name, 0)[-1].value)
    assert letter.error == "InvalidMessageError"
    assert digest_shard(lost.store) == before


@pytest.mark.parametrize("changes", [{"epoch": 0}, {"epoch": 4}, {"txn": 1}, {"chain_version": 0}], ids=str)
def test_one_at_its_place_that_cannot_be_carried_out_stops_the_shard(changes: dict[str, int]) -> None:
    lost = LostTail(7, 1.0)
    before = digest_shard(lost.store)
    runner = lost.runner()
    lost.append(lost.command(**changes))
    with pytest.raises(InvariantError, match="these numbers only rise"):
        runner.step()
    assert digest_shard(lost.store) == before
