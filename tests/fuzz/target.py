"""What a target is: something that takes any bytes, and raises when what it plays with them breaks a promise."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from schemas.codec import codec
from schemas.records import BlockGroups, DeletedEntries, RowNames
from services.domain.row_columns import ColumnsError, block_groups, deleted_entries, row_names
from tests.interpreted_codec import interpreted, interpreted_kind

T = TypeVar("T")
Play = Callable[[bytes], bool]
"""Plays one input; False when it says nothing to this target, so that it is not worth keeping."""


class PromiseError(AssertionError):
    """An input has broken a promise."""


@dataclass(frozen=True, slots=True)
class Target:
    """One way in."""

    name: str
    prepare: Callable[[], Play]
    """Makes what inputs are played on; an input leaves nothing behind for the next one."""
    seeds: Callable[[], Iterable[bytes]]
    """Real inputs, to begin with."""
    words: Callable[[], Iterable[bytes]] = tuple
    """What inputs are made of, for a fuzzer to put in."""
    most_bytes: int = 1_024


@contextmanager
def replaced(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Attributes that have another value meanwhile."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for owner, name, value in places:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def checksum(name: str) -> int:
    """Two bytes by which an input chooses a name."""
    return zlib.crc32(name.encode()) & 0xFFFF


def chosen(names: Sequence[str], number: int) -> str:
    """The name whose checksum is nearest: with a name more or less, nearly all inputs mean what they meant."""
    return min(names, key=lambda name: checksum(name) ^ number)


def check_record(record_class: type[Any], body: bytes) -> bool:
    """Read a record with both decoders, and write it again; whether it is one.

    Raises:
        PromiseError: the decoders disagree, or what was read is not what is written.
    """
    pure: Any = interpreted()
    encoder, kind = codec(record_class), interpreted_kind(record_class)
    try:
        read, length = pure.read_all(kind, body)
        found: Any = read if length == len(body) else None
    except pure.DecodeError:
        found = None
    try:
        record = encoder.decode(body)
    except ValueError as error:
        check_refusal(error)
        record = None
    if record != found:
        raise PromiseError(f"the decoders of {record_class.__name__} disagree: {record!r} and, interpreted, {found!r}")
    if record is None:
        return False
    check_written(record, pure.write_all(kind, record))
    return True


def check_refusal(error: ValueError) -> None:
    """What is no record is refused by one kind of error, with few words.

    Raises:
        PromiseError: it is of another kind, or says as much as the bytes are.
    """
    if type(error).__name__ != "DecodeError":
        raise PromiseError(f"refused with {type(error).__name__}") from error
    if len(str(error)) > 10_000:
        raise PromiseError(f"refused with {len(str(error))} characters") from error


def check_written(record: Any, expected: bytes | None = None) -> None:
    """A record that was read is written, and read again as the same; its lists are taken apart or refused."""
    encoder: Any = codec(type(record))
    encoded = encoder.encode(record)
    if expected is not None and encoded != expected:
        raise PromiseError(f"the encoders disagree about {record!r}")
    if encoder.decode(encoded) != record:
        raise PromiseError(f"{record!r} is read as {encoder.decode(encoded)!r} when it was written")
    for value in (record, *(getattr(record, name) for name in type(record).__slots__)):
        try:
            _take_apart(value)
        except ColumnsError:
            continue


def _take_apart(value: Any) -> None:
    match value:
        case DeletedEntries():
            deleted_entries(value)
        case RowNames():
            row_names([value])
        case BlockGroups():
            block_groups(value)
