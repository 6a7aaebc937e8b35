"""Locks for readers that run beside a shard's writer: striped, shared or exclusive, taken in Ozone's order only.

A thread may take locks of one level, then of higher ones. Taking a lower level while it holds a higher one raises,
so no two threads can wait for each other. Several locks of one level are taken together, in the order of their
stripes; keys that share a stripe share its lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from zlib import crc32

from services.domain.errors import InvariantError


class LockLevel(IntEnum):
    """What a lock protects, lowest first."""

    S3_BUCKET = 0
    VOLUME = 1
    BUCKET = 2
    USER = 3
    S3_SECRET = 4
    KEY_PATH = 5
    PREFIX = 6
    SNAPSHOT = 7


class LockOrderError(InvariantError):
    """A thread wants a lock that could make it and another thread wait for each other."""

    def __init__(self, wanted: LockLevel, held: LockLevel) -> None:
        super().__init__(
            f"a {wanted.name} lock cannot be taken while holding a {held.name} lock: take all {wanted.name} locks "
            f"together, before any of a higher level"
        )


class ReadWriteLock:
    """Many readers or one writer, first come first served: neither side can keep the other waiting for ever."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._readers = 0
        self._is_written = False
        self._waiting: deque[tuple[bool, threading.Event]] = deque()

    def acquire(self, is_write: bool) -> None:
        """Wait for it."""
        with self._guard:
            if not self._waiting and self._is_free(is_write):
                self._take(is_write)
                return
            turn = threading.Event()
            self._waiting.append((is_write, turn))
        turn.wait()

    def release(self, is_write: bool) -> None:
        """Give it to those whose turn it is."""
        with self._guard:
            if is_write:
                self._is_written = False
            else:
                self._readers -= 1
            while self._waiting and self._is_free(self._waiting[0][0]):
                next_is_write, turn = self._waiting.popleft()
                self._take(next_is_write)
                turn.set()

    def _is_free(self, is_write: bool) -> bool:
        return not self._is_written and not (is_write and self._readers)

    def _take(self, is_write: bool) -> None:
        if is_write:
            self._is_written = True
        else:
            self._readers += 1


class LockTable:
    """The locks of one shard."""

    def __init__(self, stripes: int = 512) -> None:
        self._stripes = stripes
        self._locks = {level: [ReadWriteLock() for _ in range(stripes)] for level in LockLevel}
        self._thread = threading.local()

    @contextmanager
    def reading(self, level: LockLevel, *keys: str) -> Iterator[None]:
        """Hold the locks of some keys together with other readers."""
        with self._holding(level, keys, is_write=False):
            yield

    @contextmanager
    def writing(self, level: LockLevel, *keys: str) -> Iterator[None]:
        """Hold the locks of some keys alone."""
        with self._holding(level, keys, is_write=True):
            yield

    def held_levels(self) -> frozenset[LockLevel]:
        """What the present thread holds."""
        return frozenset(level for level in LockLevel if self._mask & 1 << level)

    @property
    def _mask(self) -> int:
        mask: int = getattr(self._thread, "mask", 0)
        return mask

    @contextmanager
    def _holding(self, level: LockLevel, keys: Sequence[str], *, is_write: bool) -> Iterator[None]:
        self._check_order(level)
        # Each stripe once, or two keys that share one would wait for themselves.
        locks = [self._locks[level][stripe] for stripe in sorted({self._stripe(key) for key in keys})]
        taken: list[ReadWriteLock] = []
        self._thread.mask = self._mask | 1 << level
        try:
            for lock in locks:
                lock.acquire(is_write)
                taken.append(lock)
            yield
        finally:
            for lock in reversed(taken):
                lock.release(is_write)
            self._thread.mask = self._mask & ~(1 << level)

    def _check_order(self, wanted: LockLevel) -> None:
        # The same level counts as higher: one more lock of it might be out of the stripes' order.
        if self._mask >> wanted:
            raise LockOrderError(wanted, LockLevel(self._mask.bit_length() - 1))

    def _stripe(self, key: str) -> int:
        return crc32(key.encode()) % self._stripes
