"""The ledger after simulated runs: whatever crashed, came twice or was forged, it is what the log says."""

from __future__ import annotations

import pytest

from schemas.topics import METADATA_COMMANDS
from services.ledger.report import VerifyReport
from services.metadata.tables import TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.mock_scm.inventory import scm_state
from services.plane.verify_run import verify_shard
from tests.simulation.simulator import Simulation

SEEDS = range(1, 31)


def _verified(simulation: Simulation, shard: int) -> VerifyReport:
    tables = simulation.plane.tables("mock_scm", shard)
    return verify_shard(simulation.plane.log, shard, lambda: scm_state(tables).deleted_bytes)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_ledger_of_a_run_with_faults_is_what_its_log_says(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run()
    for shard in range(len(simulation.shards)):
        report = _verified(simulation, shard)
        state = simulation.plane.tables("metadata", shard).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
        assert state is not None
        if simulation.plane.position("metadata", shard, METADATA_COMMANDS.name) == report.commands:
            assert report.txn == state.txn
        assert report.is_clean, report.examples


def test_runs_repeat_messages_of_the_ledger() -> None:
    simulations = [Simulation(seed) for seed in range(40, 60)]
    repeated = rows = 0
    for simulation in simulations:
        simulation.run()
        for shard in range(len(simulation.shards)):
            report = _verified(simulation, shard)
            repeated, rows = repeated + report.repeated_rows, rows + report.rows
    assert rows > 50
    assert repeated > 0
