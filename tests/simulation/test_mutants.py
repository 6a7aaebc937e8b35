"""The simulator finds faults that are put in by hand, and finds nothing when they are taken out again.

Three more are found elsewhere: the boundaries of the rule in ``tests/unit/test_reclaimability.py`` (a birth never
equals a snapshot's txn in a real log, so that no run can tell ``>`` from ``>=``), a scan without total order in
``tests/contract/test_store.py``, and clean flags that are not reset in ``tests/unit/test_snapshots_service.py``.
"""

from __future__ import annotations

import pytest

from tests.simulation.errors import SimulationError
from tests.simulation.historical_mutants import HISTORICAL
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.operator_mutants import OPERATOR_MUTANTS
from tests.simulation.simulator import simulate

FIRST_SEED = 7_000
ALL_MUTANTS = {**MUTANTS, **HISTORICAL, **OPERATOR_MUTANTS}


def first_failure(mutant: Mutant) -> tuple[int, SimulationError] | None:
    """The first seed that fails, and how."""
    for seed in range(FIRST_SEED, FIRST_SEED + mutant.runs):
        try:
            simulate(seed, mix=mutant.mix)
        except SimulationError as error:
            return seed, error
    return None


@pytest.mark.parametrize("name", ALL_MUTANTS)
def test_a_fault_put_in_by_hand_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = ALL_MUTANTS[name]
    with monkeypatch.context() as patch:
        mutant.apply(patch)
        found = first_failure(mutant)
    assert found is not None, f"{mutant.runs} runs have not found it"
    seed, error = found
    assert isinstance(error, mutant.found_as), repr(error)
    for sound in range(FIRST_SEED, seed + 1):
        simulate(sound, mix=mutant.mix)
