"""In which shard a new volume is created: a rule without state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

DONE_MS = 3_600_000
"""The time, up to now, whose commands count as what a shard does."""
_KEPT_UNIT_BYTES = 1 << 20
"""Smaller differences of databases are chance: files that are merged sooner or later."""


@dataclass(frozen=True, slots=True)
class ShardLoad:
    """What one shard keeps and does."""

    kept_bytes: int
    """Bytes of metadata's database, without checkpoints."""
    done_commands: int
    """Commands that were appended to the shard's log within the last ``DONE_MS``."""


def by_name(volume: str, shards: int) -> int:
    """Return a shard that follows from the name alone: the first choice among equal shards."""
    return crc32(volume.encode()) % shards


def least_loaded(loads: Sequence[ShardLoad], volume: str) -> int:
    """Return the shard that has least: its share of all that is kept and its share of all that is done, added up.

    Equal shards are taken in a circle that begins at ``by_name``, so that the volumes of a new plane are spread.
    """
    kept = [load.kept_bytes // _KEPT_UNIT_BYTES for load in loads]
    done = [load.done_commands for load in loads]
    all_kept, all_done = max(sum(kept), 1), max(sum(done), 1)
    first = by_name(volume, len(loads))

    def rank(shard: int) -> tuple[int, int]:  # whole numbers: the same choice on every machine
        return kept[shard] * all_done + done[shard] * all_kept, (shard - first) % len(loads)

    return min(range(len(loads)), key=rank)
