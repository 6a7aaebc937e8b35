"""The command log up to a bound that can be moved on: nothing beyond it is applied before somebody has looked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.runtime.log import Log, LogRecord, Sink, Source


class BoundedLog:
    """A log of which one topic is read up to a bound."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.end: int | None = 0
        """Offset before which reading stops; None when there is no bound."""

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """The ids of topics."""
        return self._log.topic_ids(topics)

    def end_offset(self, topic: str, partition: int) -> int:
        """Where a partition really ends."""
        return self._log.end_offset(topic, partition)

    def first_offset(self, topic: str, partition: int) -> int:
        """Where a partition really begins."""
        return self._log.first_offset(topic, partition)

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> Source:
        """Read up to the bound."""
        return BoundedSource(self, self._log.open_source(topics, partition, next_offsets))

    def open_sink(self) -> Sink:
        """A sink of its own."""
        return self._log.open_sink()


class BoundedSource:
    """Hands out records below the bound, and keeps those beyond it for later."""

    def __init__(self, log: BoundedLog, source: Source) -> None:
        self._log = log
        self._source = source
        self._kept: list[LogRecord] = []

    def poll(self, max_records: int, timeout_seconds: float) -> list[LogRecord]:
        """Next records below the bound."""
        if not self._kept:
            polled = self._source.poll(max_records, timeout_seconds)
            if self._log.end is None:
                return polled
            self._kept = polled
        end = self._log.end
        taken = [record for record in self._kept[:max_records] if end is None or record.offset < end]
        self._kept = self._kept[len(taken) :]
        return taken

    def lag(self) -> dict[str, int]:
        """Per topic how many messages lie ahead."""
        return self._source.lag()

    def close(self) -> None:
        """Stop reading."""
        self._source.close()
