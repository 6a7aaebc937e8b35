"""Figures over time, kept in memory: since the page started, in at most ``MOST_POINTS`` points.

A full history drops every second point and from then on takes every second observation. So it always covers the whole
time, ever more coarsely, and its size is bounded. What must outlast the process belongs into Prometheus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_POINTS = 360


@dataclass(frozen=True, slots=True)
class Point:
    """Figures of one moment."""

    at_ms: int
    values: Mapping[str, int]


@dataclass(slots=True)
class History:
    """The figures of one thing over time."""

    most_points: int = MOST_POINTS
    points: list[Point] = field(default_factory=list)
    """Oldest first."""
    _every: int = 1
    _skipped: int = 0

    def add(self, at_ms: int, values: Mapping[str, int]) -> None:
        """Add an observation. The newest one is always kept until the next one comes."""
        if self._skipped and self.points:
            self.points.pop()
        self.points.append(Point(at_ms, dict(values)))
        self._skipped = (self._skipped + 1) % self._every
        if len(self.points) > self.most_points:
            del self.points[1::2]
            self._every *= 2
            self._skipped = 0
