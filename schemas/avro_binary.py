"""Avro's binary encoding: converts directly between bytes and records.

A tree of kinds, one for each type in a schema, reads and writes values without an intermediate form. The module runs as
plain Python; where there is a C compiler, ``make setup`` compiles it with mypyc, which makes it several times as fast
(docs/decisions/0021). It uses only annotations that Python and mypyc both understand: ``i64`` is an ``int`` that stays
within 64 bits.

The bytes may come from an untrusted sender: every length is checked against the bytes that are left.
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
    """The bytes are not a record of their schema; decoding them again fails, too."""


class Source:
    """Bytes to read, and the index of the next one."""

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data
        self.at: i64 = 0
        self.end: i64 = len(data)


def _read_long(source: Source) -> i64:
    """Return the next number, of at most 64 bits: seven bits per byte, the least significant first, zigzag-encoded."""
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
    """Return a number of at most 64 bits. Compiled, the conversion to ``i64`` checks the range; in plain Python the
    comparison does.
    """
    try:
        number: i64 = value
    except ValueError as error:
        raise OverflowError(f"{value} has more than 64 bits") from error
    if not LONG_MIN <= number <= LONG_MAX:
        raise OverflowError(f"{number} has more than 64 bits")
    return number


def _write_long(out: BytesWriter, number: i64) -> None:
    """Append a number. Its bytes are collected in a word and written together: appending a single byte takes 15 ns,
    because the byte is converted to a Python number. A word takes seven bytes, so that it is never negative.
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
    """Return the next bytes, whose length precedes them."""
    length = _read_long(source)
    begin = source.at
    if length < 0 or length > source.end - begin:
        raise DecodeError("the bytes end early")
    source.at = begin + length
    return source.data[begin : source.at]


class Kind:
    """One type of a schema."""

    def read(self, source: Source) -> object:
        """Return the next value.

        Raises:
            DecodeError: the bytes are not a value of this type.
        """
        raise NotImplementedError

    def write(self, value: Any, out: BytesWriter) -> None:
        """Append a value.

        Raises:
            Exception: the value is not of this type, or out of its range.
        """
        raise NotImplementedError

    def number_paths(self) -> list[str]:
        """Return a name for each number that ``read_numbers`` appends: the path of its field."""
        return []

    def read_numbers(self, source: Source, out: list[BytesWriter], column: i64) -> i64:  # noqa: ARG002  a number uses it
        """Append each number of the next value to a column, from ``column`` on, and return the column behind the last
        one. What is no number is skipped.

        Raises:
            DecodeError: the bytes are not a value of this type.
        """
        self.read(source)
        return column


class Number(Kind):
    """A value that is one number in a column."""

    def number_paths(self) -> list[str]:
        return [""]

    def read_numbers(self, source: Source, out: list[BytesWriter], column: i64) -> i64:
        value: Any = self.read(source)
        number: i64 = value
        write_i64_le(out[column], number)
        return column + 1


class Long(Number):
    """``long``: 64 bits."""

    def read(self, source: Source) -> object:
        return _read_long(source)

    def read_numbers(self, source: Source, out: list[BytesWriter], column: i64) -> i64:
        write_i64_le(out[column], _read_long(source))
        return column + 1

    def write(self, value: Any, out: BytesWriter) -> None:
        _write_long(out, _whole(value))


class Int(Number):
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


class Boolean(Number):
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

    def read_numbers(self, source: Source, out: list[BytesWriter], column: i64) -> i64:  # noqa: ARG002  it is skipped
        length = _read_long(source)
        if length < 0 or length > source.end - source.at:
            raise DecodeError("the bytes end early")
        source.at += length
        return column

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
    """``array``: a tuple. Each item takes at least one byte, so the number of bytes limits the number of items."""

    def __init__(self, item: Kind) -> None:
        self.item = item

    def read(self, source: Source) -> object:
        item = self.item
        values: list[object] = []
        while True:
            count = _read_long(source)
            if count == 0:
                return tuple(values)
            if count < 0:  # the size of the block follows, for readers that skip it
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

    Records are frozen dataclasses with slots. ``read`` fills the slots directly: ``__init__`` takes three times as
    long, because it calls ``object.__setattr__`` for each field, and most values are records.
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

    def number_paths(self) -> list[str]:
        kinds = self.kinds
        paths = [(name, path) for place, name in enumerate(self.names) for path in kinds[place].number_paths()]
        return [f"{name}.{path}" if path else name for name, path in paths]

    def read_numbers(self, source: Source, out: list[BytesWriter], column: i64) -> i64:
        for kind in self.kinds:
            column = kind.read_numbers(source, out, column)
        return column

    def write(self, value: Any, out: BytesWriter) -> None:
        kinds = self.kinds
        for number, name in enumerate(self.names):
            kinds[number].write(getattr(value, name), out)

    def write_fields(self, fields: dict[str, Any], out: BytesWriter) -> None:
        """Append the fields of a record, given by name."""
        kinds = self.kinds
        for number, name in enumerate(self.names):
            kinds[number].write(fields[name], out)


class Union(Kind):
    """A union of records and null. Of one record and null, there is a number that says whether it is there."""

    def __init__(self, record_classes: list[type[Any] | None], branches: list[Kind | None]) -> None:
        self.branches = branches
        self.numbers: dict[type[Any], int] = {
            type(None) if kind is None else kind: number for number, kind in enumerate(record_classes)
        }
        kinds = [branch for branch in branches if branch is not None]
        self.only: Kind | None = kinds[0] if len(kinds) == 1 and len(branches) == 2 else None
        self.width: i64 = 1 + len(self.only.number_paths()) if self.only is not None else 0

    def read(self, source: Source) -> object:
        number = _read_long(source)
        if number < 0 or number >= len(self.branches):
            raise DecodeError(f"there is no branch {number}")
        branch = self.branches[number]
        return None if branch is None else branch.read(source)

    def number_paths(self) -> list[str]:
        only = self.only
        return [] if only is None else ["", *only.number_paths()]

    def read_numbers(self, source: Source, out: list[BytesWriter], column: i64) -> i64:
        only = self.only
        if only is None:
            self.read(source)
            return column
        number = _read_long(source)
        if number < 0 or number >= len(self.branches):
            raise DecodeError(f"there is no branch {number}")
        is_there = self.branches[number] is not None
        write_i64_le(out[column], 1 if is_there else 0)
        if is_there:
            return only.read_numbers(source, out, column + 1)
        for following in range(1, self.width):
            write_i64_le(out[column + following], 0)
        return column + self.width

    def write(self, value: Any, out: BytesWriter) -> None:
        number = self.numbers[type(value)]
        _write_long(out, number)
        branch = self.branches[number]
        if branch is not None:
            branch.write(value, out)


def read_all(kind: Kind, data: bytes, start: i64 = 0) -> tuple[Any, int]:
    """Return the value that begins at index ``start``, and the index of the byte behind the value.

    Raises:
        DecodeError: the bytes are not a value of this kind.
    """
    source = Source(data)
    source.at = start
    value = kind.read(source)
    return value, source.at


def read_numbers(kind: Kind, rows: list[bytes], start: i64) -> list[bytes]:
    """Return the numbers of many values as columns: each has 8 bytes a value, the least significant first.

    This takes a tenth of the time of reading the values one by one: no objects are made.

    Raises:
        DecodeError: some bytes, from index ``start`` on, are not exactly one value of this kind.
    """
    out = [BytesWriter() for _ in kind.number_paths()]
    source = Source(b"")
    for row in rows:
        source.data = row
        source.at = start
        source.end = len(row)
        kind.read_numbers(source, out, 0)
        if source.at != source.end:
            raise DecodeError(f"{source.end - source.at} bytes follow")
    return [column.getvalue() for column in out]


def write_all(kind: Kind, value: Any) -> bytes:
    """Return the encoded value."""
    out = BytesWriter()
    kind.write(value, out)
    return out.getvalue()


def write_fields(kind: Record, fields: dict[str, Any]) -> bytes:
    """Return an encoded record, given its fields by name."""
    out = BytesWriter()
    kind.write_fields(fields, out)
    return out.getvalue()
