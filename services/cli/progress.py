"""Shows the progress of a job on standard error: as one changing line of a terminal, else a line for each quarter."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console

_STEP_PERCENT = 25


class Progress(Protocol):
    """Receives the progress of a job."""

    def __call__(self, percent: int, doing: str, detail: str = "") -> None:
        """``detail`` changes with each call, as a rate does."""


@contextmanager
def shown_progress(title: str) -> Iterator[Progress]:
    """Show what the yielded function is told, until this ends."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title)
        return
    with console.status(title) as status:
        yield lambda percent, doing, detail="": status.update(f"{title}: {doing} ({percent} %){detail}")


def _lines(title: str) -> Progress:
    said: set[tuple[str, int]] = set()

    def progress(percent: int, doing: str, detail: str = "") -> None:
        step = percent // _STEP_PERCENT * _STEP_PERCENT
        if (doing, step) not in said:
            said.add((doing, step))
            print(f"{title}: {doing} ({step} %){detail}", file=sys.stderr, flush=True)

    return progress
