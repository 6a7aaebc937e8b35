"""The command log up to a movable bound. No record beyond the bound is applied until the caller moves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.log.port import Log, LogAround, LogRecord, Source


class BoundedLog(LogAround):
    """A log whose sources end at a bound."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.end: int | None = 0
        """Offset before which reading stops; None when there is no bound."""

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> Source:
        """Read up to the bound."""
        return BoundedSource(self, self._log.open_source(topics, partition, next_offsets))


class BoundedSource:
    """Returns records below the bound, and keeps those beyond it for later."""

    def __init__(self, log: BoundedLog, source: Source) -> None:
        self._log = log
        self._source = source
        self._kept: list[LogRecord] = []

    def poll(self, max_records: int, timeout_seconds: float) -> list[LogRecord]:
        """Return the next records below the bound."""
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
        """Return the number of unread messages of each topic."""
        return self._source.lag()

    def close(self) -> None:
        """Stop reading."""
        self._source.close()
