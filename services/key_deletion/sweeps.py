"""Sweeps: metadata sends the garbage rows of a range through the judges again, page after page.

A running sweep continues to its end, whatever is queued and whichever snapshot is dropped. It keeps its place, and
goes back only to a page that was not judged in time. Requests to sweep its range again are queued behind it: a range
has at most one queued sweep, which covers all requested rows. Queued sweeps start in the order of their due times.
Running sweeps request pages in turn, within a limit. So every sweep ends, however many others there are.

Several pages may be in progress: metadata's answer to a page contains the start of the next one, and arrives long
before the page is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import structlog

from schemas.records import MetadataCommand, OpenSweepPage, SweepPage, SweepPageSent, SweepResult, SweepRow
from schemas.topics import METADATA_COMMANDS
from services.domain.errors import InvalidMessageError
from services.domain.row_columns import ColumnsError, check_lengths
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.sweep_pages import UNANSWERED, answered_page, asked_page, is_judged, judged_page
from services.key_deletion.tables import SWEEP, SWEEP_TABLE, SWEEP_TURN, sweep_key
from services.runtime.loop.service import Work
from services.runtime.parts.counts import count_done, next_number
from services.runtime.parts.due import UNSET, DueQueue
from services.storage.tables import Tables

logger = structlog.get_logger(__name__)

ACTIVE = ""
"""Stands for the bucket's active range where a snapshot id is expected."""
EVERY_BUCKET = 0
"""Stands for every garbage row of the shard, and the claimed rows, where a bucket id is expected."""
_NO_MORE_TABLES = 4
_QUEUED = 0
"""Stands for the number of a queued sweep."""
_NO_PAUSE = -1
MOST_DOUBLINGS = 8
"""Most doublings of the time that a sweep waits for answers: 10 minutes become at most 42 hours."""


class RowRange(NamedTuple):
    """Garbage rows with after < death <= until, and the same for the birth; an ``until`` of 0 means no upper bound."""

    after_death: int
    until_death: int
    after_birth: int = 0
    until_birth: int = 0

    def __or__(self, other: RowRange) -> RowRange:
        """Return the smallest range that contains both."""
        return RowRange(
            min(self.after_death, other.after_death),
            _later(self.until_death, other.until_death),
            min(self.after_birth, other.after_birth),
            _later(self.until_birth, other.until_birth),
        )

    @classmethod
    def of(cls, row: SweepRow) -> RowRange:
        """Return the range of a sweep."""
        return cls(row.after_death, row.until_death, row.after_birth, row.until_birth)


EVERY_ROW = RowRange(0, 0)


class Sweeps:
    """All sweeps of the shard."""

    def __init__(
        self, settings: KeyDeletionSettings, metrics: KeyDeletionMetrics, are_tasks_failing: Callable[[], bool]
    ) -> None:
        self._are_tasks_failing = are_tasks_failing
        self._settings = settings
        self._metrics = metrics
        self._queued: dict[bytes, SweepRow] = {}
        """By the key of their range."""
        self._running: dict[int, SweepRow] = {}
        self._longest_pause_ms = max(
            settings.first_sweep_again_ms, settings.longest_sweep_again_ms, settings.undo_window_ms
        )
        self._queue: DueQueue[bytes] = DueQueue(self._longest_pause_ms)
        """Queued sweeps, without those that are suspended. Those without a due time have a pause."""
        self._timeouts: DueQueue[int] = DueQueue()
        """Running sweeps; without a due time those that have received or requested something in this unit of work."""
        self._ends_pauses = False

    def __len__(self) -> int:
        """Return the number of sweeps, without those that are suspended."""
        return len(self._running) + len(self._queue)

    def restore(self, tables: Tables) -> None:
        """Read the state from the tables."""
        self._queued.clear()
        self._running.clear()
        self._queue.clear()
        self._timeouts.clear()
        for _, row in tables.table(SWEEP_TABLE).scan():
            if row.sweep_id == _QUEUED:
                self._remember_queued(row)
            else:
                self._running[row.sweep_id] = row
                if row.due_ms != UNSET:
                    self._timeouts.set(row.sweep_id, row.due_ms)
                elif row.open_pages:
                    self._timeouts.add(row.sweep_id)

    def is_clean(self, bucket_id: int, snapshot_id: str) -> bool:
        """Return whether a range has no sweep: every row that may have become reclaimable was judged since."""
        is_queued = sweep_key(bucket_id, snapshot_id, _QUEUED) in self._queued
        return not is_queued and next(self._running_of(bucket_id, snapshot_id), None) is None

    def queue(self, bucket_id: int, snapshot_id: str, rows: RowRange, work: Work, pause_ms: int = 0) -> None:
        """Queue a sweep over rows of a range, after a pause; it is merged with the range's queued sweep."""
        self._enqueue(_queued_row(bucket_id, snapshot_id, rows, pause_ms), work)

    def suspend(self, bucket_id: int, snapshot_id: str, rows: RowRange, work: Work) -> None:
        """Queue a sweep over rows of a range that starts only after ``resume``."""
        self._enqueue(_queued_row(bucket_id, snapshot_id, rows, _NO_PAUSE), work)

    def resume(self, is_meant: Callable[[SweepRow], bool], pause_ms: int, work: Work) -> None:
        """Start the suspended sweeps that match after a pause."""
        for row in [row for row in self._queued.values() if _is_suspended(row) and is_meant(row)]:
            self._enqueue(replace(row, pause_ms=pause_ms), work)

    def hand_over(self, bucket_id: int, snapshot_id: str, merged_into_id: str, work: Work) -> None:
        """Move the sweeps of a range to the range that it was merged into; running ones continue."""
        for row in list(self._running_of(bucket_id, snapshot_id)):
            work.table(SWEEP_TABLE).delete(_key(row))
            self._put(replace(row, snapshot_id=merged_into_id, is_inherited=True), work)
        queued = self._queued.get(sweep_key(bucket_id, snapshot_id, _QUEUED))
        if queued is not None:
            self._dequeue(queued, work)
            self._enqueue(replace(queued, snapshot_id=merged_into_id, is_inherited=True), work)

    def forget(self, bucket_id: int, snapshot_id: str, work: Work) -> None:
        """End all sweeps of a range; late answers are ignored."""
        for row in list(self._running_of(bucket_id, snapshot_id)):
            self._end(row, work)
        queued = self._queued.get(sweep_key(bucket_id, snapshot_id, _QUEUED))
        if queued is not None:
            self._dequeue(queued, work)

    def page_sent(self, answer: SweepPageSent, txn: int, work: Work) -> SweepRow | None:
        """Record that metadata has sent a page at a txn. Return the sweep if this completed it, else None."""
        row, page = self._open_page(answer.sweep_id, answer.page)
        if row is None or page is None or page.sent_txn != UNANSWERED:
            return None
        row = replace(
            row,
            # Rows with later deaths are judged by their deletions; without a bound the sweep might never end.
            until_death=row.until_death or txn,
            unexpanded_directories=row.unexpanded_directories + answer.unexpanded_directories,
            next_table=answer.next_table,
            next_key=answer.next_key,
        )
        return self._advance(row, answered_page(page, answer, txn), work)

    def judged(self, result: SweepResult, work: Work) -> SweepRow | None:
        """Record judged messages of a page; a repeat is not counted. Return the sweep if this completed it, else None.

        Raises:
            InvalidMessageError: the columns of the result have different lengths.
        """
        try:
            check_lengths(*((result.parts.txns, result.parts.numbers, result.parts.rows) if result.parts else ()))
        except ColumnsError as error:
            raise InvalidMessageError(f"a result that names no whole messages: {error}") from error
        row, page = self._open_page(result.sweep_id, result.sweep_page)
        if row is None or page is None or result.parts is None:
            return None
        judged = judged_page(page, result.parts)
        if judged is None:
            return None
        row = replace(row, reclaimable_rows=row.reclaimable_rows + result.reclaimable_rows)
        return self._advance(row, judged, work)

    def make_due(self) -> None:
        """End every pause at the end of this unit of work."""
        self._ends_pauses = True

    def tick(self, now_ms: int, max_pages: int, work: Work) -> None:
        """Set due times, restart late pages, start due sweeps, and request pages: at most ``max_pages`` in progress."""
        for key in self._queue.to_be_timed(now_ms):
            row = self._queued[key]
            if row.pause_ms == _NO_PAUSE:  # its due time is that of a clock that was set back
                row = replace(row, due_ms=UNSET, pause_ms=self._longest_pause_ms)
            self._set_due(row, now_ms, work)
        if self._ends_pauses:
            self._ends_pauses = False
            for key in self._queue.members():
                self._set_due(replace(self._queued[key], pause_ms=0), now_ms, work)
        for sweep_id, row in self._running.items():
            if row.due_ms > now_ms + self._patience_ms(row):  # by a clock that was set back since
                self._timeouts.add(sweep_id)
        while (late := self._timeouts.pop_due(now_ms)) is not None:
            self._go_back(self._running[late], work)
        self._start_due(now_ms, work)
        self._ask_in_turn(max_pages, work)
        for sweep_id in self._timeouts.untimed():
            row = self._running[sweep_id]
            due_ms = now_ms + self._patience_ms(row) if row.open_pages else UNSET
            self._put(replace(row, due_ms=due_ms), work)
            if row.open_pages:
                self._timeouts.set(sweep_id, due_ms)
            else:
                self._timeouts.discard(sweep_id)

    def _enqueue(self, row: SweepRow, work: Work) -> None:
        before = self._queued.get(_key(row))
        row = row if before is None else _merged(before, row)
        self._remember_queued(row)
        work.table(SWEEP_TABLE).put(_key(row), row)

    def _remember_queued(self, row: SweepRow) -> None:
        key = _key(row)
        self._queued[key] = row
        if row.pause_ms != _NO_PAUSE:
            self._queue.add(key)
        elif row.due_ms != UNSET:
            self._queue.set(key, row.due_ms)
        else:
            self._queue.discard(key)

    def _dequeue(self, row: SweepRow, work: Work) -> None:
        key = _key(row)
        self._queued.pop(key)
        self._queue.discard(key)
        work.table(SWEEP_TABLE).delete(key)

    def _set_due(self, row: SweepRow, now_ms: int, work: Work) -> None:
        """Set a due time that is not later than before: a sweep that is queued again and again would never start."""
        due_ms = _sooner(row.due_ms, now_ms + row.pause_ms, without=UNSET)
        row = replace(row, due_ms=due_ms, pause_ms=_NO_PAUSE)
        self._remember_queued(row)
        work.table(SWEEP_TABLE).put(_key(row), row)

    def _start_due(self, now_ms: int, work: Work) -> None:
        """Start due sweeps in the order of their due times. A range has one running sweep, besides inherited ones."""
        too_early = []
        while len(self._running) < self._settings.max_sweeps_in_flight:
            key = self._queue.pop_due(now_ms)
            if key is None:
                break
            row = self._queued[key]
            others = self._running_of(row.bucket_id, row.snapshot_id)
            if not row.is_inherited and not all(other.is_inherited for other in others):
                too_early.append(row)
                continue
            self._dequeue(row, work)
            number, turn = next_number(SWEEP, work, now_ms), next_number(SWEEP_TURN, work)
            self._put(replace(row, sweep_id=number, turn=turn, due_ms=UNSET), work)
        for row in too_early:
            self._queue.set(_key(row), row.due_ms)

    def _ask_in_turn(self, max_pages: int, work: Work) -> None:
        room = max_pages - sum(len(row.open_pages) for row in self._running.values())
        asking = [row for row in self._running.values() if _may_ask(row)]
        for row in sorted(asking, key=lambda one: one.turn)[: max(0, room)]:
            self._ask(row, work)

    def _ask(self, row: SweepRow, work: Work) -> None:
        """Request the next page."""
        page = asked_page(row.page + 1, row.next_table, row.next_key)
        asked = replace(row, page=page.page, open_pages=(*row.open_pages, page), turn=next_number(SWEEP_TURN, work))
        self._put(asked, work)
        self._timeouts.add(row.sweep_id)
        body = SweepPage(
            sweep_id=row.sweep_id,
            page=page.page,
            bucket_id=row.bucket_id,
            **RowRange.of(row)._asdict(),
            start_table=row.next_table,
            start_key=row.next_key,
            max_rows=self._settings.max_sweep_page_rows,
            max_bytes=self._settings.max_sweep_page_bytes,
            # Claimed rows lack a task only if this service has lost its state; sweeps of everything repair that. But
            # while the block store fails, each sweep would start one more task for each claimed row.
            with_claimed=_is_over_everything(row) and not self._are_tasks_failing(),
        )
        command = MetadataCommand(work.shard, "", 0, body, sender="key_deletion", wants_reply=False)
        work.send(METADATA_COMMANDS, command)

    def _go_back(self, row: SweepRow, work: Work) -> None:
        """Request the oldest open page and all pages after it again, under new page numbers: late answers to the old
        numbers must not be counted.
        """
        logger.warning("sweep without an answer in time: page asked for again", sweep_id=row.sweep_id, page=row.page)
        self._metrics.sweeps.labels("timed_out").inc()
        oldest = row.open_pages[0]
        row = replace(
            row,
            next_table=oldest.start_table,
            next_key=oldest.start_key,
            open_pages=(),
            due_ms=UNSET,
            times_late=row.times_late + 1,
        )
        self._put(row, work)

    def _patience_ms(self, row: SweepRow) -> int:
        """Return how long a sweep waits for answers. The time doubles with every repeated request: the judges may be
        hours behind, and they judge the rows that are sent again only after all earlier messages.
        """
        return self._settings.answer_timeout_ms << min(row.times_late, MOST_DOUBLINGS)

    def _advance(self, row: SweepRow, page: OpenSweepPage, work: Work) -> SweepRow | None:
        """Store a page, or close it if all its rows are judged. Return the sweep if this completed it, else None."""
        others = [one for one in row.open_pages if one.page != page.page]
        if is_judged(page):
            count_done(work)
        else:
            others = sorted((*others, page), key=lambda one: one.page)
        row = replace(row, open_pages=tuple(others))
        if others or row.next_table < _NO_MORE_TABLES:
            self._put(row, work)
            self._timeouts.add(row.sweep_id)
            return None
        self._metrics.sweeps.labels("clean" if found_nothing(row) else "found").inc()
        self._end(row, work)
        return row

    def _end(self, row: SweepRow, work: Work) -> None:
        self._running.pop(row.sweep_id)
        self._timeouts.discard(row.sweep_id)
        work.table(SWEEP_TABLE).delete(_key(row))

    def _open_page(self, sweep_id: int, number: int) -> tuple[SweepRow | None, OpenSweepPage | None]:
        """Return the running sweep of an id, and its open page of a number; None for either that does not exist."""
        row = self._running.get(sweep_id)
        pages = () if row is None else row.open_pages
        return row, next((page for page in pages if page.page == number), None)

    def _running_of(self, bucket_id: int, snapshot_id: str) -> Iterator[SweepRow]:
        return (row for row in self._running.values() if (row.bucket_id, row.snapshot_id) == (bucket_id, snapshot_id))

    def _put(self, row: SweepRow, work: Work) -> None:
        """Store a running sweep."""
        self._running[row.sweep_id] = row
        work.table(SWEEP_TABLE).put(_key(row), row)


def _queued_row(bucket_id: int, snapshot_id: str, rows: RowRange, pause_ms: int) -> SweepRow:
    return SweepRow(
        sweep_id=_QUEUED,
        snapshot_id=snapshot_id,
        bucket_id=bucket_id,
        **rows._asdict(),
        page=0,
        next_table=0,
        next_key=b"",
        open_pages=(),
        reclaimable_rows=0,
        unexpanded_directories=0,
        turn=0,
        is_inherited=False,
        pause_ms=pause_ms,
        due_ms=UNSET,
        times_late=0,
    )


def _merged(one: SweepRow, other: SweepRow) -> SweepRow:
    """Return one queued sweep over the rows of both, due when the earlier one is."""
    return replace(
        one,
        **(RowRange.of(one) | RowRange.of(other))._asdict(),
        is_inherited=one.is_inherited or other.is_inherited,
        pause_ms=_sooner(one.pause_ms, other.pause_ms, without=_NO_PAUSE),
        due_ms=_sooner(one.due_ms, other.due_ms, without=UNSET),
    )


def _sooner(one: int, other: int, *, without: int) -> int:
    return min(one, other) if one != without and other != without else max(one, other)


def found_nothing(row: SweepRow) -> bool:
    """Return whether a sweep that has ended has found its rows clean."""
    return not row.reclaimable_rows and not row.unexpanded_directories


def _later(one: int, other: int) -> int:
    """Return the later of two upper bounds, of which 0 means none."""
    return max(one, other) if one and other else 0


def _is_suspended(row: SweepRow) -> bool:
    return row.pause_ms == _NO_PAUSE and row.due_ms == UNSET


def _may_ask(row: SweepRow) -> bool:
    """Return whether a sweep has a next page whose start is known."""
    is_known = not row.open_pages or row.open_pages[-1].sent_txn != UNANSWERED
    return is_known and row.next_table < _NO_MORE_TABLES


def _is_over_everything(row: SweepRow) -> bool:
    """Return whether a sweep covers the whole active range: after a resume or a full chain, or as the safety sweep."""
    is_filtered = row.after_death or row.after_birth or row.until_birth
    return row.snapshot_id == ACTIVE and not is_filtered


def _key(row: SweepRow) -> bytes:
    return sweep_key(row.bucket_id, row.snapshot_id, row.sweep_id)
