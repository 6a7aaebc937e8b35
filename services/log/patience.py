"""Asks a broker again that has just started, or that is away for a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from services.domain.errors import RetryableError

ASK_AGAIN_SECONDS = 0.2
T = TypeVar("T")


def patiently(ask: Callable[[], T], seconds: float) -> T:
    """Return the answer to a question that may be asked again; a question that failed is, for so many seconds.

    Raises:
        RetryableError: as ``ask``, at the last time.
    """
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while True:
        try:
            return ask()
        except RetryableError:
            if time.monotonic() > deadline:
                raise
        pause.wait(ASK_AGAIN_SECONDS)
