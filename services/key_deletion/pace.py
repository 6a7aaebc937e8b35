"""How fast, and when, rows are claimed: so many a second at most, and only at some hours of the day.

A task that was claimed goes on to its end: its blocks are promised to the block store. What a barrier has met is
claimed whatever the pace, since a settle waits for it.
"""

from __future__ import annotations

from enum import StrEnum

from services.domain.purge_hours import purge_hours
from services.key_deletion.settings import KeyDeletionSettings


class HeldBackBy(StrEnum):
    """Why purges that could be judged are not."""

    HOURS = "hours"
    RATE = "rate"


class Pace:
    """Says when the next task may be started. Nothing of it outlives a restart but the hours."""

    def __init__(self, settings: KeyDeletionSettings) -> None:
        self._hours = purge_hours(settings.purge_hours)
        self._rows_per_second = settings.max_rows_per_second
        self._next_start_ms = 0

    def held_back_by(self, now_ms: int) -> HeldBackBy | None:
        """What forbids to start a task now; None when nothing does."""
        if not self._hours.are_open(now_ms):
            return HeldBackBy.HOURS
        return HeldBackBy.RATE if now_ms < self._next_start_ms else None

    def started(self, rows: int, now_ms: int) -> None:
        """A task of so many rows was started: the next one waits for as long as these rows take at the rate."""
        if self._rows_per_second:
            begin_ms = max(now_ms, self._next_start_ms)
            self._next_start_ms = begin_ms + -(-rows * 1_000 // self._rows_per_second)
