"""A log in memory that discards read messages, so that ten million commands need neither memory nor time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from services.log.clock import Clock
from services.log.memory import MemoryLog, MemorySink
from services.log.port import LogRecord


class PassingLog:
    """The input of one service, returned once, to one reader; also the sink of that service."""

    def __init__(self, topic: str, shard: int, clock: Clock) -> None:
        self._topic = topic
        self._shard = shard
        self._clock = clock
        self._waiting: deque[LogRecord] = deque()
        self._end = 0
        self.said = MemoryLog(clock)

    def append(self, value: bytes) -> None:
        """Append a message to the input."""
        self._waiting.append(LogRecord(self._topic, self._shard, self._end, self._clock.now_ms(), value))
        self._end += 1

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return constant ids: a topic in memory is never recreated."""
        return self.said.topic_ids(topics)

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return no setting: nothing goes by itself."""
        return self.said.topic_settings(topics)

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the end of the input; 0 for any other topic or partition."""
        return self._end if (topic, partition) == (self._topic, self._shard) else 0

    def first_offset(self, topic: str, partition: int) -> int:
        """Return the offset of the first unread message."""
        return self.end_offset(topic, partition) - len(self._waiting)

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> PassingLog:  # noqa: ARG002  it is read once
        """Return the log, which is its own source."""
        return self

    def open_sink(self, owner: str = "") -> MemorySink:
        """Return the sink of the service's messages."""
        return self.said.open_sink(owner)

    def poll(self, max_records: int, timeout_seconds: float) -> list[LogRecord]:  # noqa: ARG002  memory has no wait
        """Return and discard the next messages."""
        return [self._waiting.popleft() for _ in range(min(max_records, len(self._waiting)))]

    def end(self, topic: str) -> int | None:
        """As ``Source.end``."""
        return self.end_offset(topic, self._shard)

    def positions(self) -> dict[str, int]:
        """As ``Source.positions``."""
        return {self._topic: self.first_offset(self._topic, self._shard)}

    def lag(self) -> dict[str, int]:
        """Return the number of unread messages."""
        return {self._topic: len(self._waiting)}

    def close(self) -> None:
        """Do nothing: the log has no resources."""
