"""Limits on claims: rows per second, bytes per second, and hours of the day.

The bytes of a claim are known only from its answer. So with a limit in bytes one claim is in progress at a time, and
its bytes delay the next one: the limit is exceeded by at most one task, and holds over minutes.

A claimed task continues to its end: its blocks are already promised to the block store. Purge requests from before a
barrier are claimed without these limits, because a settle waits for them.
"""

from __future__ import annotations

from enum import StrEnum

from services.domain.purge_hours import purge_hours
from services.key_deletion.settings import KeyDeletionSettings


class ThrottledBy(StrEnum):
    """Why purge requests are not judged although there are fewer tasks than there may be."""

    HOURS = "hours"
    RATE = "rate"
    ANSWER = "answer"
    """The bytes of the claim in progress are not known yet. This is no limit of the settings: an answer may be lost."""


LIMITS = (ThrottledBy.HOURS, ThrottledBy.RATE)
"""The limits of the settings. They hold claims back as they should, so alerts leave out what waits for them."""


class _Rate:
    """A limit per second; 0 for none."""

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self.next_ms = 0
        """When the next task may be started."""

    def take(self, amount: int, now_ms: int) -> None:
        """Put the next task off for as long as this amount takes at the rate."""
        if self.per_second and amount:
            self.next_ms = max(now_ms, self.next_ms) + -(-amount * 1_000 // self.per_second)


class Pace:
    """Decides when the next task may be started. A restart resets the pauses of the rates."""

    def __init__(self, settings: KeyDeletionSettings) -> None:
        self._hours = purge_hours(settings.purge_hours)
        self._rows, self._bytes = _Rate(settings.max_rows_per_second), _Rate(settings.max_bytes_per_second)
        self._claimed_bytes = 0
        self._seen_ms = 0

    def tick(self, now_ms: int) -> None:
        """Let the pause after claimed bytes begin, whether anything waits for its end or not."""
        for rate in (self._rows, self._bytes):
            rate.next_ms -= max(0, self._seen_ms - now_ms)  # a clock that is set back lengthens no pause
        self._seen_ms = now_ms
        self._bytes.take(self._claimed_bytes, now_ms)
        self._claimed_bytes = 0

    def throttled_by(self, now_ms: int, claims_in_progress: int = 0) -> ThrottledBy | None:
        """Return what forbids to start a task now; None when nothing does."""
        self.tick(now_ms)
        if not self._hours.are_open(now_ms):
            return ThrottledBy.HOURS
        if now_ms < max(self._rows.next_ms, self._bytes.next_ms):
            return ThrottledBy.RATE
        return ThrottledBy.ANSWER if self._bytes.per_second and claims_in_progress else None

    def claimed(self, size_bytes: int) -> None:
        """Count claimed bytes: the next task waits for as long as they take at the rate."""
        self._claimed_bytes += size_bytes

    def started(self, rows: int, now_ms: int) -> None:
        """Count the rows of a started task: the next task waits for as long as they take at the rate."""
        self._rows.take(rows, now_ms)
