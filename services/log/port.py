"""The log interface of the services: sources that read partitions, sinks that publish.

Two implementations: ``kafka`` over a broker and ``memory_log`` for the simulator and for runs within one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""Largest message, such as a batch of rows with all their blocks; topics need the same ``max.message.bytes``."""
MAX_LETTER_MESSAGE_BYTES = 9 * 1024 * 1024
"""Largest dead letter, which contains the message and its error."""

MAX_CHANGE_MESSAGE_BYTES = 10 * 1024 * 1024
"""Largest changelog message: a changed row may contain a dead letter."""


Headers = Sequence[tuple[str, bytes | None]]


class LogRecord(NamedTuple):
    """One message as the log holds it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Log append time."""
    value: bytes
    key: bytes = b""
    headers: Headers = ()
    """All headers as received."""


class Source(Protocol):
    """Reads one partition of some topics from given positions on."""

    def poll(self, max_records: int, timeout_seconds: float) -> list[LogRecord]:
        """Return the next messages, in the order of each partition; none if none arrive within the time.

        A busy source may wait some hundredths of a second longer, to return more messages at once.

        Raises:
            PositionError: a position is outside its partition.
        """

    def end(self, topic: str) -> int | None:
        """Ask where what can be read of a topic ends; None if the log does not answer within half a second."""

    def positions(self) -> dict[str, int]:
        """Return the offset per topic before which nothing is left to return.

        It may be beyond the last message that was returned: control records, which end transactions,
        have offsets, too. Compare an end offset with this, not with the offset of a message.
        """

    def lag(self) -> dict[str, int]:
        """Return the number of unread messages per topic, as far as the source knows."""

    def close(self) -> None:
        """Stop reading."""


class Sink(Protocol):
    """Publishes in order, each message at least once.

    A sink with an owner's name is fenced: once another one is opened with this name, it can publish nothing more, even
    if its process was paused meanwhile. Readers get its messages shortly after they are flushed, and before any that
    were sent after the flush.

    ``send`` and ``flush`` raise FencedError if that has happened, and StartAgainError if only a new sink can go on.
    """

    def send(self, topic: str, partition: int, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        """Send a message; the log may not have it yet when this returns."""

    def start_flush(self) -> None:
        """Begin a flush without waiting for it; errors are raised by ``flush`` or the next ``send``."""

    def flush(self) -> None:
        """Wait until the log has acknowledged all that was sent.

        Raises:
            RetryableError: some messages may be missing; send all of them again.
        """

    def close(self) -> None:
        """Stop publishing."""


class Log(Protocol):
    """The log as a whole."""

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the topic's id, which differs from that of a recreated topic of the same name."""

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the settings of each topic, by Kafka's names; none for a log that keeps everything."""

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset that the next message of a partition will get."""

    def first_offset(self, topic: str, partition: int) -> int:
        """Return the offset of the oldest message that is left; the end offset when there is none."""

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> Source:
        """Open a source of one partition of some topics, each from its position on."""

    def open_sink(self, owner: str = "") -> Sink:
        """Open a new sink; with an owner, such as ``metadata.0``, it fences the earlier sinks of this owner.

        Raises:
            RetryableError: the log did not answer.
        """


class DatedLog(Log, Protocol):
    """A log in which a time is found."""

    def offset_since(self, topic: str, partition: int, time_ms: int) -> int:
        """Return the offset of the first message appended at a time or later; the end offset when there is none."""


class LogAround:
    """A log that wraps another one; subclasses override the methods that they change."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """As the wrapped log."""
        return self._log.topic_ids(topics)

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """As the wrapped log."""
        return self._log.topic_settings(topics)

    def end_offset(self, topic: str, partition: int) -> int:
        """As the wrapped log."""
        return self._log.end_offset(topic, partition)

    def first_offset(self, topic: str, partition: int) -> int:
        """As the wrapped log."""
        return self._log.first_offset(topic, partition)

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> Source:
        """As the wrapped log."""
        return self._log.open_source(topics, partition, next_offsets)

    def open_sink(self, owner: str = "") -> Sink:
        """As the wrapped log."""
        return self._log.open_sink(owner)
