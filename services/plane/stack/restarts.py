"""When a process of a plane that has ended is started again: after a second, then after pauses that double.

The rule is that of systemd and Kubernetes: a process that ends is started again, whatever its status was, and leaves
the others alone. What an operator has to mend is said again by each start.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
CALM_SECONDS = 300.0
"""A process that has run for so long begins with the shortest pause again."""


@dataclass(slots=True)
class Restarts:
    """The restarts of one process. All times are seconds of one monotonic clock."""

    started_seconds: float
    """When it was started last."""
    count: int = 0
    """How often it was started again."""
    reason: str = ""
    """Why it does not run; empty while it runs."""
    _due_seconds: float = 0.0
    _pause_seconds: float = FIRST_PAUSE_SECONDS

    def ended(self, reason: str, now_seconds: float) -> None:
        """The process has ended, or could not be started."""
        if now_seconds - self.started_seconds >= CALM_SECONDS:
            self._pause_seconds = FIRST_PAUSE_SECONDS
        self.reason = reason
        self._due_seconds = now_seconds + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)

    def is_due(self, now_seconds: float) -> bool:
        """Return whether it is to be started now."""
        return bool(self.reason) and now_seconds >= self._due_seconds

    def started(self, now_seconds: float) -> None:
        """The process was started again."""
        self.started_seconds = now_seconds
        self.count += 1
        self.reason = ""
