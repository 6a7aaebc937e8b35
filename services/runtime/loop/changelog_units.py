"""How a unit of work travels through a changelog: in parts, each a message, that are whole again when they are read.

What an earlier start has sent late, what was sent twice and what was cut off is left out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain

import structlog

from schemas.codec import DecodeError, codec
from schemas.records import OutboxRun, RowChange, StateChange
from services.domain.errors import RetryableError
from services.log.port import LogRecord
from services.runtime.loop.service import OutgoingMessage, Work

PART_BYTES = 1024 * 1024
BEGINNING = -1
"""Part of the beginning of a start."""
_DIGEST_BYTES = 16
_ITEM_BYTES = 32
"""What a row or a message takes in a part beside its bytes and names, at most."""

SentChange = tuple[StateChange, bytes, int]
"""A change, the bytes that told it, which are what a digest is over, and its offset."""

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class Unit:
    """What one unit of work has changed and said."""

    number: int
    previous: bytes = b""
    digest: bytes = b""
    rows: list[RowChange] = field(default_factory=list)
    messages: list[OutboxRun] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Base:
    """A place in the topic from which on it can be read: units up to a number are before it."""

    offset: int = 0
    number: int = 0
    start: str = ""


def digest_of(values: Iterable[bytes]) -> bytes:
    """What the next unit names this one by, of the bytes of its parts."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for value in values:
        digest.update(value)
    return digest.digest()


def row_changes(work: Work) -> Iterator[RowChange]:
    """What a unit of work writes and removes."""
    for table, rows in work.encoded().items():
        for key, value in rows.items():
            yield RowChange(table, key, value is None, value or b"")


def runs_of(messages: Iterable[OutgoingMessage]) -> Iterator[OutboxRun]:
    """What a unit of work says, one by one."""
    for topic, fingerprint, value in messages:
        yield OutboxRun(topic, fingerprint, (value,))


def _size_bytes(one: RowChange | OutboxRun) -> int:
    if isinstance(one, RowChange):
        return _ITEM_BYTES + len(one.table) + len(one.key) + len(one.value)
    return _ITEM_BYTES + len(one.topic) + len(one.fingerprint) + sum(map(len, one.values))


def parts_of(start: str, unit: Unit, rows: Iterable[RowChange], messages: Iterable[OutboxRun]) -> Iterator[StateChange]:
    """A unit in messages of ``PART_BYTES`` at most; what is larger by itself is alone."""
    taken: tuple[list[RowChange], list[OutboxRun]] = [], []
    index = size_bytes = 0
    everything: Iterator[RowChange | OutboxRun] = chain(rows, messages)
    for one in everything:
        if size_bytes and size_bytes + _size_bytes(one) > PART_BYTES:
            yield StateChange(start, unit.number, unit.previous, index, False, tuple(taken[0]), tuple(taken[1]))
            taken, size_bytes, index = ([], []), 0, index + 1
        if isinstance(one, RowChange):
            taken[0].append(one)
        else:
            taken[1].append(one)
        size_bytes += _size_bytes(one)
    yield StateChange(start, unit.number, unit.previous, index, True, tuple(taken[0]), tuple(taken[1]))


def decoded(records: Iterable[LogRecord]) -> Iterator[SentChange]:
    """What the topic holds that can be read."""
    decode = codec(StateChange).decode_message
    for record in records:
        try:
            yield decode(record.value, record.fingerprint), record.value, record.offset
        except DecodeError as error:
            logger.warning("left out of the changelog", topic=record.topic, offset=record.offset, reason=str(error))


def up_to(start: str, changes: Iterable[SentChange]) -> Iterator[SentChange]:
    """Yield the changes that were sent before the beginning of a start.

    Raises:
        RetryableError: it does not count, since that of another start has come before it; or it is not there.
    """
    for sent in changes:
        if sent[0].part == BEGINNING and sent[0].start == start:
            return
        yield sent
    raise RetryableError("the beginning of this start is not in its changelog, or came too late: the start is retried")


def in_force(base: Base, changes: Iterable[SentChange]) -> Iterator[SentChange]:
    """Beginnings that count, and what was told by the start that is under way; by any as long as none is known."""
    start, begun_at = base.start, base.offset
    for sent in changes:
        change, _, offset = sent
        if change.part == BEGINNING:
            if change.number < begun_at:
                continue  # of an earlier one, which has not seen the one that is under way
            start, begun_at = change.start, offset + 1
        elif start not in ("", change.start):
            continue  # of an earlier one, which was still on its way
        yield sent


def whole_units(changes: Iterable[SentChange]) -> Iterator[Unit]:
    """Units that are there with all parts. One that was cut off begins again, or never existed."""
    unit, values = Unit(0), list[bytes]()
    for change, value, _ in changes:
        if change.number == unit.number and change.part in range(len(values)) and value == values[change.part]:
            continue  # sent again amid its own unit: what follows is of the first time
        if change.part == 0:
            if change.number < unit.number:
                continue  # sent again amid a later one
            unit, values = Unit(change.number, change.previous), []
        if change.number != unit.number or change.part != len(values):
            continue
        unit.rows += change.rows
        unit.messages += change.messages
        values.append(value)
        if change.is_last:
            unit.digest = digest_of(values)
            yield unit
            unit, values = Unit(unit.number), []
