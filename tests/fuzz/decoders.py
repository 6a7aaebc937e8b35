"""Messages: a record of any topic, as any released schema or an older one wrote it, from raw bytes.

An input is two bytes that choose a topic (``chosen``), one that chooses the writer's id, and the body.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from fastavro.schema import parse_schema

from schemas.codec import Codec, frame
from schemas.schema_files import JsonSchema, released_versions
from schemas.topics import BY_NAME, TOPICS
from tests.fuzz.target import Target, check_record, check_refusal, check_written, checksum, chosen

NAMES = sorted(BY_NAME)
UNKNOWN, OLDER = 7, 1
"""Ids of no released schema."""


def versions(name: str) -> dict[int, JsonSchema]:
    """The released schemas of a record, behind one that is older: the first without the fields that have a default."""
    released = {one.schema_id: one.schema for one in released_versions(name)}
    first = next(iter(released.values()))
    fields = [field for field in first["fields"] if "default" not in field]
    return {OLDER: {**first, "fields": fields}, **released} if fields != first["fields"] else released


VERSIONS = {topic.name: versions(topic.record.__name__) for topic in TOPICS}
WRITERS = {name: list(schemas) for name, schemas in VERSIONS.items()}
HEAD_BYTES = 3


def frame_of(topic: str, number: int) -> bytes:
    """The frame that a byte stands for: none, one of an unknown schema, then those of ``versions``, oldest first."""
    if number < 2:
        return (b"", frame(UNKNOWN))[number]
    return frame(WRITERS[topic][(number - 2) % len(WRITERS[topic])])


def input_of(topic: str, writer: int, body: bytes) -> bytes:
    """The input that is such a message."""
    number = 2 + WRITERS[topic].index(writer)
    return checksum(topic).to_bytes(2, "big") + bytes([number]) + body


@cache
def reader_of(topic: str) -> Codec[Any]:
    """A codec that knows the older version, too."""
    reader: Codec[Any] = Codec(BY_NAME[topic].record)
    reader._writers |= {writer: parse_schema(one) for writer, one in VERSIONS[topic].items()}
    return reader


def play(data: bytes) -> bool:
    """Read one message as every service does, and its body with both decoders.

    Raises:
        PromiseError: see ``check_record``.
    """
    if len(data) < HEAD_BYTES:
        return False
    name = chosen(NAMES, int.from_bytes(data[:2], "big"))
    body, record_class = data[HEAD_BYTES:], BY_NAME[name].record
    is_record = check_record(record_class, body)
    try:
        record = reader_of(name).decode_message(frame_of(name, data[2]) + body)
    except ValueError as error:
        check_refusal(error)
        return is_record
    check_written(record)
    return True


def seeds() -> Iterator[bytes]:
    """What a plane has sent, also as older schemas would have written it."""
    from tests.fuzz.played_plane import messages, rewritten

    for topic, body in messages():
        for writer, schema in VERSIONS[topic].items():
            older = rewritten(topic, body, schema)
            if older is not None:
                yield input_of(topic, writer, older)


TARGET = Target("decoders", lambda: play, seeds)
