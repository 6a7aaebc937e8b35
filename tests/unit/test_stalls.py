"""A reader that fetches nothing more is told from one that has nothing to fetch, or is busy."""

from __future__ import annotations

from services.log.stalls import LOOK_SECONDS, StallWatch


class Partition:
    """A partition of a topic, its reader, and the clock of both."""

    def __init__(self) -> None:
        self.end, self.position, self.now = 0, 0, 0.0
        self.watch = StallWatch(lambda _: self.end, lambda: self.now)

    def look(self) -> bool:
        """Whether the reader is stalled, when it is time to look."""
        self.now += LOOK_SECONDS
        return self.watch.is_stalled({"topic": self.position})


def test_who_is_behind_at_two_looks_and_does_not_move_is_stalled() -> None:
    partition = Partition()
    assert not partition.look()
    partition.end = 5
    assert not partition.look()
    assert partition.look()
    assert not partition.look(), "the one that was opened again gets its time, too"
    assert partition.look()


def test_who_moves_or_has_all_is_not_stalled() -> None:
    partition = Partition()
    partition.end = 100
    for position in range(1, 50):
        partition.position = position
        assert not partition.look()
    partition.position = 100
    assert not any(partition.look() for _ in range(10))


def test_a_message_that_came_this_moment_is_no_stall() -> None:
    partition = Partition()
    for number in range(1, 20):
        partition.end = number  # not read yet at the look
        assert not partition.look()
        partition.position = number


def test_a_leader_that_does_not_answer_is_no_stall() -> None:
    partition = Partition()
    partition.end = -1
    assert not any(partition.look() for _ in range(10))


def test_it_looks_no_more_often_than_is_said() -> None:
    asked = list[str]()
    now = [0.0]

    def end_of(topic: str) -> int:
        asked.append(topic)
        return 0

    watch = StallWatch(end_of, lambda: now[0])
    for _ in range(1_000):
        now[0] += LOOK_SECONDS / 100
        watch.is_stalled({"topic": 0})
    assert 8 <= len(asked) <= 10
