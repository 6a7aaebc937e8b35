"""Containers and their copies as mock_scm decides about them, and deletions until all datanodes have them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.block_store import DeletionOrder, Heartbeat, NodeOrders, ReplicaReport, ReplicaState
from schemas.records import (
    BlockRun,
    BlocksWritten,
    ContainerReplica,
    ContainerRow,
    ContainerState,
    DeleteBlocks,
    GrantContainer,
    ScmCommand,
)
from schemas.topics import SCM_COMMANDS
from services.domain.block_placement import (
    Facts,
    LiveCopy,
    choose_nodes,
    is_lost,
    is_surplus,
    is_under_replicated,
    reviewed,
)
from services.domain.row_columns import BlockGroup
from services.domain.table_keys import local_id
from services.mock_scm import queries
from services.mock_scm.containers import container
from services.mock_scm.node_registry import SILENT_MS
from services.mock_scm.replication import _sources
from services.mock_scm.sequences import CONTAINER_ID, DELETION_TXN, last_id
from services.mock_scm.service import MockScmService
from services.mock_scm.settings import MockScmSettings
from services.mock_scm.tables import CONTAINER_TABLE, SCM_STATE_TABLE, STATE_KEY, number_key
from services.runtime.loop.service import Work
from services.storage.tables import RowCache, TablesReader
from tests.block_groups import groups_by_columns
from tests.unit.service_harness import SHARD, Harness, Sent, bodies

OPEN, CLOSED, RECOVERING = ReplicaState.OPEN, ReplicaState.CLOSED, ReplicaState.RECOVERING
FULL = LiveCopy(is_open=False, is_recovering=False, block_count=3, damaged_blocks=0)
NODES = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}


def row(state: ContainerState = ContainerState.CLOSED, nodes: str = "abc", block_count: int = 3) -> ContainerRow:
    replicas = tuple([ContainerReplica(node, is_complete=True) for node in nodes])
    return ContainerRow(7, block_count, 100 * block_count, 300, state, 1, replicas)


def facts(copies: str = "abc", alive: str = "abcd", *, is_sure: bool = True, copy: LiveCopy = FULL) -> Facts:
    load = {node: NODES[node] for node in alive}
    return Facts(dict.fromkeys(copies, copy), load, alive, is_sure)


def nodes_of(found: ContainerRow) -> str:
    return "".join(one.node for one in found.replicas)


class TestRules:
    def test_the_datanodes_with_the_fewest_containers_are_chosen_or_none(self) -> None:
        assert choose_nodes(NODES, 3) == ("a", "b", "c")
        assert choose_nodes(NODES, 3, without="b") == ("a", "c", "d")
        assert choose_nodes(NODES, 3, without="bcd") == ()

    def test_what_is_short_of_copies_and_what_is_lost(self) -> None:
        assert is_under_replicated(row(), 2)
        assert not is_under_replicated(row(), 3)
        assert is_under_replicated(row(ContainerState.OPEN, block_count=0), 2), "it has blocks that are not committed"
        assert not is_under_replicated(row(nodes="a", block_count=0), 0), "there is nothing to copy"
        assert is_lost(row(), 0)
        assert not is_lost(row(), 1)
        assert not is_lost(row(block_count=0), 0)

    def test_a_container_with_all_its_copies_stays_as_it_is(self) -> None:
        for state in (ContainerState.OPEN, ContainerState.CLOSED):
            copy = replace(FULL, is_open=state is ContainerState.OPEN)
            assert reviewed(row(state), facts(copy=copy), 3) == row(state)

    def test_an_open_container_that_loses_a_copy_is_closed_once_no_datanode_accepts_blocks(self) -> None:
        is_open = replace(FULL, is_open=True)
        for lost in (facts("ab", copy=is_open), facts("ab", "abd", copy=is_open)):
            assert reviewed(row(ContainerState.OPEN), lost, 3).state is ContainerState.CLOSING
        assert reviewed(row(ContainerState.CLOSING), facts("ab"), 3).state is ContainerState.CLOSED

    def test_nothing_is_decided_about_a_datanode_that_may_only_be_late(self) -> None:
        late = facts("ab", "ab", is_sure=False, copy=replace(FULL, is_open=True))
        assert reviewed(row(ContainerState.OPEN), late, 3) == row(ContainerState.OPEN)
        assert reviewed(row(), facts("ab", "ab", is_sure=False), 3) == row()

    def test_a_dead_datanode_is_replaced_if_there_is_one_to_copy_to_and_one_to_copy_from(self) -> None:
        assert nodes_of(reviewed(row(), facts("ab", "abd"), 3)) == "abd"
        assert nodes_of(reviewed(row(), facts("ab", "ab"), 3)) == "abc", "no other datanode"
        assert nodes_of(reviewed(row(nodes="c"), facts("", "abd"), 1)) == "c", "nothing to copy from"
        recovering = replace(FULL, is_recovering=True)
        assert nodes_of(reviewed(row(nodes="c"), facts("a", "abd", copy=recovering), 1)) == "c"

    def test_a_container_with_too_few_copies_gets_more(self) -> None:
        assert nodes_of(reviewed(row(nodes="c"), facts("c"), 3)) == "cab"

    def test_an_old_copy_is_not_needed_once_others_are_whole_and_better_than_none_if_not(self) -> None:
        assert is_surplus(row(), "d", facts("abcd"))
        assert not is_surplus(row(), "a", facts("abcd"))
        assert not is_surplus(row(), "d", facts("d"))
        assert not is_surplus(row(), "d", facts("abcd", is_sure=False)), "others may not be heard yet"
        assert nodes_of(reviewed(row(), facts("d", "d"), 3)) == "abcd"

    def test_an_old_copy_stays_until_those_in_its_place_are_made(self) -> None:
        copying = replace(FULL, is_recovering=True)
        known = facts("abde", "abcde")
        assert not is_surplus(row(nodes="ade"), "b", replace(known, copies=dict(known.copies) | {"d": copying}))
        assert is_surplus(row(nodes="ade"), "b", known)
        assert is_surplus(row(nodes="axy"), "b", facts("ab", "ab")), "else no datanode is free for a new copy"
        spoilt = replace(FULL, damaged_blocks=1)
        assert not is_surplus(row(nodes="ade"), "b", replace(known, copies=dict(known.copies) | {"a": spoilt}))
        both = dict(known.copies) | {"a": spoilt, "b": spoilt}
        assert is_surplus(row(nodes="ade"), "b", replace(known, copies=both)), "it heals nothing"
        lost = replace(facts("abd", "abd"), copies=dict.fromkeys("ab", spoilt) | {"d": FULL})
        assert is_surplus(row(nodes="abc"), "d", lost), "else nothing would ever take the place of c"
        diskless = replace(facts("abd", "abcd"), load=dict.fromkeys("abd", 1))
        assert is_surplus(row(nodes="abc"), "d", diskless), "c is alive, and cannot have a copy"

    def test_an_empty_container_is_removed_when_all_datanodes_have_said_that_it_is_empty(self) -> None:
        empty = replace(FULL, block_count=0)
        assert reviewed(row(block_count=0), facts(copy=empty), 3).state is ContainerState.DELETING
        assert reviewed(row(block_count=0), facts("ab", "ab", copy=empty), 1).state is ContainerState.CLOSED
        assert reviewed(row(block_count=0), facts(), 3).state is ContainerState.CLOSED, "blocks nobody committed yet"
        assert reviewed(row(block_count=0), replace(facts(copy=empty), is_pending=True), 3).state is (
            ContainerState.CLOSED
        )
        leaving = row(ContainerState.DELETING, block_count=0)
        assert reviewed(leaving, facts("a", copy=empty), 3).state is ContainerState.DELETING
        gone = reviewed(leaving, facts(""), 3)
        assert (gone.state, gone.replicas) == (ContainerState.DELETED, ())


def written(txn: int, size_bytes: int = 100, container_id: int = 0, *, is_late: bool = False) -> Sent:
    columns = ((local_id(SHARD, txn, 0),), (1,), (1_000,), (size_bytes,))
    marks = (local_id(SHARD, txn + 1, 1),) if is_late else ()
    return SCM_COMMANDS, ScmCommand(BlocksWritten(1, container_id, *columns, marks))


def deletion(txn: int, size_bytes: int = 100, container_id: int = 0) -> Sent:
    run = BlockRun(container_id, local_id(SHARD, txn, 0), 1, 1_000, size_bytes)
    return SCM_COMMANDS, ScmCommand(DeleteBlocks(txn, 1, groups_by_columns([BlockGroup(1, txn << 8, txn, 99, run)])))


def state_of(harness: Harness, container_id: int) -> ContainerState:
    return container(container_id, TablesReader(harness.store)).state


class TestWithoutDatanodes:
    @pytest.fixture
    def harness(self) -> Harness:
        return Harness(lambda: MockScmService(MockScmSettings(container_size_bytes=1_000)))

    def test_a_container_goes_through_its_states(self, harness: Harness) -> None:
        assert state_of(harness, 0) is ContainerState.OPEN
        harness.give(written(1, 1_000))
        assert (state_of(harness, 0), state_of(harness, 1)) == (ContainerState.CLOSED, ContainerState.OPEN)
        harness.give(deletion(1, 1_000))
        harness.wait(1)
        assert state_of(harness, 0) is ContainerState.DELETED
        harness.give(written(5))
        assert state_of(harness, 0) is ContainerState.CLOSED, "a key that was opened before is committed now"

    def test_a_database_of_0_2_0_goes_on(self, harness: Harness) -> None:
        """It has neither states nor sequences, and its counters say which container is the newest."""
        harness.give(written(1, 1_000))
        work = Work(SHARD, harness.store, RowCache())
        work.table(CONTAINER_TABLE).put(number_key(0), ContainerRow(0, 1, 1_000, 1_000))
        harness.store._families.pop("sequenceIdTable")
        work.write()
        harness.restart()
        assert state_of(harness, 0) is ContainerState.CLOSED
        tables = TablesReader(harness.store)
        assert (last_id(CONTAINER_ID, tables), last_id(DELETION_TXN, tables)) == (1, 0)
        assert bodies(harness.give(written(2, 1_000, 1)), GrantContainer) == [GrantContainer(2)]
        state = tables.table(SCM_STATE_TABLE).get(STATE_KEY)
        assert state is not None
        assert state.container_id == 2


class Scm:
    """mock_scm with one copy of each block, and a datanode that says what a test wants."""

    def __init__(self, **limits: int) -> None:
        settings = MockScmSettings(replication=1, deletion_interval_ms=100, dead_after_ms=1_000, **limits)
        self.harness = Harness(lambda: self._made(settings))
        self.number = 0

    def _made(self, settings: MockScmSettings) -> MockScmService:
        self.service = MockScmService(settings)
        return self.service

    def beat(self, *replicas: ReplicaReport, node: str = "a", **others: int) -> NodeOrders:
        """Report twice, so that the answer has what follows from the report."""
        for _ in range(2):
            self.number += 1
            made = Heartbeat(node, f"http://{node}", 1, self.number, 1, replicas)
            orders = self.service.registry.receive(replace(made, **others))  # type: ignore[arg-type]
            self.harness.wait(10)
        return orders

    def acknowledge(self, orders: tuple[DeletionOrder, ...], *replicas: ReplicaReport) -> None:
        self.number += 1
        taken = tuple([one.acknowledgement(is_stored=True) for one in orders])
        self.service.registry.receive(Heartbeat("a", "http://a", 1, self.number, 1, replicas, taken))
        self.harness.wait(10)

    def opened(self) -> ReplicaReport:
        """Have container 0 on the datanode."""
        self.beat()
        assert self.beat().create == (0,)
        copy = ReplicaReport(0, OPEN, 0, 0)
        self.beat(copy)
        assert queries.place_of(TablesReader(self.harness.store), self.service.registry, 0).is_writable
        return copy


class TestWithADatanode:
    def test_a_container_is_writable_when_its_datanode_has_it(self) -> None:
        scm = Scm()
        assert not queries.place_of(TablesReader(scm.harness.store), scm.service.registry, 0).is_writable
        scm.opened()

    def test_blocks_with_bytes_are_noted_until_they_are_deleted(self) -> None:
        scm = Scm()
        scm.opened()
        scm.harness.give(written(1), written(2, is_late=True))
        (run,) = queries.stored_runs(TablesReader(scm.harness.store), 0, 0, 9)
        assert run.first_local_id == local_id(SHARD, 2, 0)
        scm.harness.give(deletion(2))
        assert queries.stored_runs(TablesReader(scm.harness.store), 0, 0, 9) == []

    def test_a_deletion_ends_when_the_datanode_has_acknowledged_these_blocks(self) -> None:
        scm = Scm()
        copy = scm.opened()
        scm.harness.give(written(1), deletion(1))
        orders = scm.beat(copy)
        (order,) = orders.delete
        assert (order.deletion_txn, order.first_local_ids) == (1, (local_id(SHARD, 1, 0),))
        scm.acknowledge((replace(order, first_local_ids=(5,)),), copy)
        assert queries.pending_deletions(TablesReader(scm.harness.store)) == 1, "other blocks had this id"
        scm.acknowledge((order,), copy)
        assert queries.pending_deletions(TablesReader(scm.harness.store)) == 0
        assert scm.beat(copy).delete == ()

    def test_a_deletion_that_nobody_acknowledges_is_parked_and_an_operator_brings_it_back(self) -> None:
        scm = Scm(max_deletion_retries=3)
        copy = scm.opened()
        scm.harness.give(written(1), deletion(1))
        tables = TablesReader(scm.harness.store)
        for _ in range(5):
            assert scm.beat(copy).delete
            scm.harness.wait(100)
            if queries.status(tables, scm.service.registry, 1).parked_transactions:
                break
        assert scm.beat(copy).delete == ()
        scm.harness.restart()
        assert [one.retry_count for one in queries.transactions_from(tables, 0)] == [-1]
        scm.number = 0
        scm.beat(copy)
        assert scm.beat(copy).delete == (), "a restart is no retry"
        assert scm.service._log.left() == 0, "no settle waits for it"
        work = Work(SHARD, scm.harness.store, RowCache())
        assert scm.service._log.retry([7], work) == 0
        assert scm.service._log.retry(None, work) == 1
        work.write()
        (order,) = scm.beat(copy).delete
        scm.acknowledge((order,), copy)
        assert queries.pending_deletions(tables) == 0

    def test_an_older_heartbeat_that_arrives_later_is_ignored(self) -> None:
        scm = Scm()
        copy = scm.opened()
        scm.beat(replace(copy, block_count=5))
        scm.service.registry.receive(Heartbeat("a", "http://a", 1, 1, 1, ()))
        scm.harness.wait(10)
        assert scm.service.registry.nodes()["a"].replicas[0].block_count == 5
        assert state_of(scm.harness, 0) is ContainerState.OPEN, "the container is not taken for lost"

    def test_the_last_of_many_heartbeats_counts_and_no_other_is_kept(self) -> None:
        scm = Scm()
        scm.opened()
        for number in range(1_000, 2_000):
            scm.service.registry.receive(Heartbeat("a", "http://a", 1, number, 1, (ReplicaReport(0, OPEN, number, 0),)))
        assert len(scm.service.registry._received) == 1
        scm.harness.wait(10)
        assert scm.service.registry.nodes()["a"].replicas[0].block_count == 1_999

    def test_a_process_whose_predecessor_had_a_clock_that_was_ahead_is_heard(self) -> None:
        scm = Scm()
        copy = scm.opened()
        scm.beat(copy, started_ms=3_600_000)
        scm.beat(replace(copy, block_count=7), started_ms=2)
        assert scm.service.registry.nodes()["a"].heartbeat.started_ms == 3_600_000, "it may be late"
        scm.harness.wait(SILENT_MS + 1)
        scm.beat(replace(copy, block_count=7), started_ms=2)
        assert scm.service.registry.nodes()["a"].replicas[0].block_count == 7

    def test_a_damaged_block_is_healed_from_a_copy_that_is_to_be_removed(self) -> None:
        spoilt = replace(FULL, damaged_blocks=1)
        known = facts("ab", "ab")
        known = replace(known, copies={"a": spoilt, "b": FULL})
        assert _sources(row(nodes="a"), spoilt, known) == ["a", "b"]
        assert _sources(row(nodes="a"), None, known) == ["a"], "an old copy may have blocks that were deleted since"
        assert _sources(row(nodes="a"), FULL, known) == []

    def test_a_process_that_was_started_again_gets_no_orders_of_the_one_before(self) -> None:
        scm = Scm()
        scm.beat()
        assert scm.beat().create == (0,)
        answer = scm.service.registry.receive(Heartbeat("a", "http://a", 2, 1, 1, ()))
        assert answer == NodeOrders()

    def test_a_lost_copy_closes_the_container_and_the_next_one_is_granted(self) -> None:
        scm = Scm()
        scm.opened()
        scm.harness.give(written(1, is_late=True))
        scm.beat()
        assert state_of(scm.harness, 0) is ContainerState.CLOSED
        assert [one.container_id for one in bodies(scm.harness.sent, GrantContainer)] == [1]
        status = queries.status(TablesReader(scm.harness.store), scm.service.registry, 1)
        assert (status.lost_containers, status.under_replicated) == (1, 1)

    def test_ids_that_a_datanode_or_a_client_names_are_not_given_again(self) -> None:
        scm = Scm()
        scm.opened()
        scm.beat(ReplicaReport(0, OPEN, 0, 0), ReplicaReport(9, CLOSED, 1, 1, 0, 77))
        tables = TablesReader(scm.harness.store)
        assert last_id(DELETION_TXN, tables) == 77
        assert [one.container_id for one in bodies(scm.harness.sent, GrantContainer)] == [10]
        queries.place_of(tables, scm.service.registry, 10**9)
        queries.place_of(tables, scm.service.registry, 12)
        scm.beat(ReplicaReport(0, OPEN, 0, 0))
        assert [one.container_id for one in bodies(scm.harness.sent, GrantContainer)] == [10, 13]
