"""A service's position in each of its inputs: stored in its own database, in the write that applies the messages."""

from __future__ import annotations

from schemas.records import PositionRow
from services.domain.errors import OutdatedError
from services.storage.tables import TableDefinition

POSITIONS = TableDefinition("positions", PositionRow)


def trimmed(who: str, topic: str, first: int, needed: int) -> OutdatedError:
    """Return the error for a topic that begins at ``first``, behind what a database needs of it."""
    return OutdatedError(
        f"{who}: {topic} begins at offset {first}, and this database needs it from {needed} on: it was trimmed; "
        f"restore a later backup (deepclean restore-backup)"
    )
