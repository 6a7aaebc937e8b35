"""What a plane in memory has sent and stored after the recorded cases and a dead letter: inputs to begin with."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import fastavro
from fastavro.schema import parse_schema

from schemas.codec import FRAME_BYTES
from schemas.schema_files import JsonSchema, resolved_schema
from schemas.topics import BY_NAME, METADATA_COMMANDS
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from services.workloads.workload import Operation
from tests.recorded_cases import CASES, operations_of

MOST_BYTES = 400
"""Longer messages and rows are like shorter ones."""
EACH = 12
"""Of one topic or table, spread over its sizes."""


@cache
def planes() -> tuple[InMemoryPlane, ...]:
    """One for each recorded case, as it has left it."""
    return tuple(_played(operations_of(case)) for case in CASES)


def _played(operations: Sequence[tuple[int, Operation]]) -> InMemoryPlane:
    plane = InMemoryPlane()
    plane.log.append(METADATA_COMMANDS.name, 0, b"no command")
    replay = Replay(InMemoryClient(plane))
    for number, operation in operations:
        list(replay.execute(number, operation))
    replay.collect()
    return plane


def _spread(found: set[bytes]) -> list[bytes]:
    """A few of them, from the shortest to the longest."""
    ordered = sorted(found, key=lambda one: (len(one), one))
    return ordered[:: max(1, len(ordered) // EACH)][: EACH + 1]


def messages() -> Iterator[tuple[str, bytes]]:
    """Topic and body of some messages of every topic that was written to."""
    found: dict[str, set[bytes]] = {}
    for plane in planes():
        for (topic, _), records in plane.log.partitions.items():
            for record in records:
                if topic in BY_NAME and len(record.value) <= MOST_BYTES:
                    found.setdefault(topic, set()).add(record.value[FRAME_BYTES:])
    for topic, bodies in sorted(found.items()):
        for body in _spread(bodies):
            yield topic, body


def rows() -> Iterator[tuple[str, str, bytes, bytes]]:
    """Service, table, key and value of some rows of every table that has any."""
    found: dict[tuple[str, str], dict[bytes, bytes]] = {}
    for plane in planes():
        for (service, _), process in plane.processes.items():
            for table, family in process.store._families.items():
                of_table = found.setdefault((service, table), {})
                of_table.update({value: key for key, value in family.rows.items() if len(value) <= MOST_BYTES})
    for (service, table), by_value in sorted(found.items()):
        for value in _spread(set(by_value)):
            yield service, table, by_value[value], value


def rewritten(topic: str, body: bytes, older: JsonSchema) -> bytes | None:
    """A body of the newest schema as an older one would have written it; None when it has no room for it."""
    newest, wanted = parse_schema(resolved_schema(BY_NAME[topic].record.__name__)), parse_schema(older)
    target = io.BytesIO()
    try:
        fields: Any = fastavro.schemaless_reader(io.BytesIO(body), newest, wanted, return_record_name=True)
        fastavro.schemaless_writer(target, wanted, fields)
    except Exception:  # fastavro raises many kinds
        return None
    return target.getvalue()
