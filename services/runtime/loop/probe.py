"""Named points of the loop at which a test may crash a service.

In one process a test passes a probe of its own. A process of the real plane has the setting ``crash_at``:
``after_write:3`` kills it with SIGKILL when it passes that point for the third time. Only tests set it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from enum import Enum
from itertools import count


class Point(Enum):
    """A point of the loop."""

    BEFORE_WRITE = "before_write"
    AFTER_WRITE = "after_write"
    MID_PUBLISH = "mid_publish"
    AFTER_PUBLISH = "after_publish"
    INSIDE_CHECKPOINT = "inside_checkpoint"
    """The files are linked; the checkpoint does not have its name yet."""
    BETWEEN_SCM_AND_FINISH = "between_scm_and_finish"
    """SCM's confirmation is written; metadata still has the rows and has not received it."""


Probe = Callable[[Point], None]


def no_probe(point: Point) -> None:
    """Do nothing: the probe outside of tests."""


def parse_crash_point(text: str) -> tuple[Point, int]:
    """Parse ``point:pass`` into the point and the pass; raise ValueError, which lists the points, for other text."""
    name, _, passes = text.partition(":")
    names = [point.value for point in Point]
    if name not in names or not passes.isdecimal() or int(passes) < 1:
        raise ValueError(
            f"a point and which of its passes, from 1, are wanted, as in after_write:3; points are {', '.join(names)}"
        )
    return Point(name), int(passes)


def crash_probe(text: str) -> Probe:
    """Return a probe that kills this process at ``point:pass``; for an empty text, a probe that does nothing."""
    if not text:
        return no_probe
    fatal, passes = parse_crash_point(text)
    numbers = count(1)

    def probe(point: Point) -> None:
        if point is fatal and next(numbers) == passes:
            os.kill(os.getpid(), signal.SIGKILL)

    return probe
