"""Asks the broker how far gc.deleted-entries has been written, in a thread of its own.

Spark tells of what it has left unread only when a batch has ended. While Spark hangs, nothing but this shows that
messages wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from schemas.topics import DELETED_ENTRIES
from services.domain.errors import DeepcleanError
from services.log.port import Log

LOOK_SECONDS = 5.0
STOP_SECONDS = 1.0

_logger = logging.getLogger(__name__)


class Backlog:
    """Calls ``written`` with the end offset of each shard, again and again, until it is stopped."""

    def __init__(self, log: Log, shards: Callable[[], int], written: Callable[[Mapping[int, int]], None]) -> None:
        """``shards`` returns the number of shards; both functions are called in the thread."""
        self._log = log
        self._shards = shards
        self._written = written
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="backlog", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the question in progress; give up the wait soon, since the broker may not answer."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def look(self) -> None:
        """Ask once. Without an answer the last ends stay."""
        try:
            self._written({shard: self._log.end_offset(DELETED_ENTRIES.name, shard) for shard in range(self._shards())})
        except DeepcleanError as error:
            _logger.debug("the ends of the topic are asked for again: %s", error)

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(LOOK_SECONDS)
