"""userTable: the volumes of each user.

It exists from feature level 2 on. The command that raises the level fills it, so that a shard rebuilt from its log has
the same rows as one that an older program began.
"""

from __future__ import annotations

from schemas.records import UserVolumeRow
from services.domain.table_keys import user_key
from services.metadata.state.tables import USER_TABLE, VOLUME_TABLE
from services.storage.tables import UnitOfWork

FIRST_LEVEL = 2
"""The feature level from which on the table is kept."""


def change_owner(work: UnitOfWork, level: int, volume: str, before: str, after: str) -> None:
    """Move a volume from one user to another; an empty name stands for no user."""
    if level < FIRST_LEVEL:
        return
    table = work.table(USER_TABLE)
    if before:
        table.delete(user_key(before, volume))
    if after:
        table.put(user_key(after, volume), UserVolumeRow(after, volume))


def fill(work: UnitOfWork) -> None:
    """Add all volumes that exist, at the command that raises the level."""
    for _, row in list(work.table(VOLUME_TABLE).scan()):
        change_owner(work, FIRST_LEVEL, row.volume, "", row.owner)
