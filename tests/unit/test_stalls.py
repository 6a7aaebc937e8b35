"""A reader that fetches nothing more is told from one that has nothing to fetch, or is slow."""

from __future__ import annotations

from services.log.stalls import LEAST_LOOKS, LOOK_SECONDS, MOST_LOOKS, StallWatch


class Partitions:
    """Partitions, their reader, and the clock of both."""

    def __init__(self, *names: str) -> None:
        self.ends, self.positions = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        self.now = 0.0
        self.asked: list[str] = []
        self.watch = StallWatch(self._end_of, lambda: self.now)

    def _end_of(self, name: str) -> int:
        self.asked.append(name)
        return self.ends[name]

    def look(self) -> str | None:
        """The partition that is stalled, when it is time to look."""
        self.now += LOOK_SECONDS
        return self.watch.stalled(self.positions)

    def looks_until_stalled(self) -> int:
        """How many looks it takes."""
        return next(number for number in range(1, 1_000) if self.look() is not None)


def test_who_is_behind_at_looks_in_a_row_and_does_not_move_is_stalled() -> None:
    partitions = Partitions("topic")
    assert partitions.look() is None
    partitions.ends["topic"] = 5
    assert partitions.looks_until_stalled() == LEAST_LOOKS


def test_opened_again_in_vain_it_takes_ever_longer_until_it_moves() -> None:
    partitions = Partitions("topic")
    partitions.ends["topic"] = 5
    taken = [partitions.looks_until_stalled() for _ in range(8)]
    assert taken == [2, 4, 8, 16, 32, 64, MOST_LOOKS, MOST_LOOKS]
    partitions.positions["topic"] = 1
    assert partitions.looks_until_stalled() == LEAST_LOOKS


def test_who_moves_or_has_all_is_not_stalled() -> None:
    partitions = Partitions("topic")
    partitions.ends["topic"] = 100
    for position in range(1, 50):
        partitions.positions["topic"] = position
        assert partitions.look() is None
    partitions.positions["topic"] = 100
    assert not any(partitions.look() for _ in range(10))


def test_a_message_that_came_this_moment_is_no_stall() -> None:
    partitions = Partitions("topic")
    for number in range(1, 20):
        partitions.ends["topic"] = number  # not read yet at the look
        assert partitions.look() is None
        partitions.positions["topic"] = number


def test_a_leader_that_does_not_answer_is_no_stall() -> None:
    partitions = Partitions("topic")
    partitions.ends["topic"] = -1
    assert not any(partitions.look() for _ in range(10))


def test_partitions_take_turns_and_one_that_is_behind_is_asked_about_again() -> None:
    partitions = Partitions("a", "b", "c")
    for _ in range(6):
        partitions.look()
    assert sorted(partitions.asked[:3]) == sorted(partitions.asked[3:]) == ["a", "b", "c"]
    partitions.ends["b"] = 7
    stalled = [partitions.look() for _ in range(4)]
    assert stalled.count("b") == 1
    assert partitions.asked[-LEAST_LOOKS:].count("b") >= 1


def test_it_looks_no_more_often_than_is_said() -> None:
    partitions = Partitions("topic")
    for _ in range(1_000):
        partitions.now += LOOK_SECONDS / 100
        partitions.watch.stalled(partitions.positions)
    assert 8 <= len(partitions.asked) <= 10
    assert partitions.watch.stalled({}) is None
