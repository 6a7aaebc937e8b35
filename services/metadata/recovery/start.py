"""How a shard of metadata starts: with a check of its log, and without what is published already."""

from __future__ import annotations

from schemas.topics import METADATA_COMMANDS, METADATA_PROGRESS, METADATA_REPLIES, SPACE
from services.log.port import Log
from services.metadata.recovery.start_check import StartCheckedLog
from services.runtime.process.hosted_shard import Start
from services.runtime.process.standby import Followed
from services.storage.store import Store

FOLLOWED = Followed((METADATA_PROGRESS.name, METADATA_REPLIES.name, SPACE.name), METADATA_COMMANDS.name)
"""Nearly every unit of work writes to one of these topics."""


def start(log: Log, shard: int, store: Store) -> Start:
    """Return how a shard with this database starts. Raise RetryableError if the log did not answer."""
    checked = StartCheckedLog(log, shard, store)
    return Start(checked, checked.must_defer, FOLLOWED.published_below(log, shard))
