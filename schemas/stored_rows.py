"""How rows are stored: one byte with the version of the schema that wrote the row, then its Avro body.

Versions are the files of ``schemas/released``, counted from 1. A row of an older version is resolved by Avro's rules
when it is read, and has the newest version once it is written again. So a database that an older program has written
is opened as it is, and rows are not rewritten because of an upgrade.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import fastavro
from fastavro.schema import parse_schema

from schemas import records
from schemas.codec import Codec, DecodeError, JsonSchema, codec, released_schemas

R = TypeVar("R")
H = TypeVar("H")


class NewerRowError(DecodeError):
    """A newer program has written the row, by a schema that this one does not have."""


class RowCodec(Generic[R]):
    """Encodes and decodes the rows of one table. Safe to share between threads."""

    def __init__(self, body: Codec[R]) -> None:
        self._body = body
        self._name = body.record_class.__name__
        released = list(released_schemas(self._name))
        self._writers: dict[int, Any] = {n: parse_schema(schema) for n, schema in enumerate(released, start=1)}
        self.version = max(1, len(released))
        """The newest; the only one of a record that was never released."""
        self._mark = bytes([self.version])

    def encode(self, record: R) -> bytes:
        """A row as it is stored."""
        return self._mark + self._body.encode(record)

    def stored(self, body: bytes) -> bytes:
        """A row as it is stored, of its body by the newest schema."""
        return self._mark + body

    def decode(self, stored: bytes) -> R:
        """The record in a stored row.

        Raises:
            DecodeError: it is none, or of a newer version (NewerRowError).
        """
        if stored[:1] == self._mark:
            return self._body.decode(stored, 1)
        return self._body.decode(self.body(stored))

    def head(self, head_class: type[H]) -> Callable[[bytes], H]:
        """How to read what a stored row begins with: less to decode than all of it. Raises as ``decode`` does."""
        decode, mark, body = codec(head_class).decode_head, self._mark, self.body
        return lambda stored: decode(stored, 1) if stored[:1] == mark else decode(body(stored))

    def body(self, stored: bytes) -> bytes:
        """The Avro body of a stored row by the newest schema, whichever wrote it.

        Raises:
            DecodeError: as ``decode``; the body of a row by the newest schema is not looked into.
        """
        if stored[:1] == self._mark:
            return stored[1:]
        version = stored[0] if stored else 0
        writer = self._writers.get(version)
        if writer is None:
            if version > self.version:
                raise NewerRowError(
                    f"a {self._name} has version {version}, this program knows {self.version}: start the newer one"
                )
            raise DecodeError(f"a {self._name} begins with {version}, which is no version of its schema")
        return self._body.rewritten(stored[1:], writer)

    def learn(self, version: int, schema: JsonSchema) -> None:
        """Read rows of a version that a newer program has written, too; those that are known stay as they are."""
        if version not in self._writers:
            self._writers[version] = parse_schema(schema)

    def oldest_form(self, stored: bytes) -> bytes:
        """The row as the oldest version that loses nothing of it would store it.

        It is the same for a row that an older program wrote and for that row written again: digests are made of it.

        Raises:
            DecodeError: as ``decode``.
        """
        if stored[:1] == b"\x01":
            return stored
        body = self.body(stored)
        newest = self._writers[self.version]
        fields = fastavro.schemaless_reader(io.BytesIO(body), newest, None, return_record_name=True)
        for version in range(1, self.version):
            schema = self._writers[version]
            older = io.BytesIO()
            try:
                fastavro.schemaless_writer(older, schema, fields)
            except (ValueError, KeyError, TypeError):  # it has a value that this version has no word for
                continue
            if self._body.rewritten(older.getvalue(), schema) == body:
                return bytes([version]) + older.getvalue()
        return self._mark + body


_ROW_CODECS: dict[type[Any], RowCodec[Any]] = {}


def row_codec(record_class: type[R]) -> RowCodec[R]:
    """How rows of a record class are stored, made once."""
    found: RowCodec[R] | None = _ROW_CODECS.get(record_class)
    if found is None:
        found = _ROW_CODECS[record_class] = RowCodec(codec(record_class))
    return found


def learn(record: str, version: int, schema: JsonSchema) -> None:
    """Have rows of a record read by a schema that a newer program has released. Others' records are passed over."""
    found = getattr(records, record, None)
    if found is not None:
        row_codec(found).learn(version, schema)
