"""Turns records into Avro bytes and back.

A body is plain Avro binary, without a frame. Which schema wrote it travels beside it: the CRC-64-AVRO
fingerprint of the writer's schema, 8 bytes little-endian, in the message header ``avro-fingerprint``. A message without
that header was written with the first released schema of its topic, for ever.

``schemas/released`` holds every schema that was ever released for a topic, as ``<record>.v<number>.avsc``;
the newest one equals the record's own file. A contract test keeps them compatible with each other both ways.
"""

from __future__ import annotations

import dataclasses
import io
import json
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from importlib import resources
from operator import attrgetter
from types import UnionType
from typing import Any, Generic, TypeVar

import fastavro
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from schemas import records

R = TypeVar("R")
JsonSchema = dict[str, Any]
Convert = Callable[[Any], Any]

NAMESPACE = "deepclean"
FINGERPRINT_HEADER = "avro-fingerprint"
INT_MIN, INT_MAX = -(2**31), 2**31 - 1


class DecodeError(ValueError):
    """Bytes that are not a record of the schema they claim: the same bytes will never be one."""


def snake_case(name: str) -> str:
    """File name of a record: ``DeletedEntry`` → ``deleted_entry``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def own_schema(name: str) -> JsonSchema:
    """The schema file of one record or enumeration as it is written, with references by name."""
    text = resources.files("schemas").joinpath("avro", f"{snake_case(name)}.avsc").read_text("utf-8")
    schema: JsonSchema = json.loads(text)
    return schema


def resolved_schema(name: str) -> JsonSchema:
    """The schema of one record with all that it names inside: what other languages and Spark want."""
    return typing.cast(JsonSchema, _inline(own_schema(name), set()))


def _inline(node: Any, seen: set[str]) -> Any:
    if isinstance(node, list):
        return [_inline(branch, seen) for branch in node]
    if isinstance(node, str):
        if not node.startswith(f"{NAMESPACE}.") or node in seen:
            return node
        return _inline(own_schema(node.removeprefix(f"{NAMESPACE}.")), seen)
    if node["type"] == "array":
        return {**node, "items": _inline(node["items"], seen)}
    if node["type"] == "record":
        seen.add(f"{NAMESPACE}.{node['name']}")
        return {
            **node,
            "fields": [{**field, "type": _inline(field["type"], seen)} for field in node["fields"]],
        }
    if node["type"] == "enum":
        seen.add(f"{NAMESPACE}.{node['name']}")
    return node


def released_schemas(name: str) -> Iterator[JsonSchema]:
    """Every released schema of a topic's record, oldest first."""
    folder = resources.files("schemas").joinpath("released")
    for number in range(1, 1000):
        file = folder.joinpath(f"{snake_case(name)}.v{number}.avsc")
        if not file.is_file():
            return
        yield json.loads(file.read_text("utf-8"))


def schema_fingerprint(schema: JsonSchema) -> bytes:
    """CRC-64-AVRO of the parsing canonical form: 8 bytes, little-endian."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


class Codec(Generic[R]):
    """Encodes and decodes one kind of record. Safe to share between threads."""

    def __init__(self, record_class: type[R]) -> None:
        self.record_class = record_class
        self.schema = resolved_schema(record_class.__name__)
        self.fingerprint = schema_fingerprint(self.schema)
        self._parsed: Any = parse_schema(self.schema)
        released = list(released_schemas(record_class.__name__))
        self._writers = {schema_fingerprint(schema): parse_schema(schema) for schema in released}
        self._first = schema_fingerprint(released[0]) if released else self.fingerprint
        self._to_dict = _to_dict(typing.cast("type[Any]", record_class))
        self._from_dict = _from_dict(typing.cast("type[Any]", record_class))

    def encode(self, record: R) -> bytes:
        """Avro binary of a record, written with the newest schema."""
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, self._parsed, self._to_dict(record))
        return buffer.getvalue()

    def decode(self, body: bytes) -> R:
        """The record in Avro bytes that the newest schema wrote.

        Raises:
            DecodeError: the bytes end early or late, or a value is out of its range.
        """
        return self._read(body, self._parsed)

    def decode_message(self, body: bytes, writer: bytes | None) -> R:
        """The record in the body of a message whose header says ``writer`` (None: no header).

        Raises:
            DecodeError: the fingerprint is unknown, or as in ``decode``.
        """
        writer = self._first if writer is None else writer
        if writer == self.fingerprint:
            return self._read(body, self._parsed)
        if writer not in self._writers:
            name = self.record_class.__name__
            raise DecodeError(f"no schema of {name} has the fingerprint {writer.hex()}; is the producer newer?")
        return self._read(body, self._writers[writer])

    def _read(self, body: bytes, writer: Any) -> R:
        # Without a byte behind it a string that is cut short would be read as one that ends in NULs.
        buffer = io.BytesIO(body + b"\0")
        name = self.record_class.__name__
        try:
            if writer is self._parsed:
                read = fastavro.schemaless_reader(
                    buffer, writer, None, return_record_name=True, return_record_name_override=True
                )
            else:
                read = fastavro.schemaless_reader(
                    buffer, writer, self._parsed, return_record_name=True, return_record_name_override=True
                )
            record: R = self._from_dict(read)
        except DecodeError:
            raise
        except Exception as error:  # fastavro raises many kinds for broken bytes
            raise DecodeError(f"not a {name}: {type(error).__name__}: {error}") from error
        if buffer.tell() > len(body):
            raise DecodeError(f"not a {name}: the bytes end early")
        if buffer.tell() < len(body):
            raise DecodeError(f"{len(body) - buffer.tell()} bytes follow after a {name}")
        return record


_CODECS: dict[type[Any], Codec[Any]] = {}


def codec(record_class: type[R]) -> Codec[R]:
    """The codec of a record class, made once."""
    found: Codec[R] | None = _CODECS.get(record_class)
    if found is None:
        found = _CODECS[record_class] = Codec(record_class)
    return found


def _field_types(record_class: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(record_class, vars(records))
    return {field.name: hints[field.name] for field in dataclasses.fields(record_class)}


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _branches(hint: Any) -> list[Any]:
    """Records of a union, without None; empty for any other type."""
    if not isinstance(hint, UnionType):
        return []
    return [branch for branch in typing.get_args(hint) if branch is not type(None)]


def _to_dict(record_class: type[Any]) -> Callable[[Any], dict[str, Any]]:
    """How fastavro wants a record: a dict; of a union of records a pair of name and dict."""
    types = _field_types(record_class)
    names = tuple(types)
    converters = {name: writer for name, hint in types.items() if (writer := _writer(hint)) is not None}
    if len(names) == 1:
        only = names[0]
        convert_only = converters.get(only, lambda value: value)
        return lambda record: {only: convert_only(getattr(record, only))}
    values = attrgetter(*names)
    if not converters:
        return lambda record: dict(zip(names, values(record), strict=True))

    def to_dict(record: Any) -> dict[str, Any]:
        fields = dict(zip(names, values(record), strict=True))
        for name, convert in converters.items():
            fields[name] = convert(fields[name])
        return fields

    return to_dict


def _optional(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _writer(hint: Any) -> Convert | None:
    if _is_record(hint):
        return _to_dict(hint)
    branches = _branches(hint)
    if branches and (len(branches) > 1 or _is_record(branches[0])):
        writers = {branch: (f"{NAMESPACE}.{branch.__name__}", _to_dict(branch)) for branch in branches}

        def write_union(value: Any) -> tuple[str, dict[str, Any]] | None:
            # A named branch spares fastavro the search for the one that fits.
            if value is None:
                return None
            name, convert = writers[type(value)]
            return name, convert(value)

        return write_union
    if typing.get_origin(hint) is tuple:
        inner = _writer(typing.get_args(hint)[0])
        return list if inner is None else lambda value: [inner(item) for item in value]
    return None


def _from_dict(record_class: type[Any]) -> Convert:
    types = _field_types(record_class)
    narrow = [field["name"] for field in own_schema(record_class.__name__)["fields"] if field["type"] == "int"]
    converters = {name: reader for name, hint in types.items() if (reader := _reader(hint)) is not None}
    if not converters and not narrow:
        return lambda fields: record_class(**fields)

    def from_dict(fields: dict[str, Any]) -> Any:
        for name in narrow:
            if not INT_MIN <= fields[name] <= INT_MAX:
                raise DecodeError(f"{record_class.__name__}.{name} is {fields[name]}, beyond 32 bits")
        for name, convert in converters.items():
            fields[name] = convert(fields[name])
        return record_class(**fields)

    return from_dict


def _reader(hint: Any) -> Convert | None:
    if _is_record(hint):
        return _from_dict(hint)
    branches = _branches(hint)
    if len(branches) == 1:
        return _optional(_reader(branches[0]))
    if branches:
        readers: Mapping[str, Callable[[dict[str, Any]], Any]] = {
            f"{NAMESPACE}.{branch.__name__}": _from_dict(branch) for branch in branches
        }
        return lambda value: readers[value[0]](value[1])
    if typing.get_origin(hint) is tuple:
        inner = _reader(typing.get_args(hint)[0])
        return tuple if inner is None else lambda value: tuple([inner(item) for item in value])
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        members = {str(member): member for member in hint}
        return members.__getitem__
    return None
