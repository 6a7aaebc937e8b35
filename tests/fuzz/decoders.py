"""Messages: a record of any topic, as any released schema or an older one wrote it, from raw bytes.

An input is two bytes that choose a topic (``chosen``), one that chooses the writer's fingerprint, and the body.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from fastavro.schema import parse_schema

from schemas.codec import Codec, JsonSchema, released_schemas, schema_fingerprint
from schemas.topics import BY_NAME, TOPICS
from tests.fuzz.target import Target, check_record, check_refusal, check_written, checksum, chosen

NAMES = sorted(BY_NAME)
UNKNOWN = b"\0\1\2\3\4\5\6\7"


def versions(name: str) -> list[JsonSchema]:
    """The released schemas of a record, behind one that is older: the first without the fields that have a default."""
    released = list(released_schemas(name))
    fields = [field for field in released[0]["fields"] if "default" not in field]
    return [{**released[0], "fields": fields}, *released] if fields != released[0]["fields"] else released


VERSIONS = {topic.name: versions(topic.record.__name__) for topic in TOPICS}
WRITERS = {name: [schema_fingerprint(schema) for schema in schemas] for name, schemas in VERSIONS.items()}
HEAD_BYTES = 3


def writer_of(topic: str, number: int) -> bytes | None:
    """The fingerprint that a byte stands for: none, an unknown one, then those of ``versions``, oldest first."""
    if number < 2:
        return (None, UNKNOWN)[number]
    return WRITERS[topic][(number - 2) % len(WRITERS[topic])]


def input_of(topic: str, writer: bytes | None, body: bytes) -> bytes:
    """The input that is such a message."""
    number = 0 if writer is None else 2 + WRITERS[topic].index(writer) if writer in WRITERS[topic] else 1
    return checksum(topic).to_bytes(2, "big") + bytes([number]) + body


@cache
def reader_of(topic: str) -> Codec[Any]:
    """A codec that knows the older version, too."""
    reader: Codec[Any] = Codec(BY_NAME[topic].record)
    reader._writers |= {writer: parse_schema(one) for writer, one in zip(WRITERS[topic], VERSIONS[topic], strict=True)}
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
        record = reader_of(name).decode_message(body, writer_of(name, data[2]))
    except ValueError as error:
        check_refusal(error)
        return is_record
    check_written(record)
    return True


def seeds() -> Iterator[bytes]:
    """What a plane has sent, also as older schemas would have written it."""
    from tests.fuzz.played_plane import messages, rewritten

    for topic, fingerprint, body in messages():
        yield input_of(topic, fingerprint, body)
        for schema in VERSIONS[topic]:
            older = rewritten(topic, body, schema)
            if older is not None:
                yield input_of(topic, schema_fingerprint(schema), older)


TARGET = Target("decoders", lambda: play, seeds)
