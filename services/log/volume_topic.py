"""The topic of volumes: to which shard each name of a volume belongs.

A client that creates a volume chooses the shard with the least load, which is another one a moment later. So it first
appends its choice here, and then creates the volume where the **first** message with this name says. All clients, and
all repeats of one client, thus create a volume of one name in one shard, where metadata refuses the second create.

A name belongs to its shard for ever, whether the volume exists or not: the message is there before the volume, and
stays when the volume is deleted. The topic has one partition, and nothing is removed from it, since compaction would
keep the last message of a name. Keys are the names, values JSON: ``{"shard": 3}``.
"""

from __future__ import annotations

import json
import threading

from schemas.topics import VOLUMES
from services.domain.table_keys import MOST_SHARDS
from services.log.followed_topic import FollowedTopic, said
from services.log.port import Log


class VolumeTopic:
    """Reads and adds to the names that belong to a shard. Safe to share between threads."""

    def __init__(self, log: Log) -> None:
        self._topic = FollowedTopic(log, VOLUMES)
        self._lock = threading.Lock()
        self._shards: dict[bytes, int] = {}

    def place(self, volume: str, chosen: int) -> int:
        """Return the shard to which a name belongs: ``chosen``, unless it belonged to another one before.

        Raises:
            TopicMissingError: the plane has no such topic; an administrator makes it (``deepclean topics ensure``).
            RetryableError: the log did not answer; the name may belong to ``chosen`` now.
        """
        name = volume.encode()
        with self._lock:
            self._read()
            if name not in self._shards:
                self._topic.append([(json.dumps({"shard": chosen}).encode(), name)])
                self._read()
            return self._shards[name]

    def _read(self) -> None:
        for record in self._topic.new_records(self._shards.clear):
            shard = _shard_in(record.value)
            if shard is not None:
                self._shards.setdefault(record.key, shard)


def _shard_in(value: bytes) -> int | None:
    """Return the shard in a message; None for one that is not usable."""
    shard = said(value, "shard")
    return shard if isinstance(shard, int) and 0 <= shard < MOST_SHARDS else None
