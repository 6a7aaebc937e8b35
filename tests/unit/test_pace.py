"""Rows are claimed at the hours and the rate of the settings, and a settle does not wait for either."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from schemas.records import ClaimRows, DeleteBlocks, FinishRows, SweepPage
from services.domain.purge_hours import purge_hours
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.pace import Pace, ThrottledBy
from services.key_deletion.service import KeyDeletionService
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.tables import TASK_TABLE
from services.runtime.process.settings import InvalidSettingsError, read_limits
from tests.unit.service_harness import Harness, bodies
from tests.unit.test_key_deletion import (
    capture,
    claimed,
    deleted,
    finished,
    named,
    pass_barrier,
    purge,
    result,
    row,
    rows,
    sent_page,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MIDNIGHT_MS = 19_000 * DAY_MS


def at(hour: int, minute: int = 0) -> int:
    return MIDNIGHT_MS + hour * HOUR_MS + minute * 60_000


class TestHours:
    @pytest.mark.parametrize(
        ("text", "open_at", "closed_at"),
        [
            ("", [at(0), at(13)], []),
            ("22-6", [at(22), at(23, 59), at(0), at(5, 59)], [at(6), at(21, 59)]),
            ("1-2", [at(1), at(1, 59)], [at(0, 59), at(2)]),
            ("12-13, 22:30-5:15", [at(12, 30), at(22, 30), at(5, 14)], [at(13), at(22, 29), at(5, 15)]),
            ("0-24", [at(0), at(23, 59)], []),
        ],
    )
    def test_are_open_from_the_first_minute_to_before_the_last(
        self, text: str, open_at: list[int], closed_at: list[int]
    ) -> None:
        hours = purge_hours(text)
        assert all(hours.are_open(now_ms) for now_ms in open_at)
        assert not any(hours.are_open(now_ms) for now_ms in closed_at)

    @pytest.mark.parametrize("text", ["night", "6", "22-25", "24-3", "5-5", "1:60-2", "1-2;3-4"])
    def test_that_nobody_can_read_end_the_start_with_one_sentence(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not a period of a day"):
            purge_hours(text)
        environment = {"DEEPCLEAN_KEY_DELETION_PURGE_HOURS": text}
        with pytest.raises(
            InvalidSettingsError, match=r"DEEPCLEAN_KEY_DELETION_PURGE_HOURS is .* not a period of a day"
        ):
            read_limits(KeyDeletionSettings, "key_deletion", environment)

    def test_are_read_from_the_environment(self) -> None:
        environment = {"DEEPCLEAN_KEY_DELETION_PURGE_HOURS": "22-6"}
        assert read_limits(KeyDeletionSettings, "key_deletion", environment).purge_hours == "22-6"


class TestRate:
    def test_a_task_takes_as_long_as_its_rows(self) -> None:
        pace = Pace(KeyDeletionSettings(max_rows_per_second=100))
        assert pace.throttled_by(at(0)) is None
        pace.started(50, at(0))
        assert pace.throttled_by(at(0) + 499) is ThrottledBy.RATE
        assert pace.throttled_by(at(0) + 500) is None

    def test_tasks_that_were_started_at_once_take_their_times_one_after_the_other(self) -> None:
        pace = Pace(KeyDeletionSettings(max_rows_per_second=3))
        for _ in range(3):
            pace.started(1, at(0))
        assert pace.throttled_by(at(0) + 1_001) is ThrottledBy.RATE
        assert pace.throttled_by(at(0) + 1_002) is None

    def test_idle_time_is_not_saved_up(self) -> None:
        pace = Pace(KeyDeletionSettings(max_rows_per_second=1))
        pace.started(1, at(0))
        pace.started(1, at(5))
        assert pace.throttled_by(at(5) + 999) is ThrottledBy.RATE

    def test_without_one_nothing_waits(self) -> None:
        pace = Pace(KeyDeletionSettings())
        pace.started(1_000_000, at(0))
        assert pace.throttled_by(at(0)) is None


def test_a_queue_of_which_nothing_is_left_to_claim_is_judged_a_part_at_a_time() -> None:
    """Other messages wait meanwhile, and a pause may leave tens of millions of rows in it."""
    counted = Counted(KeyDeletionSettings(max_task_rows=1, max_tasks_in_flight=1), at(0))
    harness = counted.harness
    harness.give(capture(1, 500, 1))
    (first,) = bodies(harness.give(purge(row(1, birth=501, death=600), version=1, before=1)), ClaimRows)
    held = [row(number, birth=500, death=600) for number in range(2, 52)]
    harness.give(*[purge(one, version=1, before=1) for one in held])
    assert counted("waiting_purges") == 50
    (deletion,) = bodies(harness.give(claimed(first)), DeleteBlocks)
    (finish,) = bodies(harness.give(deleted(deletion)), FinishRows)
    harness.give(finished(finish))
    assert counted("waiting_purges") == 30
    harness.wait(1)
    harness.wait(1)
    assert counted("waiting_purges") == 0


class TestRateInBytes:
    def test_what_was_claimed_takes_its_time(self) -> None:
        pace = Pace(KeyDeletionSettings(max_bytes_per_second=100))
        assert pace.throttled_by(at(0)) is None
        pace.claimed(1_050)
        assert pace.throttled_by(at(0)) is ThrottledBy.RATE
        assert pace.throttled_by(at(0) + 10_499) is ThrottledBy.RATE
        assert pace.throttled_by(at(0) + 10_500) is None

    def test_the_slower_rate_counts(self) -> None:
        pace = Pace(KeyDeletionSettings(max_bytes_per_second=100, max_rows_per_second=1))
        pace.started(10, at(0))
        pace.claimed(100)
        assert pace.throttled_by(at(0)) is ThrottledBy.RATE
        assert pace.throttled_by(at(0) + 9_999) is ThrottledBy.RATE
        assert pace.throttled_by(at(0) + 10_000) is None

    def test_one_claim_is_in_progress_at_a_time(self) -> None:
        settings = KeyDeletionSettings(max_task_rows=1, max_bytes_per_second=50)
        counted = Counted(settings, at(0))
        harness = counted.harness
        (first,) = bodies(harness.give(purge(*rows(1, 2))), ClaimRows)
        assert not bodies(harness.wait(1), ClaimRows)
        assert (counted("waiting_purges"), counted("purges_throttled", reason="rate")) == (1, 0), "it may be lost"
        assert not bodies(harness.give(claimed(first)), ClaimRows)
        assert (counted("waiting_purges"), counted("purges_throttled", reason="rate")) == (0, 1)
        assert not bodies(harness.wait(1_999), ClaimRows)
        (second,) = bodies(harness.wait(1), ClaimRows)
        assert named(second) == rows(2)

    def test_the_pause_begins_with_the_claim_though_nothing_waits_for_its_end(self) -> None:
        harness = Counted(KeyDeletionSettings(max_bytes_per_second=1), at(0)).harness
        (first,) = bodies(harness.give(purge(row(1))), ClaimRows)
        harness.give(claimed(first))
        harness.wait(HOUR_MS)
        assert bodies(harness.give(purge(row(2))), ClaimRows)

    def test_without_one_nothing_waits(self) -> None:
        pace = Pace(KeyDeletionSettings())
        pace.claimed(1 << 60)
        assert pace.throttled_by(at(0), 32) is None


class Counted:
    """A harness and what it reports."""

    def __init__(self, settings: KeyDeletionSettings, now_ms: int) -> None:
        self.registry = CollectorRegistry()
        metrics = KeyDeletionMetrics(self.registry)
        self.harness = Harness(lambda: KeyDeletionService(settings, metrics))
        self.harness.now_ms = now_ms

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"deepclean_key_deletion_{name}", {"shard": "0", **labels})


class TestClaims:
    def test_wait_for_their_hours_and_are_no_alarm_meanwhile(self) -> None:
        counted = Counted(KeyDeletionSettings(purge_hours="22-6"), at(12))
        assert not counted.harness.give(purge(row(1)))
        assert counted("purges_throttled", reason="hours") == 1
        assert counted("waiting_purges") == 0
        assert not bodies(counted.harness.wait(10 * HOUR_MS - 1), ClaimRows)
        assert bodies(counted.harness.wait(1), ClaimRows)
        assert counted("purges_throttled", reason="hours") == 0

    def test_go_on_to_their_end_outside_of_the_hours(self) -> None:
        harness = Counted(KeyDeletionSettings(purge_hours="22-6"), at(5, 59)).harness
        (claim,) = bodies(harness.give(purge(row(1))), ClaimRows)
        harness.wait(HOUR_MS)
        (deletion,) = bodies(harness.give(claimed(claim)), DeleteBlocks)
        harness.give(deleted(deletion, 0))
        assert bodies(harness.wait(60_000), DeleteBlocks), "what failed is tried again"

    def test_that_are_throttled_are_sent_again_by_one_page_of_sweeps_at_most(self) -> None:
        harness = Counted(KeyDeletionSettings(purge_hours="22-6", answer_timeout_ms=24 * HOUR_MS), at(12)).harness
        (page,) = bodies(harness.give(purge(row(1)), capture(1, 9_000, 1)), SweepPage)
        assert not bodies(harness.wait(2 * HOUR_MS), SweepPage), "nor does the one over everything begin"
        harness.give(purge(row(1), version=1, before=1, is_sweep=True))
        harness.give(sent_page(page, 1, next_table=1), result(page, 1, found=1))
        harness.restart()
        assert not bodies(harness.wait(7 * HOUR_MS), SweepPage)
        assert bodies(harness.wait(HOUR_MS), SweepPage)

    def test_keep_the_rate(self) -> None:
        settings = KeyDeletionSettings(max_task_rows=2, max_rows_per_second=2)
        counted = Counted(settings, at(0))
        (first,) = bodies(counted.harness.give(purge(*rows(1, 2, 3))), ClaimRows)
        assert named(first) == rows(1, 2)
        assert counted("purges_throttled", reason="rate") == 1
        assert not counted.harness.wait(999)
        (second,) = bodies(counted.harness.wait(1), ClaimRows)
        assert named(second) == rows(3)

    @pytest.mark.parametrize(
        "settings",
        [
            KeyDeletionSettings(purge_hours="22-6"),
            KeyDeletionSettings(max_rows_per_second=1),
            KeyDeletionSettings(max_bytes_per_second=1),
        ],
    )
    def test_that_a_barrier_has_met_do_not_wait(self, settings: KeyDeletionSettings) -> None:
        harness = Counted(settings, at(12)).harness
        harness.give(purge(row(1)), purge(row(2)))
        pass_barrier(harness)
        assert {row.state for row in harness.rows(TASK_TABLE)} == {"CLAIMING"}
        assert sum(len(names.object_ids) for task in harness.rows(TASK_TABLE) for names in task.rows) == 2
        assert not harness.give(purge(row(3))), "what comes later waits again"
