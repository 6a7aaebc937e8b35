"""In which shard a new volume is created: a rule without state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def least_loaded(loads: Sequence[ShardLoad], first: int) -> int:
    """Return the shard that has least: its share of all that is kept and its share of all that is done, added up.

    Of equal shards the next one from ``first`` on is returned, in a circle.
    """
    kept = [load.kept_bytes // _KEPT_UNIT_BYTES for load in loads]
    done = [load.done_commands for load in loads]
    all_kept, all_done = max(sum(kept), 1), max(sum(done), 1)

    def rank(shard: int) -> tuple[int, int]:  # whole numbers: the same choice on every machine
        return kept[shard] * all_done + done[shard] * all_kept, (shard - first) % len(loads)

    return min(range(len(loads)), key=rank)
