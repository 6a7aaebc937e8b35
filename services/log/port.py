"""What a service needs of the log: sources to read partitions from, a sink to publish to.

Two implementations: ``kafka`` over a broker and ``memory_log`` for the simulator and for runs within one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""Size of one message, such as a batch of rows with all their blocks; topics need the same ``max.message.bytes``."""
MAX_LETTER_MESSAGE_BYTES = 9 * 1024 * 1024
"""Size of a dead letter, which contains the message and its error."""

MAX_CHANGE_MESSAGE_BYTES = 10 * 1024 * 1024
"""What a service has changed may be a row that keeps a dead letter."""


class LogRecord(NamedTuple):
    """One message as the log holds it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """When the log appended it."""
    value: bytes
    fingerprint: bytes | None
    """Header avro-fingerprint; None when there is none."""
    key: bytes = b""
    headers: Sequence[tuple[str, bytes | None]] = ()
    """All headers as they came: looked at only when the message is put aside."""


class Source(Protocol):
    """Reads one partition of some topics from given positions on."""

    def poll(self, max_records: int, timeout_seconds: float) -> list[LogRecord]:
        """Next messages, in the order of each partition; empty when there are none within the time.

        A source that is busy may take some hundredths of a second more, to return many together.

        Raises:
            PositionError: a position is outside its partition.
        """
        ...

    def lag(self) -> dict[str, int]:
        """Per topic how many messages lie ahead, as far as the source knows."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...


class Sink(Protocol):
    """Publishes in order, each message at least once."""

    def send(self, topic: str, partition: int, value: bytes, fingerprint: bytes) -> None:
        """Hand over a message; it may still be on its way when this returns."""
        ...

    def flush(self) -> None:
        """Wait until the log has acknowledged all that was sent.

        Raises:
            RetryableError: some may not have arrived; send all of them again.
        """
        ...

    def close(self) -> None:
        """Stop publishing."""
        ...


class Log(Protocol):
    """The log as a whole."""

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the topic's id, which differs from that of a recreated topic of the same name."""
        ...

    def end_offset(self, topic: str, partition: int) -> int:
        """Offset that the next message of a partition will get."""
        ...

    def first_offset(self, topic: str, partition: int) -> int:
        """Offset of the oldest message that is still there; the end when there is none."""
        ...

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> Source:
        """Read one partition of some topics, each from its position on."""
        ...

    def open_sink(self) -> Sink:
        """A sink of its own."""
        ...


class LogAround:
    """A log that stands around another one and passes on what it does not change."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """As the log says."""
        return self._log.topic_ids(topics)

    def end_offset(self, topic: str, partition: int) -> int:
        """As the log says."""
        return self._log.end_offset(topic, partition)

    def first_offset(self, topic: str, partition: int) -> int:
        """As the log says."""
        return self._log.first_offset(topic, partition)

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> Source:
        """As the log opens it."""
        return self._log.open_source(topics, partition, next_offsets)

    def open_sink(self) -> Sink:
        """As the log opens it."""
        return self._log.open_sink()
