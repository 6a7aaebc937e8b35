"""The outcome of a batch in the driver: counts, barriers, and messages that cannot be judged yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.records import Barrier


@dataclass(frozen=True, slots=True)
class PlacedBarrier:
    """A barrier in a batch, with its shard and offset."""

    shard: int
    offset: int
    barrier: Barrier


@dataclass(frozen=True, slots=True, order=True)
class PrematureMessage:
    """A message whose chain version is above the view's; nothing was published for it."""

    shard: int
    offset: int
    chain_version: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages of a shard with first <= offset < beyond."""

    shard: int
    first: int
    beyond: int


@dataclass(frozen=True, slots=True, order=True)
class PublishedEntries:
    """So many entries that were judged, and the time at which the oldest of their messages was written."""

    oldest_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """Counts, barriers and waiting messages of one batch."""

    entries: int = 0
    reclaimable: int = 0
    held: int = 0
    dead_letters: int = 0
    premature: tuple[PrematureMessage, ...] = ()
    passed_over: tuple[Stretch, ...] = ()
    """Messages of shards that cannot be judged now; nothing was published for them. One stretch a shard."""
    barriers: tuple[PlacedBarrier, ...] = ()
    published: tuple[PublishedEntries, ...] = ()
    """All judged entries, up to 200 consecutive messages of a shard together."""


def batch_outcome(found: Iterable[Mapping[str, Any]]) -> BatchOutcome:
    """Return the outcome of a batch from its rows of results."""
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
        premature=tuple(sorted(premature)),
        passed_over=_joined(rows),
        barriers=tuple(sorted(barriers, key=lambda one: (one.shard, one.offset))),
        published=tuple(
            sorted(PublishedEntries(row["oldest_ms"], row["entries"]) for row in rows if row["oldest_ms"] is not None)
        ),
    )


def _joined(rows: Iterable[Mapping[str, Any]]) -> tuple[Stretch, ...]:
    """Return one stretch for each shard that was passed over: the messages of a batch are consecutive."""
    found: dict[int, Stretch] = {}
    for row in rows:
        if row["passed_first"] is not None:
            shard, first, beyond = row["shard"], row["passed_first"], row["passed_last"] + 1
            before = found.get(shard, Stretch(shard, first, beyond))
            found[shard] = Stretch(shard, min(before.first, first), max(before.beyond, beyond))
    return tuple(found[shard] for shard in sorted(found))
