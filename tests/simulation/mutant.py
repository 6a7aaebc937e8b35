"""What a fault put in by hand is: where, under which circumstances, and by whom it must be found."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import pytest

from tests.simulation.errors import SimulationError
from tests.simulation.faults import FaultMix
from tests.simulation.oracles import all_but
from tests.simulation.plane import Limits
from tests.simulation.scripts import PLAIN, Script
from tests.simulation.simulator import Simulation

FIRST_SEED = 7_000


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault. The oracle that must find it finds it alone: all others are switched off meanwhile."""

    apply: Callable[[pytest.MonkeyPatch], None]
    mix: FaultMix
    oracle: str
    """Its name in ``ORACLES``."""
    message: str
    """What it must say, as a regular expression."""
    runs: int = 60
    script: Script | None = None
    """What is played in place of clients and faults."""
    limits: Limits | None = None
    """Settings; drawn by the seed when there are none."""
    first_seed: int = FIRST_SEED
    """A later one for a fault that few runs find."""


def scripted(
    apply: Callable[[pytest.MonkeyPatch], None],
    script: Script,
    oracle: str,
    message: str,
    limits: Limits = PLAIN,
    *,
    has_forgeries: bool = False,
) -> Mutant:
    """A fault that one scripted run finds; ``has_forgeries`` says that forged messages are in the script."""
    mix = FaultMix(forgeries=1.0) if has_forgeries else FaultMix()
    return Mutant(apply, mix, oracle, message, runs=1, script=script, limits=limits)


def play_mutant(mutant: Mutant, seed: int, without: Collection[str] = ()) -> None:
    """Play one run of a mutant; whether its fault is in is the caller's."""
    Simulation(seed, mix=mutant.mix, limits=mutant.limits, without=without).run(mutant.script)


def first_find(mutant: Mutant) -> tuple[int, SimulationError] | None:
    """The first seed with which its oracle, alone, finds it, and what that says."""
    for seed in range(mutant.first_seed, mutant.first_seed + mutant.runs):
        try:
            play_mutant(mutant, seed, without=all_but(mutant.oracle))
        except SimulationError as error:
            return seed, error
    return None
