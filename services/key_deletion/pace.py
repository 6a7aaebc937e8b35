"""How fast, and when, rows are claimed: so many, or so many bytes, a second at most, and only at some hours of the day.

How many bytes a claim takes is known by its answer alone. So with a rate in bytes one claim is on its way at a time,
and its bytes hold back the next one: the rate is exceeded by one task at most, and kept over minutes.

A task that was claimed goes on to its end: its blocks are promised to the block store. What a barrier has met is
claimed whatever the pace, since a settle waits for it.
"""

from __future__ import annotations

from enum import StrEnum

from services.domain.purge_hours import purge_hours
from services.key_deletion.settings import KeyDeletionSettings


class ThrottledBy(StrEnum):
    """Why purges that could be judged are not."""

    HOURS = "hours"
    RATE = "rate"


class Pace:
    """Says when the next task may be started. Nothing of it outlives a restart but the hours."""

    def __init__(self, settings: KeyDeletionSettings) -> None:
        self._hours = purge_hours(settings.purge_hours)
        self._rows_per_second = settings.max_rows_per_second
        self._bytes_per_second = settings.max_bytes_per_second
        self._claimed_bytes = 0
        self._next_by_rows_ms = self._next_by_bytes_ms = 0

    def throttled_by(self, now_ms: int, claims_in_progress: int = 0) -> ThrottledBy | None:
        """What forbids to start a task now; None when nothing does."""
        self._wait_for_claimed(now_ms)
        if not self._hours.are_open(now_ms):
            return ThrottledBy.HOURS
        is_answer_awaited = self._bytes_per_second and claims_in_progress
        return (
            ThrottledBy.RATE
            if is_answer_awaited or now_ms < max(self._next_by_rows_ms, self._next_by_bytes_ms)
            else None
        )

    def claimed(self, size_bytes: int) -> None:
        """So many bytes were claimed: the next task waits for as long as they take at the rate."""
        self._claimed_bytes += size_bytes

    def _wait_for_claimed(self, now_ms: int) -> None:
        if self._bytes_per_second and self._claimed_bytes:
            begin_ms = max(now_ms, self._next_by_bytes_ms)
            self._next_by_bytes_ms = begin_ms + -(-self._claimed_bytes * 1_000 // self._bytes_per_second)
        self._claimed_bytes = 0

    def started(self, rows: int, now_ms: int) -> None:
        """A task of so many rows was started: the next one waits for as long as these rows take at the rate."""
        if self._rows_per_second:
            begin_ms = max(now_ms, self._next_by_rows_ms)
            self._next_by_rows_ms = begin_ms + -(-rows * 1_000 // self._rows_per_second)
