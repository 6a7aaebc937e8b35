"""Looks always at sweeps: each ends, none is put off for ever, and no page is closed before all of it is judged.

How long it takes until the rows that a drop has freed are judged again, and claimed, is bounded by steps of
key_deletion rather than by a time, since under faults nobody can say how long a step takes. Each part of the way is
held to its bound as it is walked, whatever else is to be done:

1. The drop's range is queued. It begins when a place among the ``max_sweeps_in_flight`` is free, first come first
   served: none that came later begins before it, unless it waits for another sweep of its own store.
2. A sweep that has begun ends by its last page, never otherwise: it is not begun again, whatever is queued meanwhile.
3. It asks for its next page after no more pages of others than there are places; and some page is on its way as long as
   there is one to ask for, unless something that sweeps have found waits.
4. A page is closed when all of it is judged, or gone back to without an answer.
5. What sweeps have found waits for no more than ``SWEEP_SHARE`` tasks.

So with S places and pages of R rows, the rows of a drop are judged within S turns of a page for each of its own pages,
and claimed within ``SWEEP_SHARE`` tasks for each task that they fill.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas import records
from schemas.codec import DecodeError, codec
from schemas.records import OpenSweepPage, SweepRow
from schemas.topics import DELETED_ENTRIES, METADATA_PROGRESS, Topic
from services.domain.row_columns import row_count
from services.key_deletion.purges import SWEEP_SHARE
from services.key_deletion.tables import SWEEP_TABLE, TASK_TABLE, WAITING_TABLE, TaskState
from services.plane.in_memory.judge import WAITING_ENTRIES
from services.storage.memory import MemoryStore
from tests.simulation.errors import SweepError
from tests.simulation.plane import SimulatedPlane

_NO_MORE_TABLES = 4
_Page = tuple[int, int]
"""Sweep and page."""


@dataclass(slots=True)
class _Messages:
    """What was sent of a page at one txn: of each part its rows and wherever it lies."""

    rows: dict[int, int] = field(default_factory=dict)
    offsets: dict[int, set[int]] = field(default_factory=dict)


@dataclass(slots=True)
class SweepWatch:
    """The sweeps of one shard."""

    plane: SimulatedPlane
    shard: int
    sent: dict[tuple[int, int, int], _Messages] = field(default_factory=dict)
    """By sweep, page and txn."""
    answers: dict[_Page, dict[int, records.SweepPageSent]] = field(default_factory=dict)
    """By txn."""
    ended: set[int] = field(default_factory=set)
    """Sweeps of which metadata has said that there is no next page."""
    judged: set[int] = field(default_factory=set)
    """Offsets of entries that the first judge has judged."""
    _unjudged: set[int] = field(default_factory=set)
    _judge_position: int = 0
    _store: MemoryStore | None = None
    _running: dict[int, SweepRow] = field(default_factory=dict)
    _queued: dict[tuple[int, str], SweepRow] = field(default_factory=dict)
    _waits: dict[int, int] = field(default_factory=dict)
    """Of each sweep that may ask for a page how many others have asked meanwhile."""
    _looked_ms: int = 0
    _head: tuple[bytes, int] | None = None
    _passed: int = 0
    """Tasks that were made since what was found, and waits first, has not become less."""
    _tasks: set[bytes] = field(default_factory=set)
    _read_to: dict[str, int] = field(default_factory=dict)

    def look(self, name: str, *, is_done: bool) -> None:
        """Hold what a service has left behind it against what it had before; a step that broke off proves less."""
        if name == "metadata":
            self._hear_metadata()
        elif name == "streaming":
            self._hear_judge()
        elif name == "key_deletion":
            self._look_at_sweeps(is_done=is_done)

    def _news(self, topic: Topic) -> Iterator[tuple[int, object]]:
        log = self.plane.log.records(topic.name, self.shard)
        start = self._read_to.get(topic.name, 0)
        self._read_to[topic.name] = len(log)
        for record in log[start:]:
            try:
                yield record.offset, codec(topic.record).decode_message(record.value)
            except DecodeError:  # put there by hand, or found by others
                continue

    def _hear_metadata(self) -> None:
        for offset, entries in self._news(DELETED_ENTRIES):
            assert isinstance(entries, records.DeletedEntries)
            if entries.sweep_id:
                page = (entries.sweep_id, entries.sweep_page, entries.sweep_txn)
                messages = self.sent.setdefault(page, _Messages())
                messages.rows[entries.sweep_part] = len(entries.rows.object_ids)
                messages.offsets.setdefault(entries.sweep_part, set()).add(offset)
        for _, progress in self._news(METADATA_PROGRESS):
            assert isinstance(progress, records.MetadataProgress)
            body = progress.body
            if isinstance(body, records.SweepPageSent):
                self.answers.setdefault((body.sweep_id, body.page), {})[progress.txn] = body
                if body.next_table == _NO_MORE_TABLES:
                    self.ended.add(body.sweep_id)

    def _hear_judge(self) -> None:
        position = self.plane.position("streaming", self.shard, DELETED_ENTRIES.name)
        self._unjudged |= set(range(self._judge_position, position))
        self._judge_position = max(position, self._judge_position)
        keys = self.plane.tables("streaming", self.shard).table(WAITING_ENTRIES).scan(b"\0" * 8, b"\xff" * 8)
        waiting = {int.from_bytes(key, "big") for key, _ in keys}
        self.judged |= self._unjudged - waiting
        self._unjudged &= waiting

    def _look_at_sweeps(self, *, is_done: bool) -> None:
        tables = self.plane.tables("key_deletion", self.shard)
        rows = [row for _, row in tables.table(SWEEP_TABLE).scan()]
        running = {row.sweep_id: row for row in rows if row.sweep_id}
        queued = {(row.bucket_id, row.snapshot_id): row for row in rows if not row.sweep_id}
        store = self.plane.processes["key_deletion", self.shard].store
        is_same = store is self._store
        waiting = [(key, row) for key, row in tables.table(WAITING_TABLE).scan() if row.is_sweep]
        if is_same:
            self._check_ends(running)
            self._check_order(running, queued)
            self._check_turns(running)
            self._check_share(waiting, is_held_up=not is_done)
            if is_done:
                self._check_progress(running, queued, is_found=bool(waiting))
        else:
            self._waits, self._head, self._passed = {}, None, 0
            self._tasks = {key for key, _ in tables.table(TASK_TABLE).scan()}
        self._store, self._running, self._queued = store, running, queued
        self._looked_ms = self.plane.clock_of("key_deletion", self.shard).now_ms()

    # ---- each sweep ends

    def _check_ends(self, running: dict[int, SweepRow]) -> None:
        for sweep_id, before in self._running.items():
            now = running.get(sweep_id)
            if now is None and sweep_id not in self.ended:
                raise SweepError(f"shard {self.shard}: a sweep was thrown away: {before}")
            left = {page.page for page in now.open_pages} if now else set()
            closed = [page for page in before.open_pages if page.page not in left]
            if now is not None and closed and _went_back(before, now):
                continue
            for page in closed:
                self._check_closed(sweep_id, page)

    def _check_closed(self, sweep_id: int, page: OpenSweepPage) -> None:
        """Some answer has said how many rows went out, and a copy of each message with them was judged."""
        for txn, answer in self.answers.get((sweep_id, page.page), {}).items():
            messages = self.sent.get((sweep_id, page.page, txn), _Messages())
            is_judged = all(offsets & self.judged for offsets in messages.offsets.values())
            if is_judged and sum(messages.rows.values()) == answer.rows:
                return
        raise SweepError(f"shard {self.shard}: a page of sweep {sweep_id} was closed before it was judged: {page}")

    # ---- none is put off for ever

    def _check_order(self, running: dict[int, SweepRow], queued: dict[tuple[int, str], SweepRow]) -> None:
        """Of two that could begin the one that was due first does; one that has changed its store was due there."""
        news = [row for sweep_id, row in running.items() if sweep_id not in self._running]
        # What was queued since the last look was due then, or now if the clock was set back meanwhile.
        latest_ms = min(self._looked_ms, self.plane.clock_of("key_deletion", self.shard).now_ms())
        begun = [row for row in news if not row.is_inherited]
        for row in begun:
            before = self._queued.get((row.bucket_id, row.snapshot_id))
            due_ms = before.due_ms if before is not None and before.due_ms else latest_ms
            for place, other in queued.items():
                was_due = other == self._queued.get(place) and 0 < other.due_ms <= self._looked_ms
                if was_due and other.due_ms < due_ms and not _is_blocked(other, running):
                    raise SweepError(f"shard {self.shard}: a sweep that was due first is passed over: {other}, {row}")

    def _check_turns(self, running: dict[int, SweepRow]) -> None:
        before_pages = {sweep_id: row.page for sweep_id, row in self._running.items()}
        asked = {sweep_id: row.page - before_pages.get(sweep_id, 0) for sweep_id, row in running.items()}
        for sweep_id, row in running.items():
            before = self._running.get(sweep_id)
            is_waiting = before is not None and _may_ask(before) and not asked[sweep_id]
            others = sum(count for other, count in asked.items() if other != sweep_id)
            self._waits[sweep_id] = self._waits.get(sweep_id, 0) + others if is_waiting else 0
            if self._waits[sweep_id] > self.plane.limits.key_deletion.max_sweeps_in_flight:
                raise SweepError(f"shard {self.shard}: others have asked for pages instead of {row}")
        self._waits = {sweep_id: waits for sweep_id, waits in self._waits.items() if sweep_id in running}

    def _check_progress(
        self, running: dict[int, SweepRow], queued: dict[tuple[int, str], SweepRow], *, is_found: bool
    ) -> None:
        """Something is on its way when there is something to do, however much else there is."""
        has_room = len(running) < self.plane.limits.key_deletion.max_sweeps_in_flight
        # By its own clock, which may have gone back since.
        now_ms = min(self._looked_ms, self.plane.clock_of("key_deletion", self.shard).now_ms())
        for row in queued.values():
            is_due = row == self._queued.get((row.bucket_id, row.snapshot_id)) and 0 < row.due_ms <= now_ms
            if is_due and has_room and not _is_blocked(row, running):
                raise SweepError(f"shard {self.shard}: a sweep that is due and has room does not begin: {row}")
        asking = [row for row in running.values() if _may_ask(row) and row.sweep_id in self._running]
        if asking and not is_found and not any(row.open_pages for row in running.values()):
            raise SweepError(f"shard {self.shard}: no page of any sweep is on its way: {asking}")

    def _check_share(self, waiting: list[tuple[bytes, records.WaitingPurge]], *, is_held_up: bool) -> None:
        """What was found has one task in so many, unless it may not be judged or claimed yet."""
        tables = self.plane.tables("key_deletion", self.shard)
        tasks = dict(tables.table(TASK_TABLE).scan())
        made = sum(key not in self._tasks and row.state == TaskState.CLAIMING for key, row in tasks.items())
        self._tasks |= set(tasks)
        head = min(((key, row_count([row.rows])) for key, row in waiting), default=None)
        limits = self.plane.limits.key_deletion
        is_exempt = limits.undo_window_ms or limits.max_rows_per_second or limits.max_bytes_per_second
        is_known = head is not None and dict(waiting)[head[0]].chain_version <= self._chain_version()
        if head is None or head != self._head or is_exempt or limits.purge_hours or not is_known or is_held_up:
            self._head, self._passed = head, 0
            return
        self._passed += made
        if self._passed > SWEEP_SHARE:
            raise SweepError(f"shard {self.shard}: {self._passed} tasks have passed over what a sweep has found")

    def _chain_version(self) -> int:
        service = self.plane.processes["key_deletion", self.shard].service
        version: int = service._chain.view.version  # type: ignore[attr-defined]  # what it judges with
        return version


def _may_ask(row: SweepRow) -> bool:
    """Whether metadata has said where a sweep's next page begins, and there is one."""
    return row.next_table < _NO_MORE_TABLES and all(page.sent_txn for page in row.open_pages[-1:])


def _is_blocked(row: SweepRow, running: dict[int, SweepRow]) -> bool:
    """Whether a sweep waits for another one of its own store."""
    own = [one for one in running.values() if (one.bucket_id, one.snapshot_id) == (row.bucket_id, row.snapshot_id)]
    return not row.is_inherited and any(not one.is_inherited for one in own)


def _went_back(before: SweepRow, now: SweepRow) -> bool:
    """Whether a sweep has asked, or will ask, for its oldest open page once more."""
    start = before.open_pages[0].start_table, before.open_pages[0].start_key
    again = [(page.start_table, page.start_key) for page in now.open_pages if page.page > before.page]
    return start in again or (not now.open_pages and start == (now.next_table, now.next_key))
