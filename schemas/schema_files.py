"""Finds the schema files: ``schemas/avro`` has those that are worked on, ``schemas/released`` every released version.

A released file is ``<record>.v<number>.avsc``; the newest one of a record equals the record's own file with all that it
names inside. A contract test keeps all versions of a record compatible with each other both ways. ``index.txt`` has the
id of each file, by which messages name it.
"""

from __future__ import annotations

import json
import typing
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

JsonSchema = dict[str, Any]

NAMESPACE = "deepclean"


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


class Released(typing.NamedTuple):
    """One released version of a record's schema."""

    schema_id: int
    """Names this version in messages."""
    schema: JsonSchema


@cache
def released_index() -> dict[str, tuple[int, str]]:
    """Return the id and the SHA-256 of each file in ``schemas/released``, by the file's name."""
    lines = resources.files("schemas").joinpath("released", "index.txt").read_text("ascii").splitlines()
    return {name: (int(schema_id), digest) for schema_id, digest, name in map(str.split, lines)}


def released_versions(name: str) -> list[Released]:
    """Return every released version of a record's schema, oldest first."""
    folder, index = resources.files("schemas").joinpath("released"), released_index()
    found: list[Released] = []
    while (file := f"{snake_case(name)}.v{len(found) + 1}.avsc") in index:
        found.append(Released(index[file][0], json.loads(folder.joinpath(file).read_text("utf-8"))))
    return found


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


def released_schemas(name: str) -> list[JsonSchema]:
    """Return every released schema of a record, oldest first."""
    return [one.schema for one in released_versions(name)]
