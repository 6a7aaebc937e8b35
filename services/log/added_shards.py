"""Watches how many shards the plane has, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable

from services.log.plane_topic import PlaneTopic
from services.log.port import Log
from services.log.watch import Trouble, Watch

LOOK_SECONDS = 1.0
"""Interval of the question. Its answer comes from the broker's memory."""


class AddedShards:
    """Calls ``added`` with the number of shards, at first and whenever it has grown, until it is stopped."""

    def __init__(self, log: Log, added: Callable[[int], None]) -> None:
        """``added`` is called in the thread. An error that it raises is logged, and it is called again."""
        self._topic = PlaneTopic(log)
        self._added = added
        self._known = 0
        self._trouble = Trouble("added shards cannot be followed here")
        watch = Watch("added-shards", LOOK_SECONDS, self.look)
        self.start, self.stop = watch.start, watch.stop

    def look(self) -> None:
        """Ask once."""
        with self._trouble.logged():
            shards = self._topic.shards()
            if shards > self._known:
                self._added(shards)
                self._known = shards
