"""Finds verdicts of the first judge with a chain version that the chain does not have.

Before Spark judges, it reads the chain on the topic that the service reads. So its verdict is ahead of the service for
moments, or for as long as the service cannot read that topic, and waits. If the service has read all of the topic, the
verdict did not come from Spark, or the topic has lost its tail. Such a verdict must not hold up others, or a settle,
for ever: the service gives it up and keeps the rows, and a sweep has them judged anew.
"""

from __future__ import annotations

from schemas.topics import SNAPSHOT_CHAIN
from services.domain.chain_view import ChainView
from services.runtime.loop.service import Work

ASK_AFTER_MS = 10_000
"""Time before the broker is asked for the end of the topic, and between two questions."""
WHY_FALSE = "gc.snapshot-chain, of which everything is read, has no marker of the verdict's chain version, which"


class AheadOfChain:
    """Asks, from time to time, whether the verdicts that are ahead of the chain are false."""

    def __init__(self) -> None:
        self._next_ms: int | None = None

    def are_false(self, view: ChainView, now_ms: int, work: Work) -> bool:
        """Return whether no chain version above that of a view exists. While only parts of a full chain are there,
        nobody can say.
        """
        if self._next_ms is None or self._next_ms > now_ms + ASK_AFTER_MS:
            self._next_ms = now_ms + ASK_AFTER_MS
        if now_ms < self._next_ms or view.pending_parts:
            return False
        self._next_ms = None  # the pause begins at the next look, when the answer is there
        return work.has_read_all(SNAPSHOT_CHAIN)
