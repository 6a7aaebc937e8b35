"""Audits beside simulated runs: nothing is reported that is not so, and everything that was planted is."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from schemas.audit_report import Amount, AuditReport, FindingKind
from schemas.records import BlockRun, Replication, ShardState
from services.domain.table_keys import local_id, local_id_txn
from services.metadata.state.tables import RECLAIM_TABLE, TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.mock_scm.sequences import scm_state
from streaming.audit import states
from tests.audited_plane import MemoryAudit, audit_at_once, inventory_of, leak, lose
from tests.replicated_sizes import replicated_run
from tests.simulation.faults import FaultMix, draw_mix
from tests.simulation.scripts import PLAIN, Stage
from tests.simulation.simulator import Simulation

SEEDS = range(1, 41)
BEFORE, NAMESPACE, AFTER = "copy_inventory_before", "copy_namespace", "copy_inventory_after"
ORDER = (BEFORE, NAMESPACE, AFTER)


class FalseAlarmError(Exception):
    """An audit has reported something."""


class AuditedSimulation(Simulation):
    """A run with faults, in which audits begin at any moment and take their time."""

    def __init__(self, seed: int) -> None:
        # A service that was put back repeats itself; an audit has to wait until it is ready, as its command does.
        super().__init__(seed, mix=replace(draw_mix(Random(seed)), restore=0.0))
        self._moments = Random(seed)
        self._audit: MemoryAudit | None = None
        self._left: list[str] = []
        self.audits = 0

    def move(self) -> None:
        super().move()
        if self._moments.random() < 0.7:
            return
        if self._audit is None:
            self._audit = MemoryAudit(self.plane, self._moments.randrange(len(self.shards)))
            self._left = list(ORDER)
        getattr(self._audit, self._left.pop(0))()
        if not self._left:
            report = self._audit.report()
            if not report.is_clean:
                raise FalseAlarmError(report.examples, report.differences)
            self._audit = None
            self.audits += 1


def _sizes(run: BlockRun) -> tuple[int, int]:
    """The bytes of a run, and what it takes on disks beyond."""
    replication = list(Replication)[run.container_id >> 48]
    taken = replicated_run(replication, run.block_count, run.block_size_bytes, run.size_bytes)
    return run.size_bytes, taken - run.size_bytes


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_an_audit_beside_a_run_reports_nothing(seed: int) -> None:
    simulation = AuditedSimulation(seed)
    simulation.run()
    for shard in range(len(simulation.shards)):
        assert audit_at_once(simulation.plane, shard).is_clean


@pytest.mark.parametrize(
    ("order", "freed_before", "reported"),
    [
        (ORDER, 1, set()),
        (ORDER, 2, set()),
        ((NAMESPACE, BEFORE, AFTER), 1, {FindingKind.DANGLING}),
        ((BEFORE, AFTER, NAMESPACE), 2, {FindingKind.ORPHANED}),
    ],
)
def test_only_in_this_order_nothing_is_reported_that_is_not_so(
    order: tuple[str, ...], freed_before: int, reported: set[FindingKind]
) -> None:
    """A key is deleted, and its blocks are, before the copy of this number."""
    reports: list[AuditReport] = []

    def script(simulation: Simulation) -> None:
        stage = Stage(simulation)
        stage.put("k", "l")
        stage.run()
        audit = MemoryAudit(simulation.plane)
        for number, name in enumerate(order):
            if number == freed_before:
                stage.delete("k")
                stage.run()
                assert len(inventory_of(simulation.plane.processes["mock_scm", 0].store)) == 1
            getattr(audit, name)()
        reports.append(audit.report())

    Simulation(1, mix=FaultMix(), limits=PLAIN).run(script)
    assert set(reports[0].findings) == reported


def test_runs_are_audited_at_many_moments() -> None:
    simulations = [AuditedSimulation(seed) for seed in range(50, 55)]
    for simulation in simulations:
        simulation.run()
    assert sum(simulation.audits for simulation in simulations) > 30


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_planted_is_found_and_nothing_else(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "STATES_AT_ONCE", 2)
    simulation = Simulation(seed)
    simulation.run()
    random = Random(seed)
    for shard in range(len(simulation.shards)):
        store = simulation.plane.processes["mock_scm", shard].store
        tables = simulation.plane.tables("metadata", shard)
        state = tables.table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
        assert isinstance(state, ShardState)
        rows = inventory_of(store)
        mark = scm_state(simulation.plane.tables("mock_scm", shard)).mark_local_id
        # Blocks of a claimed version may be gone at any time: a run may end before SCM has deleted them.
        claimed = {row.version.key.blocks for _, row in tables.table(RECLAIM_TABLE).scan()}
        owned = [row for row in rows if row.blocks not in claimed]
        lost = random.sample(owned, min(len(owned), 3))
        written = {local_id_txn(row.blocks.first_local_id) for row in rows}
        free = [txn for txn in range(1, state.txn + 1) if txn not in written]
        leaked = [
            BlockRun(7, local_id(shard, txn, 0), 1, 1_024, 100 + txn) for txn in random.sample(free, min(len(free), 3))
        ]
        for row in lost:
            lose(store, row.blocks)
        for run in leaked:
            leak(store, 999, run)
        report = audit_at_once(simulation.plane, shard)
        found = {(one.kind, one.first_local_id) for one in report.examples}
        assert all(row.blocks.first_local_id <= mark for row in lost)
        assert found == {(FindingKind.DANGLING, row.blocks.first_local_id) for row in lost} | {
            (FindingKind.ORPHANED, run.first_local_id) for run in leaked
        }
        expected = {}
        if lost:
            size_bytes, redundancy = map(sum, zip(*(_sizes(row.blocks) for row in lost), strict=True))
            expected[FindingKind.DANGLING] = Amount(len(lost), size_bytes, redundancy)
        if leaked:
            expected[FindingKind.ORPHANED] = Amount(len(leaked), sum(run.size_bytes for run in leaked))
        assert report.findings == expected
        assert report.differences == ()
