"""Turns the partition and bucket of a manifest entry into the directory of its files.

A manifest has the partition as a row in Paimon's binary form: the number of fields as four bytes, big-endian; then,
little-endian, one byte of row kind and the null bits, filled up to eight bytes; eight bytes for each field; and behind
them what does not fit into eight bytes.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from services.lens.paimon.metadata import Column, PaimonError, SchemaFile

POSTPONE_BUCKET = -2
_EPOCH = date(1970, 1, 1)
_INTEGERS = {"TINYINT": 1, "SMALLINT": 2, "INT": 4, "INTEGER": 4, "BIGINT": 8}
_ESCAPED = frozenset(map(chr, range(0x20))) | frozenset("\"#%'*/:=?\\\x7f{}[]^")
_INLINE = 0x80
_COMPACT_DECIMAL_DIGITS = 18
_COMPACT_TIMESTAMP_DIGITS = 3


def bucket_directory(schema: SchemaFile, partition: bytes, bucket: int) -> str:
    """Return the directory of a bucket, relative to the table, as ``dt=2026-01-01/bucket-0``.

    Raises:
        PaimonError: the partition has a column of a type that is not known here, or is damaged.
    """
    try:
        columns = schema.partition_columns
        names = [
            f"{_escaped(column.name)}={_escaped(_name(schema, column, partition, index, len(columns)))}"
            for index, column in enumerate(columns)
        ]
    except (KeyError, IndexError, ValueError, OverflowError):  # too short, no text, a date beyond all calendars
        raise PaimonError(
            f"The partition {partition.hex()} in a manifest does not fit the table's partition keys, "
            f"{', '.join(schema.partition_keys)}: the manifest or the newest schema is damaged; restore it."
        ) from None
    root = schema.options.get("data-file.path-directory", "").strip("/")
    return "/".join([*filter(None, [root]), *names, f"bucket-{'postpone' if bucket == POSTPONE_BUCKET else bucket}"])


def _name(schema: SchemaFile, column: Column, partition: bytes, index: int, count: int) -> str:
    is_legacy = schema.options.get("partition.legacy-name", "true").lower() == "true"
    row = memoryview(partition)[4:]
    bit = index + 8
    if row[bit // 8] >> (bit % 8) & 1:
        value = ""
    else:
        place = (count + 63 + 8) // 64 * 8 + 8 * index
        if len(row) < place + 8:
            raise IndexError("a field is missing")
        value = _text(column, row, place, is_legacy=is_legacy)
    return value if value.strip() else schema.options.get("partition.default-name", "__DEFAULT_PARTITION__")


def _text(column: Column, row: memoryview, place: int, *, is_legacy: bool) -> str:
    kind, digits, scale = _type(column)
    if kind in ("CHAR", "VARCHAR", "STRING"):
        return str(_bytes(row, place), "utf-8")
    if kind == "BOOLEAN":
        return "true" if row[place] else "false"
    if kind in _INTEGERS:
        return str(int.from_bytes(row[place : place + _INTEGERS[kind]], "little", signed=True))
    if kind == "DATE":
        days = int.from_bytes(row[place : place + 4], "little", signed=True)
        return str(days) if is_legacy else (_EPOCH + timedelta(days=days)).isoformat()
    if kind == "DECIMAL":
        if digits <= _COMPACT_DECIMAL_DIGITS:
            unscaled = int.from_bytes(row[place : place + 8], "little", signed=True)
        else:
            unscaled = int.from_bytes(_bytes(row, place), "big", signed=True)
        return _decimal(unscaled, scale)
    if kind == "TIMESTAMP" and is_legacy:
        return _timestamp(row, place, digits)
    raise PaimonError(
        f"The table is partitioned by {column.name} of type {column.type}, whose directories are not known here: "
        f"ask for this type in an issue."
    )


def _type(column: Column) -> tuple[str, int, int]:
    """Return the name of a type, its digits and its scale."""
    parts = re.match(r"([A-Z]+)(?:\((\d+)(?:, *(\d+))?\))?(.*)", str(column.type))
    if parts is None or "TIME ZONE" in parts[4]:
        return str(column.type), 0, 0
    digits = {"DECIMAL": 10, "TIMESTAMP": 6}.get(parts[1], 0)
    return parts[1], int(parts[2] or digits), int(parts[3] or 0)


def _bytes(row: memoryview, place: int) -> memoryview:
    """Return the bytes of a text or a long number: at most seven stand in the field itself."""
    if row[place + 7] & _INLINE:
        return row[place : place + (row[place + 7] & 0x7F)]
    size = int.from_bytes(row[place : place + 4], "little")
    offset = int.from_bytes(row[place + 4 : place + 8], "little")
    if len(row) < offset + size:
        raise IndexError("a text is cut short")
    return row[offset : offset + size]


def _decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    whole = digits if scale == 0 else f"{digits[:-scale]}.{digits[-scale:]}"
    return f"-{whole}" if unscaled < 0 else whole


def _timestamp(row: memoryview, place: int, digits: int) -> str:
    """Return a local time in Java's shortest form: seconds, and thousandths of them, only if they are not zero."""
    nanoseconds = 0
    if digits > _COMPACT_TIMESTAMP_DIGITS:
        nanoseconds = int.from_bytes(row[place : place + 4], "little")
        offset = int.from_bytes(row[place + 4 : place + 8], "little")
        place = offset
        if len(row) < place + 8:
            raise IndexError("a time is cut short")
    time_ms = int.from_bytes(row[place : place + 8], "little", signed=True)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    fraction = f"{moment.microsecond * 1000 + nanoseconds:09d}"
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    seconds = f":{moment.second:02d}" if moment.second or fraction else ""
    return f"{moment:%Y-%m-%dT%H:%M}{seconds}{'.' if fraction else ''}{fraction}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in text)
