"""The interface of a clock, the system's clock, and a virtual clock that moves only on request."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A clock."""

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch."""


class SystemClock:
    """The machine's clock; for tests, ``offset_ms`` ahead of it."""

    def __init__(self, offset_ms: int = 0) -> None:
        self._offset_ms = offset_ms

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch."""
        return time.time_ns() // 1_000_000 + self._offset_ms


class VirtualClock:
    """A clock that moves only by ``advance``."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch."""
        return self._now_ms

    def advance(self, milliseconds: int) -> None:
        """Move the clock forward."""
        self._now_ms += milliseconds
