"""Named points of the loop at which a test may crash a service."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Point(Enum):
    """Where the loop is."""

    BEFORE_WRITE = "before_write"
    AFTER_WRITE = "after_write"
    MID_PUBLISH = "mid_publish"
    AFTER_PUBLISH = "after_publish"


Probe = Callable[[Point], None]


def no_probe(point: Point) -> None:
    """What runs outside of tests."""
