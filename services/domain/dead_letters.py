"""The part of a message that a dead letter contains, and the header that marks a message sent again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.records import MessageHeader

RETRY_HEADER = "dead-letter-retry"
"""Header of a message that was sent again from a dead letter."""
MAX_LETTER_BYTES = 8 * 1024 * 1024 + 64 * 1024
"""Maximum bytes of the original value, key and headers in one letter. Topics accept messages of at most 8 MiB, so every
message fits."""
MAX_REASON_CHARACTERS = 4_096
"""Maximum length of the error text. An error may quote the message, whose bytes the letter has anyway."""

_MARK = re.compile(rb"(\d{1,9}):(\d{1,18})")


@dataclass(frozen=True, slots=True)
class RetryMark:
    """How often a message was sent again, and from which letter the last time."""

    attempts: int
    number: int
    """The letter's offset in the shard's partition of dead-letters; -1 for a message that was never sent again."""


FIRST_TIME = RetryMark(0, -1)


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a letter."""

    value: bytes
    key: bytes
    headers: tuple[MessageHeader, ...]
    note: str
    """The left-out parts, in words; empty when the letter has the whole message."""


def contents(value: bytes, key: bytes, headers: Sequence[MessageHeader], max_bytes: int = MAX_LETTER_BYTES) -> Contents:
    """Return the part of a message that fits into a letter: all of it, or its first bytes and a note."""
    surrounding = len(key) + sum(len(header.name.encode()) + len(header.value) for header in headers)
    if surrounding + len(value) <= max_bytes:
        return Contents(value, key, tuple(headers), "")
    notes = []
    if surrounding > max_bytes // 2:
        notes.append(f"its key and headers, {surrounding} bytes, are left out")
        key, headers, surrounding = b"", (), 0
    kept = value[: max_bytes - surrounding]
    if len(kept) < len(value):
        notes.append(f"only the first {len(kept)} of its {len(value)} bytes are kept")
    return Contents(kept, key, tuple(headers), "; ".join(notes))


def shortened(reason: str) -> str:
    """Return an error text, cut to ``MAX_REASON_CHARACTERS``."""
    if len(reason) <= MAX_REASON_CHARACTERS:
        return reason
    return f"{reason[:MAX_REASON_CHARACTERS]}… ({len(reason)} characters)"


def mark_header(mark: RetryMark) -> MessageHeader:
    """Return the header of a message that is sent again."""
    return MessageHeader(RETRY_HEADER, b"%d:%d" % (mark.attempts, mark.number))


def retry_mark(headers: Sequence[MessageHeader]) -> RetryMark:
    """Return the retry mark in a message's headers. A malformed mark counts as none."""
    for header in reversed(headers):
        if header.name == RETRY_HEADER and (found := _MARK.fullmatch(header.value)):
            return RetryMark(int(found[1]), int(found[2]))
    return FIRST_TIME
