"""The schemas of commands that a shard may apply: the first, and those that an operator has announced in its log.

Whether a command is applied must follow from the log alone: a rebuild that knows more schemas than the program that
read the command first must not apply what that one has dead-lettered. So the announcement is a command itself.
"""

from __future__ import annotations

from schemas import published
from schemas.codec import codec, schema_id_of
from schemas.records import AnnounceSchema, MetadataCommand
from services.domain.errors import InvalidMessageError, RetryableError
from services.metadata.state.transaction import ShardCounters

_FIRST = codec(MetadataCommand).first_frame
_IDS = int.from_bytes(_FIRST[1:3], "big")
"""The upper half of each id of deepclean."""


def check_announced(counters: ShardCounters, message: bytes) -> None:
    """Check that a command was written by an allowed schema.

    Raises:
        InvalidMessageError: it was not; the command is dead-lettered.
    """
    if message.startswith(_FIRST):
        return
    schema_id = schema_id_of(message)
    if schema_id is not None and schema_id > counters.announced_schema_id:
        raise InvalidMessageError(
            f"schema {schema_id} was not announced when the command was sent: run deepclean upgrade prepare of the "
            f"program that sends it, then send it again"
        )


def announce_schema(counters: ShardCounters, command: AnnounceSchema) -> None:
    """Allow commands by schemas with ids up to the announced one.

    Raises:
        InvalidMessageError: no program of deepclean has such a schema.
        RetryableError: as in ``require_announced``.
    """
    if command.schema_id >> 16 != _IDS:
        raise InvalidMessageError(
            f"schema {command.schema_id} is not an id of deepclean: see schemas/released/index.txt"
        )
    newest = max(counters.announced_schema_id, command.schema_id)
    _require(newest)
    counters.announced_schema_id = newest


def require_announced(counters: ShardCounters) -> None:
    """Check that commands by the announced schemas can be read: they must not become dead letters.

    Raises:
        RetryableError: the newest of them is not published yet.
    """
    if counters.announced_schema_id:
        _require(counters.announced_schema_id)


def _require(schema_id: int) -> None:
    if not codec(MetadataCommand).knows(schema_id) and published.schema_of(schema_id) is None:
        raise RetryableError(
            f"schema {schema_id} is announced and not published: run deepclean upgrade prepare of the newer program"
        )
