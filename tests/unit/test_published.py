"""What the log says of how far a publisher has got."""

from __future__ import annotations

import pytest

from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.log.published import CLOCK_SLACK_MS, published_below, published_below_header

INPUT, ONE, TWO = "input", "one", "two"


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog(VirtualClock(), has_control_records=True)
    for number in range(10):
        log.append(INPUT, 0, b"%d" % number)
    return log


def clock_of(log: MemoryLog) -> VirtualClock:
    assert isinstance(log.clock, VirtualClock)
    return log.clock


def say(log: MemoryLog, topic: str, offset: int | None) -> None:
    """Publish a message, and the end of its transaction."""
    log.append(topic, 0, b"result", headers=() if offset is None else published_below_header(offset))
    log.append_control_record(topic, 0)


def asked(log: MemoryLog) -> int:
    return published_below(log, (ONE, TWO), INPUT, 0)


def test_nothing_is_known_of_a_log_without_headers(log: MemoryLog) -> None:
    assert asked(log) == 0
    say(log, ONE, None)
    assert asked(log) == 0


def test_the_newest_message_counts(log: MemoryLog) -> None:
    say(log, ONE, 7)
    assert asked(log) == 7
    clock_of(log).advance(5)
    say(log, TWO, 3)
    assert asked(log) == 3, "an offset may be lower after a lost tail"
    say(log, TWO, None)
    assert asked(log) == 7, "a message that does not say it, as one that was sent again after a start"


def test_what_others_write_into_the_header_is_passed_over(log: MemoryLog) -> None:
    for value in (None, b"", b"-1", b"many", b"\xff"):
        log.append(ONE, 0, b"x", headers=((published_below_header(0)[0][0], value), ("other", b"5")))
        assert asked(log) == 0


def test_commands_that_are_lost_are_not_published(log: MemoryLog) -> None:
    say(log, ONE, 11)
    assert asked(log) == 0


def test_commands_at_the_place_of_lost_ones_are_not_published(log: MemoryLog) -> None:
    say(log, ONE, 12)
    clock_of(log).advance(CLOCK_SLACK_MS + 1)
    for number in range(5):
        log.append(INPUT, 0, b"other %d" % number)
    assert asked(log) == 0


def test_trimmed_commands_are_published(log: MemoryLog) -> None:
    say(log, ONE, 7)
    log.trim(INPUT, 0, 9)
    assert asked(log) == 7
