"""Lengths of time, and pauses after failures, that more than one service uses."""

from __future__ import annotations

HOUR_MS = 3_600_000


def backoff_ms(first_ms: int, longest_ms: int, failures: int) -> int:
    """Return the pause after a number of failures in a row: doubled with each failure, at most ``longest_ms``."""
    return min(longest_ms, first_ms << min(failures - 1, 30))
