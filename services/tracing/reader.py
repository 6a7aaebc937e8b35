"""Reads the topics of a shard from a time on, merged by time, again and again, each time to the present end."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from heapq import merge

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
from services.log.port import DatedLog, LogRecord
from services.log.reads import records_between
from services.tracing.requests import Requests
from services.tracing.steps import Step, StepsOfShard

TRACED = (
    *(METADATA_COMMANDS, METADATA_REPLIES, DELETED_ENTRIES, PURGE_KEYS, PURGE_DIRECTORIES, METADATA_PROGRESS),
    *(SCM_COMMANDS, SCM_REPLIES, LEDGER),
)
"""In the order in which a deletion comes to them."""
_ORDER = {topic.name: place for place, topic in enumerate(TRACED)}


class StepReader:
    """Yields the steps of a shard. It reads as any reader does, and changes nothing; nobody waits for it."""

    def __init__(self, log: DatedLog, shard: int, since_ms: int) -> None:
        self.shard = shard
        self.requests = Requests()
        self._log = log
        self._steps = StepsOfShard()
        self._decoders = {topic.name: codec(topic.record).decode_message for topic in TRACED}
        self._next = {topic.name: log.offset_since(topic.name, shard, since_ms) for topic in TRACED}

    def read(self) -> Iterator[Step]:
        """Yield what is new, in the order of time. Messages that cannot be read are left out.

        Merged, so that what belongs together is met together, however much there is.

        Raises:
            RetryableError: the broker does not answer; the next call goes on from there.
        """
        with ExitStack() as opened:
            topics = [opened.enter_context(closing(self._new(name, end))) for name, end in self._ends().items()]
            for record in merge(*topics, key=lambda one: (one.timestamp_ms, _ORDER[one.topic])):
                with contextlib.suppress(DecodeError):
                    message = self._decoders[record.topic](record.value)
                    self.requests.note(record, message)
                    yield from self._steps.of_message(record, message)
                self._next[record.topic] = record.offset + 1

    def _ends(self) -> dict[str, int]:
        """Return the end of each topic. They are asked in the other direction than that in which messages cause one
        another: so what has caused a message that is read is read in the same round.
        """
        return {topic.name: self._log.end_offset(topic.name, self.shard) for topic in reversed(TRACED)}

    def _new(self, topic: str, end: int) -> Generator[LogRecord, None, None]:
        yield from records_between(self._log, topic, self.shard, self._next[topic], end)
