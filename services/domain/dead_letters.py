"""What a dead letter carries of the message that it is about, and how a message that was sent again is known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.records import MessageHeader

RETRY_HEADER = "dead-letter-retry"
"""Header of a message that was sent again from a dead letter."""
MAX_LETTER_BYTES = 8 * 1024 * 1024 + 64 * 1024
"""Original bytes, key and headers of one letter: any message that a topic of the plane takes, which is 8 MiB, fits."""
MAX_REASON_CHARACTERS = 4_096
"""An error may quote what it is about: no more of it is kept, since the bytes are there."""

_MARK = re.compile(rb"(\d{1,9}):(\d{1,18})")


@dataclass(frozen=True, slots=True)
class RetryMark:
    """Says of a message how often it was sent again, and from which letter the last time."""

    attempts: int
    number: int
    """The letter's offset in the shard's partition of dead-letters; -1 for a message that was never sent again."""


FIRST_TIME = RetryMark(0, -1)


@dataclass(frozen=True, slots=True)
class Contents:
    """What goes into a letter."""

    value: bytes
    key: bytes
    headers: tuple[MessageHeader, ...]
    note: str
    """What does not, in words; empty when all of it goes in."""


def contents(value: bytes, key: bytes, headers: Sequence[MessageHeader], max_bytes: int = MAX_LETTER_BYTES) -> Contents:
    """As much of a message as a letter carries: all of it, or else as many of its first bytes as fit, and a note."""
    surrounding = len(key) + sum(len(header.name.encode()) + len(header.value) for header in headers)
    if surrounding + len(value) <= max_bytes:
        return Contents(value, key, tuple(headers), "")
    notes = []
    if surrounding > max_bytes // 2:
        notes.append(f"its key and headers, {surrounding} bytes, are not here")
        key, headers, surrounding = b"", (), 0
    kept = value[: max_bytes - surrounding]
    if len(kept) < len(value):
        notes.append(f"only the first {len(kept)} of its {len(value)} bytes are here")
    return Contents(kept, key, tuple(headers), "; ".join(notes))


def shortened(reason: str) -> str:
    """An error in words, no longer than a letter or an answer takes."""
    if len(reason) <= MAX_REASON_CHARACTERS:
        return reason
    return f"{reason[:MAX_REASON_CHARACTERS]}… ({len(reason)} characters)"


def mark_header(mark: RetryMark) -> MessageHeader:
    """The header of a message that is sent again."""
    return MessageHeader(RETRY_HEADER, b"%d:%d" % (mark.attempts, mark.number))


def retry_mark(headers: Sequence[MessageHeader]) -> RetryMark:
    """What the headers of a message say; a mark that nobody here has made counts as none."""
    for header in reversed(headers):
        if header.name == RETRY_HEADER and (found := _MARK.fullmatch(header.value)):
            return RetryMark(int(found[1]), int(found[2]))
    return FIRST_TIME
