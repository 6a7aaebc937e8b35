"""The hours of the day in which claims may be made, in UTC, as a person writes them: ``22-6``, ``12-13,22:30-5:15``."""

from __future__ import annotations

import re
from dataclasses import dataclass

MINUTES_PER_DAY = 1_440
_MS_PER_MINUTE = 60_000
_PERIOD = re.compile(r"(\d{1,2})(?::([0-5]\d))?-(\d{1,2})(?::([0-5]\d))?")


@dataclass(frozen=True, slots=True)
class PurgeHours:
    """Periods of a day in minutes since midnight, each with its first minute and the one after its last."""

    periods: tuple[tuple[int, int], ...]

    def are_open(self, now_ms: int) -> bool:
        """Whether a moment, in milliseconds since 1970 in UTC, lies in one of them; always without any."""
        if not self.periods:
            return True
        minute = now_ms // _MS_PER_MINUTE % MINUTES_PER_DAY
        return any(
            start <= minute < end if start < end else minute >= start or minute < end for start, end in self.periods
        )


def purge_hours(text: str) -> PurgeHours:
    """Read periods; one that ends before it begins goes over midnight, and no text means the whole day.

    Raises:
        ValueError: that is not how they are written; the message says how.
    """
    periods = []
    for part in filter(None, text.replace(" ", "").split(",")):
        found = _PERIOD.fullmatch(part)
        start, end = (_minute(*found.group(1, 2)), _minute(*found.group(3, 4))) if found else (0, 0)
        if not found or start >= MINUTES_PER_DAY or end > MINUTES_PER_DAY or start == end:
            raise ValueError(f"{part} is no period of a day: write 22-6, or 12-13,22:30-5:15, in UTC")
        periods.append((start, end))
    return PurgeHours(tuple(periods))


def _minute(hour: str, minute: str | None) -> int:
    return int(hour) * 60 + int(minute or 0)
