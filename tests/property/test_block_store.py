"""mock_scm and its datanodes under crashes, losses and lost requests: no live block is lost, no dead one stays.

A run is made by a seed. mock_scm and the datanodes are real; the log and the network are played. Between any two steps
a process may be killed and started again. Only one copy of a block is spoiled at a time, as three replicas promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from schemas.block_store import Heartbeat, NodeOrders
from schemas.records import BlockRun, BlocksWritten, DeleteBlocks, GrantContainer, ScmCommand
from schemas.topics import SCM_COMMANDS
from services.datanode.errors import BlockError
from services.datanode.peers import UnreachableError
from services.domain.row_columns import BlockGroup
from services.domain.table_keys import local_id
from services.mock_scm import queries
from services.mock_scm.service import MockScmService
from services.mock_scm.settings import MockScmSettings
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader
from tests.block_groups import groups_by_columns
from tests.datanodes import Machine, Network, flip_a_bit
from tests.unit.service_harness import SHARD, Harness, Sent, bodies

BUCKET = 7
NODES, REPLICATION = 4, 3
DEAD_MS = 3_000
SETTINGS = MockScmSettings(
    container_size_bytes=60_000, replication=REPLICATION, dead_after_ms=DEAD_MS, deletion_interval_ms=200
)


@dataclass(frozen=True)
class Written:
    """A block that was committed, with its bytes."""

    run: BlockRun
    txn: int
    data: bytes


class Run:
    """One run: the block store, and what it has to hold."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(seed)
        self.harness = Harness(self._make)
        self.network = Network(self._receive)
        for number in range(NODES):
            name = f"node-{number}"
            self.network.machines[name] = Machine(name, directory, self.network, disks=2)
        self.live: dict[int, Written] = {}
        self.is_behind = False
        """Whether mock_scm was taken back, so that it may give an id again that metadata has passed."""
        self.given: list[Sent] = []
        """The whole log of mock_scm's commands."""
        self.older = (self.harness.store.clone(), 0)
        """A copy of mock_scm's database, and its position in the log."""
        self.container_id = 0
        self.txn = 0
        self.spoiled = 0

    def _make(self) -> MockScmService:
        self.scm = MockScmService(SETTINGS)
        return self.scm

    def _receive(self, _: int, heartbeat: Heartbeat) -> NodeOrders:
        return self.scm.registry.receive(heartbeat)

    @property
    def machines(self) -> list[Machine]:
        """All datanodes."""
        return list(self.network.machines.values())

    def tables(self) -> TablesReader:
        """What mock_scm has written."""
        return TablesReader(self.harness.store)

    def give(self, *inputs: Sent) -> None:
        """Give mock_scm some messages; metadata follows its grants."""
        self.given += inputs
        for grant in bodies(self.harness.give(*inputs), GrantContainer):
            assert grant.container_id > self.container_id or self.is_behind, "an id was given twice"
            self.container_id = max(self.container_id, grant.container_id)

    def take_back(self, store: MemoryStore, position: int) -> None:
        """mock_scm starts on another database, and reads the log from there. Old grants come again."""
        self.is_behind = True
        self.harness.store = store
        self.harness.restart()
        while position < len(self.given):
            count = self.random.choice((1, 20))
            sent = self.harness.give(*self.given[position : position + count])
            position += count
            for grant in bodies(sent, GrantContainer):
                self.container_id = max(self.container_id, grant.container_id)
            if self.random.random() < 0.3:
                self.random.choice(self.machines).heartbeats.beat()

    # Steps

    def write(self) -> None:
        """A client opens a key, writes a block to every copy of its container, and commits or gives up."""
        self.txn += 1
        data = self.random.randbytes(self.random.choice((1, 5_000, 16_384, 20_000)))
        run = BlockRun(self.container_id, local_id(SHARD, self.txn, 0), 1, 1 << 20, len(data))
        place = queries.place_of(self.tables(), self.scm.registry, run.container_id)
        if not place.is_writable:
            return
        try:
            for url in place.urls:
                self.network.write(url, run.container_id, run.first_local_id, data)
        except (BlockError, UnreachableError):
            self._report(run)
            self._delete(run, self.txn)
            return
        self._report(run)
        self.live[run.first_local_id] = Written(run, self.txn, data)

    def _report(self, run: BlockRun) -> None:
        """metadata reports blocks that an earlier command has allocated."""
        self.txn += 1
        columns = ((run.first_local_id,), (1,), (run.block_size_bytes,), (run.size_bytes,))
        mark = local_id(SHARD, self.txn, 1)
        written = BlocksWritten(BUCKET, run.container_id, *columns, (mark,))
        for _ in range(self.random.choice((1, 1, 2))):
            self.give((SCM_COMMANDS, ScmCommand(written)))

    def _delete(self, run: BlockRun, txn: int) -> None:
        group = BlockGroup(BUCKET, txn << 8, txn, txn + 1, run)
        for attempt in range(self.random.choice((1, 1, 2))):
            command = DeleteBlocks(self.txn, attempt, groups_by_columns([group]))
            self.give((SCM_COMMANDS, ScmCommand(command)))

    def delete(self) -> None:
        """A key is deleted, and no snapshot holds it."""
        if self.live:
            written = self.live.pop(self.random.choice(sorted(self.live)))
            self._delete(written.run, written.txn)

    def beat(self) -> None:
        """A datanode reports; the request or the answer may be lost."""
        machine = self.random.choice(self.machines)
        if machine.is_up:
            self.network.loses_request = self.random.random() < 0.1
            self.network.loses_answer = self.random.random() < 0.1
            machine.heartbeats.beat()
            self.network.loses_request = self.network.loses_answer = False
        self.give()

    def chores(self) -> None:
        """A datanode carries out deletions and repairs, and scrubs."""
        machine = self.random.choice(self.machines)
        if machine.is_up:
            machine.chores.go_on(self.harness.now_ms)

    def time(self) -> None:
        """Time passes."""
        self.harness.now_ms += self.random.choice((50, 300))
        self.give()

    def crash(self) -> None:
        """A process is killed and started again."""
        if self.random.random() < 0.4:
            self.harness.restart()
            return
        machine = self.random.choice(self.machines)
        if machine.is_up:
            machine.start()

    def back_up(self) -> None:
        """A backup of mock_scm is made."""
        self.older = (self.harness.store.clone(), len(self.given))

    def restore(self) -> None:
        """mock_scm's database is lost. It is restored from an older copy, or made again from the log alone.

        Not while a datanode is down: what only that one has can be deleted by nobody then.
        """
        if not self.is_whole():
            return
        store, position = self.older if self.random.random() < 0.5 else (MemoryStore(), 0)
        self.take_back(store.clone(), position)
        self.settle(20)

    def spoil(self) -> None:
        """A copy is spoiled: a bit, a file, a disk, or a datanode for a long time. Not while another one is."""
        if not self.is_whole():
            return
        self.spoiled += 1
        machine = self.random.choice(self.machines)
        kind = self.random.choice(("bit", "file", "disk", "down", "away"))
        files = sorted(machine.files())
        if kind == "bit" and files:
            flip_a_bit(machine.path_of(*self.random.choice(files)), self.random.randrange(1 << 20))
        elif kind == "file" and files:
            machine.path_of(*self.random.choice(files)).unlink()
        elif kind == "disk":
            machine.lose_disk(self.random.randrange(2))
            machine.start()
        elif kind in ("down", "away"):
            machine.is_up = False
            self.settle(50 if kind == "away" else 5)
            machine.start()

    # Checks

    def copies(self, written: Written) -> list[bytes]:
        """What the datanodes hold of a block that is right."""
        key = written.run.container_id, written.run.first_local_id
        found = [machine.files().get(key) for machine in self.machines if machine.is_up]
        return [data for data in found if data == written.data]

    def is_whole(self) -> bool:
        """Whether every live block has all its copies."""
        return all(machine.is_up for machine in self.machines) and all(
            len(self.copies(written)) >= REPLICATION for written in self.live.values()
        )

    def check_nothing_is_lost(self) -> None:
        """Every live block has a right copy."""
        for written in self.live.values():
            assert self.copies(written), f"lost: {written.run}"

    def settle(self, rounds: int) -> None:
        """Everything that is up goes on for some time."""
        for _ in range(rounds):
            for machine in self.machines:
                if machine.is_up:
                    machine.heartbeats.beat()
            self.harness.now_ms += 200
            self.give()
            for machine in self.machines:
                if machine.is_up:
                    machine.chores.go_on(self.harness.now_ms)
            self.check_nothing_is_lost()

    def check_end(self) -> None:
        """After all work: exactly the live blocks are there, each with all its copies, and nothing is owed."""
        expected = {(one.run.container_id, one.run.first_local_id) for one in self.live.values()}
        held = [set(machine.files()) for machine in self.machines]
        assert set().union(*held) == expected
        assert self.is_whole()
        assert sum(map(len, held)) == REPLICATION * len(expected)
        status = queries.status(self.tables(), self.scm.registry, REPLICATION)
        assert (status.waiting_transactions, status.parked_transactions) == (0, 0)
        assert (status.under_replicated, status.lost_containers) == (0, 0)
        assert [node.damaged_blocks for node in status.nodes] == [0] * NODES
        size_bytes = sum(len(one.data) for one in self.live.values())
        assert sum(node.used_bytes for node in status.nodes) == REPLICATION * size_bytes
        assert queries.totals(self.tables()).inventory_bytes == size_bytes
        stored = queries.stored_runs(self.tables(), 0, 0, 10_000)
        assert {(run.container_id, run.first_local_id) for run in stored} == expected


STEPS = (
    ("write", 25),
    ("delete", 12),
    ("beat", 40),
    ("chores", 20),
    ("time", 20),
    ("crash", 12),
    ("spoil", 3),
    ("back_up", 2),
    ("restore", 1),
)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_no_live_block_is_lost_and_no_dead_one_stays(seed: int, tmp_path: Path) -> None:
    run = Run(seed, tmp_path)
    run.settle(3)
    names, weights = zip(*STEPS, strict=True)
    for name in run.random.choices(names, weights, k=500):
        getattr(run, name)()
        run.check_nothing_is_lost()
    run.settle(80)
    run.check_end()
    assert run.txn > 60, "the run has written"
    assert run.spoiled, "the run has spoiled something"
