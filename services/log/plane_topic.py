"""The topic of the plane: of how many shards it consists.

Processes and clients read it while they run, so shards are added without a restart. Only an administrator writes it,
after all that a shard needs is there: its partitions and the first commands of its log.

The topic has one partition, and nothing is removed from it. The number of shards is the largest one that was ever
published. So two operators who add shards at the same time cannot lower it, and it does not matter in which order their
messages arrive. Keys are ``shards``, values JSON: ``{"shards": 4}``.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from schemas.topics import PLANE
from services.domain.errors import PositionError
from services.log.port import Log
from services.log.reads import records_between

MOST_SHARDS = 1_024
PARTITION = 0
KEY = b"shards"


class PlaneTopic:
    """Reads and writes the number of shards. Safe to share between threads."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._next_offset = 0
        self._shards = 0

    def shards(self) -> int:
        """Return the number of shards; 0 if nobody has published it yet.

        Raises:
            TopicMissingError: the plane has no such topic; an administrator makes it (``deepclean topics ensure``).
            RetryableError: the log did not answer.
        """
        with self._lock:
            end = self._log.end_offset(PLANE, PARTITION)
            if end < self._next_offset:  # the topic was recreated; the number does not fall
                self._next_offset = 0
            if end > self._next_offset:
                self._read(end)
            return self._shards

    def _read(self, end: int) -> None:
        first = max(self._next_offset, self._log.first_offset(PLANE, PARTITION))
        try:
            for record in records_between(self._log, PLANE, PARTITION, first, end):
                self._shards = max(self._shards, _shards_in(record.key, record.value))
        except PositionError:  # recreated between the two questions: read from its beginning at the next call
            self._next_offset = 0
            return
        self._next_offset = max(first, end)

    def publish(self, shards: int) -> None:
        """Publish a number; return when the log has it. A smaller one than before changes nothing."""
        sink = self._log.open_sink()
        try:
            sink.send(PLANE, PARTITION, json.dumps({"shards": shards}).encode(), KEY)
            sink.flush()
        finally:
            sink.close()


def _shards_in(key: bytes, value: bytes) -> int:
    """Return the number in a message; 0 for one that is about something else, or not usable."""
    try:
        said: Any = json.loads(value)
        shards = said["shards"]
    except (ValueError, KeyError, TypeError):
        return 0
    is_number = isinstance(shards, int) and 0 < shards <= MOST_SHARDS
    return shards if key == KEY and is_number else 0
