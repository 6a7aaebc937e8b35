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

from schemas.topics import PLANE
from services.domain.errors import PositionError
from services.domain.table_keys import MOST_SHARDS
from services.log.followed_topic import FollowedTopic, said
from services.log.port import Log

KEY = b"shards"


class PlaneTopic:
    """Reads and writes the number of shards. Safe to share between threads."""

    def __init__(self, log: Log) -> None:
        self._topic = FollowedTopic(log, PLANE)
        self._lock = threading.Lock()
        self._shards = 0

    def shards(self) -> int:
        """Return the number of shards; 0 if nobody has published it yet.

        Raises:
            TopicMissingError: the plane has no such topic; an administrator makes it (``deepclean topics ensure``).
            RetryableError: the log did not answer.
        """
        with self._lock:
            try:
                for record in self._topic.new_records(forget=_keep):
                    self._shards = max(self._shards, _shards_in(record.key, record.value))
            except PositionError:  # recreated between two questions to the log
                self._topic.read_again()
            return self._shards

    def publish(self, shards: int) -> None:
        """Publish a number; return when the log has it. A smaller one than before changes nothing."""
        self._topic.append([(json.dumps({"shards": shards}).encode(), KEY)])


def _keep() -> None:
    """The number does not fall when the topic is recreated."""


def _shards_in(key: bytes, value: bytes) -> int:
    """Return the number in a message; 0 for one that is about something else, or not usable."""
    shards = said(value, "shards")
    is_number = isinstance(shards, int) and 0 < shards <= MOST_SHARDS
    return shards if key == KEY and is_number else 0
