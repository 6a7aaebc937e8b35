"""One-time reads of a partition from one offset to another, independent of the loop's own source."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from services.domain.errors import RetryableError
from services.log.port import Log, LogRecord

POLL_SECONDS = 10.0
RECORDS_PER_POLL = 2_000
FURTHER_BACK = 16
"""How much further back each attempt looks for the last record."""


def records_between(log: Log, topic: str, partition: int, first: int, end: int) -> Iterator[LogRecord]:
    """Yield the records of a partition from offset ``first`` up to ``end`` (exclusive).

    Raises:
        PositionError: ``first`` is outside the partition.
        RetryableError: no records arrive within ``POLL_SECONDS``.
    """
    if first >= end:
        return
    source = log.open_source([topic], partition, {topic: first})
    try:
        while (position := source.positions()[topic]) < end:
            records = source.poll(RECORDS_PER_POLL, POLL_SECONDS)
            if not records and source.positions()[topic] == position:
                raise RetryableError(
                    f"{topic}, partition {partition}, did not come from offset {position} on within {POLL_SECONDS:g} "
                    f"seconds: see that the broker runs"
                )
            yield from (record for record in records if record.offset < end)
    finally:
        source.close()


def all_records(log: Log, topic: str, partition: int) -> Iterator[LogRecord]:
    """Yield the records of a partition from its beginning to its present end; raise as ``records_between`` does."""
    return records_between(log, topic, partition, log.first_offset(topic, partition), log.end_offset(topic, partition))


def last_record(log: Log, topic: str, partition: int, end: int | None = None) -> LogRecord | None:
    """Return the last record of a partition, or before an offset; None if none is left. Raise as ``records_between``.

    Behind it there may be control records, one for each transaction.
    """
    first = log.first_offset(topic, partition)
    end = log.end_offset(topic, partition) if end is None else end
    back = 1
    while first < end:
        begin = max(first, end - back)
        if found := deque(records_between(log, topic, partition, begin, end), maxlen=1):
            return found[0]
        if begin == first:
            return None
        back *= FURTHER_BACK
    return None


def end_of_records(log: Log, topic: str, partition: int) -> int:
    """Return the offset behind the last record of a partition; that of the first one if none is left."""
    last = last_record(log, topic, partition)
    return log.first_offset(topic, partition) if last is None else last.offset + 1
