"""The topic of owners: at which address the owner of each shard of each service answers reads.

An owner publishes its address when it starts to run a shard, by its own sink: so a former owner, which is fenced,
cannot publish its own later. Clients read the topic when they do not know an owner, or it has moved.

The topic is compacted and has one partition. Keys are ``<service>/<shard>``, values JSON: ``{"url": "http://…"}``.
"""

from __future__ import annotations

import json
import threading

from schemas.topics import OWNERS
from services.log.followed_topic import FollowedTopic, said
from services.log.port import Log


def owner_key(service: str, shard: int) -> bytes:
    """Return the key of a shard's owner."""
    return f"{service}/{shard}".encode()


def owner_value(url: str) -> bytes:
    """Return the value that says where an owner answers."""
    return json.dumps({"url": url}).encode()


class OwnerTopic:
    """The owners that are known. Safe to share between threads."""

    def __init__(self, log: Log) -> None:
        self._topic = FollowedTopic(log, OWNERS)
        self._lock = threading.Lock()
        self._urls: dict[bytes, str] = {}

    def read(self) -> None:
        """Learn the owners that were published since the last call. Raise RetryableError if the broker did not answer.

        Raises:
            TopicMissingError: no owner of this plane publishes its address.
        """
        with self._lock:
            for record in self._topic.new_records(self._urls.clear):
                url = said(record.value, "url")
                self._urls[record.key] = "" if url is None else str(url)

    def url(self, service: str, shard: int) -> str:
        """Return where the owner of a shard answers, as far as it was read; empty if it is not known."""
        with self._lock:
            return self._urls.get(owner_key(service, shard), "")
