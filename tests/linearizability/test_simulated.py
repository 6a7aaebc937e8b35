"""Concurrent clients in simulated runs see what some order of their calls explains, whatever crashes or repeats."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from tests.linearizability.checker import TooManyOrdersError
from tests.linearizability.simulated import check_run
from tests.simulation.faults import FaultMix, draw_mix

GROUPS, RUNS_OF_A_GROUP = 4, 8


def drawn_mix(seed: int) -> FaultMix:
    """Faults that a client may meet. What reads a restored database before it has caught up is not ready, and a hole
    in the chain stops services: neither answers clients."""
    return replace(draw_mix(Random(seed)), restore=0.0, hole="", garbage=0.0, forgeries=0.0, has_lost_answer=False)


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_clients_see_is_linearizable(seed: int, group: int) -> None:
    """In about one run of fifty so many calls are under way at once that not all orders can be tried: another one is
    played in its place. Three of ten would be a checker that has grown weak.
    """
    calls: Counter[str] = Counter()
    decided, undecided = 0, list[int]()
    for number in count(group, GROUPS):
        try:
            run = check_run(seed + number, drawn_mix(seed + number))
        except TooManyOrdersError:
            undecided.append(seed + number)
            assert len(undecided) < 3, f"nothing can be said of the runs {undecided}"
            continue
        calls.update(type(one.call).__name__ for one in run.history.operations if one.outcome and not one.outcome.error)
        decided += 1
        if decided == RUNS_OF_A_GROUP:
            break
    assert len(calls) >= 9, f"clients did hardly anything: {calls}"
