"""A database made once more from its log, in memory: for tests that compare the two."""

from __future__ import annotations

from schemas.topics import METADATA_COMMANDS
from services.log.memory import MemoryLog
from services.metadata.recovery.digest import digest_shard
from services.metadata.recovery.rebuild import Rebuild
from services.metadata.state.tables import CHECKPOINTED
from services.storage.digest import ShardDigest
from services.storage.memory import MemoryStore


def same_commands(log: MemoryLog, shard: int = 0) -> MemoryLog:
    """Another log that holds nothing but the commands of a shard."""
    copied = MemoryLog(log.clock)
    copied.partitions[METADATA_COMMANDS.name, shard] = list(log.records(METADATA_COMMANDS.name, shard))
    return copied


def rebuilt_digest(log: MemoryLog, max_batch_messages: int, shard: int = 0, end: int | None = None) -> ShardDigest:
    """The digest of a shard made from its commands alone, in batches of some size."""
    store = MemoryStore(CHECKPOINTED)
    rebuild = Rebuild(shard, store, same_commands(log, shard), max_batch_messages=max_batch_messages)
    rebuild.run_to(rebuild.end if end is None else end)
    return digest_shard(store)
