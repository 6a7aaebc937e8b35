"""A fixed handful of schedules on a real plane; ``make chaos`` plays as many others as there is time for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.plane.stack import Stack
from tests.chaos.keeper import Counts, Keeper
from tests.chaos.run import audit, run_schedules
from tests.chaos.schedule import draw_schedule

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]
SEEDS = (8, 13, 21)


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    """One plane for all schedules, kept running."""
    home = tmp_path_factory.mktemp("chaos")
    with Stack(home, shards=2, is_rename_allowed=True) as stack, Keeper(stack, Counts()) as keeper:
        yield keeper
        print("\n".join(keeper.counts.lines()))


def test_what_crashes_anywhere_ends_as_if_nothing_had_happened(keeper: Keeper) -> None:
    run_schedules(keeper.stack, keeper, [draw_schedule(seed) for seed in SEEDS])


def test_an_audit_afterwards_is_clean(keeper: Keeper) -> None:
    audit(keeper.stack)
