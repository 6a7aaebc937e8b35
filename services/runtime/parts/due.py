"""Things by the time when they are due, in milliseconds of the clock, and two times that no clock shows.

A row is written with its step as a message is applied, where there is no clock; its time follows with the ``tick`` at
the end of the same unit of work.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", int, bytes)
UNSET = 0
"""In place of a due time: the next tick sets one."""
AT_ONCE = 1
"""A due time before all others: what waited need not wait any longer, also after a restart."""


class DueQueue(Generic[K]):
    """Each key has one due time at most; keys of one time come in their own order."""

    def __init__(self) -> None:
        self._due_ms: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []

    def members(self) -> list[K]:
        """Every key, in no order."""
        return list(self._due_ms)

    def __contains__(self, key: K) -> bool:
        """Whether a key is due at any time."""
        return key in self._due_ms

    def clear(self) -> None:
        """Forget all."""
        self._due_ms.clear()
        self._heap.clear()

    def set(self, key: K, due_ms: int) -> None:
        """Make a key due at a time, instead of when it was before."""
        self._due_ms[key] = due_ms
        heappush(self._heap, (due_ms, key))
        if len(self._heap) > 2 * len(self._due_ms) + 1_000:
            self._heap = [(due, key) for key, due in self._due_ms.items()]
            heapify(self._heap)

    def discard(self, key: K) -> None:
        """Forget a key."""
        self._due_ms.pop(key, None)

    def pop_due(self, now_ms: int) -> K | None:
        """Take out the key that was due first; None when none is due."""
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, key = heappop(self._heap)
            if self._due_ms.get(key) == due_ms:
                del self._due_ms[key]
                return key
        return None
