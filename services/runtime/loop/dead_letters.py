"""Build a dead letter from a message that could not be decoded or applied."""

from __future__ import annotations

from schemas.records import DeadLetter, MessageHeader
from services.domain.dead_letters import contents, shortened
from services.log.port import LogRecord


def dead_letter(service: str, record: LogRecord, error: Exception) -> DeadLetter:
    """Return the dead letter. A message that is too large is shortened, and the letter's text says so."""
    headers = [MessageHeader(_readable(name), value or b"") for name, value in record.headers]
    carried = contents(record.value, record.key, headers)
    reason = shortened(_readable(str(error)))
    return DeadLetter(
        service=service,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        error=type(error).__name__,
        message=f"{reason}; {carried.note}" if carried.note else reason,
        value=carried.value,
        size_bytes=len(record.value),
        key=carried.key,
        headers=carried.headers,
    )


def _readable(text: str) -> str:
    """Return text that UTF-8 can encode: an error may quote characters that it cannot."""
    return text.encode(errors="backslashreplace").decode()
