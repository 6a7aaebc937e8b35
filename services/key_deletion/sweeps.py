"""Sweeps: sending the garbage rows of a store through the judges again, page after page.

A store has one sweep at most, queued or on its way. One that is needed again, over more rows, replaces it: the new
one covers the ranges of both. A sweep has one page on its way or more: where a page begins, metadata says with the one
before, long before that one is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from schemas.records import MetadataCommand, OpenSweepPage, SweepPage, SweepPageSent, SweepResult, SweepRow
from schemas.topics import METADATA_COMMANDS
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.tables import BEYOND, FIRST, SWEEP, SWEEP_TABLE, Tables, sweep_key
from services.runtime.counts import count_done, next_number
from services.runtime.due import AT_ONCE, UNSET, DueQueue
from services.runtime.service import Work

logger = structlog.get_logger(__name__)

ACTIVE = ""
"""In place of a snapshot id: the bucket's active store."""
EVERY_BUCKET = 0
"""In place of a bucket id: every garbage row that there is, and the claimed ones."""
_NO_MORE_TABLES = 4
_UNANSWERED = -1
_QUEUED = 0


@dataclass(frozen=True, slots=True)
class RowRange:
    """Garbage rows by death and birth: after the first number, up to the second one; 0 as the second is no end."""

    after_death: int
    until_death: int
    after_birth: int = 0
    until_birth: int = 0

    def __or__(self, other: RowRange) -> RowRange:
        """The smallest range over both."""
        return RowRange(
            min(self.after_death, other.after_death),
            _later(self.until_death, other.until_death),
            min(self.after_birth, other.after_birth),
            _later(self.until_birth, other.until_birth),
        )

    @classmethod
    def of(cls, row: SweepRow) -> RowRange:
        """The range of a sweep."""
        return cls(row.after_death, row.until_death, row.after_birth, row.until_birth)


EVERY_ROW = RowRange(0, 0)


def _later(one: int, other: int) -> int:
    return max(one, other) if one and other else 0


class Sweeps:
    """All sweeps of the shard."""

    def __init__(
        self, settings: KeyDeletionSettings, metrics: KeyDeletionMetrics, are_tasks_failing: Callable[[], bool]
    ) -> None:
        self._are_tasks_failing = are_tasks_failing
        self._settings = settings
        self._metrics = metrics
        self._rows: dict[bytes, SweepRow] = {}
        self._running: dict[int, bytes] = {}
        self._queue: DueQueue[bytes] = DueQueue()
        self._timeouts: DueQueue[bytes] = DueQueue()
        self._unscheduled: dict[bytes, None] = {}
        self._pauses_ms: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def restore(self, tables: Tables) -> None:
        """Make what is kept in memory anew."""
        self._rows = dict(tables.table(SWEEP_TABLE).scan(FIRST, BEYOND))
        self._running = {row.sweep_id: key for key, row in self._rows.items() if row.page != _QUEUED}
        self._queue.clear()
        self._timeouts.clear()
        self._unscheduled.clear()
        self._pauses_ms.clear()
        for key, row in self._rows.items():
            if row.page == _QUEUED:
                self._queue.set(key, row.due_ms)
            elif row.due_ms != UNSET:
                self._timeouts.set(key, row.due_ms)
            else:
                self._unscheduled[key] = None

    def of(self, bucket_id: int, snapshot_id: str) -> SweepRow | None:
        """The sweep of a store."""
        return self._rows.get(sweep_key(bucket_id, snapshot_id))

    def queue(
        self, bucket_id: int, snapshot_id: str, rows: RowRange, reset_version: int, work: Work, pause_ms: int = 0
    ) -> None:
        """Have a store swept after a pause; a sweep that it has is replaced by one over both ranges."""
        before = self.of(bucket_id, snapshot_id)
        if before is not None:
            rows |= RowRange.of(before)
            self.remove(before, work)
        row = SweepRow(
            sweep_id=0,
            snapshot_id=snapshot_id,
            bucket_id=bucket_id,
            after_death=rows.after_death,
            until_death=rows.until_death,
            after_birth=rows.after_birth,
            until_birth=rows.until_birth,
            reset_version=reset_version,
            page=_QUEUED,
            next_table=0,
            next_key=b"",
            open_pages=(),
            reclaimable_rows=0,
            unexpanded_directories=0,
            due_ms=UNSET if pause_ms else AT_ONCE,
        )
        self._put(row, work)
        key = sweep_key(bucket_id, snapshot_id)
        if pause_ms:
            self._pauses_ms[key] = pause_ms
        else:
            self._queue.set(key, AT_ONCE)

    def remove(self, row: SweepRow, work: Work) -> None:
        """End a sweep; late answers to it are ignored."""
        key = sweep_key(row.bucket_id, row.snapshot_id)
        self._rows.pop(key, None)
        self._running.pop(row.sweep_id, None)
        self._queue.discard(key)
        self._timeouts.discard(key)
        self._unscheduled.pop(key, None)
        self._pauses_ms.pop(key, None)
        work.table(SWEEP_TABLE).delete(key)

    def set_version(self, row: SweepRow, reset_version: int, work: Work) -> None:
        """Let a sweep answer for a newer chain version that has made none of its store's rows reclaimable."""
        self._put(replace(row, reset_version=reset_version), work)

    def page_sent(self, answer: SweepPageSent, work: Work) -> SweepRow | None:
        """Metadata has sent a page's rows; says the sweep if that was its end."""
        row, page = self._open_page(answer.sweep_id, answer.page)
        if row is None or page is None or page.sent_rows != _UNANSWERED:
            return None
        row = replace(
            row,
            unexpanded_directories=row.unexpanded_directories + answer.unexpanded_directories,
            next_table=answer.next_table,
            next_key=answer.next_key,
        )
        return self._advance(row, replace(page, sent_rows=answer.rows), work)

    def judged(self, result: SweepResult, work: Work) -> SweepRow | None:
        """A part of a page was judged; says the sweep if that was its end. A part that came twice counts once."""
        row, page = self._open_page(result.sweep_id, result.sweep_page)
        if row is None or page is None or result.first_offset in page.judged_parts:
            return None
        page = replace(
            page,
            judged_rows=page.judged_rows + result.judged_rows,
            judged_parts=(*page.judged_parts, result.first_offset),
        )
        row = replace(row, reclaimable_rows=row.reclaimable_rows + result.reclaimable_rows)
        return self._advance(row, page, work)

    def make_due(self, work: Work) -> None:
        """End every pause now."""
        for key in {*self._queue.members(), *self._pauses_ms}:
            if self._rows[key].due_ms != AT_ONCE:
                self._put(replace(self._rows[key], due_ms=AT_ONCE), work)
            self._queue.set(key, AT_ONCE)
        self._pauses_ms.clear()

    def tick(self, now_ms: int, work: Work, *, may_start: bool = True) -> None:
        """Set the times of what this unit of work has changed, begin again what is late, start what is due.

        ``may_start`` also lets sweeps that are on their way ask for pages ahead.
        """
        if may_start:
            self._ask_ahead(work)
        for key in list(self._unscheduled):
            self._schedule(key, now_ms, work)
        for key, pause_ms in self._pauses_ms.items():
            self._put(replace(self._rows[key], due_ms=now_ms + pause_ms), work)
            self._queue.set(key, now_ms + pause_ms)
        self._pauses_ms.clear()
        while (late := self._timeouts.pop_due(now_ms)) is not None:
            self._begin_again(self._rows[late], work)
        while may_start and len(self._running) < self._settings.max_sweeps_in_flight:
            due = self._queue.pop_due(now_ms)
            if due is None:
                break
            self._start(due, now_ms, work)

    def report(self, shard: str) -> None:
        """Set the gauges."""
        self._metrics.sweeps_open.labels(shard).set(len(self._rows))

    def _start(self, key: bytes, now_ms: int, work: Work) -> None:
        row = replace(self._rows[key], sweep_id=next_number(SWEEP, work, now_ms))
        self._running[row.sweep_id] = key
        self._ask(row, work)
        self._schedule(key, now_ms, work)

    def _begin_again(self, row: SweepRow, work: Work) -> None:
        """Under another number: nobody can say which answers to this one are still to come."""
        logger.warning("sweep without an answer in time: begun again", sweep_id=row.sweep_id, page=row.page)
        self._metrics.sweeps.labels("timed_out").inc()
        self.remove(row, work)
        self.queue(row.bucket_id, row.snapshot_id, RowRange.of(row), row.reset_version, work)

    def _ask_ahead(self, work: Work) -> None:
        """Have the rows of the next page read while those of the ones before are judged."""
        running = [self._rows[self._running[sweep_id]] for sweep_id in sorted(self._running)]
        room = self._settings.max_sweep_pages_in_flight - sum(len(row.open_pages) for row in running)
        for row in running:
            if room <= 0:
                return
            if row.open_pages[-1].sent_rows != _UNANSWERED and row.next_table < _NO_MORE_TABLES:
                self._ask(row, work)
                self._unscheduled[sweep_key(row.bucket_id, row.snapshot_id)] = None
                room -= 1

    def _advance(self, row: SweepRow, page: OpenSweepPage, work: Work) -> SweepRow | None:
        """Close a page once every row of it is judged; with none left open, go on to the next one or end."""
        self._unscheduled[sweep_key(row.bucket_id, row.snapshot_id)] = None
        is_judged = page.sent_rows != _UNANSWERED and page.judged_rows >= page.sent_rows
        others = [one for one in row.open_pages if one.page != page.page]
        open_pages = others if is_judged else sorted((*others, page), key=lambda one: one.page)
        row = replace(row, open_pages=tuple(open_pages), due_ms=UNSET)
        if is_judged:
            count_done(work)
        if open_pages:
            self._put(row, work)
            return None
        if row.next_table < _NO_MORE_TABLES:
            self._ask(row, work)
            return None
        is_clean = not row.reclaimable_rows and not row.unexpanded_directories
        self._metrics.sweeps.labels("clean" if is_clean else "found").inc()
        self.remove(row, work)
        return row

    def _ask(self, row: SweepRow, work: Work) -> None:
        """Ask for the next page."""
        number = row.page + 1
        asked = OpenSweepPage(number, _UNANSWERED, 0, ())
        self._put(replace(row, page=number, open_pages=(*row.open_pages, asked), due_ms=UNSET), work)
        page = SweepPage(
            sweep_id=row.sweep_id,
            page=number,
            bucket_id=row.bucket_id,
            after_death=row.after_death,
            until_death=row.until_death,
            after_birth=row.after_birth,
            until_birth=row.until_birth,
            start_table=row.next_table,
            start_key=row.next_key,
            max_rows=self._settings.max_sweep_page_rows,
            max_bytes=self._settings.max_sweep_page_bytes,
            # What is claimed was forgotten only by a service that looks through all that there is. And as long as
            # the block store fails, each sweep would give each claimed row one more task.
            with_claimed=_is_over_everything(row) and not self._are_tasks_failing(),
        )
        command = MetadataCommand(work.shard, "", 0, page, sender="key_deletion", wants_reply=False)
        work.send(METADATA_COMMANDS, command)

    def _schedule(self, key: bytes, now_ms: int, work: Work) -> None:
        self._unscheduled.pop(key, None)
        row = replace(self._rows[key], due_ms=now_ms + self._settings.answer_timeout_ms)
        self._put(row, work)
        self._timeouts.set(key, row.due_ms)

    def _open_page(self, sweep_id: int, number: int) -> tuple[SweepRow | None, OpenSweepPage | None]:
        """The sweep of a number, and its page of a number if that is open."""
        key = self._running.get(sweep_id)
        row = None if key is None else self._rows[key]
        pages = () if row is None else row.open_pages
        return row, next((page for page in pages if page.page == number), None)

    def _put(self, row: SweepRow, work: Work) -> None:
        key = sweep_key(row.bucket_id, row.snapshot_id)
        self._rows[key] = row
        work.table(SWEEP_TABLE).put(key, row)


def _is_over_everything(row: SweepRow) -> bool:
    """Whether a sweep is over all of the active store: after a resume or a chain that begins anew, and hourly."""
    return row.snapshot_id == ACTIVE and RowRange.of(row) == EVERY_ROW
