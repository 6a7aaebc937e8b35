"""The messages of the topics that a verification reads, decoded."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from schemas.codec import DecodeError, codec, schema_id_of
from schemas.records import MetadataCommand
from schemas.topics import Topic
from services.log.port import Log, LogRecord
from services.log.reads import records_between
from services.verifier.unauthorized_commands import Signed

_FIRST = codec(MetadataCommand).first_frame


def messages_between(
    log: Log, topic: Topic, shard: int, first: int, end: int
) -> Generator[tuple[LogRecord, Any], None, None]:
    """Yield the records from ``first`` to before ``end``, each with its decoded message, or None if unreadable."""
    decode = codec(topic.record).decode_message
    for record in records_between(log, topic.name, shard, first, end):
        try:
            yield record, decode(record.value)
        except DecodeError:
            yield record, None


def signed_command(command: MetadataCommand, timestamp_ms: int, value: bytes) -> Signed:
    """Return a command of the log with its bytes."""
    return Signed(command, timestamp_ms, value, 0 if value.startswith(_FIRST) else schema_id_of(value) or 0)
