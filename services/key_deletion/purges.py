"""Purge requests. Each waits for the end of its undo window, for the chain version that it needs, and for room; then
every row is judged again. A request that names a chain version that does not exist is dropped.

A purge request waits as a whole, so that the window needs memory for each message and not for each row.

Purge requests from sweeps have a queue of their own and a share of the tasks. Behind all deletions they would wait
without end while more is deleted than can be claimed, and with them the rows that a dropped snapshot had held.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import structlog

from schemas.records import CollectionState, PurgeKeys, RowName, RowNames, WaitingPurge
from services.domain.chain_view import ChainView, ChainViewError
from services.domain.collection import may_ask
from services.domain.errors import InvalidMessageError
from services.domain.reclaimability import LifetimeError, Verdict
from services.domain.row_columns import (
    ColumnsError,
    Row,
    check_lengths,
    columns,
    names_between,
    names_of_kind,
    row_count,
    rows,
)
from services.key_deletion.metrics import UNJUDGEABLE, KeyDeletionMetrics
from services.key_deletion.tables import PURGE, PURGE_TURN, WAITING_TABLE, number_key, number_of_key
from services.runtime.loop.service import Work
from services.runtime.parts.ahead import WHY_FALSE, AheadOfChain
from services.runtime.parts.collection_follower import CollectionFollower
from services.runtime.parts.counts import count, next_number
from services.runtime.parts.due import UNSET
from services.runtime.parts.undo_window import UndoWindow
from services.storage.tables import Tables

logger = structlog.get_logger(__name__)

SWEEP_SHARE = 4
"""While both queues have purge requests, one task in ``SWEEP_SHARE`` is for those from sweeps."""


JudgedRows = tuple[list[RowNames], int]
"""Rows for one task, and the lowest chain version with which the first judge judged any of them."""


@dataclass(slots=True)
class _InWindow:
    """A purge request in its undo window."""

    number: int
    newest_death: int
    due_ms: int
    is_sweep: bool


@dataclass(slots=True)
class _Queue:
    """Purge requests that wait for room, in the order of their arrival."""

    numbers: deque[int] = field(default_factory=deque)
    pressing: int = 0
    """Number of requests at the head of the queue that were here when a barrier passed. A settle waits for them."""


class WaitingPurges:
    """The queues of purge requests, and the requests whose rows can still be undeleted."""

    def __init__(self, metrics: KeyDeletionMetrics, undo_window_ms: int, collection: CollectionFollower) -> None:
        self._metrics = metrics
        self._collection = collection
        self._deleted = _Queue()
        self._swept = _Queue()
        self._window = UndoWindow(undo_window_ms)
        self._in_window: deque[_InWindow] = deque()
        self._ahead = AheadOfChain()

    def __len__(self) -> int:
        return len(self._deleted.numbers) + len(self._swept.numbers) + len(self._in_window)

    @property
    def is_sweep_waiting(self) -> bool:
        """Return whether rows that a sweep has found may be claimed and wait for room."""
        return bool(self._swept.numbers)

    @property
    def in_undo_window(self) -> int:
        """Return the number of purge requests whose rows can still be undeleted."""
        return len(self._in_window)

    @property
    def are_pressing(self) -> bool:
        """Return whether any purge request was here when a barrier passed. A settle waits for such requests."""
        return any(queue.pressing for queue in (self._deleted, self._swept))

    def restore(self, tables: Tables) -> None:
        """Read the state from the tables. Pressing requests become pressing again when the next barrier passes."""
        self._deleted, self._swept = _Queue(), _Queue()
        self._window.restore(tables)
        self._in_window.clear()
        for key, purge in tables.table(WAITING_TABLE).scan():
            number = number_of_key(key)
            self._append(_InWindow(number, max(purge.rows.deaths), purge.due_ms, purge.is_sweep))

    def append(self, purge: PurgeKeys, work: Work) -> None:
        """Queue a purge request. Raise InvalidMessageError if the columns of its rows have different lengths."""
        try:
            check_lengths(*columns(purge.rows), purge.snapshots_before_death)
        except ColumnsError as error:
            raise InvalidMessageError(f"a purge that names no whole rows: {error}") from error
        number = next_number(PURGE, work)
        waiting = WaitingPurge(purge.chain_version, purge.rows, purge.snapshots_before_death, UNSET, purge.is_sweep)
        work.table(WAITING_TABLE).put(number_key(number), waiting)
        self._append(_InWindow(number, max(purge.rows.deaths), UNSET, purge.is_sweep))

    def _append(self, purge: _InWindow) -> None:
        """Put a purge request into the window or its queue, depending on stored values only: a restart agrees."""
        if self._window.is_over(purge.newest_death):
            self._queue_of(purge).numbers.append(purge.number)
        else:
            self._in_window.append(purge)

    def _queue_of(self, purge: _InWindow) -> _Queue:
        return self._swept if purge.is_sweep else self._deleted

    def make_due(self, passed_txn: int, work: Work) -> None:
        """End the undo windows of all deaths up to a txn, and exempt the queued purge requests from the pace."""
        self._window.ended(passed_txn, work)
        waiting, self._in_window = self._in_window, deque()
        for purge in waiting:
            self._append(purge)
        for queue in (self._deleted, self._swept):
            queue.pressing = len(queue.numbers)

    def tick(self, now_ms: int, work: Work) -> None:
        """Set the ends of the windows of new purge requests, and queue the requests whose windows have ended."""
        table = work.table(WAITING_TABLE)
        for waiting in reversed(self._in_window):
            if waiting.due_ms != UNSET:
                break  # this one and all before it have a time already
            waiting.due_ms = now_ms + self._window.window_ms
            purge = table.get(number_key(waiting.number))
            if purge is not None:
                table.put(number_key(waiting.number), replace(purge, due_ms=waiting.due_ms))
        while self._in_window and self._in_window[0].due_ms <= now_ms:
            ended = self._in_window.popleft()
            self._window.ended(ended.newest_death, work)
            self._queue_of(ended).numbers.append(ended.number)

    def pop_rows(
        self, view: ChainView, max_rows: int, now_ms: int, work: Work, *, only_pressing: bool = False
    ) -> JudgedRows | None:
        """Return reclaimable rows for one task, from as many purge requests of a queue as fit whole; None for none.

        A purge request that was judged with a newer chain than this view waits, and all behind it: they are as new. If
        the chain has no such version, it is given up.
        """
        queues = [queue for queue in (self._deleted, self._swept) if queue.pressing or not only_pressing]
        is_contended = bool(self._deleted.numbers and self._swept.numbers)
        if is_contended and (count(PURGE_TURN, work) + 1) % SWEEP_SHARE == 0:
            queues.reverse()
        for queue in queues:
            if (rows := self._pop_rows_of(queue, view, max_rows, now_ms, work)) is not None:
                if is_contended:
                    next_number(PURGE_TURN, work)  # not earlier: while all wait for the chain, ticks write nothing
                return rows
        return None

    def _pop_rows_of(self, queue: _Queue, view: ChainView, max_rows: int, now_ms: int, work: Work) -> JudgedRows | None:
        table = work.table(WAITING_TABLE)
        found: list[RowNames] = []
        row_total = first_judge_version = 0
        while queue.numbers:
            key = number_key(queue.numbers[0])
            purge = table.get(key)
            if purge is not None:
                if purge.chain_version > view.version:
                    if row_total or not self._ahead.are_false(view, now_ms, work):
                        break
                    for one in (self._deleted, self._swept):
                        self._give_up(one, view, work)
                    continue
                purge_rows = row_count([purge.rows])
                if row_total and row_total + purge_rows > max_rows:
                    break
                found.append(self._judge(purge, view, max_rows))
                # A queue is in the order of its verdicts, except for repeats.
                first_judge_version = min(first_judge_version or purge.chain_version, purge.chain_version)
                row_total += min(purge_rows, max_rows)
                if purge_rows > max_rows:
                    rest = names_between(purge.rows, max_rows, purge_rows)
                    befores = purge.snapshots_before_death[max_rows:]
                    table.put(key, replace(purge, rows=rest, snapshots_before_death=befores))
                    break
            table.delete(key)
            queue.numbers.popleft()
            queue.pressing = max(0, queue.pressing - 1)
        return (found, first_judge_version) if row_total else None

    def _give_up(self, queue: _Queue, view: ChainView, work: Work) -> None:
        """Drop the purge requests of a queue that are ahead of the chain. metadata keeps the rows, for a sweep."""
        table = work.table(WAITING_TABLE)
        kept: deque[int] = deque()
        pressing = 0
        for place, number in enumerate(queue.numbers):
            purge = table.get(number_key(number))
            if purge is None or purge.chain_version <= view.version:
                kept.append(number)
                pressing += place < queue.pressing
                continue
            row_total = row_count([purge.rows])
            self._metrics.rows_judged.labels(UNJUDGEABLE).inc(row_total)
            logger.error(
                "purge request cannot be judged: its rows are kept",
                reason=f"{WHY_FALSE} is {purge.chain_version}",
                chain_version=view.version,
                rows=row_total,
                first=names_between(purge.rows, 0, 1),
            )
            table.delete(number_key(number))
        queue.numbers, queue.pressing = kept, pressing

    def _judge(self, purge: WaitingPurge, view: ChainView, max_rows: int) -> RowNames:
        """Return the rows that no snapshot holds in this judge's view. The other rows stay where they are; so do rows
        whose claims are suspended, which are swept after the resume.
        """
        judged, befores = names_between(purge.rows, 0, max_rows), purge.snapshots_before_death[:max_rows]
        verdicts = view.judge_columns(judged.bucket_ids, judged.births, judged.deaths, befores)
        if not self._collection.is_running or verdicts.count(Verdict.RECLAIMABLE) < len(verdicts):
            judged = self._sort_out(judged, befores, verdicts, view)
        self._metrics.rows_judged.labels(Verdict.RECLAIMABLE.value).inc(len(judged.object_ids))
        return judged

    def _sort_out(
        self, judged: RowNames, befores: Sequence[int], verdicts: Sequence[Verdict | None], view: ChainView
    ) -> RowNames:
        """Return rows that no snapshot holds and whose claims are not suspended. Count the others; log errors."""
        reclaimable = []
        counted: Counter[str] = Counter()
        suspended: Counter[CollectionState] = Counter()
        for row, before, verdict in zip(rows(judged), befores, verdicts, strict=True):
            if not self._collection.is_running and not may_ask(state := self._collection.of(row[0])):
                suspended[state] += 1
            elif verdict is Verdict.RECLAIMABLE:
                reclaimable.append(row)
            elif verdict is None:
                counted[UNJUDGEABLE] += 1
                logger.error(
                    "row cannot be judged: kept",
                    row=RowName(judged.kind, *row),
                    snapshots_before_death=before,
                    reason=_why_not_judged(view, row, before),
                )
            else:
                counted[verdict.value] += 1
                logger.error(
                    "first judge let a held row pass: kept", row=RowName(judged.kind, *row), verdict=verdict.value
                )
        for state, number in suspended.items():
            self._metrics.rows_suspended.labels(state.value.lower()).inc(number)
        for value, number in counted.items():
            self._metrics.rows_judged.labels(value).inc(number)
        return names_of_kind(judged.kind, reclaimable)


def _why_not_judged(view: ChainView, row: Row, snapshots_before_death: int) -> str:
    bucket_id, _, birth, death = row
    try:
        view.judge(bucket_id, birth, death, snapshots_before_death)
    except (ChainViewError, LifetimeError) as error:
        return str(error)
    return "judged alone it has a verdict: this is a defect, report it"
