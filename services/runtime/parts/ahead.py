"""How long a verdict of the first judge waits for a chain version that the service's own chain has not come to.

Before Spark judges, it reads the chain on the topic that the service reads. So its verdict is ahead of the service for
moments, or for as long as the service cannot read that topic. A verdict that stays ahead did not come from Spark, or
the topic has lost its tail. It must not hold up others, or a settle, for ever: the service gives it up, and keeps the
rows. A full chain of which only the first parts have come is waited for without a limit.
"""

from __future__ import annotations

from services.domain.chain_view import ChainView

LONGEST_AHEAD_MS = 600_000
"""Longer than a broker takes to find another leader for a partition: Spark's own wait (``PREMATURE_SECONDS``) is
shorter, because it begins only after the job has read the chain to its end."""
WHY_HOPELESS = "the chain does not come to the chain version of the verdict, which"


class AheadOfChain:
    """The time since when one verdict, the first of those that are ahead, has waited."""

    def __init__(self) -> None:
        self._waiting: int | None = None
        self._since_ms = 0

    def is_hopeless(self, waiting: int, view: ChainView, now_ms: int) -> bool:
        """Return whether the first verdict that is ahead of a view has been so for too long.

        ``waiting`` is a number by which the verdict is known again. The time counts from the first call with that
        number; a restart begins it again.
        """
        if waiting != self._waiting or now_ms < self._since_ms or view.pending_parts:
            self._waiting, self._since_ms = waiting, now_ms
        return now_ms - self._since_ms >= LONGEST_AHEAD_MS
