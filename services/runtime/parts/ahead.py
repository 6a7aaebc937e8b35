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
"""How long a verdict waits before the broker is asked for the end of the topic, and then between two questions."""
WHY_FALSE = "gc.snapshot-chain, of which everything is read, has no marker of the verdict's chain version, which"


class AheadOfChain:
    """The time since when one verdict, the first of those that are ahead, has waited."""

    def __init__(self) -> None:
        self._waiting: int | None = None
        self._since_ms = 0

    def is_false(self, waiting: int, view: ChainView, now_ms: int, work: Work) -> bool:
        """Return whether the chain has no such version as that of the first verdict ahead of a view; then no verdict
        that waits and is ahead has one that exists.

        ``waiting`` is a number by which the verdict is known again. While only parts of a full chain are there, nobody
        can say.
        """
        if waiting != self._waiting or now_ms < self._since_ms:
            self._waiting, self._since_ms = waiting, now_ms
        if now_ms - self._since_ms < ASK_AFTER_MS:
            return False
        self._since_ms = now_ms
        return not view.pending_parts and work.has_read_all(SNAPSHOT_CHAIN)
