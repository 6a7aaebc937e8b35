"""Which version of a message's schema its frame names: the oldest one that writes the same bytes.

Messages such as commands have a union of bodies. A later version appends bodies to the union, or fields to some of
them. A message whose body has not changed is the same bytes by both versions, so it is framed as by the older one: a
program that knows no newer version reads it without looking anything up, and metadata applies it without an
announcement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.schema_files import JsonSchema, Released

BODY = "body"
"""The field that holds one of several records."""
_Shape = Any
"""What decides about the bytes of a type: names of records and symbols of enums, no docs or defaults."""


def oldest_writers(versions: Sequence[Released]) -> Mapping[str, int]:
    """Return for each body the id of the oldest version that writes it as the newest does.

    Empty for a record that has no bodies.
    """
    if not versions:
        return {}
    around, bodies = _shapes(versions[-1].schema)
    found = {name: versions[-1].schema_id for name, _ in bodies}
    same = dict(bodies)
    for version in reversed(versions[:-1]):
        older_around, older_bodies = _shapes(version.schema)
        is_prefix = [name for name, _ in older_bodies] == [name for name, _ in bodies[: len(older_bodies)]]
        older = dict(older_bodies) if older_around == around and is_prefix else {}
        same = {name: shape for name, shape in same.items() if older.get(name) == shape}
        found.update(dict.fromkeys(same, version.schema_id))
    return found


def _shapes(schema: JsonSchema) -> tuple[_Shape, list[tuple[str, _Shape]]]:
    """Return the shape of the fields around the body, and the name and shape of each body."""
    named: dict[str, _Shape] = {}
    around: list[_Shape] = []
    bodies: list[tuple[str, _Shape]] = []
    for field in schema["fields"]:
        if field["name"] == BODY and isinstance(field["type"], list):
            bodies = [(_name_of(branch), _shape(branch, named)) for branch in field["type"]]
            around.append(BODY)
        else:
            around.append((field["name"], _shape(field["type"], named)))
    return around, bodies


def _name_of(branch: Any) -> str:
    name: str = branch["name"] if isinstance(branch, dict) else branch
    return name.rpartition(".")[2]


def _shape(avro: Any, named: dict[str, _Shape]) -> _Shape:
    """Return the shape of a type. A record is defined where it is named first, and named alone afterwards."""
    if isinstance(avro, list):
        return [_shape(branch, named) for branch in avro]
    if isinstance(avro, str):
        return named.get(_name_of(avro), avro)
    if avro["type"] == "array":
        return ["array", _shape(avro["items"], named)]
    shape = [_name_of(avro), *_parts(avro, named)]
    named[_name_of(avro)] = shape
    return shape


def _parts(avro: JsonSchema, named: dict[str, _Shape]) -> Iterator[_Shape]:
    if avro["type"] == "enum":
        yield from avro["symbols"]
    for field in avro.get("fields", ()):
        yield field["name"], _shape(field["type"], named)
