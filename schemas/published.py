"""Schemas of newer programs: they are published before the first message of them is sent, and readers look them up.

The topic is read by ``services.log.schema_topic``; this module has what was read, since a schema is the same for every
reader in the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from schemas.schema_files import JsonSchema

_schemas: dict[int, JsonSchema] = {}
_readers: list[Callable[[], None]] = []


def learn(schema_id: int, schema: JsonSchema) -> None:
    """Keep a schema that was published; the first one with an id stays, because ids are never used again."""
    _schemas.setdefault(schema_id, schema)


def known() -> Mapping[int, JsonSchema]:
    """Return the schemas that were learned, by their ids."""
    return dict(_schemas)


def read_from(reader: Callable[[], None]) -> None:
    """Have ``schema_of`` call a function that learns all that was published until now."""
    _readers[:] = [reader]


def schema_of(schema_id: int) -> JsonSchema | None:
    """Return the published schema with an id; None if there is none up to now."""
    if schema_id not in _schemas:
        for reader in _readers:
            reader()
    return _schemas.get(schema_id)
