"""The mock storage container manager answers as a real one has to, and misbehaves only as it is told to."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import (
    Barrier,
    BlockRun,
    BlocksDeleted,
    BlocksWritten,
    DeleteBlocks,
    GrantContainer,
    ScmCommand,
)
from schemas.topics import METADATA_COMMANDS, SCM_COMMANDS, SCM_REPLIES
from services.domain.row_columns import BlockGroup
from services.domain.table_keys import local_id
from services.mock_scm import queries
from services.mock_scm.service import MockScmService
from services.mock_scm.settings import MockScmSettings, MockScmSwitches
from services.mock_scm.tables import CONTAINER_TABLE, INVENTORY_TABLE
from services.storage.tables import TablesReader
from tests.block_groups import groups_by_columns
from tests.unit.service_harness import SHARD, Harness, Sent, bodies, only, senders

BUCKET = 7


def run(txn: int, size_bytes: int = 100, container_id: int = 0, block_count: int = 1) -> BlockRun:
    return BlockRun(container_id, local_id(SHARD, txn, 0), block_count, 100, size_bytes)


def written(txn: int, size_bytes: int = 100, container_id: int = 0, bucket_id: int = BUCKET) -> Sent:
    blocks = run(txn, size_bytes, container_id)
    return SCM_COMMANDS, ScmCommand(
        BlocksWritten(
            bucket_id,
            container_id,
            (blocks.first_local_id,),
            (blocks.block_count,),
            (blocks.block_size_bytes,),
            (blocks.size_bytes,),
        )
    )


def group(txn: int, bucket_id: int = BUCKET) -> BlockGroup:
    return BlockGroup(bucket_id, txn << 8, txn, txn + 1_000, run(txn))


def deletion(*txns: int, task: int = 1, attempt: int = 1) -> Sent:
    return SCM_COMMANDS, ScmCommand(DeleteBlocks(task, attempt, groups_by_columns(group(txn) for txn in txns)))


def barrier(work: int = 0) -> Sent:
    return SCM_COMMANDS, ScmCommand(Barrier("settle", 1, work, "key_deletion"))


@pytest.fixture
def switches() -> MockScmSwitches:
    return MockScmSwitches()


@pytest.fixture
def harness(switches: MockScmSwitches) -> Harness:
    return Harness(lambda: MockScmService(MockScmSettings(container_size_bytes=1_000), switches))


def exist(harness: Harness, *txns: int) -> list[bool]:
    return queries.exist(TablesReader(harness.store), [run(txn) for txn in txns])


class TestInventory:
    def test_blocks_are_there_from_written_to_deleted(self, harness: Harness) -> None:
        harness.give(written(1), written(2))
        assert exist(harness, 1, 2, 3) == [True, True, False]
        assert only(harness.give(deletion(1)), BlocksDeleted) == BlocksDeleted(1, 1, ())
        assert exist(harness, 1, 2) == [False, True]
        totals = queries.totals(TablesReader(harness.store))
        assert (totals.inventory_bytes, totals.inventory_blocks) == (100, 1)
        assert (totals.deleted_bytes, totals.deleted_blocks, totals.mark_txn) == (100, 1, 2)

    def test_a_report_that_comes_again_does_not_bring_deleted_blocks_back(self, harness: Harness) -> None:
        harness.give(written(1), written(2))
        harness.give(deletion(1, 2))
        harness.give(written(1), written(2))
        assert exist(harness, 1, 2) == [False, False]
        assert queries.totals(TablesReader(harness.store)).inventory_bytes == 0

    def test_a_deletion_that_comes_again_is_confirmed_and_frees_nothing(self, harness: Harness) -> None:
        harness.give(written(1))
        harness.give(deletion(1))
        assert only(harness.give(deletion(1)), BlocksDeleted).failed == ()
        assert queries.totals(TablesReader(harness.store)).deleted_bytes == 100

    def test_the_datanodes_carry_out_the_log_in_a_later_unit_of_work(self, harness: Harness) -> None:
        harness.give(written(1), written(2))
        harness.give(deletion(1))
        ((_, container),) = TablesReader(harness.store).table(CONTAINER_TABLE).scan()
        assert (container.used_bytes, container.written_bytes) == (200, 200)
        assert queries.pending_deletions(TablesReader(harness.store)) == 1
        harness.wait(1)
        ((_, container),) = TablesReader(harness.store).table(CONTAINER_TABLE).scan()
        assert (container.used_bytes, container.block_count, container.written_bytes) == (100, 1, 200)
        assert queries.pending_deletions(TablesReader(harness.store)) == 0

    def test_a_full_container_is_followed_by_the_next_one_once(self, harness: Harness) -> None:
        assert not harness.give(written(1, 999))
        sent = harness.give(written(2, 1))
        assert only(sent, GrantContainer) == GrantContainer(1)
        assert sent[0][0] is METADATA_COMMANDS
        assert senders(sent) == {"mock_scm"}
        assert not harness.give(written(3, 5_000)), "late writes to the old container ask for nothing"
        assert only(harness.give(written(4, 1_000, container_id=1)), GrantContainer) == GrantContainer(2)

    def test_a_group_that_does_not_match_is_kept(self, harness: Harness) -> None:
        harness.give(written(1))
        wrong = replace(group(1), bucket_id=BUCKET + 1)
        answer = only(
            harness.give((SCM_COMMANDS, ScmCommand(DeleteBlocks(1, 1, groups_by_columns([wrong]))))), BlocksDeleted
        )
        assert answer.failed == (0,)
        assert exist(harness, 1) == [True]

    def test_the_inventory_has_each_run_with_its_bucket(self, harness: Harness) -> None:
        harness.give(*(written(txn, bucket_id=txn % 2) for txn in range(1, 8)))
        found = [row for _, row in TablesReader(harness.store).table(INVENTORY_TABLE).scan()]
        assert [row.blocks for row in found] == [run(txn) for txn in range(1, 8)]
        assert [row.bucket_id for row in found] == [txn % 2 for txn in range(1, 8)]


class TestOrder:
    def test_a_deletion_that_overtakes_the_report_waits_for_it(self, harness: Harness) -> None:
        harness.give(written(1))
        assert not harness.give(deletion(1, 5))
        harness.restart()
        assert not harness.give(written(3)), "not yet: the newest block is of txn 5"
        assert exist(harness, 1) == [True]
        assert only(harness.give(written(5)), BlocksDeleted).failed == ()
        assert exist(harness, 1, 3, 5) == [False, True, False]

    def test_a_group_below_the_mark_that_is_not_there_is_confirmed(self, harness: Harness) -> None:
        harness.give(written(9))
        assert only(harness.give(deletion(4)), BlocksDeleted).failed == ()


class TestMisbehaving:
    def test_slow(self, harness: Harness, switches: MockScmSwitches) -> None:
        switches.delay_ms = 1_000
        harness.give(written(1))
        assert not harness.give(deletion(1))
        harness.restart()
        assert not harness.wait(999)
        assert exist(harness, 1) == [True]
        assert only(harness.wait(1), BlocksDeleted).failed == ()
        assert exist(harness, 1) == [False]

    def test_answers_twice(self, harness: Harness, switches: MockScmSwitches) -> None:
        switches.answers_twice = True
        harness.give(written(1))
        first, second = bodies(harness.give(deletion(1)), BlocksDeleted)
        assert first == second

    def test_fails_for_ever_until_mended(self, harness: Harness, switches: MockScmSwitches) -> None:
        switches.failing_buckets = frozenset({BUCKET})
        harness.give(written(1), written(2, bucket_id=8))
        both = DeleteBlocks(1, 1, groups_by_columns((group(1), group(2, bucket_id=8))))
        for attempt in range(1, 4):
            command = replace(both, attempt=attempt)
            assert only(harness.give((SCM_COMMANDS, ScmCommand(command))), BlocksDeleted).failed == (0,)
        switches.failing_buckets = frozenset()
        assert only(harness.give(deletion(1, attempt=4)), BlocksDeleted).failed == ()
        switches.is_failing = True
        harness.give(written(3))
        assert only(harness.give(deletion(3)), BlocksDeleted).failed == (0,)

    def test_fails_a_share_always_the_same(self, harness: Harness, switches: MockScmSwitches) -> None:
        switches.fail_share = 0.3
        txns = range(1, 201)
        harness.give(*map(written, txns))
        failed = only(harness.give(deletion(*txns)), BlocksDeleted).failed
        assert 30 <= len(failed) <= 90
        assert exist(harness, *txns) == [place in failed for place in range(200)]
        again = only(harness.give(deletion(*txns)), BlocksDeleted).failed
        assert again == failed, "the same attempt fails in the same places"
        assert only(harness.give(deletion(*txns, attempt=2)), BlocksDeleted).failed != failed


class TestBarrier:
    def test_it_counts_what_was_deleted_since_the_last_one(self, harness: Harness) -> None:
        harness.give(written(1))
        assert only(harness.give(barrier(work=3)), Barrier).work == 3
        harness.give(deletion(1))
        harness.wait(1)
        harness.restart()
        assert only(harness.give(barrier()), Barrier).work == 1
        returned = only(harness.give(barrier()), Barrier)
        assert returned == Barrier("settle", 1, 0, "key_deletion")

    def test_it_counts_what_waits(self, harness: Harness, switches: MockScmSwitches) -> None:
        harness.give(deletion(5))
        assert only(harness.give(barrier()), Barrier).work == 1
        switches.delay_ms = 10
        harness.give(deletion(6, task=2))
        assert only(harness.give(barrier()), Barrier).work == 2

    def test_it_comes_behind_the_answers(self, harness: Harness) -> None:
        harness.give(written(1))
        sent = harness.give(deletion(1), barrier())
        assert [type(record.body) for _, record in sent] == [BlocksDeleted, Barrier]
        assert {topic for topic, _ in sent} == {SCM_REPLIES}
        assert bodies(sent, Barrier)[0].work == 2, "one deletion done, one row left for the datanodes"


def play(seed: int, *, is_restored: bool) -> list[Sent]:
    """A random life of the store, from its seed."""
    random = Random(seed)
    switches = MockScmSwitches()
    harness = Harness(lambda: MockScmService(MockScmSettings(container_size_bytes=350), switches), is_restored)
    txn = 0
    for _ in range(60):
        inputs = []
        for _ in range(random.randrange(3)):
            choice = random.randrange(10)
            if choice < 5:
                txn += random.randrange(1, 3)
                inputs.append(written(txn, container_id=random.randrange(3)))
            elif choice < 9:
                chosen = {random.randrange(1, txn + 4) for _ in range(3)}
                inputs.append(deletion(*sorted(chosen), task=random.randrange(1, 20), attempt=random.randrange(1, 3)))
            else:
                inputs.append(barrier())
        switches.delay_ms = random.choice([0, 0, 50])
        switches.fail_share = random.choice([0.0, 0.5])
        switches.answers_twice = random.random() < 0.2
        harness.now_ms += random.randrange(40)
        harness.give(*inputs)
    return harness.sent


@given(st.integers(0, 10**9))
@settings(max_examples=50, deadline=None)
def test_a_restart_between_any_two_messages_changes_nothing(seed: int) -> None:
    assert play(seed, is_restored=True) == play(seed, is_restored=False)
