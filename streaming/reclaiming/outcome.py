"""What a batch came to, as the driver knows it: counts, barriers, and messages that could not be judged yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.records import Barrier


@dataclass(frozen=True, slots=True)
class PlacedBarrier:
    """A barrier that was among the messages of a batch."""

    shard: int
    offset: int
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class PrematureMessage:
    """A message whose sender knew of more chain than the view; nothing was sent about it."""

    shard: int
    offset: int
    chain_version: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages of a shard: from one offset up to another."""

    shard: int
    first: int
    beyond: int


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What one batch held."""

    entries: int = 0
    reclaimable: int = 0
    held: int = 0
    dead_letters: int = 0
    premature: tuple[PrematureMessage, ...] = ()
    passed_over: tuple[Stretch, ...] = ()
    """Messages of shards without a view; nothing was sent about them. One stretch a shard."""
    barriers: tuple[PlacedBarrier, ...] = ()


def batch_outcome(found: Iterable[Mapping[str, Any]]) -> BatchOutcome:
    """What a batch held, out of its rows of results."""
    rows = list(found)
    barriers = [
        PlacedBarrier(row["shard"], one["offset"], Barrier(**one["barrier"].asDict()))
        for row in rows
        for one in row["barriers"]
    ]
    premature = [
        PrematureMessage(row["shard"], one["offset"], one["chain_version"]) for row in rows for one in row["premature"]
    ]
    return BatchOutcome(
        entries=sum(row["entries"] for row in rows),
        reclaimable=sum(row["reclaimable_rows"] + row["reclaimable_directories"] for row in rows),
        held=sum(row["held"] for row in rows),
        dead_letters=sum(row["dead_letters"] for row in rows),
        premature=tuple(sorted(premature, key=lambda one: (one.shard, one.offset))),
        passed_over=_joined(rows),
        barriers=tuple(sorted(barriers, key=lambda one: (one.shard, one.offset))),
    )


def _joined(rows: Iterable[Mapping[str, Any]]) -> tuple[Stretch, ...]:
    """All that was passed over, as one stretch a shard: the messages of a batch follow one another."""
    found: dict[int, Stretch] = {}
    for row in rows:
        if row["passed_first"] is not None:
            shard, first, beyond = row["shard"], row["passed_first"], row["passed_last"] + 1
            before = found.get(shard, Stretch(shard, first, beyond))
            found[shard] = Stretch(shard, min(before.first, first), max(before.beyond, beyond))
    return tuple(found[shard] for shard in sorted(found))
