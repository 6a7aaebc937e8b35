"""How a process keeps its memory: Python's garbage collector, and the C library's allocator under RocksDB and Kafka."""

from __future__ import annotations

import contextlib
import ctypes
import gc

GARBAGE_THRESHOLDS = (50_000, 20, 100)
"""A batch makes some ten objects for each message and keeps them until it is written; none of them are in cycles."""
ARENAS = 2
_M_ARENA_MAX = -8
"""Of mallopt, in glibc's malloc.h."""


def calm_garbage_collector() -> None:
    """Look for cycles rarely, and never again among what the start has made: a tenth of all processor time else."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def share_arenas() -> None:
    """Have all threads share two arenas of glibc's allocator, if it is that; before there are threads.

    RocksDB and Kafka's client allocate in one thread what another gives back. With an arena for each thread, as is the
    default, each keeps what others have filled it with: 272 MB of metadata become 230 (400,000 held versions).
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)
