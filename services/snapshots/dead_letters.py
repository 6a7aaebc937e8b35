"""The dead letters of a shard. A letter is kept until an operator resolves it; its row then names the operator.

A letter is about one message that one service could not apply. The service sends the same letter again when it reads
the message again. The number of a letter is its offset in the topic. Every letter is accepted, whatever it contains:
a refused letter would cause another letter, without end.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.error_codes import ErrorCode
from schemas.records import CountRow, DeadLetter, DeadLetterRow, DeadLetterState, ResolveDeadLetter
from schemas.topics import DEAD_LETTERS
from services.domain.dead_letters import retry_mark
from services.domain.refusals import CommandError
from services.runtime.loop.service import Message, Work
from services.snapshots.metrics import SnapshotsMetrics
from services.snapshots.state.tables import (
    DEAD_LETTER_COUNT_TABLE,
    DEAD_LETTER_PLACE_TABLE,
    DEAD_LETTER_TABLE,
    LETTER_TABLE,
    dead_letter_key,
    dead_letter_place_key,
)

OTHER = "other"
"""Label of letters that name no service of the plane: an unknown sender has written them."""
SOURCES = (*DEAD_LETTERS.producers, OTHER)
MAX_WHO_CHARACTERS, MAX_WHY_CHARACTERS = 128, 1_024


class DeadLetters:
    """Stores letters and their resolutions, in tables only: there may be too many letters for memory."""

    def __init__(self, metrics: SnapshotsMetrics) -> None:
        self._metrics = metrics

    def receive(self, message: Message, letter: DeadLetter, work: Work) -> None:
        """Store a letter. A known letter is ignored: its service has sent it again."""
        places = work.table(DEAD_LETTER_PLACE_TABLE)
        place = dead_letter_place_key(letter)
        if places.get(place) is not None:
            return
        mark = retry_mark(letter.headers)
        row = DeadLetterRow(
            number=message.offset,
            service=letter.service,
            topic=letter.topic,
            partition=letter.partition,
            offset=letter.offset,
            error=letter.error,
            message=letter.message,
            size_bytes=letter.size_bytes,
            is_cut=letter.size_bytes != len(letter.value),
            time_ms=message.timestamp_ms,
            attempts=mark.attempts,
            retry_of=mark.number,
        )
        places.put(place, CountRow(row.number))
        work.table(DEAD_LETTER_TABLE).put(dead_letter_key(row.number), row)
        work.table(LETTER_TABLE).put(dead_letter_key(row.number), letter)
        _count(row, 1, work)

    def resolve(self, command: ResolveDeadLetter, log_time_ms: int, work: Work) -> None:
        """Mark a letter as retried or dropped, and delete its bytes here; the topic keeps them.

        Raises:
            CommandError: DEAD_LETTER_NOT_FOUND, DEAD_LETTER_RESOLVED, INVALID_REQUEST.
        """
        table, key = work.table(DEAD_LETTER_TABLE), dead_letter_key(command.number)
        row = table.get(key)
        if row is None:
            raise CommandError(
                ErrorCode.DEAD_LETTER_NOT_FOUND,
                f"there is no dead letter {work.shard}:{command.number} (deepclean dead-letters list)",
            )
        _check(command)
        if row.state is not DeadLetterState.OPEN:
            raise CommandError(
                ErrorCode.DEAD_LETTER_RESOLVED,
                f"dead letter {work.shard}:{command.number} was {row.state.lower()} by {row.who} before",
            )
        resolved = replace(
            row, state=command.state, who=command.who, reason=command.reason, resolved_time_ms=log_time_ms
        )
        table.put(key, resolved)
        work.table(LETTER_TABLE).delete(key)
        _count(row, -1, work)

    def report(self, work: Work) -> None:
        """Set the gauge of open letters."""
        table = work.table(DEAD_LETTER_COUNT_TABLE)
        for source in SOURCES:
            row = table.get(source.encode())
            self._metrics.dead_letters_open.labels(str(work.shard), source).set(row.count if row else 0)


def _count(row: DeadLetterRow, difference: int, work: Work) -> None:
    """Add ``difference`` to the number of open letters of a letter's service."""
    source = row.service if row.service in DEAD_LETTERS.producers else OTHER
    table = work.table(DEAD_LETTER_COUNT_TABLE)
    before = table.get(source.encode())
    table.put(source.encode(), CountRow((before.count if before else 0) + difference))


def _check(command: ResolveDeadLetter) -> None:
    if command.state is DeadLetterState.OPEN:
        raise CommandError(ErrorCode.INVALID_REQUEST, "a dead letter is RETRIED or DROPPED; it is not opened again")
    if not command.who or (command.state is DeadLetterState.DROPPED and not command.reason):
        raise CommandError(ErrorCode.INVALID_REQUEST, "say who deals with it, and why it is dropped")
    if len(command.who) > MAX_WHO_CHARACTERS or len(command.reason) > MAX_WHY_CHARACTERS:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"who has at most {MAX_WHO_CHARACTERS} characters and the reason {MAX_WHY_CHARACTERS}",
        )
