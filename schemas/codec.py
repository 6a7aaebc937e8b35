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
from collections.abc import Callable, Iterator
from importlib import resources
from types import UnionType
from typing import Any, Generic, TypeVar

import fastavro
import msgspec
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from schemas import records

R = TypeVar("R")
JsonSchema = dict[str, Any]
Fields = dict[str, Any]

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


def _parsed(schema: JsonSchema) -> Any:
    """The schema as fastavro wants it.

    fastavro copies the named types of a schema at every call; those that are named once, where they are described, need
    no look-up. A command is a union of dozens of them.
    """
    parsed: Any = parse_schema(schema)
    named = parsed.get("__named_schemas")
    if isinstance(named, dict):
        looked_up = set(_references(schema))
        parsed["__named_schemas"] = {name: kind for name, kind in named.items() if name in looked_up}
    return parsed


def _references(node: Any) -> Iterator[str]:
    """Full names that stand for a type which is described elsewhere."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list):
        for branch in node:
            yield from _references(branch)
    elif node["type"] == "record":
        for field in node["fields"]:
            yield from _references(field["type"])
    elif node["type"] == "array":
        yield from _references(node["items"])


class Codec(Generic[R]):
    """Encodes and decodes one kind of record. Safe to share between threads."""

    def __init__(self, record_class: type[R]) -> None:
        self.record_class = record_class
        self.schema = resolved_schema(record_class.__name__)
        self.fingerprint = schema_fingerprint(self.schema)
        self._parsed: Any = _parsed(self.schema)
        released = list(released_schemas(record_class.__name__))
        self._writers = {schema_fingerprint(schema): _parsed(schema) for schema in released}
        self._first = schema_fingerprint(released[0]) if released else self.fingerprint
        self._behind_first: Any = _parsed({**self.schema, "fields": self.schema["fields"][1:]})
        self._name_branches = _branch_names(typing.cast("type[Any]", record_class))
        self._check = _checks(typing.cast("type[Any]", record_class))
        maker = _maker(typing.cast("type[Any]", record_class))
        self._has_unions = maker is not None
        self._make = maker or _converter(record_class)

    def encode(self, record: R) -> bytes:
        """Avro binary of a record, written with the newest schema."""
        fields: Fields = msgspec.to_builtins(record, builtin_types=_AS_THEY_ARE)
        if self._name_branches is not None:
            self._name_branches(record, fields)
        return self.encode_fields(fields)

    def encode_fields(self, fields: Fields) -> bytes:
        """Avro binary of a record given as its fields, a field with a default left out; enumerations as strings."""
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, self._parsed, fields)
        return buffer.getvalue()

    def encode_around(self, first: bytes, rest: Fields) -> bytes:
        """Avro binary of a record whose first field is encoded already; ``rest`` are the others by name.

        In Avro a record is its fields, one after the other: what was read is passed on as it is.
        """
        buffer = io.BytesIO(first)
        buffer.seek(len(first))
        fastavro.schemaless_writer(buffer, self._behind_first, rest)
        return buffer.getvalue()

    def decode_head(self, body: bytes) -> R:
        """The record whose fields are the first ones in some longer record's bytes.

        Raises:
            DecodeError: the bytes end early, or a value is out of its range.
        """
        return self._read_first(body, self._parsed)[0]

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
        record, length = self._read_first(body, writer)
        if length < len(body):
            raise DecodeError(f"{len(body) - length} bytes follow after a {self.record_class.__name__}")
        return record

    def _read_first(self, body: bytes, writer: Any) -> tuple[R, int]:
        """The record that the bytes begin with, and how many bytes it takes."""
        # Without a byte behind it a string that is cut short would be read as one that ends in NULs.
        buffer = io.BytesIO(body + b"\0")
        try:
            fields: Any = fastavro.schemaless_reader(
                buffer,
                writer,
                None if writer is self._parsed else self._parsed,
                return_record_name=self._has_unions,
                return_record_name_override=self._has_unions,
            )
            if self._check is not None:
                self._check(fields)
            record: R = self._make(fields)
        except DecodeError:
            raise
        except Exception as error:  # fastavro raises many kinds for broken bytes
            raise DecodeError(f"not a {self.record_class.__name__}: {type(error).__name__}: {error}") from error
        if buffer.tell() > len(body):
            raise DecodeError(f"not a {self.record_class.__name__}: the bytes end early")
        return record, buffer.tell()


_CODECS: dict[type[Any], Codec[Any]] = {}
_AS_THEY_ARE = (bytes,)
_AVRO_OWN = (int, str, bool, bytes)


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


def _item(hint: Any) -> Any:
    """Type of the items of an array; None for any other type."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else None


def _branches(hint: Any) -> dict[str, type[Any]]:
    """Records of a union by their full names, without null; empty for any other type."""
    if not isinstance(hint, UnionType):
        return {}
    return {branch_name(branch): branch for branch in typing.get_args(hint) if _is_record(branch)}


def branch_name(record_class: type[Any]) -> str:
    """Full name of a record: in ``encode_fields`` the branch of a union is a pair of it and the fields."""
    return f"{NAMESPACE}.{record_class.__name__}"


def _converter(record_class: type[Any]) -> Callable[[Any], Any]:
    return lambda fields: msgspec.convert(fields, record_class)


def _maker(record_class: type[Any]) -> Callable[[Fields], Any] | None:
    """Makes a record that holds a union of records, at any depth, of its fields; None: msgspec can do that alone."""
    types = _field_types(record_class)
    makers = {name: maker for name, hint in types.items() if (maker := _field_maker(hint)) is not None}
    if not makers:
        return None
    makers |= {name: _converter(hint) for name, hint in types.items() if name not in makers and hint not in _AVRO_OWN}

    def make(fields: Fields) -> Any:
        for name, convert in makers.items():
            fields[name] = convert(fields[name])
        return record_class(**fields)

    return make


def _field_maker(hint: Any) -> Callable[[Any], Any] | None:
    branches = _branches(hint)
    if len(branches) > 1:
        makers = {name: _maker(branch) or _converter(branch) for name, branch in branches.items()}
        return lambda named: makers[named[0]](named[1])
    if _item(hint) is not None:
        maker = _field_maker(_item(hint))
        return None if maker is None else lambda values: tuple([maker(value) for value in values])
    return _maker(hint) if _is_record(hint) else None


def _branch_names(record_class: type[Any]) -> Callable[[Any, Fields], None] | None:
    """Names each record of a union in the fields of a record: it spares fastavro the search for the one that fits."""
    names = [namer for name, hint in _field_types(record_class).items() if (namer := _field_namer(name, hint))]
    if not names:
        return None

    def name_branches(record: Any, fields: Fields) -> None:
        for namer in names:
            namer(record, fields)

    return names[0] if len(names) == 1 else name_branches


def _field_namer(field: str, hint: Any) -> Callable[[Any, Fields], None] | None:
    if branches := _branches(hint):
        inside = {branch: (name, _branch_names(branch)) for name, branch in branches.items()}

        def name_branch(record: Any, fields: Fields) -> None:
            value = getattr(record, field)
            if value is not None:
                name, deeper = inside[type(value)]
                if deeper is not None:
                    deeper(value, fields[field])
                fields[field] = (name, fields[field])

        return name_branch
    is_array = _item(hint) is not None
    kind = _item(hint) if is_array else hint
    deeper = _branch_names(kind) if _is_record(kind) else None
    if deeper is None:
        return None
    name_inside = deeper

    def name_in_one(record: Any, fields: Fields) -> None:
        name_inside(getattr(record, field), fields[field])

    def name_in_each(record: Any, fields: Fields) -> None:
        for value, inner in zip(getattr(record, field), fields[field], strict=True):
            name_inside(value, inner)

    return name_in_each if is_array else name_in_one


def _checks(record_class: type[Any]) -> Callable[[Fields], None] | None:
    """Refuses what fastavro reads into a field of 32 bits though it needs more."""
    fields = own_schema(record_class.__name__)["fields"]
    narrow = [field["name"] for field in fields if field["type"] == "int"]
    narrow_lists = [field["name"] for field in fields if field["type"] == {"type": "array", "items": "int"}]
    inside = [found for name, hint in _field_types(record_class).items() if (found := _field_check(name, hint))]
    if not narrow and not narrow_lists and not inside:
        return None

    def check_fields(fields: Fields) -> None:
        for name in narrow:
            if not INT_MIN <= fields[name] <= INT_MAX:
                raise DecodeError(f"{record_class.__name__}.{name} is {fields[name]}, beyond 32 bits")
        for name in narrow_lists:
            if fields[name] and not INT_MIN <= min(fields[name]) <= max(fields[name]) <= INT_MAX:
                raise DecodeError(f"{record_class.__name__}.{name} holds a number beyond 32 bits")
        for check_inside in inside:
            check_inside(fields)

    return check_fields


def _field_check(field: str, hint: Any) -> Callable[[Fields], None] | None:
    branches = _branches(hint)
    checks = {name: inside for name, branch in branches.items() if (inside := _checks(branch))}
    if len(branches) > 1:

        def check_branch(fields: Fields) -> None:
            name, inner = fields[field]
            if (inside := checks.get(name)) is not None:
                inside(inner)

        return check_branch if checks else None
    kind = _item(hint) or next(iter(branches.values()), hint)
    check = _checks(kind) if _is_record(kind) else None
    if check is None:
        return None

    def check_each(fields: Fields) -> None:
        for inner in fields[field]:
            check(inner)

    def check_present(fields: Fields) -> None:
        if fields[field] is not None:
            check(fields[field])

    return check_present if _item(hint) is None else check_each
