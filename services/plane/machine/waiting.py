"""Waits for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

from services.plane.machine.errors import StackError

POLL_SECONDS = 0.1


def poll_until(is_so: Callable[[], bool], deadline: float, otherwise: Callable[[], str]) -> None:
    """Ask again and again, since the state belongs to other processes; return once it is so.

    Raises:
        StackError: it was not so at ``deadline``, a time of ``time.monotonic``; with what ``otherwise`` says then.
    """
    while not is_so():
        if time.monotonic() > deadline:
            raise StackError(otherwise())
        time.sleep(POLL_SECONDS)
