"""Messages: a record of any topic, as any released schema wrote it, from raw bytes.

An input is two bytes that choose a topic (``chosen``), one that chooses the writer's fingerprint, and the body.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas.codec import codec, released_schemas, schema_fingerprint
from schemas.topics import BY_NAME, TOPICS
from tests.fuzz.target import Target, check_record, check_refusal, check_written, checksum, chosen

NAMES = sorted(BY_NAME)
UNKNOWN = b"\0\1\2\3\4\5\6\7"
RELEASED = {
    topic.name: [schema_fingerprint(schema) for schema in released_schemas(topic.record.__name__)] for topic in TOPICS
}
HEAD_BYTES = 3


def writer_of(topic: str, number: int) -> bytes | None:
    """The fingerprint that a byte stands for: none, an unknown one, then the released ones, oldest first."""
    if number < 2:
        return (None, UNKNOWN)[number]
    return RELEASED[topic][(number - 2) % len(RELEASED[topic])]


def input_of(topic: str, writer: bytes | None, body: bytes) -> bytes:
    """The input that is such a message."""
    number = 0 if writer is None else 2 + RELEASED[topic].index(writer) if writer in RELEASED[topic] else 1
    return checksum(topic).to_bytes(2, "big") + bytes([number]) + body


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
        record = codec(record_class).decode_message(body, writer_of(name, data[2]))
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
        for schema in released_schemas(BY_NAME[topic].record.__name__):
            older = rewritten(topic, body, schema)
            if older is not None:
                yield input_of(topic, schema_fingerprint(schema), older)


TARGET = Target("decoders", lambda: play, seeds)
