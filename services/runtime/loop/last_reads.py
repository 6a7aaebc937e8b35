"""Notices that the log holds something else where a service has read: it has lost its tail and has grown again.

A position alone does not tell, once there are as many records again as were lost. So the last record that was read of
each input is remembered with the position, and a source is opened one record earlier: what comes first must be that
record, and is not handed out again. It costs neither another request nor another reader.
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
    """What was read at an offset."""

    offset: int
    read: LastRead


def last_read(record: LogRecord) -> LastRead:
    """What is remembered of a record."""
    return LastRead(record.timestamp_ms, crc32(record.value))


class CheckedSource:
    """A source that was opened one record before each position of ``read``; it hands out what comes behind."""

    def __init__(self, source: Source, read: Mapping[str, ReadRecord], who: str) -> None:
        self._source = source
        self._read = dict(read)
        self._who = who

    def poll(self, max_records: int, timeout_seconds: float) -> list[LogRecord]:
        """Next messages, in the order of each partition; empty when there are none within the time.

        Raises:
            PositionError: the log does not hold what was read of it, or a position is outside its partition.
        """
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
                f"{self._who}: what was read of {record.topic} at offset {known.offset} is not what it holds there "
                f"now: the broker has lost its tail and has taken in others since; restore it, or go on without "
                f"(deepclean accept-lost-tail)"
            )
        return True

    def lag(self) -> dict[str, int]:
        """Per topic how many messages lie ahead, as far as the source knows."""
        return {topic: max(0, ahead - (topic in self._read)) for topic, ahead in self._source.lag().items()}

    def close(self) -> None:
        """Stop reading."""
        self._source.close()
