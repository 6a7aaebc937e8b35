"""Turns records into Avro bytes and back.

A *body* is plain Avro binary. A *message* is five bytes and a body: a zero byte, and the id of the schema that wrote
the body, 4 bytes, most significant first. Consumers that use a Confluent-compatible schema registry read such messages
as they are (docs/decisions/0039).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TypeVar

import fastavro
from fastavro.schema import parse_schema

from schemas import avro_binary, published, records
from schemas.avro_binary import Array, Boolean, Bytes, DecodeError, Enumeration, Int, Kind, Long, Record, String, Union
from schemas.oldest_frames import BODY, oldest_writers
from schemas.schema_files import NAMESPACE, own_schema, released_versions, resolved_schema

__all__ = ["DecodeError"]  # for those who decode

R = TypeVar("R")
Fields = dict[str, Any]

FRAME_BYTES = 5
"""What a message has before its body."""
MAX_SCHEMA_ID = 2**32 - 1
_MAGIC = 0
_PRIMITIVES: dict[str, type[Kind]] = {"long": Long, "string": String, "boolean": Boolean, "bytes": Bytes}


def frame(schema_id: int) -> bytes:
    """Return the bytes before the body of a message that the schema with this id has written."""
    return bytes([_MAGIC]) + schema_id.to_bytes(4, "big")


def schema_id_of(message: bytes) -> int | None:
    """Return the id in a message's frame; None when the message has no frame."""
    if len(message) < FRAME_BYTES or message[0] != _MAGIC:
        return None
    return int.from_bytes(message[1:FRAME_BYTES], "big")


class Codec(Generic[R]):
    """Encodes and decodes one kind of record. Safe to share between threads."""

    def __init__(self, record_class: type[R]) -> None:
        self.record_class = record_class
        self.schema = resolved_schema(record_class.__name__)
        self._kind = _record_kind(record_class)
        versions = released_versions(record_class.__name__)
        self._writers: dict[int, Any] = {one.schema_id: parse_schema(one.schema) for one in versions}
        self.frame = frame(versions[-1].schema_id) if versions else b""
        """The five bytes before each body in a message; none for a record that is not released."""
        self.first_frame = frame(versions[0].schema_id) if versions else b""
        """The same of the first version of the schema."""
        oldest = oldest_writers(versions)
        self._frames = {_class_of(name): frame(schema_id) for name, schema_id in oldest.items()}
        self._same = {
            frame(one.schema_id): frozenset(_class_of(name) for name, first in oldest.items() if first <= one.schema_id)
            for one in versions[:-1]
            if oldest
        }
        """For the frame of each older version the bodies that it writes as the newest does."""

    def encode(self, record: R) -> bytes:
        """Return the Avro binary of a record, written with the newest schema."""
        return avro_binary.write_all(self._kind, record)

    def encode_message(self, record: R) -> bytes:
        """Return a message: the frame, and the body of a record.

        The frame names the oldest version that writes the same bytes, so that a message which uses nothing new is read
        by programs that know nothing newer.
        """
        body = avro_binary.write_all(self._kind, record)
        if not self._frames:
            return self.frame + body
        return self._frames[type(getattr(record, BODY))] + body

    def message_of_fields(self, fields: Fields) -> bytes:
        """Return a message as ``encode_message`` does, of a record without bodies given as all its fields."""
        if self._frames:
            raise TypeError(f"the frame of a {self.record_class.__name__} depends on its body: encode the record")
        return self.frame + avro_binary.write_fields(self._kind, fields)

    def encode_fields(self, fields: Fields) -> bytes:
        """Avro binary of a record given as all its fields: where a record would only be made to be encoded."""
        return avro_binary.write_fields(self._kind, fields)

    def encoder_of(self, *names: str) -> Callable[[Fields], bytes]:
        """Return an encoder of fields that follow one another, given by name.

        In Avro a record is its fields, one after the other: what was read is passed on as it is, with others behind it.
        """
        places = [self._kind.names.index(name) for name in names]
        kinds = [self._kind.kinds[place] for place in places]
        if places != list(range(places[0], places[0] + len(places))):
            raise TypeError(f"{names} are not fields of {self.record_class.__name__} one after the other")
        return partial(avro_binary.write_fields, Record(self.record_class, list(names), kinds))

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

    def numbers(self, bodies: list[bytes], start: int = 0) -> dict[str, bytes]:
        """Return all numbers of many records as columns, by the paths of their fields; each takes 8 bytes a record.

        A path leads through records, not through lists. Truth values are numbers, too; of a record that may be missing
        there is one that says whether it is there, and its own numbers are 0 where it is not.

        Raises:
            DecodeError: as ``decode``.
        """
        try:
            columns = avro_binary.read_numbers(self._kind, bodies, start)
        except DecodeError as error:
            raise self._not_one(error) from error
        return dict(zip(self._kind.number_paths(), columns, strict=True))

    def decode_message(self, message: bytes) -> R:
        """Return the record in a message.

        Raises:
            DecodeError: the message has no frame, nobody has published the schema that its frame names, or as in
                ``decode``.
        """
        start = message[:FRAME_BYTES]
        if (same := self._same.get(start)) is not None:
            try:
                record, length = avro_binary.read_all(self._kind, message, FRAME_BYTES)
            except DecodeError:
                pass  # a body that has changed
            else:
                if type(record.body) in same and length == len(message):
                    decoded: R = record
                    return decoded
        elif start == self.frame:
            return self.decode(message, FRAME_BYTES)
        return self.decode(self.rewritten(message[FRAME_BYTES:], self._writer(message)))

    def knows(self, schema_id: int) -> bool:
        """Return whether messages by a schema can be read without looking it up."""
        return schema_id in self._writers

    def _writer(self, message: bytes) -> Any:
        """Return the schema that has written a message, parsed. Raise as ``decode_message`` does."""
        name, schema_id = self.record_class.__name__, schema_id_of(message)
        if schema_id is None:
            raise DecodeError(f"the message of a {name} begins with {message[:FRAME_BYTES].hex()}, not 00 and an id")
        if schema_id not in self._writers:
            schema = published.schema_of(schema_id)
            if schema is None:
                raise DecodeError(f"nobody has published a schema with the id {schema_id}, which a {name} names")
            if schema.get("name") != name:
                raise DecodeError(f"the schema with the id {schema_id} is of a {schema.get('name')}, not of a {name}")
            try:
                self._writers[schema_id] = parse_schema(schema)
            except Exception as error:  # fastavro raises many kinds
                raise DecodeError(f"the published schema with the id {schema_id} is none: {error}") from error
        return self._writers[schema_id]

    def first_message(self, record: R) -> bytes:
        """Return the message of a record by the first version of its schema, which every program reads.

        What that version has no field for is left out.
        """
        if self.frame == self.first_frame:
            return self.encode_message(record)
        first = self._writers[int.from_bytes(self.first_frame[1:], "big")]
        return self.first_frame + self._resolved(self.encode(record), parse_schema(self.schema), first)

    def rewritten(self, body: bytes, writer: Any) -> bytes:
        """The bytes of an older schema as the newest one writes them, by Avro's rules of resolution.

        Raises:
            DecodeError: the bytes are not a record of the older schema.
        """
        return self._resolved(body, writer, parse_schema(self.schema))

    def _resolved(self, body: bytes, writer: Any, reader: Any) -> bytes:
        # Without a byte behind it a string that is cut short would be read as one that ends in NULs.
        source, target = io.BytesIO(body + b"\0"), io.BytesIO()
        try:
            fields: Any = fastavro.schemaless_reader(source, writer, reader, return_record_name=True)
            fastavro.schemaless_writer(target, reader, fields)
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
