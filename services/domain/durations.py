"""Lengths of time, and pauses after failures, that more than one service uses."""

from __future__ import annotations

HOUR_MS = 3_600_000


def backoff_ms(first_ms: int, longest_ms: int, failures: int) -> int:
    """Pause after some failures in a row: doubled with each, up to a longest one."""
    return min(longest_ms, first_ms << min(failures - 1, 30))
