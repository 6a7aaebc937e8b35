"""A database that never saw the lost commands does not go on: restored, made again from the log, or empty."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from schemas.codec import codec
from schemas.records import (
    Barrier,
    BlocksWritten,
    BucketLayout,
    CaptureSnapshot,
    CreateBucket,
    CreateVolume,
    DeleteVolume,
    MetadataCommand,
    MetadataProgress,
    PutKey,
    ScmCommand,
    ShardState,
)
from schemas.topics import METADATA_COMMANDS, METADATA_PROGRESS, METADATA_REPLIES, NUMBERED, SCM_COMMANDS
from services.domain.errors import InvariantError
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.metadata.recovery.digest import digest_shard
from services.metadata.recovery.rebuild import Rebuild
from services.metadata.recovery.sent_numbers import Highest, sent_numbers
from services.metadata.recovery.start import start as start_metadata
from services.metadata.service import MetadataService
from services.metadata.state.tables import CHECKPOINTED, TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.plane.machine.errors import StackError
from services.plane.upkeep.rebuilds import Expected, RebuildRun
from services.runtime.loop.runner import Runner
from services.runtime.process.hosted_shard import Start
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader

COMMANDS = METADATA_COMMANDS.name


def append(log: MemoryLog, *bodies: Any) -> None:
    encoder = codec(MetadataCommand)
    for body in bodies:
        sender = "snapshots" if isinstance(body, CaptureSnapshot) else ""
        command = MetadataCommand(0, "", 0, body, sender)
        log.append(COMMANDS, 0, encoder.encode_message(command))


def put(log: MemoryLog, *names: str) -> None:
    append(log, *(PutKey("vol", "bucket", name, 5) for name in names))


def start(log: MemoryLog, store: MemoryStore) -> Runner:
    """Metadata as its process starts it."""
    return opened(start_metadata(log, 0, store), log, store)


def opened(begun: Start, log: MemoryLog, store: MemoryStore) -> Runner:
    return Runner(
        MetadataService(),
        0,
        store,
        begun.log,
        log.clock,
        max_batch_messages=3,
        must_defer=begun.must_defer,
        published_below=begun.published_below,
    )


def step_to_the_end(runner: Runner) -> None:
    while runner.step():
        pass


def run(log: MemoryLog, store: MemoryStore) -> ShardState:
    step_to_the_end(start(log, store))
    state = TablesReader(store).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
    assert state is not None
    return state


def block_ids(log: MemoryLog) -> list[int]:
    bodies = [codec(ScmCommand).decode_message(record.value).body for record in log.records(SCM_COMMANDS.name, 0)]
    return [first for body in bodies if isinstance(body, BlocksWritten) for first in body.first_local_ids]


class Past:
    """A shard of which a copy was made when it had four commands, and which has ten."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.log = MemoryLog(self.clock)
        self.store = MemoryStore(CHECKPOINTED)
        append(self.log, CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE))
        put(self.log, "a", "b")
        run(self.log, self.store)
        self.copy = self.store.clone()
        put(self.log, "c", "d", "e", "f", "g", "h")
        self.state = run(self.log, self.store)

    def lose(self, count: int) -> None:
        """The broker loses its newest commands, and nothing else."""
        del self.log.partitions[COMMANDS, 0][-count:]

    def database(self, which: str) -> MemoryStore:
        return self.copy if which == "restored" else MemoryStore(CHECKPOINTED)


@pytest.fixture
def past() -> Past:
    return Past()


def test_a_former_owner_may_go_on_until_the_new_one_starts(past: Past) -> None:
    begun = start_metadata(past.log, 0, past.copy)
    put(past.log, "i", "k")
    state = run(past.log, past.store)
    step_to_the_end(opened(begun, past.log, past.copy))
    assert digest_shard(past.copy) == digest_shard(past.store)
    assert state.txn > past.state.txn


@pytest.mark.parametrize("which", ["restored", "empty"])
@pytest.mark.parametrize("lost", [1, 5, 6])
def test_it_stops_before_it_names_anything_twice(past: Past, which: str, lost: int) -> None:
    past.lose(lost)
    store, before = past.database(which), list(past.log.records(METADATA_REPLIES.name, 0))
    past.clock.advance(2_000)
    for _ in range(4):  # it is started again and again, and clients that do not know fill the place of what was lost
        runner = start(past.log, store)
        put(past.log, *(f"new-{number}" for number in range(5)))
        with pytest.raises(InvariantError, match=r"has lost the newest commands.*\(deepclean accept-lost-tail 0\)"):
            step_to_the_end(runner)
        assert runner.positions()[COMMANDS] == 10 - lost
    assert past.log.records(METADATA_REPLIES.name, 0) == before, "nothing comes of what it has applied"


def test_a_clock_that_goes_back_is_no_loss(past: Past) -> None:
    """Commands of an hour that has not come yet, their answers of the hour before, and others behind them."""
    records = past.log.partitions[COMMANDS, 0]
    for at in (3, 4, 5):
        records[at] = records[at]._replace(timestamp_ms=records[at].timestamp_ms + 3_600_000)
    assert run(past.log, past.database("empty")).txn == past.state.txn


@pytest.mark.parametrize("which", ["restored", "empty"])
def test_it_goes_on_with_a_log_that_is_whole(past: Past, which: str) -> None:
    store = past.database(which)
    assert run(past.log, store) == past.state
    put(past.log, "new")
    runner = start(past.log, store)
    put(past.log, "newer")
    while runner.step():
        pass
    assert digest_shard(store).txn == past.state.txn + 2


def test_it_looks_once_and_then_reads_without_a_bound(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = start(past.log, past.store)
    runner.step()
    monkeypatch.setattr("services.metadata.recovery.start_check.sent_numbers", None)
    put(past.log, "new")
    assert runner.step() == 1


def test_a_command_that_was_refused_may_be_lost(past: Past) -> None:
    append(past.log, DeleteVolume("vol"))
    run(past.log, past.store)
    past.lose(1)
    assert run(past.log, MemoryStore(CHECKPOINTED)).txn == past.state.txn


def test_a_lost_marker_is_known_by_its_version(past: Past) -> None:
    append(past.log, CaptureSnapshot("vol", "bucket", "s1"))
    run(past.log, past.store)
    for topic in NUMBERED:
        if topic.name != "gc.snapshot-chain":
            past.log.partitions.pop((topic.name, 0), None)
    past.lose(1)
    with pytest.raises(InvariantError, match="chain version 1"):
        run(past.log, past.copy)


@pytest.mark.parametrize("kept", [METADATA_REPLIES, SCM_COMMANDS], ids=lambda topic: topic.name)
def test_each_topic_alone_gives_it_away(past: Past, kept: Any) -> None:
    for topic in NUMBERED:
        if topic is not kept:
            past.log.partitions.pop((topic.name, 0), None)
    assert sent_numbers(past.log, 0).highest.txn == past.state.txn
    past.lose(2)
    with pytest.raises(InvariantError, match="has lost the newest commands"):
        run(past.log, past.copy)


def test_what_cannot_be_read_or_true_says_nothing(past: Past) -> None:
    encoder = codec(MetadataProgress)
    impossible = encoder.encode_message(MetadataProgress((1 << 63) - 1, Barrier("", 1, 0, "")))
    past.log.append(METADATA_PROGRESS.name, 0, impossible)
    past.log.append(METADATA_PROGRESS.name, 0, b"no record")
    assert sent_numbers(past.log, 0).highest == Highest(past.state.txn, 0)
    assert run(past.log, past.copy) == past.state


@pytest.mark.parametrize("grown", [0, 1, 20])
def test_a_rebuild_of_a_log_that_is_too_short_is_refused_and_says_nothing(past: Past, grown: int) -> None:
    past.lose(3)
    past.clock.advance(2_000)
    put(past.log, *(f"new-{number}" for number in range(grown)))
    before = {place: list(records) for place, records in past.log.partitions.items()}
    rebuild = Rebuild(0, MemoryStore(CHECKPOINTED), past.log)
    with pytest.raises(InvariantError, match="has lost the newest commands"):
        _all_of(rebuild)
    assert rebuild.position == 7
    rebuild.close()
    assert past.log.partitions == before


def _all_of(rebuild: Rebuild) -> None:
    rebuild.run_to(rebuild.end)
    rebuild.check()


def test_a_database_that_was_named_and_cannot_be_compared_is_an_error(past: Past) -> None:
    digest = digest_shard(past.store)
    past.lose(3)
    for log_knows in (True, False):
        if not log_knows:
            for topic in NUMBERED:
                past.log.partitions.pop((topic.name, 0), None)
        for is_required in (True, False):
            store = MemoryStore(CHECKPOINTED)
            rebuild = Rebuild(0, store, past.log)
            run = RebuildRun(rebuild, store, [Expected("lost", 10, digest, is_required)], published_below=0)
            with pytest.raises((StackError, InvariantError), match=r"lost .*(its tail|the newest commands)"):
                run.apply_and_compare(lambda _: None, lambda: nullcontext(lambda *_: None))
            rebuild.close()


def test_held_messages_go_out_once_and_in_order(past: Past) -> None:
    # The start between them has sent what it could not know to be acknowledged once more.
    whole = list(dict.fromkeys(record.value for record in past.log.records(METADATA_REPLIES.name, 0)))
    store, copied = MemoryStore(CHECKPOINTED), MemoryLog(past.log.clock)
    copied.partitions[COMMANDS, 0] = list(past.log.records(COMMANDS, 0))
    rebuild = Rebuild(0, store, copied, max_batch_messages=1)
    rebuild.run_to(rebuild.end)
    assert not copied.records(METADATA_REPLIES.name, 0)
    waiting = rebuild._runner.waiting()
    assert waiting > len(whole)
    assert rebuild.send() == waiting
    assert rebuild._runner.waiting() == 0
    assert [record.value for record in copied.records(METADATA_REPLIES.name, 0)] == whole
    assert rebuild.send() == 0
    rebuild.close()
    run(copied, store)
    assert [record.value for record in copied.records(METADATA_REPLIES.name, 0)] == whole
