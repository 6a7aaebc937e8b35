"""Three schedules on a real plane, others each time; ``make chaos`` plays as many more as there is time for.

Their seeds follow from the session's, which is new each time and printed: three in a row kill each process at least
once that others rely on most. ``make test SEED=…`` plays the same three again, as does ``make chaos SEED=… BESIDE=3``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.chaos.__main__ import chaos_stack
from tests.chaos.counts import Counts
from tests.chaos.injector import Injector
from tests.chaos.keeper import Keeper
from tests.chaos.run import audit, client_of, run_schedules
from tests.chaos.schedule import KILLED_IN_TURN, draw_interruptions, draw_schedule
from tests.linearizability.explained import check_history
from tests.linearizability.threads import ClientsAtOnce

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1_200), pytest.mark.long]
CLIENTS, CALLS_OF_A_CLIENT = 3, 60


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    """One plane for all schedules, kept running."""
    with chaos_stack(tmp_path_factory.mktemp("chaos")) as stack, Keeper(stack, Counts()) as keeper:
        yield keeper
        print("\n".join(keeper.counts.lines()))


def test_what_crashes_anywhere_ends_as_if_nothing_had_happened(keeper: Keeper, seed: int) -> None:
    seeds = range(seed, seed + len(KILLED_IN_TURN))
    run_schedules(keeper.stack, keeper, [draw_schedule(one) for one in seeds])
    wanted = {name for names in KILLED_IN_TURN for name in names}
    assert wanted <= keeper.counts.kills.keys(), keeper.counts.lines()


def test_clients_at_once_see_one_order_while_processes_are_killed(keeper: Keeper, seed: int) -> None:
    faults = draw_interruptions(seed, CLIENTS * CALLS_OF_A_CLIENT)
    with ExitStack() as leaving:
        planes = [leaving.enter_context(client_of(keeper.stack, keeper)) for _ in range(CLIENTS)]
        clients = ClientsAtOnce(planes, seed, CALLS_OF_A_CLIENT, keeper.check)
        with Injector(keeper, faults) as injector:
            history = clients.run(injector.reached)
            injector.await_idle()
    keeper.heal()
    check_history(history, seed)


def test_an_audit_afterwards_is_clean(keeper: Keeper) -> None:
    audit(keeper.stack)
