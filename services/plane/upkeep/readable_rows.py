"""Keys and rows as a person reads them: text, numbers and names instead of bytes.

A key is shown as it is stored, with ``\\x00`` for a byte that is no printable text, or as ``0x…`` when it begins with a
binary number. Of a row, bytes that hold a message, a row or numbers are decoded, keys become text, and other bytes
hex digits. A secret is never shown: neither its field, nor bytes that might hold one and cannot be decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from schemas import records
from schemas.codec import DecodeError, codec, schema_id_of
from schemas.records import BlockRun, ClaimFacts, KeyHead, RowChange
from schemas.schema_files import NAMESPACE, own_schema, released_versions
from schemas.stored_rows import row_codec
from schemas.topics import TOPICS
from services.metadata.collecting.claims import unpacked_numbers

SECRET = "(secret)"  # noqa: S105  what is shown instead of one
HEX = "0x"
RowDecoder = Callable[[str, bytes], Any]
"""Returns a stored row of a table as a person reads it: for rows inside of messages."""
_FACTS, _NUMBERS = ("ClaimedRow", "facts"), ("ClaimedRow", "numbers")
"""Fields of bytes that hold other records: a ClaimFacts, and a KeyHead without its first field."""
_NOT_IN_NUMBERS = "object_id"


def key_text(key: bytes) -> str:
    """Return a key as text; ``key_bytes`` returns the key again."""
    if key.startswith(b"\0"):
        return HEX + key.hex()
    text = "".join(map(_shown, key.decode("utf-8", "surrogateescape")))
    return text.replace("0", "\\x30", 1) if text.startswith(HEX) else text


def _shown(letter: str) -> str:
    if letter == "\\":
        return "\\\\"
    return (
        letter
        if letter.isprintable()
        else "".join(f"\\x{one:02x}" for one in letter.encode("utf-8", "surrogateescape"))
    )


def key_bytes(text: str) -> bytes:
    """Return the key, or beginning of one, that is shown as this text. Raise ValueError for wrong hex digits."""
    if text.startswith(HEX):
        return bytes.fromhex(text.removeprefix(HEX))
    raw = text.encode("utf-8", "surrogateescape")
    return re.sub(rb"\\(?:(\\)|x([0-9a-f]{2}))", lambda found: found[1] or bytes.fromhex(found[2].decode()), raw)


def readable(record: Any, row_of: RowDecoder) -> dict[str, Any]:
    """Return the fields of a record by name, as JSON can show them."""
    return {name: _value(record, name, getattr(record, name), row_of) for name in _fields(type(record).__name__)}


def field_paths(record_class: type[Any]) -> Iterator[str]:
    """Yield the path of each field of a record as ``readable`` shows it, as in ``key.blocks.container_id``."""
    record = record_class.__name__
    for name in _fields(record):
        yield name
        classes = _record_classes(record, name)
        for one in classes:
            step = f"{name}.{one.__name__}" if len(classes) > 1 else name
            yield from (f"{step}.{path}" for path in field_paths(one))
        if (record, name) == _FACTS:
            yield from (f"{name}.{path}" for path in field_paths(ClaimFacts))
        if (record, name) == _NUMBERS:
            yield from (f"{name}.{path}" for path in field_paths(KeyHead) if path != _NOT_IN_NUMBERS)


def _value(record: Any, name: str, value: Any, row_of: RowDecoder) -> Any:
    if isinstance(value, tuple):
        return [_value(record, name, one, row_of) for one in value]
    if isinstance(value, bytes):
        return _bytes(record, name, value, row_of)
    if isinstance(value, StrEnum):
        return value.value
    if not is_dataclass(value):
        return value
    fields = readable(value, row_of)
    return {type(value).__name__: fields} if len(_record_classes(type(record).__name__, name)) > 1 else fields


def _bytes(record: Any, name: str, value: bytes, row_of: RowDecoder) -> Any:
    if not value:
        return ""
    if _fields(type(record).__name__)[name].get("is_secret"):
        return SECRET
    if name in ("key", "keys") or name.endswith("_key"):
        return key_text(value)
    decode = _DECODERS.get((type(record).__name__, name))
    return decode(record, value, row_of) if decode else value.hex()


def _claim_facts(_: Any, value: bytes, row_of: RowDecoder) -> Any:
    return readable(row_codec(ClaimFacts).decode(value), row_of)


def _claim_numbers(_: Any, value: bytes, row_of: RowDecoder) -> Any:
    birth, size_bytes, *blocks = unpacked_numbers(value)
    fields = readable(KeyHead(0, birth, size_bytes, BlockRun(*blocks)), row_of)
    return {name: one for name, one in fields.items() if name != _NOT_IN_NUMBERS}


def _changed_row(change: RowChange, value: bytes, row_of: RowDecoder) -> Any:
    return row_of(change.table, value)


def _message(_: Any, message: bytes, row_of: RowDecoder) -> Any:
    record_class = _records_of_messages().get(schema_id_of(message))
    try:
        if record_class is not None:
            return {record_class.__name__: readable(codec(record_class).decode_message(message), row_of)}
    except DecodeError:
        pass
    return f"({len(message)} bytes that are no known message)"


_DECODERS: Mapping[tuple[str, str], Callable[[Any, bytes, RowDecoder], Any]] = {
    _FACTS: _claim_facts,
    _NUMBERS: _claim_numbers,
    ("RowChange", "value"): _changed_row,
    ("OutboxRun", "values"): _message,
    ("DeadLetter", "value"): _message,
    ("ClientRow", "reply"): _message,
}
"""What fields of bytes hold, by record and field."""


@cache
def _records_of_messages() -> dict[int | None, type[Any]]:
    """Return the record of each message by the id of its schema."""
    records_of_topics = [topic.record for topic in TOPICS]
    return {one.schema_id: record for record in records_of_topics for one in released_versions(record.__name__)}


@cache
def _fields(record: str) -> Mapping[str, Mapping[str, Any]]:
    return {field["name"]: field for field in own_schema(record)["fields"]}


@cache
def _record_classes(record: str, field: str) -> tuple[type[Any], ...]:
    """Return the classes of the records that a field may hold."""
    avro = _fields(record)[field]["type"]
    avro = avro["items"] if isinstance(avro, dict) else avro
    named = (one.removeprefix(f"{NAMESPACE}.") for one in (avro if isinstance(avro, list) else [avro]))
    classes: list[Any] = [getattr(records, one, None) for one in named]
    return tuple(one for one in classes if isinstance(one, type) and is_dataclass(one))
