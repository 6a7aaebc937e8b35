"""What a service does with progress of a shard whose feature level it does not know."""

from __future__ import annotations

from schemas.feature_level import FEATURE_LEVEL, unknown_level
from schemas.records import MetadataProgress
from services.domain.errors import InvalidMessageError


def require_known_level(progress: MetadataProgress) -> None:
    """Refuse progress that may mean what this program does not know.

    Raises:
        InvalidMessageError: it is dead-lettered, and can be sent again once the newer program runs. The service goes
            on: the level of one message can be forged, that of the state of metadata cannot.
    """
    if progress.feature_level > FEATURE_LEVEL:
        raise InvalidMessageError(unknown_level(progress.feature_level))
