"""Waits for what will be so, and fails when it does not come to be."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0
_LOOKS_EVERY_SECONDS = 0.02


def eventually(
    is_so: Callable[[], bool], patience_seconds: float = PATIENCE_SECONDS, otherwise: str = "it never came to be"
) -> None:
    """Return as soon as something is so; ``otherwise`` is what the failure says.

    Raises:
        AssertionError: it was not so for as long as there is patience.
    """
    deadline = time.monotonic() + patience_seconds
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(_LOOKS_EVERY_SECONDS)
