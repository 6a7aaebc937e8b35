"""Reads messages in Spark as the codec does: by the schema whose fingerprint their header names, and to the last byte.

Spark decodes a record from the beginning of some bytes and does not say how many of them it took. So each message is
read as a record of two fields, the message itself and a mark that is put behind its bytes: the mark is found there
only if nothing else follows, however the writer has cut its arrays into blocks.
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
"""Random ones, so that nobody can end a message with them."""


def fingerprint_header() -> Column:
    """The header of the writer's schema; null without one, and empty for one without a value."""
    place = functions.array_position(col("headers.key"), FINGERPRINT_HEADER).cast("int")
    return when(place > 0, functions.coalesce(functions.get(col("headers.value"), place - 1), lit(b"")))


class WrittenMessages:
    """The schemas of one record that are known here, the newest one first."""

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
        """Whether a header may be of a schema that is still to come: it names none of those that are known here.

        What has another length names no schema, and never will.
        """
        return len(fingerprint) == FINGERPRINT_BYTES and fingerprint not in self._fingerprints

    def number(self, fingerprint: Column) -> Column:
        """Which schema wrote a message; null for one that is unknown."""
        first = self._fingerprints.index(self._first_fingerprint)
        choice = when(fingerprint.isNull(), lit(first))
        for number, known in enumerate(self._fingerprints):
            choice = choice.when(fingerprint == lit(known), lit(number))
        return choice

    def decode(self, value: Column, number: Column) -> Column:
        """``message``, as the newest schema has it, and ``mark``; a null, or nulls, for what cannot be read."""
        options = {"mode": "PERMISSIVE", "avroSchema": self._schemas[0]}
        marked = functions.concat(value, lit(self._mark))
        first, *others = [from_avro(marked, schema, options) for schema in self._schemas]
        choice = when(number == 0, first)
        for place, column in enumerate(others, start=1):
            choice = choice.when(number == place, column)
        return choice

    def is_exact(self, decoded: Column) -> Column:
        """Whether a message was read and nothing follows it."""
        return functions.coalesce(decoded["mark"] == lit(self._mark), lit(False))


def _marked(schema: JsonSchema) -> JsonSchema:
    mark = {"type": "fixed", "name": "Mark", "namespace": NAMESPACE, "size": MARK_BYTES}
    fields = [{"name": "message", "type": schema}, {"name": "mark", "type": mark}]
    return {"type": "record", "name": "MarkedMessage", "namespace": NAMESPACE, "fields": fields}


def as_text(schema: JsonSchema) -> str:
    """A schema without its docs: Spark writes the text into every plan."""
    return json.dumps(_without_docs(schema), separators=(",", ":"))


def _without_docs(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_docs(branch) for branch in node]
    if isinstance(node, dict):
        return {name: _without_docs(value) for name, value in node.items() if name != "doc"}
    return node
