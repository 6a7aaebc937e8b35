"""The command log up to a bound that can be moved on: nothing beyond it is applied before somebody has looked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.log.port import Log, LogAround, LogRecord, Source


class BoundedLog(LogAround):
    """A log of which one topic is read up to a bound."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.end: int | None = 0
        """Offset before which reading stops; None when there is no bound."""

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> Source:
        """Read up to the bound."""
        return BoundedSource(self, self._log.open_source(topics, partition, next_offsets))


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
        read = [record for record in self._kept[:max_records] if end is None or record.offset < end]
        self._kept = self._kept[len(read) :]
        return read

    def lag(self) -> dict[str, int]:
        """Per topic how many messages lie ahead."""
        return self._source.lag()

    def close(self) -> None:
        """Stop reading."""
        self._source.close()
