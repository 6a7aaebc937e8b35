"""Decodes messages in Spark as the codec does: with the schema that their frame names, and to the last byte.

Spark decodes a record from the beginning of the bytes and does not report how many bytes it has read. Therefore each
message is decoded as a record of three fields: its frame, the record itself, and a mark that is appended to the bytes.
The decoded mark is right only if no other bytes follow the record, however the writer has split its arrays into blocks.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from pyspark.sql import Column, functions
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import lit, when

from schemas import published
from schemas.codec import FRAME_BYTES, frame
from schemas.schema_files import NAMESPACE, JsonSchema, released_versions, resolved_schema

DECODE_ERROR = "DecodeError"
"""The error of an unreadable message."""
COLUMNS_ERROR = "ColumnsError"
"""The error of a message whose lists of rows differ in length."""
MARK_BYTES = 16
"""Length of the mark. The mark is random, so that no sender can end a message with it."""


def frame_of(value: Column) -> Column:
    """Return the first bytes of a message, which name its schema; fewer when the message is shorter."""
    return functions.substring(value, 1, FRAME_BYTES)


class WrittenMessages:
    """The known schemas of one record."""

    def __init__(self, record_class: type[Any]) -> None:
        self._name = record_class.__name__
        self._mark = secrets.token_bytes(MARK_BYTES)
        self._newest = as_text(_marked(resolved_schema(self._name)))
        self._schemas = {
            frame(one.schema_id): as_text(_marked(one.schema)) for one in reversed(released_versions(self._name))
        }

    def learn_published(self) -> bool:
        """Decode messages of published schemas, too; return whether any of them was new."""
        new = {
            frame(schema_id): as_text(_marked(schema))
            for schema_id, schema in published.known().items()
            if schema.get("name") == self._name and frame(schema_id) not in self._schemas
        }
        self._schemas |= new
        return bool(new)

    def decode(self, value: Column) -> Column:
        """Return ``message``, in the newest schema, and ``mark``; null, or both null, for an unreadable message."""
        options = {"mode": "PERMISSIVE", "avroSchema": self._newest}
        marked, of_message = functions.concat(value, lit(self._mark)), frame_of(value)
        (newest, schema), *others = self._schemas.items()
        choice = when(of_message == lit(newest), from_avro(marked, schema, options))
        for known, other in others:
            choice = choice.when(of_message == lit(known), from_avro(marked, other, options))
        return choice

    def has_unknown_schema(self, value: Column) -> Column:
        """Return whether a message has a frame, and no known schema has its id."""
        is_framed = (functions.length(value) >= FRAME_BYTES) & (functions.substring(value, 1, 1) == lit(b"\0"))
        return is_framed & ~frame_of(value).isin(*map(lit, self._schemas))

    def is_exact(self, decoded: Column) -> Column:
        """Return whether a message was decoded and no bytes follow it."""
        return functions.coalesce(decoded["mark"] == lit(self._mark), lit(False))


def _marked(schema: JsonSchema) -> JsonSchema:
    start = {"type": "fixed", "name": "Frame", "namespace": NAMESPACE, "size": FRAME_BYTES}
    mark = {"type": "fixed", "name": "Mark", "namespace": NAMESPACE, "size": MARK_BYTES}
    fields = [{"name": "frame", "type": start}, {"name": "message", "type": schema}, {"name": "mark", "type": mark}]
    return {"type": "record", "name": "MarkedMessage", "namespace": NAMESPACE, "fields": fields}


def as_text(schema: JsonSchema) -> str:
    """Return the text of a schema without its docs, because Spark writes the text into every plan."""
    bare = json.loads(
        json.dumps(schema), object_hook=lambda node: {name: value for name, value in node.items() if name != "doc"}
    )
    return json.dumps(bare, separators=(",", ":"))
