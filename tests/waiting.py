"""Waits for what will be so, and fails when it does not come to be."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0
_LOOKS_EVERY_SECONDS = 0.02


def eventually(is_so: Callable[[], bool], patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Return as soon as something is so.

    Raises:
        AssertionError: it was not so for as long as there is patience.
    """
    deadline = time.monotonic() + patience_seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(_LOOKS_EVERY_SECONDS)
