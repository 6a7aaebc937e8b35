"""What the Spark job could not judge yet: kept in its checkpoint, and let go of in its order."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from services.domain.errors import InvariantError
from streaming.reclaiming.checkpoint import LocalCheckpoint
from streaming.reclaiming.metrics import ReclaimMetrics
from streaming.reclaiming.outcome import PrematureMessage, Stretch
from streaming.reclaiming.waiting import MOST_PREMATURE, WAITING_FILE, Waiting, saved

PATIENCE = 60.0
AHEAD = PrematureMessage(0, 7, 5)


def waiting(*stretches: Stretch, premature: tuple[PrematureMessage, ...] = (), now: float = 100.0) -> Waiting:
    made = Waiting()
    made.add(stretches, premature, now)
    return made


def test_what_is_passed_over_grows_at_both_ends_and_is_judged_from_its_beginning() -> None:
    made = waiting(Stretch(1, 10, 20), Stretch(2, 0, 1))
    made.add([Stretch(1, 20, 30)], (), 100)
    made.add([Stretch(1, 5, 30)], (), 100)  # a batch that is repeated begins before what is judged already
    assert made.next_stretches({0, 1}, 10) == [Stretch(1, 5, 15)]
    made.judged([Stretch(1, 5, 15)])
    assert made.next_stretches({1, 2}, 100) == [Stretch(1, 15, 30), Stretch(2, 0, 1)]
    made.judged([Stretch(1, 15, 30), Stretch(2, 0, 1)])
    assert made == Waiting()


def test_a_part_never_goes_beyond_what_was_passed_over() -> None:
    made = waiting(Stretch(0, 0, 10))
    assert made.next_stretches({0}, 10) == made.next_stretches({0}, 11) == [Stretch(0, 0, 10)]
    assert made.next_stretches({0}, 9) == [Stretch(0, 0, 9)]


def test_a_premature_message_is_due_when_the_chain_has_come_to_it() -> None:
    made = waiting(premature=(AHEAD,))
    assert made.due({0: 4}, 100, PATIENCE) == []
    assert made.due({0: 5}, 100, PATIENCE) == [AHEAD]
    assert made.due({1: 9}, 1_000, PATIENCE) == [], "its shard has no view"


def test_a_premature_message_waits_so_long_and_no_longer() -> None:
    made = waiting(premature=(AHEAD,))
    made.add((), [AHEAD], 150)  # met again by a batch that is repeated
    assert made.due({0: 4}, 100 + PATIENCE - 0.1, PATIENCE) == []
    assert made.due({0: 4}, 100 + PATIENCE, PATIENCE) == [AHEAD]
    made.settled([AHEAD])
    assert made == Waiting()


def test_a_clock_that_was_set_back_begins_the_wait_again() -> None:
    made = waiting(premature=(AHEAD,), now=10_000)
    assert made.due({0: 4}, 100, PATIENCE) == []
    assert made.due({0: 4}, 100 + PATIENCE, PATIENCE) == [AHEAD]


def test_only_so_many_messages_wait() -> None:
    made = waiting(premature=tuple(PrematureMessage(0, number, 9) for number in range(MOST_PREMATURE - 1)))
    assert made.is_full is False
    made.add((), [PrematureMessage(1, 0, 9)], 100)
    assert (made.is_full, len(made.premature)) == (True, MOST_PREMATURE)
    assert (made.count_of(0), made.count_of(1), made.count_of(2)) == (MOST_PREMATURE - 1, 1, 0)


def test_it_outlives_the_process(tmp_path: Path) -> None:
    assert saved(LocalCheckpoint(tmp_path)) == Waiting()
    Waiting().save(LocalCheckpoint(tmp_path))
    assert not (tmp_path / WAITING_FILE).exists(), "there was nothing to say"
    made = waiting(Stretch(1, 10, 20), premature=(AHEAD,), now=1.5)
    made.save(LocalCheckpoint(tmp_path))
    again = saved(LocalCheckpoint(tmp_path))
    assert again == made
    again.judged([Stretch(1, 10, 20)])
    again.settled([AHEAD])
    again.save(LocalCheckpoint(tmp_path))
    assert saved(LocalCheckpoint(tmp_path)) == Waiting()


def test_a_file_that_is_none_stops_the_job(tmp_path: Path) -> None:
    for text in (
        "",
        "[]",
        '{"passed_over": [], "premature": [{}]}',
        '{"passed_over": [{"shard": 1}], "premature": []}',
    ):
        (tmp_path / WAITING_FILE).write_text(text)
        with pytest.raises(InvariantError, match="every entry is judged again"):
            saved(LocalCheckpoint(tmp_path))


def needed(registry: CollectorRegistry) -> list[float | None]:
    """What the job reports of shards 0 and 1, up to which deepclean trim-log trims."""
    name = "deepclean_streaming_needed_offset"
    return [registry.get_sample_value(name, {"shard": shard}) for shard in ("0", "1")]


def test_what_waits_is_not_trimmed() -> None:
    registry = CollectorRegistry()
    metrics = ReclaimMetrics(registry)
    metrics.waiting(waiting(Stretch(1, 10, 60)), 2)
    assert needed(registry) == [None, None], "no batch has ended: nothing may be trimmed"
    metrics.finished_until({0: 50, 1: 60})
    assert needed(registry) == [50, 10]
    metrics.waiting(waiting(Stretch(1, 10, 60), premature=(AHEAD, PrematureMessage(0, 6, 5))), 2)
    assert needed(registry) == [6, 10]
    metrics.finished_until({0: 70, 1: 80})
    assert needed(registry) == [6, 10]
    metrics.waiting(waiting(), 2)
    assert needed(registry) == [70, 80]
