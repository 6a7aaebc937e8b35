"""A log in memory, with the guarantees of one broker: order within a partition, no loss of acknowledged messages.

Readers get a message when it is sent, not when it is flushed: nothing may depend on transactions being whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.domain.errors import FencedError, PositionError
from services.log.clock import Clock
from services.log.port import Headers, LogRecord

CONTROL = (("control", None),)
"""The headers by which control records are known."""


def messages_of(entries: Sequence[LogRecord]) -> list[LogRecord]:
    """Return the messages among the entries of a log."""
    return [entry for entry in entries if entry.headers is not CONTROL]


def messages_from(entries: Sequence[LogRecord], offset: int, end: int, most: int) -> tuple[list[LogRecord], int]:
    """Return at most so many messages among the entries from an offset to an end, and the offset behind them."""
    found: list[LogRecord] = []
    while offset < end:
        entry = entries[offset]
        if entry.headers is not CONTROL:
            if len(found) >= most:
                break
            found.append(entry)
        offset += 1
    return found, offset


@dataclass(slots=True)
class MemoryLog:
    """All partitions of all topics. Appends are acknowledged at once."""

    clock: Clock
    partitions: dict[tuple[str, int], list[LogRecord]] = field(default_factory=dict)
    trimmed: dict[tuple[str, int], int] = field(default_factory=dict)
    """Per partition the offset below which messages are trimmed."""
    has_control_records: bool = False
    """Whether a flush of an owner's sink leaves a control record in each partition, as a broker's transaction does."""
    messages: dict[tuple[str, int], list[LogRecord]] = field(default_factory=dict)
    """Those of ``partitions`` without the control records, if it has any."""
    is_fencing: bool = True
    """Whether the earlier sinks of an owner are refused; off, to see what holds without it."""
    epochs: dict[str, int] = field(default_factory=dict)
    """By owner how many sinks were opened."""

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes,
        key: bytes = b"",
        headers: Headers = (),
    ) -> int:
        """Append a message and return its offset."""
        records = self.partitions.setdefault((topic, partition), [])
        # As on a broker: when its clock is set back, the times of the following messages are lower.
        now_ms = self.clock.now_ms()
        record = LogRecord(topic, partition, len(records), now_ms, value, key, headers)
        records.append(record)
        if self.has_control_records and headers is not CONTROL:
            self.messages.setdefault((topic, partition), []).append(record)
        return record.offset

    def append_control_record(self, topic: str, partition: int) -> None:
        """Append a control record, which takes an offset and is no message."""
        self.append(topic, partition, b"", headers=CONTROL)

    def records(self, topic: str, partition: int) -> list[LogRecord]:
        """Return all messages of a partition."""
        return (self.messages if self.has_control_records else self.partitions).get((topic, partition), [])

    def entries(self, topic: str, partition: int) -> list[LogRecord]:
        """Return all messages and control records of a partition, each at the place of its offset."""
        return self.partitions.get((topic, partition), [])

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return a constant id per topic: a topic in memory is never recreated."""
        return {topic: f"memory-{topic}" for topic in topics}

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return no setting: nothing goes by itself."""
        return {topic: {} for topic in topics}

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset that the next message of a partition will get."""
        return len(self.entries(topic, partition))

    def first_offset(self, topic: str, partition: int) -> int:
        """Return the offset of the oldest message that is left."""
        return self.trimmed.get((topic, partition), 0)

    def offset_since(self, topic: str, partition: int, time_ms: int) -> int:
        """Return the offset of the first message appended at a time or later; the end offset when there is none."""
        first, entries = self.first_offset(topic, partition), self.entries(topic, partition)
        return next((one.offset for one in entries[first:] if one.timestamp_ms >= time_ms), len(entries))

    def trim(self, topic: str, partition: int, before_offset: int) -> None:
        """Trim the messages before an offset: ``first_offset`` rises to it."""
        self.trimmed[topic, partition] = max(before_offset, self.first_offset(topic, partition))

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> MemorySource:
        """Open a source of one partition of some topics."""
        return MemorySource(self, partition, {topic: next_offsets.get(topic, 0) for topic in topics})

    def open_sink(self, owner: str = "") -> MemorySink:
        """Open a new sink."""
        self.epochs[owner] = self.epochs.get(owner, 0) + 1
        return MemorySink(self, owner)


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
            records = self._log.entries(topic, self._partition)
            if offset > len(records):
                raise PositionError(f"{topic}: position {offset} is beyond the end {len(records)}")
            if offset < (first := self._log.first_offset(topic, self._partition)):
                raise PositionError(f"{topic}: position {offset} is before the beginning {first}")
            found, following = messages_from(records, offset, len(records), max_records - len(polled))
            polled += found
            self._next_offsets[topic] = following
            if len(polled) == max_records:
                self._order = self._order[place:] + self._order[:place]
                break
        return polled

    def end(self, topic: str) -> int | None:
        """As ``Source.end``."""
        return self._log.end_offset(topic, self._partition)

    def positions(self) -> dict[str, int]:
        """As ``Source.positions``."""
        return dict(self._next_offsets)

    def lag(self) -> dict[str, int]:
        """Return the number of unread messages per topic."""
        return {
            topic: self._log.end_offset(topic, self._partition) - offset for topic, offset in self._next_offsets.items()
        }

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


class MemorySink:
    """Publishes to a log in memory."""

    def __init__(self, log: MemoryLog, owner: str = "") -> None:
        self._log = log
        self._owner = owner
        self._epoch = log.epochs.get(owner, 0)
        self._sent: set[tuple[str, int]] = set()
        """The partitions of the messages that are not flushed."""

    def send(self, topic: str, partition: int, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        """Append a message."""
        self._require_owner()
        self._log.append(topic, partition, value, key, headers)
        self._sent.add((topic, partition))

    def start_flush(self) -> None:
        """Do nothing: sent messages are in the log at once."""

    def flush(self) -> None:
        """Leave the control records: sent messages are in the log at once."""
        if self._sent:
            self._require_owner()
        if self._owner and self._log.has_control_records:
            for place in sorted(self._sent):
                self._log.append_control_record(*place)
        self._sent.clear()

    def _require_owner(self) -> None:
        if self._owner and self._log.is_fencing and self._epoch != self._log.epochs[self._owner]:
            raise FencedError(f"another process publishes for {self._owner} since: end this one")

    def close(self) -> None:
        """Do nothing: there are no resources to release."""
