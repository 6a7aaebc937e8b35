"""Watches how many shards the plane has, in a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable

from services.domain.errors import DeepcleanError, RetryableError
from services.log.plane_topic import PlaneTopic
from services.log.port import Log
from services.log.watch import Watch

LOOK_SECONDS = 1.0
"""Interval of the question. Its answer comes from the broker's memory."""

_logger = logging.getLogger(__name__)


class AddedShards:
    """Calls ``added`` with the number of shards, at first and whenever it has grown, until it is stopped."""

    def __init__(self, log: Log, added: Callable[[int], None]) -> None:
        """``added`` is called in the thread. An error that it raises is logged, and it is called again."""
        self._topic = PlaneTopic(log)
        self._added = added
        self._known = 0
        self._trouble = ""
        watch = Watch("added-shards", LOOK_SECONDS, self.look)
        self.start, self.stop = watch.start, watch.stop

    def look(self) -> None:
        """Ask once."""
        try:
            shards = self._topic.shards()
            if shards > self._known:
                self._added(shards)
                self._known = shards
        except RetryableError as error:
            _logger.debug("the number of shards is asked for again: %s", error)
        except (DeepcleanError, OSError) as error:  # such as a topic that an older program has not made
            if str(error) != self._trouble:
                _logger.warning("added shards cannot be followed here: %s", error)
            self._trouble = str(error)
