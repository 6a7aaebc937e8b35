"""Detects that the log has lost its tail and has grown again beyond a service's position.

The position alone cannot show this once the log is as long as before. So the last record read of each input is stored
with the position, and a source is opened one record earlier: its first record must equal the stored one, and is not
returned again. The check needs no further request and no further reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from schemas.records import LastRead
from services.domain.errors import PositionError
from services.log.port import LogRecord, Source


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """The record that was read at an offset."""

    offset: int
    read: LastRead


def last_read(record: LogRecord) -> LastRead:
    """Return the log append time and the checksum of a record."""
    return LastRead(record.timestamp_ms, crc32(record.value))


class CheckedSource:
    """A source that was opened at the offsets of ``read``; it checks those records and returns the ones behind them."""

    def __init__(self, source: Source, read: Mapping[str, ReadRecord], who: str) -> None:
        self._source = source
        self.close = source.close
        self.end = source.end
        self._read = dict(read)
        self._who = who

    def poll(self, max_records: int, timeout_seconds: float) -> list[LogRecord]:
        """As ``Source.poll``. Raise PositionError, too, if the log holds another record at a checked offset."""
        records = self._source.poll(max_records, timeout_seconds)
        while self._read and records:
            if new := [record for record in records if not self._was_read(record)]:
                return new
            records = self._source.poll(max_records, timeout_seconds)
        return records

    def _was_read(self, record: LogRecord) -> bool:
        known = self._read.pop(record.topic, None)
        if known is None:
            return False
        if (record.offset, last_read(record)) != (known.offset, known.read):
            raise PositionError(
                f"{self._who}: {record.topic} now holds another record at offset {known.offset} than the one that was "
                f"read there: the broker has lost its tail and has stored other records since; restore the topic, or "
                f"accept the loss (deepclean accept-lost-tail)"
            )
        return True

    def positions(self) -> dict[str, int]:
        """As ``Source.positions``."""
        return self._source.positions()

    def lag(self) -> dict[str, int]:
        """Return per topic the number of unread messages, as far as the source knows."""
        return {topic: max(0, ahead - (topic in self._read)) for topic, ahead in self._source.lag().items()}
