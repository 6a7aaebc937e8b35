"""Sweeps under pressure: what flags say while rows are held back, that each sweep ends, and that repeats count once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.records import ClaimRows, SweepPage, SweepResult, SweptParts
from schemas.topics import SWEEP_RESULTS
from services.key_deletion.purges import SWEEP_SHARE
from services.key_deletion.service import KeyDeletionService
from services.key_deletion.sweep_pages import MAX_PARTS, asked_page, judged_page
from services.key_deletion.sweeps import RowRange
from services.key_deletion.tables import SWEEP_TABLE
from tests.unit.service_harness import Harness, bodies, only
from tests.unit.test_collection import PAUSED, RUNNING, changed
from tests.unit.test_key_deletion import (
    BUCKET,
    SETTINGS,
    capture,
    chain_of_clean_ranges,
    claimed,
    clean,
    drop,
    flags,
    named,
    pages,
    pass_barrier,
    purge,
    result,
    row,
    rows,
    sent_page,
)

HOUR_MS = SETTINGS.safety_sweep_interval_ms


@pytest.fixture
def harness() -> Harness:
    return Harness(lambda: KeyDeletionService(SETTINGS))


def find_something(harness: Harness, page: SweepPage) -> None:
    """End a sweep of one page that finds a row."""
    assert not harness.give(sent_page(page, 1), result(page, 1, found=1))


def ranges(found: list[SweepPage]) -> list[RowRange]:
    return [RowRange(page.after_death, page.until_death, page.after_birth, page.until_birth) for page in found]


class TestFlagsWhileRowsAreSuspended:
    """A store is clean when nothing of it is left to be swept, whether the collector may claim or not."""

    def test_a_drop_does_not_flag_a_range_whose_rows_wait(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500)
        harness.give(changed(PAUSED, 5))
        (page,) = pages(harness.give(capture(2, 600, 2)))
        find_something(harness, page)
        harness.restart()
        assert flags(harness.give(drop(3, "s1", 500, rows_held_alone=0))) == []

    def test_what_waits_in_a_dropped_range_waits_in_the_next_one(self, harness: Harness) -> None:
        harness.give(changed(PAUSED, 5))
        (page,) = pages(harness.give(capture(1, 500, 1)))
        find_something(harness, page)
        assert flags(clean(harness, *pages(harness.give(capture(2, 600, 2))))) == [("s2", 2)]
        assert flags(harness.give(drop(3, "s1", 500, rows_held_alone=0))) == []
        everything, rest = pages([*harness.give(changed(RUNNING, 9)), *harness.wait(SETTINGS.first_sweep_again_ms)])
        assert ranges([everything, rest]) == [RowRange(0, 0), RowRange(0, 500)]
        assert flags(clean(harness, everything)) == []
        assert flags(clean(harness, rest)) == [("s2", 3)]

    def test_a_settle_does_not_wait_for_a_range_that_may_not_become_clean(self, harness: Harness) -> None:
        harness.give(changed(PAUSED, 5))
        (page,) = pages(harness.give(capture(1, 500, 1)))
        find_something(harness, page)
        harness.restart()
        assert pass_barrier(harness)[0].work > 0
        returned, sent = pass_barrier(harness, 2)
        assert (returned.work, pages(sent)) == (0, [])

    def test_a_resume_has_the_rest_of_a_range_swept(self, harness: Harness) -> None:
        harness.give(changed(PAUSED, 5))
        (page,) = pages(harness.give(capture(1, 500, 1)))
        find_something(harness, page)
        harness.restart()
        assert not harness.wait(10 * SETTINGS.longest_sweep_again_ms)
        (everything,) = pages(harness.give(changed(RUNNING, 9)))
        assert not pages(clean(harness, everything))
        again = only(harness.wait(SETTINGS.first_sweep_again_ms), SweepPage)
        assert ranges([again]) == ranges([page])
        assert flags(clean(harness, again)) == [("s1", 1)]

    def test_rows_that_a_drop_frees_meanwhile_are_swept_with_those_that_wait(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500)
        harness.give(changed(PAUSED, 5))
        (page,) = pages(harness.give(capture(2, 600, 2)))
        find_something(harness, page)
        again = only(harness.give(drop(3, "s1", 500, rows_held_alone=1)), SweepPage)
        assert ranges([again]) == [RowRange(500, 600)]
        find_something(harness, again)
        assert flags(harness.give(capture(4, 700, 3))) == []


class TestASweepEnds:
    def test_one_that_is_queued_again_keeps_its_place(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500)
        (first,) = pages(harness.give(capture(2, 600, 2)))
        second = only(harness.give(sent_page(first, 1, next_table=1), result(first, 1)), SweepPage)
        assert not pages(harness.give(drop(3, "s1", 500, rows_held_alone=1)))
        harness.restart()
        third = only(harness.give(sent_page(second, 1, next_table=2), result(second, 1)), SweepPage)
        assert (third.sweep_id, third.page, third.start_table) == (first.sweep_id, 3, 2)
        behind = only(clean(harness, third), SweepPage)
        assert ranges([behind]) == [RowRange(500, 600, 0, 500)]
        assert flags(clean(harness, behind)) == [("s2", 3)]

    def test_drops_in_a_row_pass_a_sweep_on_without_restarting_it(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500)
        (page,) = pages(harness.give(capture(2, 600, 2)))
        asked = [page]
        for number in range(3, 9):
            (own,) = pages(harness.give(capture(2 * number - 3, 100 * (number + 4), number)))
            clean(harness, own)
            following = only(harness.give(sent_page(page, 1, next_table=1)), SweepPage)
            missing = number - 1
            assert not harness.give(drop(2 * number - 2, f"s{missing}", 100 * (missing + 4), 0), result(page, 1))
            page = following
            asked.append(page)
            harness.restart()
        assert {one.sweep_id for one in asked} == {page.sweep_id}
        assert [one.page for one in asked] == list(range(1, 8))
        assert flags(clean(harness, page)) == [("s8", 14)]

    def test_the_one_over_everything_is_not_begun_again_before_it_has_ended(self) -> None:
        harness = Harness(lambda: KeyDeletionService(replace(SETTINGS, answer_timeout_ms=10 * HOUR_MS)))
        harness.give()
        page = only(harness.wait(HOUR_MS), SweepPage)
        for number in range(2, 5):
            harness.restart()
            assert not harness.wait(HOUR_MS)
            again = only(harness.give(sent_page(page, 1, next_table=1), result(page, 1)), SweepPage)
            assert (again.sweep_id, again.page) == (page.sweep_id, number)
            page = again
        assert not clean(harness, page)
        assert only(harness.wait(HOUR_MS), SweepPage).sweep_id != page.sweep_id

    def test_one_without_an_end_ends_where_it_began(self, harness: Harness) -> None:
        """Whatever dies later is judged as it dies: it would run after that for ever."""
        harness.give()
        (first,) = pages(harness.wait(HOUR_MS))
        assert (first.until_death, first.with_claimed) == (0, True)
        second = only(harness.give(sent_page(first, 0, next_table=0)), SweepPage)
        assert (second.until_death, second.with_claimed) == (1, True), "the txn of the answer"

    def test_one_ends_although_its_judges_are_behind_for_longer_than_it_waits(self, harness: Harness) -> None:
        (page,) = pages(harness.give(capture(1, 500, 1)))
        harness.give(sent_page(page, 1))
        now_ms, asked = 0, [(0, page)]
        for _ in range(30):
            now_ms += SETTINGS.answer_timeout_ms
            for again in pages(harness.wait(SETTINGS.answer_timeout_ms)):
                harness.give(sent_page(again, 1))
                asked.append((now_ms, again))
            harness.restart()
            judged = [one for asked_ms, one in asked if now_ms - asked_ms == 5 * SETTINGS.answer_timeout_ms]
            if flags([message for one in judged for message in harness.give(result(one, 1))]) == [("s1", 1)]:
                break
        else:
            pytest.fail("each page was given up before it was judged")
        assert len(asked) == 4, "after one, two and four times as long"

    def test_one_that_is_queued_again_and_again_begins_when_it_was_due_first(self, harness: Harness) -> None:
        (page,) = pages(harness.give(capture(1, 500, 1)))
        find_something(harness, page)
        harness.wait(SETTINGS.first_sweep_again_ms - 1)
        harness.give(changed(PAUSED, 5), changed(RUNNING, 9))
        harness.restart()
        sent = harness.wait(1)
        assert RowRange(0, 500) in ranges(pages(sent)), "no later, for all that was put off meanwhile"

    def test_those_that_wait_begin_first_come_first_served(self) -> None:
        harness = Harness(lambda: KeyDeletionService(replace(SETTINGS, max_sweeps_in_flight=1)))
        (running,) = pages(harness.give(capture(1, 500, 1)))
        harness.give(capture(2, 600, 2, "z: the first to wait"))
        harness.wait(1)
        harness.give(capture(3, 700, 3, "a"))
        harness.restart()
        assert ranges(pages(clean(harness, running))) == [RowRange(500, 600)]

    def test_each_asks_for_a_page_in_its_turn(self) -> None:
        harness = Harness(lambda: KeyDeletionService(replace(SETTINGS, max_sweep_pages_in_flight=1)))
        (page,) = pages(harness.give(capture(1, 500, 1), capture(2, 600, 2)))
        order = [page.until_death]
        for _ in range(5):
            harness.restart()
            page = only(harness.give(sent_page(page, 1, next_table=1), result(page, 1)), SweepPage)
            order.append(page.until_death)
        assert order == [500, 600, 500, 600, 500, 600]


class TestShareOfTheWork:
    """More is deleted than can be claimed, and a dropped snapshot frees what it held nevertheless."""

    @pytest.fixture
    def claims(self, harness: Harness) -> list[ClaimRows]:
        """So many that there is no room, and many more behind them."""
        return bodies(harness.give(purge(*rows(*range(200)))), ClaimRows)

    def test_a_sweep_has_one_page_in_progress_while_there_is_no_room(
        self, harness: Harness, claims: list[ClaimRows]
    ) -> None:
        assert len(claims) == SETTINGS.max_tasks_in_flight
        (first,) = pages(harness.give(capture(1, 8_000, 1), capture(2, 9_000, 2)))
        assert not harness.give(sent_page(first, 1, next_table=1))
        harness.restart()
        other = only(harness.give(result(first, 1)), SweepPage)
        assert (first.until_death, other.until_death) == (8_000, 9_000), "in turns"

    def test_what_a_sweep_has_found_has_one_task_in_so_many(self, harness: Harness, claims: list[ClaimRows]) -> None:
        harness.give(purge(*rows(*range(1_000, 1_090)), is_sweep=True))
        is_swept = []
        for _ in range(2 * SWEEP_SHARE):
            harness.restart()
            claim = claims.pop(0)
            (new,) = bodies(harness.give(claimed(claim, missing=named(claim))), ClaimRows)
            is_swept.append(named(new)[0].object_id >= 1_000)
            claims.append(new)
        assert sum(is_swept) == 2

    def test_no_page_is_asked_for_while_what_was_found_waits(self, harness: Harness, claims: list[ClaimRows]) -> None:
        """It would only be found again; so what waits is never more than a page."""
        (first,) = pages(harness.give(capture(1, 9_000, 1)))
        harness.give(sent_page(first, 1, next_table=1))
        swept = row(1_000)
        assert not harness.give(purge(swept, version=1, is_sweep=True), result(first, 1, found=1))
        sent = []
        for _ in range(SWEEP_SHARE):
            claim = claims.pop(0)
            sent = harness.give(claimed(claim, missing=named(claim)))
            claims += bodies(sent, ClaimRows)
            if pages(sent):
                break
        assert [page.page for page in pages(sent)] == [2]
        assert any(swept in named(claim) for claim in claims)

    def test_deletions_have_all_tasks_when_no_sweep_has_found_anything(
        self, harness: Harness, claims: list[ClaimRows]
    ) -> None:
        for claim in claims:
            (new,) = bodies(harness.give(claimed(claim, missing=named(claim))), ClaimRows)
            assert named(new)[0].object_id < 1_000


class TestRepeats:
    """A page is judged when each of its messages is, whichever of them was sent or judged again."""

    def test_of_a_message_count_once_wherever_they_lie(self, harness: Harness) -> None:
        (page,) = pages(harness.give(capture(1, 500, 1)))
        harness.give(sent_page(page, 3))
        parts = SweptParts((1, 1), (0, 0), (1, 1))
        for offset in (10, 20, 30):
            again = SWEEP_RESULTS, SweepResult(page.sweep_id, page.page, offset, 2, 0, 0, 1, None, parts)
            assert flags(harness.give(again)) == []
            harness.restart()
        assert flags(harness.give(result(page, 2, part=1))) == [("s1", 1)]

    def test_of_a_page_count_if_they_were_sent_with_the_answer_that_counts(self, harness: Harness) -> None:
        """Sent at another txn, the same place holds other rows."""
        (page,) = pages(harness.give(capture(1, 500, 1)))
        assert not harness.give(result(page, 1, part=0, txn=7), result(page, 1, part=1, txn=1))
        harness.restart()
        assert not harness.give(sent_page(page, 2))
        assert not harness.give(result(page, 1, part=0, txn=7), result(page, 2, part=0, txn=7))
        assert flags(harness.give(result(page, 1, part=0))) == [("s1", 1)]

    def test_without_names_do_not_count(self, harness: Harness) -> None:
        """A job of an older version judged them: the page is asked for again."""
        (page,) = pages(harness.give(capture(1, 500, 1)))
        old = SWEEP_RESULTS, SweepResult(page.sweep_id, page.page, 10, 1, 0, 0, 1)
        assert not harness.give(sent_page(page, 1), old)
        assert only(harness.wait(SETTINGS.answer_timeout_ms), SweepPage).page == 2

    def test_that_name_no_whole_messages_are_refused_alone(self, harness: Harness) -> None:
        (page,) = pages(harness.give(capture(1, 500, 1)))
        parts = SweptParts((1,), (0, 1), (1,))
        broken = SWEEP_RESULTS, SweepResult(page.sweep_id, page.page, 10, 1, 0, 0, 1, None, parts)
        assert flags(harness.give(sent_page(page, 1), broken, result(page, 1))) == [("s1", 1)]
        assert harness.refused == [broken[1]]

    def test_are_remembered_up_to_a_number(self) -> None:
        page, many = asked_page(1, 0, b""), range(MAX_PARTS + 1)
        all_but_one = SweptParts((1,) * MAX_PARTS, tuple(many[:-1]), (1,) * MAX_PARTS)
        full = judged_page(page, all_but_one)
        assert full is not None
        assert len(full.judged.rows) == MAX_PARTS
        assert judged_page(full, SweptParts((1,), (MAX_PARTS,), (1,))) is None
        assert judged_page(page, SweptParts((1,) * len(many), tuple(many), (1,) * len(many))) is None


def test_an_answer_counts_only_what_was_sent_with_it(harness: Harness) -> None:
    (page,) = pages(harness.give(capture(1, 500, 1)))
    harness.give(result(page, 1, part=0, txn=7), sent_page(page, 2))
    (stored,) = harness.rows(SWEEP_TABLE)
    assert [(one.sent_txn, one.judged) for one in stored.open_pages] == [(1, SweptParts((), (), ()))]
    assert stored.bucket_id == BUCKET
