"""Notices that a reader fetches nothing more of a partition that goes on.

After the loss of a leader librdkafka may leave a partition in a state in which it asks for nothing, for ever and
without an error. The ends that a consumer knows come with what it fetches, so they say nothing then: the leader is
asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

LOOK_SECONDS = 10.0
"""Time between two looks. A partition that is behind at two of them, without a message in between, is stalled: a reader
that fetches has a message within a fraction of that."""


class StallWatch:
    """Looks now and then whether a partition is left behind. For one thread."""

    def __init__(self, end_of: Callable[[str], int], now_seconds: Callable[[], float] = time.monotonic) -> None:
        """``end_of`` returns the end of a topic's partition as its leader says, below 0 if it does not answer."""
        self._end_of = end_of
        self._now_seconds = now_seconds
        self._next_look = now_seconds() + LOOK_SECONDS
        self._positions: dict[str, int] = {}
        """Where each partition was at the last look."""
        self._behind: set[str] = set()
        """Those that stood still until the last look, and had a message to be read."""

    def is_stalled(self, positions: Mapping[str, int]) -> bool:
        """Return whether a reader has to be opened again. Call it when the reader has returned all that it has.

        ``positions`` is the next offset of each topic; control records at an end must have been passed over.
        """
        if self._now_seconds() < self._next_look:
            return False
        still = {topic for topic, offset in positions.items() if self._positions.get(topic) == offset}
        behind = {topic for topic in still if self._end_of(topic) > positions[topic]}
        is_stalled = bool(behind & self._behind)
        self._positions, self._behind = dict(positions), set() if is_stalled else behind
        self._next_look = self._now_seconds() + LOOK_SECONDS
        return is_stalled
