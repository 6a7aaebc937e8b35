"""Histories that have cost Ozone 2.2.0 data, blocks or right figures: every oracle of the simulator is content."""

from __future__ import annotations

import pytest

from schemas.records import BucketLayout
from tests.simulation.faults import FaultMix
from tests.simulation.ozone_histories import OZONE_HISTORIES, script_of
from tests.simulation.scripts import PLAIN
from tests.simulation.simulator import Simulation

LAYOUTS = (BucketLayout.OBJECT_STORE, BucketLayout.FILE_SYSTEM_OPTIMIZED)


@pytest.mark.parametrize("is_slow", [False, True], ids=["quick", "slow"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("number", OZONE_HISTORIES)
def test_nothing_is_lost_or_leaked_and_all_figures_are_right(
    seed: int, number: int, layout: BucketLayout, is_slow: bool
) -> None:
    script = script_of(number, layout, is_slow=is_slow)
    for run in range(3):
        Simulation(seed * 1_000 + run, mix=FaultMix(), limits=PLAIN).run(script)
