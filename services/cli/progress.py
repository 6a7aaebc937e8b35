"""Shows the progress of long work on standard error, with its rate and the time that is left.

A terminal has one line that changes, anything else a line for each quarter.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from services.domain.words import counted
from services.wording.amounts import duration_text

_STEP_PERCENT = 25


class Progress(Protocol):
    """Receives the progress of a job."""

    def __call__(self, percent: int, doing: str, detail: str = "") -> None:
        """``detail`` changes with each call, as a rate does; it begins with a comma."""


@contextmanager
def shown_progress(title: str) -> Iterator[Progress]:
    """Show what the yielded function is told, and the time that is left, until this ends."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title)
        return
    with console.status(title) as status:
        left = TimeLeft()
        yield lambda percent, doing, detail="": status.update(
            f"{title}: {doing} ({percent} %){detail}{left.text(percent, doing)}"
        )


def counting(progress: Progress, doing: str, unit: str) -> Callable[[int, int], None]:
    """Return a function that takes how much of how much is done, and tells it with a rate."""
    started = time.monotonic()

    def count(done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        progress(percent, doing, f", {done:,} of {counted(total, unit)}, {rate_text(done, started)}")

    return count


def rate_text(done: int, started: float) -> str:
    """Return how much was done a second since a time of the monotonic clock."""
    return f"{done / max(time.monotonic() - started, 0.001):,.0f} a second"


def bar_columns(title: str) -> tuple[ProgressColumn, ...]:
    """Return the columns of a bar that counts to a total, with the time that has passed and that is left."""
    return TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()


class TimeLeft:
    """Tells how long a step may still take at its pace so far."""

    def __init__(self) -> None:
        self._doing = ""
        self._began = (0.0, 0)

    def text(self, percent: int, doing: str) -> str:
        """Return the time that is left, as a text that begins with a comma; empty while it is not known."""
        now = time.monotonic()
        if doing != self._doing:
            self._doing, self._began = doing, (now, percent)
        started, first = self._began
        if not first < percent < 100:
            return ""
        return f", about {duration_text(1000 * round((now - started) * (100 - percent) / (percent - first)))} left"


def _lines(title: str) -> Progress:
    said: set[tuple[str, int]] = set()
    left = TimeLeft()

    def progress(percent: int, doing: str, detail: str = "") -> None:
        remaining = left.text(percent, doing)
        step = percent // _STEP_PERCENT * _STEP_PERCENT
        if (doing, step) not in said:
            said.add((doing, step))
            print(f"{title}: {doing} ({step} %){detail}{remaining}", file=sys.stderr, flush=True)

    return progress
