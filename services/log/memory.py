"""A log in memory, with the guarantees of one broker: order within a partition, no loss of acknowledged messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.domain.errors import PositionError
from services.log.clock import Clock
from services.log.port import LogRecord


@dataclass(slots=True)
class MemoryLog:
    """All partitions of all topics. Appends are acknowledged at once."""

    clock: Clock
    partitions: dict[tuple[str, int], list[LogRecord]] = field(default_factory=dict)
    trimmed: dict[tuple[str, int], int] = field(default_factory=dict)
    """Per partition the offset below which messages are trimmed."""

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes,
        key: bytes = b"",
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> int:
        """Append a message and return its offset."""
        records = self.partitions.setdefault((topic, partition), [])
        # As on a broker: when its clock is set back, the times of the following messages are lower.
        now_ms = self.clock.now_ms()
        records.append(LogRecord(topic, partition, len(records), now_ms, value, key, headers))
        return len(records) - 1

    def records(self, topic: str, partition: int) -> list[LogRecord]:
        """Return all messages of a partition."""
        return self.partitions.get((topic, partition), [])

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return a constant id per topic: a topic in memory is never recreated."""
        return {topic: f"memory-{topic}" for topic in topics}

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return no setting: nothing goes by itself."""
        return {topic: {} for topic in topics}

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset that the next message of a partition will get."""
        return len(self.records(topic, partition))

    def first_offset(self, topic: str, partition: int) -> int:
        """Return the offset of the oldest message that is left."""
        return self.trimmed.get((topic, partition), 0)

    def trim(self, topic: str, partition: int, before_offset: int) -> None:
        """Trim the messages before an offset: ``first_offset`` rises to it."""
        self.trimmed[topic, partition] = max(before_offset, self.first_offset(topic, partition))

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> MemorySource:
        """Open a source of one partition of some topics."""
        return MemorySource(self, partition, {topic: next_offsets.get(topic, 0) for topic in topics})

    def open_sink(self) -> MemorySink:
        """Open a new sink."""
        return MemorySink(self)


class MemorySource:
    """Reads one partition of some topics.

    A full batch leaves off within a topic, and the next one begins with the topic behind it: as with a broker, no
    topic waits for as long as another has messages.
    """

    def __init__(self, log: MemoryLog, partition: int, next_offsets: dict[str, int]) -> None:
        self._log = log
        self._partition = partition
        self._next_offsets = next_offsets
        self._order = list(next_offsets)

    def poll(self, max_records: int, timeout_seconds: float) -> list[LogRecord]:  # noqa: ARG002 memory has no wait
        """Return the next messages, topic after topic."""
        polled: list[LogRecord] = []
        for place, topic in enumerate(list(self._order), start=1):
            offset = self._next_offsets[topic]
            records = self._log.records(topic, self._partition)
            if offset > len(records):
                raise PositionError(f"{topic}: position {offset} is beyond the end {len(records)}")
            if offset < (first := self._log.first_offset(topic, self._partition)):
                raise PositionError(f"{topic}: position {offset} is before the beginning {first}")
            found = records[offset : offset + max_records - len(polled)]
            polled += found
            self._next_offsets[topic] = offset + len(found)
            if len(polled) == max_records:
                self._order = self._order[place:] + self._order[:place]
                break
        return polled

    def lag(self) -> dict[str, int]:
        """Return the number of unread messages per topic."""
        return {
            topic: self._log.end_offset(topic, self._partition) - offset for topic, offset in self._next_offsets.items()
        }

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


class MemorySink:
    """Publishes to a log in memory."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def send(self, topic: str, partition: int, value: bytes, key: bytes = b"") -> None:
        """Append a message."""
        self._log.append(topic, partition, value, key)

    def flush(self) -> None:
        """Do nothing: sent messages are in the log at once."""

    def close(self) -> None:
        """Do nothing: there are no resources to release."""
