"""Releases schemas: ``python -m tests.schema_releases`` writes the next version of each that has changed.

Released are the record of each topic and of each table of a service, with all that they name, one file a version. From
release 0.2.0 on no file changes any more: ``INDEX`` has the id and the SHA-256 of each, which a contract test compares.
Every two versions of a schema read each other's bytes, by the checker of the Avro project. What an older version has no
word for, a branch of a union, is added with the ``feature_level`` from which on it is written: an older reader is asked
for the rest alone.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import avro.schema
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

import schemas
from schemas.schema_files import JsonSchema, released_index, released_schemas, resolved_schema, snake_case
from schemas.stored_rows import EMBEDDED
from schemas.topics import TOPICS
from tests.fuzz.stored_rows import RECORDS as STORED

FOLDER = Path(schemas.__file__).parent / "released"
INDEX = FOLDER / "index.txt"
"""A line for each file: the schema's id, the SHA-256 of the file, the file's name."""
FIRST_ID = int.from_bytes(b"dc\0\1", "big")
"""Far from the ids that a schema registry gives, which begin at 1: a consumer that asks another registry than ours gets
no schema, instead of a wrong one."""


def released_records() -> list[type[Any]]:
    """Records that travel or lie somewhere under a version, by their names."""
    embedded = {record for records in EMBEDDED.values() for record in records}
    found = {topic.record for topic in TOPICS} | set(STORED.values()) | embedded
    return sorted(found, key=lambda record: record.__name__)


def unreleased() -> Iterator[tuple[str, JsonSchema]]:
    """The next released file of each schema that has changed since its newest one, docs and defaults included."""
    for record in released_records():
        *_, newest = (None, *(versions := released_schemas(record.__name__)))
        wanted = resolved_schema(record.__name__)
        if newest != wanted:
            yield f"{snake_case(record.__name__)}.v{len(versions) + 1}.avsc", wanted


def feature_level(schema: Any) -> int:
    """The highest feature level that any part of a schema needs; 1 unless one says more."""
    if isinstance(schema, list):
        return max(map(feature_level, schema), default=1)
    if not isinstance(schema, dict):
        return 1
    own: int = schema.get("feature_level", 1)
    return max(own, *map(feature_level, schema.values()))


def up_to_level(schema: Any, level: int) -> Any:
    """A schema without the branches of unions that are written from a higher feature level on."""
    if isinstance(schema, list):
        return [up_to_level(one, level) for one in schema if not isinstance(one, dict) or _is_written(one, level)]
    if isinstance(schema, dict):
        return {name: up_to_level(value, level) for name, value in schema.items()}
    return schema


def _is_written(part: JsonSchema, level: int) -> bool:
    return int(part.get("feature_level", 1)) <= level


def why_incompatible(writer: JsonSchema, reader: JsonSchema) -> str:
    """Why what one version writes cannot be read by another, at a feature level that both know; empty when it can."""
    writer = up_to_level(writer, feature_level(reader))
    checker: Any = ReaderWriterCompatibilityChecker  # it has annotations that are wrong
    parsed = [avro.schema.parse(json.dumps(schema)) for schema in (reader, writer)]
    result = checker().get_compatibility(*parsed)
    if result.compatibility is SchemaCompatibilityType.compatible:
        return ""
    return "; ".join(sorted(result.messages)) or str(result.incompatibilities)


def incompatibilities(name: str, versions: list[JsonSchema]) -> list[str]:
    """Pairs of versions of which one cannot read the other."""
    numbered = list(enumerate(versions, start=1))
    found = [
        (reader, writer, why_incompatible(written, read)) for writer, written in numbered for reader, read in numbered
    ]
    return [f"{name}: version {reader} cannot read version {writer}: {why}" for reader, writer, why in found if why]


def digests(folder: Path = FOLDER) -> dict[str, str]:
    """SHA-256 of each released file, by its name."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("*.avsc"))}


def index_lines(known: Mapping[str, tuple[int, str]], present: Mapping[str, str]) -> list[str]:
    """Return the lines of the index: those that are known, then new files with the next ids."""
    next_ids = count(max((schema_id for schema_id, _ in known.values()), default=FIRST_ID - 1) + 1)
    added = {name: (next(next_ids), present[name]) for name in sorted(set(present) - set(known))}
    return [f"{schema_id} {digest} {name}\n" for name, (schema_id, digest) in {**known, **added}.items()]


def main() -> int:
    """Write what is to be released, unless another version could not read it."""
    refused = []
    for name, schema in list(unreleased()):
        record = schema["name"]
        refused += incompatibilities(record, [*released_schemas(record), schema])
        if not refused:
            (FOLDER / name).write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", "utf-8")
            print(name)
    for reason in refused:
        print(reason, file=sys.stderr)
    INDEX.write_text("".join(index_lines(released_index(), digests())), "ascii")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
