"""Follows the deletions of a shard: what is new is read, and the ways that are over, or stand still, are given out."""

from __future__ import annotations

from collections.abc import Iterator

from services.log.port import DatedLog
from services.tracing.reader import StepReader
from services.tracing.steps import Version
from services.tracing.trace_ids import is_chosen, trace_id
from services.tracing.ways import MOST_WAYS, Way, Ways


class FollowedShard:
    """The deletions of a shard since a time: all of them, or a share that is chosen by their traces' ids."""

    def __init__(
        self, log: DatedLog, shard: int, since_ms: int, *, bucket_id: int = 0, share: float = 1.0, most: int = MOST_WAYS
    ) -> None:
        """``bucket_id``: only versions of this bucket; 0 for all."""
        self.shard = shard
        self.reader = StepReader(log, shard, since_ms)

        def is_wanted(version: Version) -> bool:
            is_here = not bucket_id or version.bucket_id == bucket_id
            return is_here and (share >= 1 or is_chosen(trace_id(shard, version), share))

        self.ways = Ways(is_wanted, most)

    def read(self) -> list[Way]:
        """Read what is new; return the ways that had to be given up for it, the first ones first."""
        return [self._whole(way) for step in self.reader.read() if (way := self.ways.add(step)) is not None]

    def over(self, quiet_since_ms: float) -> list[Way]:
        """Return, once, the ways that are over, and those without a step since a time.

        If a way that stood still goes on later, it is given out again, with its later steps only.
        """
        return [self._whole(way) for way in self.ways.pop_over(quiet_since_ms)]

    def all(self) -> Iterator[Way]:
        """Yield all ways that are known, as they are now, in the order in which they began to be known."""
        for way in self.ways.known.values():
            yield self._whole(way)

    def _whole(self, way: Way) -> Way:
        """Return a way with the request by which it began, if that is known."""
        first = self.reader.requests.step_of(way.version)
        if first is None or first.time_ms > way.steps[0].time_ms:
            return way
        return Way(way.version, [first, *way.steps])
