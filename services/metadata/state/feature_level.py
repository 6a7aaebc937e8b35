"""The feature level of a shard: a number in its state that an operator raises when an upgrade is final."""

from __future__ import annotations

from schemas.feature_level import FEATURE_LEVEL, confirmation, unknown_level
from schemas.records import SetFeatureLevel
from services.domain.errors import InvalidMessageError, InvariantError
from services.metadata.state.transaction import ShardCounters


def check_known(counters: ShardCounters) -> None:
    """Check that this program may go on with a shard.

    Raises:
        InvariantError: the shard's level is above that of this program.
    """
    if counters.feature_level > FEATURE_LEVEL:
        raise InvariantError(unknown_level(counters.feature_level))


def set_feature_level(counters: ShardCounters, command: SetFeatureLevel) -> None:
    """Raise the level.

    Raises:
        InvalidMessageError: the command does not confirm the level, or would lower it.
        InvariantError: this program does not know the level. It stops: a newer one, which rebuilds the shard from its
            log, would go on differently from here.
    """
    if command.confirmation != confirmation(command.level):
        raise InvalidMessageError(
            f"feature level {command.level} is not confirmed: the command has to say {confirmation(command.level)!r}"
        )
    if command.level < counters.feature_level:
        raise InvalidMessageError(f"the shard has feature level {counters.feature_level}, which is never lowered")
    if command.level > FEATURE_LEVEL:
        raise InvariantError(unknown_level(command.level))
    counters.feature_level = command.level
