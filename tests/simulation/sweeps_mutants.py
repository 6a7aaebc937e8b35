"""Faults put by hand into sweeps and clean flags: flags that lie, sweeps that never end, pages that close too early."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.records import OpenSweepPage, SweptParts
from services.key_deletion import purges, sweeps
from services.key_deletion.service import KeyDeletionService
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.sweeps import RowRange, Sweeps
from services.key_deletion.tables import sweep_key
from services.metadata.collecting import sweeps as sent_pages
from services.plane.in_memory.plane import InMemoryPlane
from services.runtime.loop.service import Work
from services.storage.empty_stretches import EmptyStretches
from tests.simulation import silent_scripts
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import Mutant, scripted
from tests.simulation.scripts import PLAIN

Patch = pytest.MonkeyPatch


def a_pause_forgets_what_is_left(patch: Patch) -> None:
    """What is not swept again before the collector may claim does not keep its store from being flagged."""
    original = Sweeps.is_clean

    def is_clean(self: Sweeps, bucket_id: int, snapshot_id: str) -> bool:
        queued = self._queued.get(sweep_key(bucket_id, snapshot_id, 0))
        if queued is None or not sweeps._is_suspended(queued):
            return original(self, bucket_id, snapshot_id)
        return not list(self._running_of(bucket_id, snapshot_id))

    patch.setattr(Sweeps, "is_clean", is_clean)


def a_drop_forgets_what_is_left(patch: Patch) -> None:
    """A store joins the next one, and what was still to be swept in it is forgotten."""
    patch.setattr(Sweeps, "hand_over", lambda self, bucket_id, old_id, _, work: self.forget(bucket_id, old_id, work))


def queueing_starts_over(patch: Patch) -> None:
    """Queueing a store again throws away the place of the sweep that it has, and begins with the ranges of both."""
    original = Sweeps.queue

    def queue(self: Sweeps, bucket_id: int, snapshot_id: str, rows: RowRange, work: Work, pause_ms: int = 0) -> None:
        for running in list(self._running_of(bucket_id, snapshot_id)):
            rows |= RowRange.of(running)
            self._end(running, work)
        original(self, bucket_id, snapshot_id, rows, work, pause_ms)

    patch.setattr(Sweeps, "queue", queue)


def no_sweep_while_there_is_no_room(patch: Patch) -> None:
    """Sweeps ask for nothing as long as all tasks are in flight."""
    original = KeyDeletionService._max_sweep_pages

    def max_sweep_pages(self: KeyDeletionService) -> int:
        return original(self) if self._throttled_by is None and self._tasks.has_room else 0

    patch.setattr(KeyDeletionService, "_max_sweep_pages", max_sweep_pages)


def sweeps_begin_by_key(patch: Patch) -> None:
    """Sweeps that wait begin in the order of their keys."""
    patch.setattr(sweeps, "_sooner", lambda one, other, *, without: 1 if without == 0 else max(one, other))


def repeats_count_again(patch: Patch) -> None:
    """A message of a page that is judged again, wherever it lies then, counts as another one."""

    def judged_page(page: OpenSweepPage, parts: SweptParts) -> OpenSweepPage:
        before = page.judged
        return replace(
            page,
            judged=SweptParts(before.txns + parts.txns, before.numbers + parts.numbers, before.rows + parts.rows),
        )

    patch.setattr(sweeps, "judged_page", judged_page)


def repeats_of_little_count_again(patch: Patch) -> None:
    """The same, with messages of a row each, of which few are judged at once."""
    repeats_count_again(patch)
    original = InMemoryPlane.__init__
    patch.setattr(sent_pages, "MAX_ROWS_PER_MESSAGE", 1)

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **(named | {"max_batch_messages": 2}))

    patch.setattr(InMemoryPlane, "__init__", init)


def found_waits_behind_all_deletions(patch: Patch) -> None:
    """What sweeps have found has a task only when nothing else waits for one."""
    patch.setattr(purges, "SWEEP_SHARE", 1 << 60)


def a_stretch_outlives_a_row(patch: Patch) -> None:
    """Where scans have found nothing they go on to look for nothing, whatever was written there since."""
    patch.setattr(EmptyStretches, "written", lambda *_: None)


SWEEPS_MUTANTS = {
    "an empty stretch stays empty": Mutant(
        a_stretch_outlives_a_row, FaultMix(), "flags", "flagged as clean with", runs=120
    ),
    "a pause forgets what is left of a store": scripted(
        a_pause_forgets_what_is_left, silent_scripts.a_pause_and_an_older_drop, "flags", "left in its store"
    ),
    "a drop forgets what is left of a store": Mutant(
        a_drop_forgets_what_is_left,
        FaultMix(),
        "sweeps",
        "a sweep was thrown away|closed before it was judged",
        runs=120,
    ),
    "a sweep that is queued again starts over": Mutant(
        queueing_starts_over, FaultMix(), "sweeps", "a sweep was thrown away", runs=120
    ),
    "no sweep while there is no room": Mutant(
        no_sweep_while_there_is_no_room, FaultMix(), "sweeps", "has room does not begin|no page of any sweep"
    ),
    "what sweeps find waits behind all deletions": scripted(
        found_waits_behind_all_deletions,
        silent_scripts.a_drop_amid_deletions,
        "sweeps",
        "have passed over what a sweep has found",
        replace(PLAIN, key_deletion=KeyDeletionSettings(max_tasks_in_flight=1, max_task_rows=1)),
    ),
    "sweeps begin in the order of their keys": Mutant(
        sweeps_begin_by_key, FaultMix(), "sweeps", "due first is passed over", runs=120
    ),
    "repeats of a sweep count again": scripted(
        repeats_of_little_count_again,
        silent_scripts.a_sweep_of_repeats,
        "sweeps",
        "closed before it was judged",
    ),
}
