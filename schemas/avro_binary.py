"""Avro's binary encoding, straight between bytes and records.

A tree of kinds, one for each type in a schema, reads and writes values without anything in between. The module is plain
Python that runs as it is; ``make setup`` compiles it with mypyc where there is a C compiler, which makes it several
times as fast (docs/decisions/0021). Only annotations that both understand are used: ``i64`` is an ``int`` that stays
within 64 bits.

What may come from outside is read without trust: no length is believed before the bytes are there.
"""

from __future__ import annotations

from typing import Any, Final

from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
_new: Final[Any] = object.__new__


class DecodeError(ValueError):
    """Bytes that are not a record of the schema they claim: the same bytes will never be one."""


class Source:
    """Bytes that are being read, and how far they are."""

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data
        self.at: i64 = 0
        self.end: i64 = len(data)


def _read_long(source: Source) -> i64:
    """A number of up to 64 bits: seven in each byte, the least first, its sign in the lowest bit."""
    data = source.data
    at = source.at
    end = source.end
    if at >= end:
        raise DecodeError("the bytes end early")
    byte: i64 = data[at]
    at += 1
    bits: i64 = byte & 0x7F
    shift: i64 = 7
    while byte & 0x80:
        if at >= end:
            raise DecodeError("the bytes end early")
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            raise DecodeError("a number has more than 64 bits")
        bits |= (byte & 0x7F) << shift
        shift += 7
    source.at = at
    return ((bits >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(bits & 1)


def _whole(value: Any) -> i64:
    """A number of up to 64 bits: asked by making it an ``i64``, which is cheaper than comparing it, and by comparing it
    where nothing is compiled.
    """
    try:
        number: i64 = value
    except ValueError as error:
        raise OverflowError(f"{value} has more than 64 bits") from error
    if not LONG_MIN <= number <= LONG_MAX:
        raise OverflowError(f"{number} has more than 64 bits")
    return number


def _write_long(out: BytesWriter, number: i64) -> None:
    """Its bytes are put together in one word, and written at once: to append one takes 15 ns, since it is made a Python
    number for it. A word takes seven of them, so that it is never negative.
    """
    bits: i64 = (number << 1) ^ (number >> 63)
    word: i64 = 0
    shift: i64 = 0
    while bits & -0x80:
        word |= ((bits & 0x7F) | 0x80) << shift
        bits = (bits >> 7) & 0x01FFFFFFFFFFFFFF
        shift += 8
        if shift == 56:
            write_i64_le(out, word)
            out.truncate(len(out) - 1)
            word = shift = 0
    write_i64_le(out, word | bits << shift)
    out.truncate(len(out) - 7 + (shift >> 3))


def _read_sized(source: Source) -> bytes:
    """As many bytes as the number before them says."""
    length = _read_long(source)
    begin = source.at
    if length < 0 or length > source.end - begin:
        raise DecodeError("the bytes end early")
    source.at = begin + length
    return source.data[begin : source.at]


class Kind:
    """One type of a schema."""

    def read(self, source: Source) -> object:
        """The next value.

        Raises:
            DecodeError: the bytes are none.
        """
        raise NotImplementedError

    def write(self, value: Any, out: BytesWriter) -> None:
        """Append a value.

        Raises:
            Exception: the value is none of this type, or out of its range.
        """
        raise NotImplementedError


class Long(Kind):
    """``long``: 64 bits."""

    def read(self, source: Source) -> object:
        return _read_long(source)

    def write(self, value: Any, out: BytesWriter) -> None:
        _write_long(out, _whole(value))


class Int(Kind):
    """``int``: 32 bits."""

    def __init__(self, label: str) -> None:
        self.label = label

    def read(self, source: Source) -> object:
        number = _read_long(source)
        if number < INT_MIN or number > INT_MAX:
            raise DecodeError(f"{self.label} is {number}, beyond 32 bits")
        return number

    def write(self, value: Any, out: BytesWriter) -> None:
        number = _whole(value)
        if not INT_MIN <= number <= INT_MAX:
            raise OverflowError(f"{self.label} is {number}, beyond 32 bits")
        _write_long(out, number)


class Boolean(Kind):
    """``boolean``: one byte."""

    def read(self, source: Source) -> object:
        at = source.at
        if at >= source.end:
            raise DecodeError("the bytes end early")
        byte: i64 = source.data[at]
        if byte > 1:
            raise DecodeError(f"{byte} is neither true nor false")
        source.at = at + 1
        return byte == 1

    def write(self, value: Any, out: BytesWriter) -> None:
        is_true: bool = value
        out.append(1 if is_true else 0)


class String(Kind):
    """``string``: UTF-8."""

    def read(self, source: Source) -> object:
        try:
            return _read_sized(source).decode("utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(f"a text is no UTF-8: {error}") from error

    def write(self, value: Any, out: BytesWriter) -> None:
        text: str = value
        encoded = text.encode("utf-8")
        _write_long(out, len(encoded))
        out.write(encoded)


class Bytes(Kind):
    """``bytes``."""

    def read(self, source: Source) -> object:
        return _read_sized(source)

    def write(self, value: Any, out: BytesWriter) -> None:
        data: bytes = value
        _write_long(out, len(data))
        out.write(data)


class Enumeration(Kind):
    """``enum``: members that are also strings."""

    def __init__(self, members: list[Any]) -> None:
        self.members = members
        self.numbers: dict[str, int] = {str(member): number for number, member in enumerate(members)}

    def read(self, source: Source) -> object:
        number = _read_long(source)
        if number < 0 or number >= len(self.members):
            raise DecodeError(f"there is no symbol {number}")
        return self.members[number]

    def write(self, value: Any, out: BytesWriter) -> None:
        _write_long(out, self.numbers[value])


class Array(Kind):
    """``array``: a tuple. Its items take a byte at least, so that the bytes bound how many there are."""

    def __init__(self, item: Kind) -> None:
        self.item = item

    def read(self, source: Source) -> object:
        item = self.item
        values: list[object] = []
        while True:
            count = _read_long(source)
            if count == 0:
                return tuple(values)
            if count < 0:  # the size of the block follows, for whoever wants to skip it
                count = -count
                _read_long(source)
            if count < 0 or count > source.end - source.at:
                raise DecodeError("the bytes end early")
            while count > 0:
                values.append(item.read(source))
                count -= 1

    def write(self, value: Any, out: BytesWriter) -> None:
        items: tuple[Any, ...] = value
        item = self.item
        if items:
            _write_long(out, len(items))
            for one in items:
                item.write(one, out)
        out.append(0)


class Record(Kind):
    """``record``: its fields, one after the other.

    Records are frozen dataclasses with slots. Their slots are filled directly: ``__init__`` takes three times as long,
    since it asks ``object.__setattr__`` for each field, and most of what is read is made of nothing else.
    """

    def __init__(self, record_class: type[Any], names: list[str], kinds: list[Kind]) -> None:
        self.record_class: Any = record_class
        self.names = names
        self.kinds = kinds
        self.fills: list[Any] = [getattr(record_class, name).__set__ for name in names]

    def read(self, source: Source) -> object:
        record = _new(self.record_class)
        kinds = self.kinds
        for number, fill in enumerate(self.fills):
            fill(record, kinds[number].read(source))
        return record

    def write(self, value: Any, out: BytesWriter) -> None:
        kinds = self.kinds
        for number, name in enumerate(self.names):
            kinds[number].write(getattr(value, name), out)

    def write_fields(self, fields: dict[str, Any], first: int, out: BytesWriter) -> None:
        """Append fields by their names, from one on."""
        for number in range(first, len(self.names)):
            self.kinds[number].write(fields[self.names[number]], out)


class Union(Kind):
    """A union of records and null."""

    def __init__(self, record_classes: list[type[Any] | None], branches: list[Kind | None]) -> None:
        self.branches = branches
        self.numbers: dict[type[Any], int] = {
            type(None) if kind is None else kind: number for number, kind in enumerate(record_classes)
        }

    def read(self, source: Source) -> object:
        number = _read_long(source)
        if number < 0 or number >= len(self.branches):
            raise DecodeError(f"there is no branch {number}")
        branch = self.branches[number]
        return None if branch is None else branch.read(source)

    def write(self, value: Any, out: BytesWriter) -> None:
        number = self.numbers[type(value)]
        _write_long(out, number)
        branch = self.branches[number]
        if branch is not None:
            branch.write(value, out)


def read_all(kind: Kind, data: bytes, start: i64 = 0) -> tuple[Any, int]:
    """The value that begins at one of some bytes, and the number of the byte behind it.

    Raises:
        DecodeError: there is none.
    """
    source = Source(data)
    source.at = start
    value = kind.read(source)
    return value, source.at


def write_all(kind: Kind, value: Any) -> bytes:
    """The bytes of a value."""
    out = BytesWriter()
    kind.write(value, out)
    return out.getvalue()


def write_fields(kind: Record, fields: dict[str, Any]) -> bytes:
    """The bytes of a record that is given as its fields."""
    out = BytesWriter()
    kind.write_fields(fields, 0, out)
    return out.getvalue()


def write_around(kind: Record, first: bytes, rest: dict[str, Any]) -> bytes:
    """The bytes of a record whose first field is encoded already."""
    out = BytesWriter()
    out.write(first)
    kind.write_fields(rest, 1, out)
    return out.getvalue()
