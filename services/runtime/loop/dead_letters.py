"""Makes a dead letter of a message that could not be read or applied."""

from __future__ import annotations

from schemas.records import DeadLetter, MessageHeader
from services.domain.dead_letters import contents, shortened
from services.log.port import LogRecord


def dead_letter(service: str, record: LogRecord, error: Exception) -> DeadLetter:
    """The letter: all of the message as it came, or as much as a letter carries and a sentence about the rest."""
    carried = contents(record.value, record.key, _headers(record))
    reason = shortened(_readable(str(error)))
    return DeadLetter(
        service=service,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        error=type(error).__name__,
        message=f"{reason}; {carried.note}" if carried.note else reason,
        fingerprint=record.fingerprint or b"",
        value=carried.value,
        size_bytes=len(record.value),
        key=carried.key,
        headers=carried.headers,
    )


def _headers(record: LogRecord) -> list[MessageHeader]:
    return [MessageHeader(_readable(name), value or b"") for name, value in record.headers]


def _readable(text: str) -> str:
    """Text that can be written as UTF-8: an error may quote what cannot."""
    return text.encode(errors="backslashreplace").decode()
