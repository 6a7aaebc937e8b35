"""The hours of the day, in UTC, in which claims may be made; written as ``22-6`` or ``12-13,22:30-5:15``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

MINUTES_PER_DAY = 1_440
_MS_PER_MINUTE = 60_000
MS_PER_DAY = MINUTES_PER_DAY * _MS_PER_MINUTE
_PERIOD = re.compile(r"(\d{1,2})(?::([0-5]\d))?-(\d{1,2})(?::([0-5]\d))?")


@dataclass(frozen=True, slots=True)
class PurgeHours:
    """Periods of a day in minutes since midnight, each with its first minute and the one after its last."""

    periods: tuple[tuple[int, int], ...]

    def open_ms(self, start_ms: int, end_ms: int) -> int:
        """Return the milliseconds between two moments that lie in the periods; all of them without periods."""
        if not self.periods:
            return max(0, end_ms - start_ms)
        return max(0, self._open_until(end_ms) - self._open_until(start_ms))

    def _open_until(self, moment_ms: int) -> int:
        """Return the milliseconds since 1970 that lie in the periods."""
        before = _open_minutes_before(self)
        days, minute = divmod(moment_ms // _MS_PER_MINUTE, MINUTES_PER_DAY)
        begun_ms = moment_ms % _MS_PER_MINUTE if self.are_open(moment_ms) else 0
        return (days * before[-1] + before[minute]) * _MS_PER_MINUTE + begun_ms

    def are_open(self, now_ms: int) -> bool:
        """Return whether a moment, in milliseconds since 1970 in UTC, lies in a period; always true without periods."""
        if not self.periods:
            return True
        minute = now_ms // _MS_PER_MINUTE % MINUTES_PER_DAY
        return any(
            start <= minute < end if start < end else minute >= start or minute < end for start, end in self.periods
        )


@lru_cache
def _open_minutes_before(hours: PurgeHours) -> tuple[int, ...]:
    """Return the number of open minutes before each minute of a day, and before its end."""
    return tuple(accumulate(map(hours.are_open, range(0, MS_PER_DAY, _MS_PER_MINUTE)), initial=0))


@lru_cache
def purge_hours(text: str) -> PurgeHours:
    """Parse periods. A period whose end is before its start spans midnight; an empty text means the whole day.

    Raises:
        ValueError: the text is malformed; the message shows the format.
    """
    periods = []
    for part in filter(None, text.replace(" ", "").split(",")):
        found = _PERIOD.fullmatch(part)
        start, end = (_minute(*found.group(1, 2)), _minute(*found.group(3, 4))) if found else (0, 0)
        if not found or start >= MINUTES_PER_DAY or end > MINUTES_PER_DAY or start == end:
            raise ValueError(f"{part} is not a period of a day: write 22-6, or 12-13,22:30-5:15, in UTC")
        periods.append((start, end))
    return PurgeHours(tuple(periods))


def checked_hours(text: str) -> str:
    """Return the text. Raise ValueError when ``purge_hours`` cannot parse it."""
    purge_hours(text)
    return text


def _minute(hour: str, minute: str | None) -> int:
    return int(hour) * 60 + int(minute or 0)
