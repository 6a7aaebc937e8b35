"""The simulator finds faults that are put in by hand, by the oracle that is meant to, and by that alone.

Each fault is played with one oracle switched on, so that it is this one that speaks, and with none, under which the
same run must pass: then nothing else in it has found the fault. Without the fault the same runs pass with all oracles.

Faults that no run can tell from what is right are in ``tests/faults``.
"""

from __future__ import annotations

import re

import pytest

from tests.simulation.all_mutants import ALL_MUTANTS
from tests.simulation.mutant import Mutant, first_find, play_mutant
from tests.simulation.oracles import ORACLES
from tests.simulation.scripts import Script


@pytest.mark.long
@pytest.mark.parametrize("name", ALL_MUTANTS)
def test_a_fault_put_in_by_hand_is_found_by_its_oracle(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = ALL_MUTANTS[name]
    with monkeypatch.context() as patch:
        mutant.apply(patch)
        found = first_find(mutant)
        assert found is not None, f"{mutant.runs} runs have not found it"
        seed, error = found
        assert re.search(mutant.message, str(error)), error
        play_mutant(mutant, seed, without=ORACLES)
    for sound in range(mutant.first_seed, seed + 1):
        _plays(sound, repr(mutant.mix), mutant)


def _plays(seed: int, mix: str, mutant: Mutant) -> None:
    """Play a sound run, once for all mutants that are played under the same circumstances."""
    key = (seed, mix, mutant.script, repr(mutant.limits))
    if key not in _PLAYED:
        play_mutant(mutant, seed)
        _PLAYED.add(key)


_PLAYED: set[tuple[int, str, Script | None, str]] = set()


def test_every_oracle_has_a_fault_that_it_alone_finds() -> None:
    assert {mutant.oracle for mutant in ALL_MUTANTS.values()} == set(ORACLES)
