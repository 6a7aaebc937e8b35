"""Reads of dead letters: a page of them, newest first; their counts; one with its bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from schemas.answers import DeadLetterBytes, DeadLetterCount, DeadLetterHeader
from schemas.error_codes import ErrorCode
from schemas.records import DeadLetterRow, DeadLetterState
from services.domain.refusals import CommandError
from services.snapshots.state.tables import DEAD_LETTER_TABLE, LETTER_TABLE, dead_letter_key
from services.storage.tables import Tables


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter of letters; an empty string matches any value."""

    service: str = ""
    topic: str = ""
    error: str = ""
    since_ms: int = 0
    with_resolved: bool = False

    def has(self, row: DeadLetterRow) -> bool:
        """Return whether a letter matches."""
        return (
            (self.with_resolved or row.state is DeadLetterState.OPEN)
            and self.service in ("", row.service)
            and self.topic in ("", row.topic)
            and self.error in ("", row.error)
            and row.time_ms >= self.since_ms
        )


def list_letters(
    tables: Tables, wanted: Wanted, start_after: int | None = None, limit: int = 1_000
) -> list[DeadLetterRow]:
    """Return at most ``limit`` letters, newest first, older than the one numbered ``start_after``."""
    start = b"" if start_after is None else dead_letter_key(start_after) + b"\0"
    found = []
    for _, row in tables.table(DEAD_LETTER_TABLE).scan(start):
        if wanted.has(row):
            found.append(row)
            if len(found) >= limit:
                break
    return found


def count_letters(tables: Tables, wanted: Wanted) -> list[DeadLetterCount]:
    """Return the number of letters for each service, topic, error and state."""
    rows = tables.table(DEAD_LETTER_TABLE).scan()
    counted = Counter((row.service, row.topic, row.error, row.state) for _, row in rows if wanted.has(row))
    return [DeadLetterCount(*kind, count) for kind, count in sorted(counted.items())]


def letter_bytes(tables: Tables, number: int) -> DeadLetterBytes:
    """Return one letter; with its bytes only while it is open.

    Raises:
        CommandError: DEAD_LETTER_NOT_FOUND.
    """
    key = dead_letter_key(number)
    row = tables.table(DEAD_LETTER_TABLE).get(key)
    if row is None:
        raise CommandError(
            ErrorCode.DEAD_LETTER_NOT_FOUND, f"there is no dead letter {number} (deepclean dead-letters list)"
        )
    letter = tables.table(LETTER_TABLE).get(key)
    if letter is None:
        return DeadLetterBytes(row, has_bytes=False)
    headers = tuple([DeadLetterHeader(header.name, header.value.hex()) for header in letter.headers])
    return DeadLetterBytes(row, True, letter.value.hex(), letter.key.hex(), headers)
