"""Memory settings of a process: Python's garbage collector, and the C library's allocator under RocksDB and Kafka."""

from __future__ import annotations

import contextlib
import ctypes
import gc

GARBAGE_THRESHOLDS = (50_000, 20, 100)
"""A batch makes some ten objects per message and keeps them until it is written; none of them are in cycles."""
ARENAS = 2
_M_ARENA_MAX = -8
"""Parameter of mallopt, from glibc's malloc.h."""


def calm_garbage_collector() -> None:
    """Search for cycles rarely, and never among the objects of the start: else it takes a tenth of processor time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def share_arenas() -> None:
    """Make all threads share two arenas of the allocator, if it is glibc's. Call it before threads start.

    RocksDB and Kafka's client allocate memory in one thread and free it in another. With an arena for each thread, the
    default, arenas keep much freed memory: two arenas reduce metadata from 272 MB to 230 (400,000 held versions).
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)
