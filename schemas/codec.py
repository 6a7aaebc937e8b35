"""Turns records into Avro bytes and back.

A body is plain Avro binary, without a frame. Which schema wrote it travels beside it: the CRC-64-AVRO
fingerprint of the writer's schema, 8 bytes little-endian, in the message header ``avro-fingerprint``. A message without
that header was always written with the first released schema of its topic.

``schemas/released`` holds every schema that was ever released for a topic, as ``<record>.v<number>.avsc``;
the newest one equals the record's own file. A contract test keeps them compatible with each other both ways.
"""

from __future__ import annotations

import io
import json
import typing
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Generic, TypeVar

import fastavro
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from schemas import avro_binary, records
from schemas.avro_binary import Array, Boolean, Bytes, DecodeError, Enumeration, Int, Kind, Long, Record, String, Union

__all__ = ["DecodeError"]  # for those who decode

R = TypeVar("R")
JsonSchema = dict[str, Any]
Fields = dict[str, Any]

NAMESPACE = "deepclean"
FINGERPRINT_HEADER = "avro-fingerprint"
_PRIMITIVES: dict[str, type[Kind]] = {"long": Long, "string": String, "boolean": Boolean, "bytes": Bytes}


def snake_case(name: str) -> str:
    """File name of a record: ``DeletedEntry`` → ``deleted_entry``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def own_schema(name: str) -> JsonSchema:
    """The schema file of one record or enumeration as it is written, with references by name."""
    schema: JsonSchema = json.loads(_schema_files()[f"{snake_case(name)}.avsc"].read_text("utf-8"))
    return schema


@cache
def _schema_files() -> dict[str, Traversable]:
    """Every schema file by its name, which no two folders share."""
    return {
        file.name: file for folder in resources.files("schemas").joinpath("avro").iterdir() for file in folder.iterdir()
    }


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
    """Yield every released schema of a topic's record, oldest first."""
    folder = resources.files("schemas").joinpath("released")
    for number in range(1, 1000):
        file = folder.joinpath(f"{snake_case(name)}.v{number}.avsc")
        if not file.is_file():
            return
        yield json.loads(file.read_text("utf-8"))


def schema_fingerprint(schema: JsonSchema) -> bytes:
    """Return the CRC-64-AVRO of the parsing canonical form: 8 bytes, little-endian."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


class Codec(Generic[R]):
    """Encodes and decodes one kind of record. Safe to share between threads."""

    def __init__(self, record_class: type[R]) -> None:
        self.record_class = record_class
        self.schema = resolved_schema(record_class.__name__)
        self.fingerprint = schema_fingerprint(self.schema)
        self._kind = _record_kind(record_class)
        released = list(released_schemas(record_class.__name__))
        self._writers: dict[bytes, Any] = {schema_fingerprint(schema): parse_schema(schema) for schema in released}
        self._first = schema_fingerprint(released[0]) if released else self.fingerprint

    def encode(self, record: R) -> bytes:
        """Return the Avro binary of a record, written with the newest schema."""
        return avro_binary.write_all(self._kind, record)

    def encode_fields(self, fields: Fields) -> bytes:
        """Avro binary of a record given as all its fields: where a record would only be made to be encoded."""
        return avro_binary.write_fields(self._kind, fields)

    def encode_around(self, first: bytes, rest: Fields) -> bytes:
        """Avro binary of a record whose first field is encoded already; ``rest`` are the others by name.

        In Avro a record is its fields, one after the other: what was read is passed on as it is.
        """
        return avro_binary.write_around(self._kind, first, rest)

    def encode_before_last(self, fields: Fields) -> bytes:
        """Avro binary of a record up to its last field, which is encoded already and goes behind it.

        Raises:
            TypeError: these are not all fields but one, the last: a record that begins so would be broken.
        """
        *names, last = self._kind.names
        if fields.keys() != set(names):
            raise TypeError(f"{self.record_class.__name__} ends with {last}, behind {names} and not {list(fields)}")
        return avro_binary.write_fields(Record(self.record_class, names, self._kind.kinds[:-1]), fields)

    def decode_head(self, body: bytes, start: int = 0) -> R:
        """The record whose fields are the first ones in some longer record's bytes, from one of them on.

        Raises:
            DecodeError: the bytes end early, or a value is out of its range.
        """
        try:
            record: R = avro_binary.read_all(self._kind, body, start)[0]
        except DecodeError as error:
            raise self._not_one(error) from error
        return record

    def decode(self, body: bytes, start: int = 0) -> R:
        """The record in Avro bytes that the newest schema wrote, from one of them on.

        Raises:
            DecodeError: the bytes end early or late, or a value is out of its range.
        """
        try:
            found: tuple[R, int] = avro_binary.read_all(self._kind, body, start)
        except DecodeError as error:
            raise self._not_one(error) from error
        record, length = found
        if length < len(body):
            raise DecodeError(f"{len(body) - length} bytes follow after a {self.record_class.__name__}")
        return record

    def decode_message(self, body: bytes, writer: bytes | None) -> R:
        """The record in the body of a message whose header says ``writer`` (None: no header).

        Raises:
            DecodeError: the fingerprint is unknown, or as in ``decode``.
        """
        writer = self._first if writer is None else writer
        if writer == self.fingerprint:
            return self.decode(body)
        if writer not in self._writers:
            name = self.record_class.__name__
            raise DecodeError(f"no schema of {name} has the fingerprint {writer.hex()}; is the producer newer?")
        return self.decode(self.rewritten(body, self._writers[writer]))

    def rewritten(self, body: bytes, writer: Any) -> bytes:
        """The bytes of an older schema as the newest one writes them, by Avro's rules of resolution.

        Raises:
            DecodeError: the bytes are not a record of the older schema.
        """
        newest = parse_schema(self.schema)
        # Without a byte behind it a string that is cut short would be read as one that ends in NULs.
        source, target = io.BytesIO(body + b"\0"), io.BytesIO()
        try:
            fields: Any = fastavro.schemaless_reader(source, writer, newest, return_record_name=True)
            fastavro.schemaless_writer(target, newest, fields)
        except (MemoryError, OSError):
            raise  # not caused by the bytes
        except Exception as error:  # fastavro raises many kinds for broken bytes
            raise DecodeError(f"not a {self.record_class.__name__}: {type(error).__name__}: {error}") from error
        if source.tell() != len(body):
            raise DecodeError(f"{len(body)} bytes are none of an older {self.record_class.__name__}")
        return target.getvalue()

    def _not_one(self, error: DecodeError) -> DecodeError:
        return DecodeError(f"not a {self.record_class.__name__}: {error}")


_CODECS: dict[type[Any], Codec[Any]] = {}


def codec(record_class: type[R]) -> Codec[R]:
    """Return the codec of a record class; it is created once."""
    found: Codec[R] | None = _CODECS.get(record_class)
    if found is None:
        found = _CODECS[record_class] = Codec(record_class)
    return found


def _record_kind(record_class: type[Any]) -> Record:
    """How a record is read and written: its fields as the schema lists them."""
    fields = own_schema(record_class.__name__)["fields"]
    kinds = [_kind(field["type"], f"{record_class.__name__}.{field['name']}") for field in fields]
    return Record(record_class, [field["name"] for field in fields], kinds)


def _kind(avro: Any, label: str) -> Kind:
    """How a value of an Avro type is read and written."""
    if isinstance(avro, list):
        classes = [None if branch == "null" else _class_of(branch) for branch in avro]
        return Union(classes, [None if one is None else _record_kind(one) for one in classes])
    if isinstance(avro, dict):
        return Array(_kind(avro["items"], label))
    if avro == "int":
        return Int(label)
    if avro in _PRIMITIVES:
        return _PRIMITIVES[avro]()
    named = _class_of(avro)
    return Enumeration(list(named)) if issubclass(named, StrEnum) else _record_kind(named)


def _class_of(name: str) -> type[Any]:
    """The class of a record or enumeration that a schema names in full."""
    found: type[Any] = getattr(records, name.removeprefix(f"{NAMESPACE}."))
    return found
