"""One-time reads of a partition from one offset to another, independent of the loop's own source."""

from __future__ import annotations

from collections.abc import Iterator

from services.domain.errors import RetryableError
from services.log.port import Log, LogRecord

POLL_SECONDS = 10.0
RECORDS_PER_POLL = 2_000


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
        while first < end:
            records = source.poll(RECORDS_PER_POLL, POLL_SECONDS)
            if not records:
                raise RetryableError(
                    f"{topic}, partition {partition}, did not come from offset {first} on within {POLL_SECONDS:g} "
                    f"seconds: see that the broker runs"
                )
            for record in records:
                first = record.offset + 1
                if first <= end:
                    yield record
    finally:
        source.close()


def all_records(log: Log, topic: str, partition: int) -> Iterator[LogRecord]:
    """Yield the records of a partition from its beginning to its present end; raise as ``records_between`` does."""
    return records_between(log, topic, partition, log.first_offset(topic, partition), log.end_offset(topic, partition))
