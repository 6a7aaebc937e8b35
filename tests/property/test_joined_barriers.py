"""A barrier goes on once it has come on both topics, whatever is repeated of the rounds before it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas.records import Barrier
from schemas.topics import PURGE_KEYS, SWEEP_RESULTS, Topic
from services.key_deletion.barriers import joined
from services.key_deletion.tables import BARRIER_TABLE
from services.runtime.loop.service import Work
from services.storage.memory import MemoryStore
from services.storage.tables import RowCache

Rounds = list[int]


@st.composite
def _as_repeated(draw: st.DrawFn) -> Rounds:
    """Rounds as one topic has them: each at its time, with repeats of those before it anywhere behind them."""
    rounds: Rounds = []
    for number in (1, 2, 3):
        rounds.append(number)
        rounds += draw(st.lists(st.integers(1, number), max_size=3))
    return rounds


@given(purges=_as_repeated(), sweeps=_as_repeated(), order=st.lists(st.booleans(), max_size=30))
def test_the_newest_round_goes_on_whatever_is_repeated(purges: Rounds, sweeps: Rounds, order: list[bool]) -> None:
    work = Work(0, MemoryStore(), RowCache())
    waiting: dict[Topic, Rounds] = {PURGE_KEYS: list(purges), SWEEP_RESULTS: list(sweeps)}
    seen: dict[Topic, set[int]] = {PURGE_KEYS: set(), SWEEP_RESULTS: set()}
    passed: Rounds = []
    choices = iter(order)
    while any(waiting.values()):
        topic = PURGE_KEYS if next(choices, True) else SWEEP_RESULTS
        if not waiting[topic]:
            topic = SWEEP_RESULTS if topic is PURGE_KEYS else PURGE_KEYS
        number = waiting[topic].pop(0)
        seen[topic].add(number)
        both = joined(Barrier("settle", number, 0, ""), topic, work)
        if both is not None:
            assert number in seen[PURGE_KEYS] & seen[SWEEP_RESULTS]
            passed.append(both.round)
    assert 3 in passed
    assert len(list(work.table(BARRIER_TABLE).scan(b"", b"\xff"))) <= 2
