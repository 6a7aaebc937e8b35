"""Decodes messages in Spark as the codec does: with the schema that their header names, and to the last byte.

Spark decodes a record from the beginning of the bytes and does not report how many bytes it has read. Therefore each
message is decoded as a record of two fields: the message itself, and a mark that is appended to its bytes. The decoded
mark is right only if no other bytes follow the message, however the writer has split its arrays into blocks.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from pyspark.sql import Column, functions
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import col, lit, when

from schemas.codec import FINGERPRINT_HEADER, NAMESPACE, JsonSchema, released_schemas, resolved_schema
from schemas.codec import schema_fingerprint as fingerprint_of

FINGERPRINT_BYTES = 8
MARK_BYTES = 16
"""Length of the mark. The mark is random, so that no sender can end a message with it."""


def fingerprint_header() -> Column:
    """Return the header with the writer's fingerprint; null without the header, empty for a header without a value."""
    place = functions.array_position(col("headers.key"), FINGERPRINT_HEADER).cast("int")
    return when(place > 0, functions.coalesce(functions.get(col("headers.value"), place - 1), lit(b"")))


class WrittenMessages:
    """The known schemas of one record, the newest one first."""

    def __init__(self, record_class: type[Any]) -> None:
        name = record_class.__name__
        newest = resolved_schema(name)
        released = list(released_schemas(name))
        self._mark = secrets.token_bytes(MARK_BYTES)
        self._first_fingerprint = fingerprint_of(released[0] if released else newest)
        by_fingerprint = {fingerprint_of(schema): schema for schema in (newest, *released)}
        self._fingerprints = list(by_fingerprint)
        self._schemas = [as_text(_marked(schema)) for schema in by_fingerprint.values()]

    def is_newer(self, fingerprint: bytes) -> bool:
        """Return whether a fingerprint may belong to a newer schema: it has the right length and is unknown here."""
        return len(fingerprint) == FINGERPRINT_BYTES and fingerprint not in self._fingerprints

    def number(self, fingerprint: Column) -> Column:
        """Return the number of the writer's schema; null for an unknown fingerprint."""
        first = self._fingerprints.index(self._first_fingerprint)
        choice = when(fingerprint.isNull(), lit(first))
        for number, known in enumerate(self._fingerprints):
            choice = choice.when(fingerprint == lit(known), lit(number))
        return choice

    def decode(self, value: Column, number: Column) -> Column:
        """Return ``message``, in the newest schema, and ``mark``; null, or both null, for an unreadable message."""
        options = {"mode": "PERMISSIVE", "avroSchema": self._schemas[0]}
        marked = functions.concat(value, lit(self._mark))
        first, *others = [from_avro(marked, schema, options) for schema in self._schemas]
        choice = when(number == 0, first)
        for place, column in enumerate(others, start=1):
            choice = choice.when(number == place, column)
        return choice

    def is_exact(self, decoded: Column) -> Column:
        """Return whether a message was decoded and no bytes follow it."""
        return functions.coalesce(decoded["mark"] == lit(self._mark), lit(False))


def _marked(schema: JsonSchema) -> JsonSchema:
    mark = {"type": "fixed", "name": "Mark", "namespace": NAMESPACE, "size": MARK_BYTES}
    fields = [{"name": "message", "type": schema}, {"name": "mark", "type": mark}]
    return {"type": "record", "name": "MarkedMessage", "namespace": NAMESPACE, "fields": fields}


def as_text(schema: JsonSchema) -> str:
    """Return the text of a schema without its docs, because Spark writes the text into every plan."""
    return json.dumps(_without_docs(schema), separators=(",", ":"))


def _without_docs(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_docs(branch) for branch in node]
    if isinstance(node, dict):
        return {name: _without_docs(value) for name, value in node.items() if name != "doc"}
    return node
