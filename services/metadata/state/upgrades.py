"""What an upgrade changes in a shard: its feature level, and the schemas of the commands that it may apply.

An operator raises the feature level when an upgrade is final. Allowed schemas are the first one, and those that an
operator has announced in the shard's log. Whether a command is applied must follow from the log alone: a rebuild that
knows more schemas than the program that read the command first must not apply what that one has dead-lettered. So the
announcement is a command itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from schemas import published
from schemas.codec import codec, schema_id_of
from schemas.error_codes import ErrorCode
from schemas.feature_level import FEATURE_LEVEL, confirmation, level_of, unknown_level
from schemas.records import AnnounceSchema, MetadataCommand, SetFeatureLevel
from services.domain.errors import InvalidMessageError, InvariantError, RetryableError
from services.domain.refusals import CommandError
from services.metadata.state.owned_volumes import FIRST_LEVEL, fill
from services.metadata.state.transaction import ShardCounters, Transaction

FIRST_FRAME = codec(MetadataCommand).first_frame
"""How a command by the first schema begins."""
Handler = Callable[[Transaction, Any], Any]
_IDS = int.from_bytes(FIRST_FRAME[1:3], "big")
"""The upper half of each id of deepclean."""


def from_their_levels_on(handlers: Mapping[type[Any], Handler]) -> Mapping[type[Any], Handler]:
    """Return the handlers of commands; those of commands that a feature level adds refuse them below that level."""
    return {kind: _from_level_on(handler, level_of(kind)) for kind, handler in handlers.items()}


def _from_level_on(handler: Handler, level: int) -> Handler:
    if level == 1:
        return handler

    def handle(transaction: Transaction, body: Any) -> Any:
        if transaction.counters.feature_level < level:
            raise CommandError(
                ErrorCode.FEATURE_NOT_ENABLED,
                f"{type(body).__name__} is for shards whose upgrade is finished (deepclean upgrade finish)",
            )
        return handler(transaction, body)

    return handle


def check_known(counters: ShardCounters) -> None:
    """Check that this program may go on with a shard: that it can read all commands, none becomes a dead letter.

    Raises:
        InvariantError: the shard's level is above that of this program.
        RetryableError: the newest announced schema is not published yet.
    """
    if counters.feature_level > FEATURE_LEVEL:
        raise InvariantError(unknown_level(counters.feature_level))
    if counters.announced_schema_id:
        _require(counters.announced_schema_id)


def set_feature_level(transaction: Transaction, command: SetFeatureLevel) -> None:
    """Raise the level, and make the tables that it adds.

    Raises:
        InvalidMessageError: the command does not confirm the level, or would lower it.
        InvariantError: this program does not know the level. It stops: a newer one, which rebuilds the shard from its
            log, would go on differently from here.
    """
    counters = transaction.counters
    if command.confirmation != confirmation(command.level):
        raise InvalidMessageError(
            f"feature level {command.level} is not confirmed: the command has to say {confirmation(command.level)!r}"
        )
    if command.level < counters.feature_level:
        raise InvalidMessageError(f"the shard has feature level {counters.feature_level}, which is never lowered")
    if command.level > FEATURE_LEVEL:
        raise InvariantError(unknown_level(command.level))
    if counters.feature_level < FIRST_LEVEL <= command.level:
        fill(transaction.work)
    counters.feature_level = command.level


def check_announced(counters: ShardCounters, message: bytes) -> None:
    """Check that a command that does not begin with ``FIRST_FRAME`` was written by an allowed schema.

    Raises:
        InvalidMessageError: it was not; the command is dead-lettered.
    """
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
        RetryableError: the newest announced schema is not published yet.
    """
    if command.schema_id >> 16 != _IDS:
        raise InvalidMessageError(
            f"schema {command.schema_id} is not an id of deepclean: see schemas/released/index.txt"
        )
    newest = max(counters.announced_schema_id, command.schema_id)
    _require(newest)
    counters.announced_schema_id = newest


def _require(schema_id: int) -> None:
    if not codec(MetadataCommand).knows(schema_id) and published.schema_of(schema_id) is None:
        raise RetryableError(
            f"schema {schema_id} is announced and not published: run deepclean upgrade prepare of the newer program"
        )
