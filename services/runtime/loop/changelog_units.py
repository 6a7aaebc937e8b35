"""Units of work in a changelog: a unit is split into parts, one message each, and is put together again when read.

The reading functions leave out late messages of an earlier start, duplicates and units that were cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain

import structlog

from schemas import formats
from schemas.codec import DecodeError, codec
from schemas.records import OutboxRun, RowChange, StateChange
from services.domain.errors import RetryableError
from services.log.port import LogRecord
from services.runtime.loop.service import OutgoingMessage, Work
from services.storage.store import BEYOND, Store

PART_BYTES = 1024 * 1024
BEGINNING = -1
"""Part number of a message that is the beginning of a start."""
_DIGEST_BYTES = 16
_ITEM_BYTES = 32
"""Most bytes that a row or a message takes in a part beside its bytes and names."""

SentChange = tuple[StateChange, bytes, int]
"""A change, its encoded bytes, over which the digest is computed, and its offset."""

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class Unit:
    """The rows that one unit of work has changed, and its messages."""

    number: int
    previous: bytes = b""
    digest: bytes = b""
    rows: list[RowChange] = field(default_factory=list)
    messages: list[OutboxRun] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Base:
    """An offset at which reading may begin: the units up to ``number`` are before it."""

    offset: int = 0
    number: int = 0
    start: str = ""


def digest_of(values: Iterable[bytes]) -> bytes:
    """Return the digest of a unit, given the bytes of its parts; the next unit holds it."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for value in values:
        digest.update(value)
    return digest.digest()


def row_changes(work: Work) -> Iterator[RowChange]:
    """Yield the rows that a unit of work writes or removes."""
    for table, rows in work.encoded().items():
        for key, value in rows.items():
            yield RowChange(table, key, value is None, value or b"")


def later_schemas(store: Store) -> Iterator[RowChange]:
    """Yield the rows of a database with schemas that not every program knows."""
    for key, schema in store.scan(formats.FAMILY, formats.SCHEMAS_OF_ROWS, BEYOND):
        if not formats.is_first(key):
            yield RowChange(formats.FAMILY, key, False, schema)


def runs_of(messages: Iterable[OutgoingMessage]) -> Iterator[OutboxRun]:
    """Yield the messages of a unit of work, one per run."""
    for topic, value, key in messages:
        yield OutboxRun(topic, (value,), (key,) if key else ())


def _size_bytes(one: RowChange | OutboxRun) -> int:
    if isinstance(one, RowChange):
        return _ITEM_BYTES + len(one.table) + len(one.key) + len(one.value)
    return _ITEM_BYTES + len(one.topic) + sum(map(len, one.values)) + sum(map(len, one.keys))


def parts_of(start: str, unit: Unit, rows: Iterable[RowChange], messages: Iterable[OutboxRun]) -> Iterator[StateChange]:
    """Yield the parts of a unit, at most ``PART_BYTES`` each; a larger row or message has a part of its own."""
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
    """Yield the changes of the records; log a warning for a record that cannot be decoded."""
    decode = codec(StateChange).decode_message
    for record in records:
        try:
            yield decode(record.value), record.value, record.offset
        except DecodeError as error:
            logger.warning("left out of the changelog", topic=record.topic, offset=record.offset, reason=str(error))


def up_to(start: str, changes: Iterable[SentChange]) -> Iterator[SentChange]:
    """Yield the changes that were sent before the beginning of a start.

    Raises:
        RetryableError: the beginning is missing, or is not valid because that of another start precedes it.
    """
    for sent in changes:
        if sent[0].part == BEGINNING and sent[0].start == start:
            return
        yield sent
    raise RetryableError("the beginning of this start is not in its changelog, or came too late: the start is retried")


def in_force(base: Base, changes: Iterable[SentChange]) -> Iterator[SentChange]:
    """Yield the valid beginnings and the changes of the start that they begin; of every start before the first one."""
    start, begun_at = base.start, base.offset
    for sent in changes:
        change, _, offset = sent
        if change.part == BEGINNING:
            if change.number < begun_at:
                continue  # its start had not seen the present beginning
            start, begun_at = change.start, offset + 1
        elif start not in ("", change.start):
            continue  # a late message of an earlier start
        yield sent


def whole_units(changes: Iterable[SentChange]) -> Iterator[Unit]:
    """Yield the units whose parts are all present. A unit that was cut off is sent again from part 0, or is dropped."""
    unit, values = Unit(0), list[bytes]()
    for change, value, _ in changes:
        if change.number == unit.number and change.part in range(len(values)) and value == values[change.part]:
            continue  # a duplicate within its own unit: the first copy goes on after it
        if change.part == 0:
            if change.number < unit.number:
                continue  # a duplicate within a later unit
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
