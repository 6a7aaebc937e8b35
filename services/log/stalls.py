"""Notices that a reader fetches nothing more of a partition that goes on.

After the loss of a leader librdkafka may leave a partition in a state in which it asks for nothing, for ever and
without an error. The ends that a consumer knows come with what it fetches, so they say nothing then: the leader is
asked. A consumer that only falls behind is taken for a stalled one if it gets neither a message nor the end of the
partition for that long, as in a long stretch of aborted transactions: so the next time more patience is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

LOOK_SECONDS = 5.0
"""Time between two looks. Each asks the leader of one partition, which may take as long as a fetch waits there."""
LEAST_LOOKS, MOST_LOOKS = 2, 64
"""Looks in a row at which a partition is behind and has not moved before its reader is opened again: at first, and
after it was opened again in vain."""
ASK_SECONDS = 0.5

Place = TypeVar("Place", bound=Hashable)


@dataclass(slots=True)
class _Behind:
    """A partition whose leader had more than its reader."""

    position: int
    looks: int


class StallWatch(Generic[Place]):
    """Looks now and then whether a partition is left behind. For one thread."""

    def __init__(self, end_of: Callable[[Place], int], now_seconds: Callable[[], float] = time.monotonic) -> None:
        """``end_of`` returns the end of a partition as its leader says, below 0 if the leader does not answer."""
        self._end_of = end_of
        self._now_seconds = now_seconds
        self._next_look = now_seconds() + LOOK_SECONDS
        self._looked_at: dict[Place, float] = {}
        self._behind: dict[Place, _Behind] = {}
        self._needed: dict[Place, int] = {}
        """Looks that it takes for a partition whose reader was opened again, until it moves."""

    @property
    def is_due(self) -> bool:
        """Whether it is time to look; until then ``stalled`` says nothing, and need not be asked."""
        return self._now_seconds() >= self._next_look

    def stalled(self, positions: Mapping[Place, int]) -> Place | None:
        """Return a partition whose reader has to be opened again. Call it when the reader has returned all it has.

        ``positions`` is the next offset of each partition; control records at an end must have been passed over.
        """
        if not self.is_due:
            return None
        now = self._now_seconds()
        self._next_look = now + LOOK_SECONDS
        if not positions:
            return None
        for place, behind in list(self._behind.items()):
            if positions.get(place) != behind.position:
                del self._behind[place]
                self._needed.pop(place, None)
        place = next(iter(self._behind), None) or min(positions, key=lambda one: self._looked_at.get(one, 0.0))
        self._looked_at[place] = now
        return place if self._is_stalled(place, positions[place]) else None

    def _is_stalled(self, place: Place, position: int) -> bool:
        if self._end_of(place) <= position:
            self._behind.pop(place, None)
            return False
        behind = self._behind.setdefault(place, _Behind(position, 0))
        behind.looks += 1
        needed = self._needed.get(place, LEAST_LOOKS)
        if behind.looks < needed:
            return False
        behind.looks = 0
        self._needed[place] = min(2 * needed, MOST_LOOKS)
        return True
