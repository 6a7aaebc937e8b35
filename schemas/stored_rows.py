"""The stored form of rows: one byte with the version of the schema that wrote the row, then the Avro body.

Versions are the files of ``schemas/released``, counted from 1. A row of an older version is resolved by Avro's rules
when it is read, and gets the newest version when it is written again. So a program opens the database of an older
program directly, and an upgrade rewrites no rows.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import fastavro
from fastavro.schema import parse_schema

from schemas import records
from schemas.codec import Codec, DecodeError, codec
from schemas.schema_files import JsonSchema, released_schemas

EMBEDDED: Mapping[type[Any], tuple[type[Any], ...]] = {records.ClaimedRow: (records.ClaimFacts,)}
"""Records that have stored rows of others in a field of bytes."""

R = TypeVar("R")
H = TypeVar("H")


class NewerRowError(DecodeError):
    """A newer program wrote the row, by a schema that this program does not have."""


class RowCodec(Generic[R]):
    """Encodes and decodes the rows of one table. Safe to share between threads."""

    def __init__(self, body: Codec[R]) -> None:
        self._body = body
        self._name = body.record_class.__name__
        released = released_schemas(self._name)
        self._writers: dict[int, Any] = {n: parse_schema(schema) for n, schema in enumerate(released, start=1)}
        self.version = max(1, len(released))
        """The newest version; 1 for a record that was never released."""
        self.mark = bytes([self.version])
        """What a stored row of the newest version has in front of its body."""

    def encode(self, record: R) -> bytes:
        """Return the stored form of a record."""
        return self.mark + self._body.encode(record)

    def decode(self, stored: bytes) -> R:
        """Return the record of a stored row.

        Raises:
            DecodeError: the bytes are not a row; or its version is newer (NewerRowError).
        """
        if stored[:1] == self.mark:
            return self._body.decode(stored, 1)
        return self._body.decode(self.body(stored))

    def numbers(self, stored: list[bytes]) -> dict[str, bytes]:
        """Return the numbers of many stored rows as columns (``Codec.numbers``). It raises as ``decode`` does."""
        mark = self.mark
        return self._body.numbers([row if row[:1] == mark else mark + self.body(row) for row in stored], 1)

    def head(self, head_class: type[H]) -> Callable[[bytes], H]:
        """Return a function that decodes only the first fields of a stored row. It raises as ``decode`` does."""
        decode, mark, body = codec(head_class).decode_head, self.mark, self.body
        return lambda stored: decode(stored, 1) if stored[:1] == mark else decode(body(stored))

    def body(self, stored: bytes) -> bytes:
        """Return the Avro body of a stored row by the newest schema, whichever version wrote the row.

        Raises:
            DecodeError: as ``decode``; the body of a row of the newest version is not checked.
        """
        if stored[:1] == self.mark:
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
        """Register the schema of a version that a newer program wrote. Known versions are not replaced."""
        if version not in self._writers:
            self._writers[version] = parse_schema(schema)

    def oldest_form(self, stored: bytes) -> bytes:
        """Return the row in the stored form of the oldest version that can hold all of its values.

        A row that an older program wrote and the same row written again have the same oldest form: digests use it.

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
            except (ValueError, KeyError, TypeError):  # this version cannot hold one of the values
                continue
            if self._body.rewritten(older.getvalue(), schema) == body:
                return bytes([version]) + older.getvalue()
        return self.mark + body


_ROW_CODECS: dict[type[Any], RowCodec[Any]] = {}


def row_codec(record_class: type[R]) -> RowCodec[R]:
    """Return the codec for the rows of a record class, which is created once."""
    found: RowCodec[R] | None = _ROW_CODECS.get(record_class)
    if found is None:
        found = _ROW_CODECS[record_class] = RowCodec(codec(record_class))
    return found


def learn(record: str, version: int, schema: JsonSchema) -> None:
    """Register a schema of a record that a newer program has released. An unknown record is ignored."""
    found = getattr(records, record, None)
    if found is not None:
        row_codec(found).learn(version, schema)
