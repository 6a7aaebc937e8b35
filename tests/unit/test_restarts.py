"""When a process that has ended is started again."""

from __future__ import annotations

from services.plane.stack.restarts import CALM_SECONDS, LONGEST_PAUSE_SECONDS, Restarts


def pauses(restarts: Restarts, count: int, now: float) -> list[float]:
    """Let a process end at once after each start; return how long each pause was."""
    found = []
    for _ in range(count):
        restarts.ended("it was killed", now)
        pause = 0.0
        while not restarts.is_due(now + pause):
            pause += 0.5
        now += pause
        restarts.started(now)
        found.append(pause)
    return found


def test_pauses_double_up_to_the_longest() -> None:
    restarts = Restarts(100.0)
    assert pauses(restarts, 8, 100.0) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert (restarts.count, restarts.reason) == (8, "")
    assert LONGEST_PAUSE_SECONDS == 60


def test_a_process_that_ran_for_long_begins_with_the_shortest_pause_again() -> None:
    restarts = Restarts(0.0)
    pauses(restarts, 4, 0.0)
    assert pauses(restarts, 2, restarts.started_seconds + CALM_SECONDS) == [1, 2]


def test_a_start_that_fails_counts_as_an_end() -> None:
    restarts = Restarts(0.0)
    restarts.ended("it was killed", 0.0)
    assert not restarts.is_due(0.5)
    restarts.ended("the disk is full", 1.0)
    assert not restarts.is_due(2.5)
    assert restarts.is_due(3.0)
    assert (restarts.count, restarts.reason) == (0, "the disk is full")
