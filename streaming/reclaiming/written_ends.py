"""Asks the broker how far gc.deleted-entries has been written, in a thread of its own.

Spark tells of what it has left unread only when a batch has ended. While Spark hangs, nothing but this shows that
messages wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from schemas.topics import DELETED_ENTRIES
from services.log.port import Log
from services.log.watch import Trouble, Watch

LOOK_SECONDS = 5.0
Written = Mapping[int, tuple[int, int]]
"""For each shard the offset of the first message when the job began, and the offset where the topic ends."""


class WrittenEnds:
    """Calls ``written`` with what the topic has of each shard, again and again, until it is stopped."""

    def __init__(self, log: Log, shards: Callable[[], int], written: Callable[[Written], None]) -> None:
        """``shards`` returns the number of shards; both functions are called in the thread."""
        self._log = log
        self._shards = shards
        self._written = written
        self._known: dict[int, tuple[int, int]] = {}
        self._trouble = Trouble("it is not known how many messages wait")
        watch = Watch("written-ends", LOOK_SECONDS, self.look)
        self.start, self.stop = watch.start, watch.stop

    def look(self) -> None:
        """Ask once. The last answer about a shard stays until there is another one."""
        for shard in range(self._shards()):
            with self._trouble.logged():
                self._known[shard] = self._asked(shard)
        self._written(dict(self._known))

    def _asked(self, shard: int) -> tuple[int, int]:
        topic, known = DELETED_ENTRIES.name, self._known.get(shard)
        first = self._log.first_offset(topic, shard) if known is None else known[0]
        return first, self._log.end_offset(topic, shard)
