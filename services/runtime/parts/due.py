"""A queue of keys by due time, in milliseconds of the clock, and two reserved times that no clock shows.

A row is written with its step as a message is applied, where there is no clock; its time follows with the ``tick`` at
the end of the same unit of work.

Due times are stored, and a clock can be corrected: one that was a day ahead leaves due times a day ahead. No wait takes
longer than its setting allows, so a later due time was set by a clock that has been set back since. Its key is to be
timed again.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", int, bytes)
UNSET = 0
"""Stands for a due time that the next tick sets."""
AT_ONCE = 1
"""A due time before all others: the row waits no longer, also after a restart."""


class DueQueue(Generic[K]):
    """A queue in which each key has at most one due time; keys of equal due time are sorted by key.

    ``longest_ms`` is the longest wait of a key; None for due times that are moments and no waits: they are kept
    whatever the clock shows.
    """

    def __init__(self, longest_ms: int | None = None) -> None:
        self._longest_ms = longest_ms
        self._seen_ms: int | None = None
        """What the clock showed last; None at first, since stored due times may be those of another clock."""
        self._due_ms: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []
        self._untimed: dict[K, None] = {}

    def members(self) -> list[K]:
        """Return every key that has a due time, in no order."""
        return list(self._due_ms)

    def untimed(self) -> list[K]:
        """Return every key whose due time the next tick sets, in the order of ``add``."""
        return list(self._untimed)

    def to_be_timed(self, now_ms: int) -> list[K]:
        """Return every key whose due time is to be set now. Those of a clock that was set back since are the last."""
        if self._seen_ms is None or now_ms < self._seen_ms:
            for key in [key for key, due_ms in self._due_ms.items() if self._is_too_late(due_ms, now_ms)]:
                self.add(key)
        self._seen_ms = now_ms
        return self.untimed()

    def _is_too_late(self, due_ms: int, now_ms: int) -> bool:
        return self._longest_ms is not None and due_ms > now_ms + self._longest_ms

    def __contains__(self, key: K) -> bool:
        return key in self._due_ms or key in self._untimed

    def __len__(self) -> int:
        return len(self._due_ms) + len(self._untimed)

    def clear(self) -> None:
        """Remove all keys."""
        self._seen_ms = None
        self._due_ms.clear()
        self._heap.clear()
        self._untimed.clear()

    def add(self, key: K) -> None:
        """Add a key without a due time, or remove its due time."""
        self._due_ms.pop(key, None)
        self._untimed[key] = None

    def set(self, key: K, due_ms: int) -> None:
        """Set the due time of a key; it replaces an earlier one. One that is too far away is set anew by the tick."""
        if self._seen_ms is not None and self._is_too_late(due_ms, self._seen_ms):
            self.add(key)
            return
        self._untimed.pop(key, None)
        self._due_ms[key] = due_ms
        heappush(self._heap, (due_ms, key))
        if len(self._heap) > 2 * len(self._due_ms) + 1_000:
            self._heap = [(due, key) for key, due in self._due_ms.items()]
            heapify(self._heap)

    def discard(self, key: K) -> None:
        """Remove a key."""
        self._due_ms.pop(key, None)
        self._untimed.pop(key, None)

    def next_due_ms(self) -> int | None:
        """Return the first due time; None if no key has one."""
        while self._heap and self._due_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the key that was due first; None when none is due."""
        due_ms = self.next_due_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        _, key = heappop(self._heap)
        del self._due_ms[key]
        return key
