"""Defects of sweeps and clean flags: flags while rows wait, sweeps that never end, and repeats that count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.records import OpenSweepPage, SweepRow, SweptParts
from services.key_deletion import sweeps
from services.key_deletion.garbage_ranges import GarbageRanges
from services.key_deletion.sweep_pages import judged_page
from services.key_deletion.sweeps import EVERY_BUCKET, Sweeps
from services.metadata.state import sent_entries
from services.runtime.loop.service import Work
from tests.faults.fault import Fault
from tests.simulation import sweeps_mutants
from tests.simulation.sweep_watch import SweepWatch

_TESTS = "tests/unit/test_sweeps.py::"


def the_one_over_everything_starts_over_each_hour(patch: pytest.MonkeyPatch) -> None:
    """The hourly sweep began again although the one before had not ended."""
    original = Sweeps.is_clean

    def is_clean(self: Sweeps, bucket_id: int, snapshot_id: str) -> bool:
        return bucket_id == EVERY_BUCKET or original(self, bucket_id, snapshot_id)

    sweeps_mutants.queueing_starts_over(patch)
    patch.setattr(Sweeps, "is_clean", is_clean)


def nothing_is_swept_under_load(patch: pytest.MonkeyPatch) -> None:
    """Sweeps had no share of the work, and nobody looked."""
    sweeps_mutants.found_waits_behind_all_deletions(patch)
    sweeps_mutants.no_sweep_while_there_is_no_room(patch)
    patch.setattr(SweepWatch, "look", lambda *_, **__: None)


def a_late_sweep_starts_over(patch: pytest.MonkeyPatch) -> None:
    """A sweep without an answer in time threw away all that it had done."""
    original = Sweeps._go_back

    def go_back(self: Sweeps, row: SweepRow, work: Work) -> None:
        first = replace(row.open_pages[0], start_table=0, start_key=b"")
        original(self, replace(row, open_pages=(first,)), work)

    patch.setattr(Sweeps, "_go_back", go_back)


def a_later_pause_puts_a_sweep_off(patch: pytest.MonkeyPatch) -> None:
    """What was queued again was due when the newest pause ended."""
    original = Sweeps._enqueue

    def enqueue(self: Sweeps, row: SweepRow, work: Work) -> None:
        queued = self._queued.get(sweeps._key(row))
        if queued is not None:
            self._queued[sweeps._key(row)] = replace(queued, due_ms=0, pause_ms=-1)
        original(self, row, work)

    patch.setattr(Sweeps, "_enqueue", enqueue)
    patch.setattr(GarbageRanges, "sweep_again", _sweep_all_again)


def _sweep_all_again(self: GarbageRanges, bucket_id: int, work: Work) -> None:
    self._sweeps.resume(lambda row: bucket_id in (0, row.bucket_id), 1_000, work)
    for row in list(self._sweeps._queued.values()):
        self._sweeps._enqueue(replace(row, pause_ms=1_000, due_ms=0), work)


def a_page_sent_at_another_txn_counts(patch: pytest.MonkeyPatch) -> None:
    """What was judged counted by its place in the page alone, whatever rows were in that place."""

    def judged_by_place(page: OpenSweepPage, parts: SweptParts) -> OpenSweepPage | None:
        txn = page.sent_txn or 1
        return judged_page(page, replace(parts, txns=(txn,) * len(parts.txns)))

    patch.setattr(sweeps, "judged_page", judged_by_place)


def a_page_is_cut_by_its_batch(patch: pytest.MonkeyPatch) -> None:
    """The messages of a page followed from what else was in its batch."""
    original = sent_entries.SentEntries.add

    def add(self: sent_entries.SentEntries, kind: object, entries: object, *page: int) -> None:
        original(self, kind, entries, *page[:2])  # type: ignore[arg-type]

    patch.setattr(sent_entries.SentEntries, "add", add)


def sweeps_wait_as_long_as_ever(patch: pytest.MonkeyPatch) -> None:
    """A sweep whose judges were behind for longer than it waits sent its pages again, for ever."""
    patch.setattr(Sweeps, "_patience_ms", lambda self, _row: self._settings.answer_timeout_ms)


FAULTS = (
    Fault(
        sweeps_mutants.a_pause_forgets_what_is_left,
        caught_by=_TESTS + "TestFlagsWhileRowsAreSuspended::test_a_drop_does_not_flag_a_range_whose_rows_wait",
        message=r"\[\('s2', 3\)\] == \[\]",
    ),
    Fault(
        sweeps_mutants.a_drop_forgets_what_is_left,
        caught_by=_TESTS + "TestFlagsWhileRowsAreSuspended::test_what_waits_in_a_dropped_range_waits_in_the_next_one",
        message=r"\[\('s2', 3\)\] == \[\]",
    ),
    Fault(
        sweeps_mutants.queueing_starts_over,
        caught_by=_TESTS + "TestASweepEnds::test_one_that_is_queued_again_keeps_its_place",
        message=r"assert not \[SweepPage\(",
    ),
    Fault(
        the_one_over_everything_starts_over_each_hour,
        caught_by=_TESTS + "TestASweepEnds::test_the_one_over_everything_is_not_begun_again_before_it_has_ended",
        message=r"assert not .*metadata\.commands",
    ),
    Fault(
        a_late_sweep_starts_over,
        caught_by="tests/unit/test_key_deletion.py::TestSweeps"
        "::test_a_sweep_goes_back_to_the_oldest_page_that_is_not_judged",
        message=r"\(4, 0\) == \(4, 1\)",
    ),
    Fault(
        a_later_pause_puts_a_sweep_off,
        caught_by=_TESTS + "TestASweepEnds::test_one_that_is_queued_again_and_again_begins_when_it_was_due_first",
        message="no later, for all that was put off meanwhile",
    ),
    Fault(
        sweeps_mutants.no_sweep_while_there_is_no_room,
        caught_by=_TESTS + "TestShareOfTheWork::test_a_sweep_has_one_page_in_progress_while_there_is_no_room",
        message=r"not enough values to unpack \(expected 1, got 0\)",
    ),
    Fault(
        sweeps_mutants.found_waits_behind_all_deletions,
        caught_by=_TESTS + "TestShareOfTheWork::test_what_a_sweep_has_found_has_one_task_in_so_many",
        message=r"0 == 2",
    ),
    Fault(
        nothing_is_swept_under_load,
        caught_by="tests/simulation/test_overload.py"
        "::test_a_dropped_snapshot_frees_what_it_held_while_more_is_deleted_than_can_be_claimed",
        message=r"nothing is freed within \d+ rounds",
    ),
    Fault(
        sweeps_mutants.sweeps_begin_by_key,
        caught_by=_TESTS + "TestASweepEnds::test_those_that_wait_begin_first_come_first_served",
        message=r"after_death=600, until_death=700",
    ),
    Fault(
        sweeps_mutants.repeats_count_again,
        caught_by=_TESTS + "TestRepeats::test_of_a_message_count_once_wherever_they_lie",
        message=r"\[\('s1', 1\)\] == \[\]",
    ),
    Fault(
        a_page_sent_at_another_txn_counts,
        caught_by=_TESTS + "TestRepeats::test_of_a_page_count_if_they_were_sent_with_the_answer_that_counts",
        message=r"assert not .*snapshots\.commands",
    ),
    Fault(
        a_page_is_cut_by_its_batch,
        caught_by="tests/unit/test_metadata.py::TestSweeps::test_the_messages_of_a_page_follow_from_its_rows_alone",
        message=r"\('KEY', 0\)",
    ),
    Fault(
        sweeps_wait_as_long_as_ever,
        caught_by="tests/unit/test_sweeps.py::TestASweepEnds::"
        "test_one_ends_although_its_judges_are_behind_for_longer_than_it_waits",
        message="given up before it was judged",
    ),
)
