"""Reads the topics of a shard from a time on, again and again, each to its present end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from schemas.codec import DecodeError, codec
from schemas.topics import (
    DELETED_ENTRIES,
    LEDGER,
    METADATA_COMMANDS,
    METADATA_PROGRESS,
    METADATA_REPLIES,
    PURGE_DIRECTORIES,
    PURGE_KEYS,
    SCM_COMMANDS,
    SCM_REPLIES,
)
from services.log.port import DatedLog
from services.log.reads import records_between
from services.tracing.requests import Requests
from services.tracing.steps import Step, StepsOfShard

TRACED = (
    *(METADATA_COMMANDS, METADATA_REPLIES, DELETED_ENTRIES, PURGE_KEYS, PURGE_DIRECTORIES, METADATA_PROGRESS),
    *(SCM_COMMANDS, SCM_REPLIES, LEDGER),
)
"""A block store's answers come behind its commands, which they need."""


class StepReader:
    """Yields the steps of a shard. It reads as any reader does, and changes nothing; nobody waits for it."""

    def __init__(self, log: DatedLog, shard: int, since_ms: int) -> None:
        self.shard = shard
        self.requests = Requests()
        self._log = log
        self._steps = StepsOfShard()
        self._next = {topic: log.offset_since(topic.name, shard, since_ms) for topic in TRACED}

    def read(self) -> Iterator[Step]:
        """Yield what is new in each topic up to its present end. Messages that cannot be read are left out.

        Raises:
            RetryableError: the broker does not answer; the next call goes on from there.
        """
        for topic in TRACED:
            end, decode = self._log.end_offset(topic.name, self.shard), codec(topic.record).decode_message
            for record in records_between(self._log, topic.name, self.shard, self._next[topic], end):
                with contextlib.suppress(DecodeError):
                    message = decode(record.value)
                    self.requests.note(record, message)
                    yield from self._steps.of_message(record, message)
                self._next[topic] = record.offset + 1
            self._next[topic] = max(end, self._next[topic])
