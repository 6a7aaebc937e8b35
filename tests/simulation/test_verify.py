"""The ledger after simulated runs: whatever crashed, came twice, came back or was forged, it is what the log says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schemas.topics import METADATA_COMMANDS
from services.metadata.state.tables import TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.mock_scm.sequences import scm_state
from services.verifier.report import VerifyReport
from services.verifier.run import verify_shard
from tests.simulation.simulator import Simulation

SEEDS = range(1, 31)


def _verified(simulation: Simulation, shard: int) -> VerifyReport:
    tables = simulation.plane.tables("mock_scm", shard)
    return verify_shard(simulation.plane.log, shard, lambda: scm_state(tables).deleted_bytes)


def _checked(seed: int) -> Iterator[VerifyReport]:
    """The reports of a run's shards, each of them clean."""
    simulation = Simulation(seed)
    simulation.trims.share = 0.0  # a ledger is verified from the beginning of the log
    simulation.run()
    for shard in range(len(simulation.shards)):
        report = _verified(simulation, shard)
        state = simulation.plane.tables("metadata", shard).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
        assert state is not None
        if simulation.plane.position("metadata", shard, METADATA_COMMANDS.name) == report.commands:
            assert report.txn == state.txn, seed
        assert report.is_clean, (seed, report.examples)
        yield report


@pytest.mark.long
def test_the_ledger_of_runs_with_faults_is_what_their_logs_say() -> None:
    reports = [report for seed in SEEDS for report in _checked(seed)]
    assert sum(report.rows for report in reports) > 50
    assert sum(report.undeletes for report in reports) > 10, "runs bring back what was deleted, too"
