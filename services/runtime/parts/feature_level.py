"""The check of the feature level in a shard's progress messages."""

from __future__ import annotations

from schemas.feature_level import FEATURE_LEVEL, unknown_level
from schemas.records import MetadataProgress
from services.domain.errors import InvalidMessageError


def require_known_level(progress: MetadataProgress) -> None:
    """Refuse a progress message with a feature level that this program does not know.

    Raises:
        InvalidMessageError: the level is unknown. The message is dead-lettered, and can be sent again once the newer
            program runs. The service continues, since the level of one message can be forged.
    """
    if progress.feature_level > FEATURE_LEVEL:
        raise InvalidMessageError(unknown_level(progress.feature_level))
