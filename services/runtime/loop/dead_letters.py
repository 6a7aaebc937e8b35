"""Build a dead letter from a message that could not be decoded or applied."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from schemas.codec import DecodeError, codec
from schemas.records import DeadLetter, MessageHeader
from schemas.topics import BY_NAME
from services.domain.dead_letters import contents, shortened
from services.log.port import LogRecord


def dead_letter(service: str, record: LogRecord, error: Exception) -> DeadLetter:
    """Return the dead letter. It has no secret, and only the beginning of a message that is too large, and says so."""
    is_secret = _holds_secret(record)
    headers = [MessageHeader(_readable(name), value or b"") for name, value in record.headers]
    carried = contents(b"" if is_secret else record.value, record.key, headers)
    note = "the message holds a secret, and is left out" if is_secret else carried.note
    reason = shortened(_readable(str(error)))
    return DeadLetter(
        service=service,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        error=type(error).__name__,
        message=f"{reason}; {note}" if note else reason,
        value=carried.value,
        size_bytes=len(record.value),
        key=carried.key,
        headers=carried.headers,
    )


def _holds_secret(record: LogRecord) -> bool:
    """Return whether a message can be decoded and its body has a secret. No class shows its secrets."""
    topic = BY_NAME.get(record.topic)
    if topic is None:
        return False
    try:
        body: Any = getattr(codec(topic.record).decode_message(record.value), "body", None)
    except DecodeError:
        return False
    return is_dataclass(body) and any(not one.repr and getattr(body, one.name) for one in fields(body))


def _readable(text: str) -> str:
    """Return text that UTF-8 can encode: an error may quote characters that it cannot."""
    return text.encode(errors="backslashreplace").decode()
