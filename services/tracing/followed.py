"""Follows the deletions of a shard: what is new is read, and the ways that are over, or stand still, are given out."""

from __future__ import annotations

from collections.abc import Iterator

from services.log.port import DatedLog
from services.tracing.reader import StepReader
from services.tracing.steps import Station, Version
from services.tracing.trace_ids import is_chosen, trace_id
from services.tracing.ways import GRACE_MS, MOST_WAYS, Way, Ways


class FollowedShard:
    """The deletions of a shard since a time: all of them, or a share that is chosen by their traces' ids."""

    def __init__(
        self,
        log: DatedLog,
        shard: int,
        since_ms: int,
        *,
        bucket_id: int = 0,
        death: int = 0,
        share: float = 1.0,
        most: int = MOST_WAYS,
    ) -> None:
        """``bucket_id``, ``death``: only versions of this bucket, and that died at this txn; 0 for all."""
        self.shard = shard
        self.reader = StepReader(log, shard, since_ms)

        def is_wanted(version: Version) -> bool:
            is_named = bucket_id in (0, version.bucket_id) and death in (0, version.death)
            return is_named and (share >= 1 or is_chosen(trace_id(shard, version), share))

        self.ways = Ways(is_wanted, most)

    def read(self) -> Iterator[Way]:
        """Read what is new. Yield the ways that are over, and those that have to be given up, as they are.

        Raises:
            RetryableError: the broker does not answer; the next call goes on from there.
        """
        for step in self.reader.read():
            for way in self.ways.add(step):
                yield self._whole(way)

    def over(self, now_ms: int) -> Iterator[Way]:
        """Yield the ways that were over a while ago."""
        for way in self.ways.pop_over(now_ms - GRACE_MS):
            yield self._whole(way)

    def all(self) -> Iterator[Way]:
        """Read what is new, and yield all ways up to now; raise as ``read`` does."""
        yield from self.read()
        for way in self.ways.known.values():
            yield self._whole(way)

    def _whole(self, way: Way) -> Way:
        """Return a way with the request by which it began, if that is known."""
        first = self.reader.requests.step_of(way.version)
        if first is None or way.steps[0].station is not Station.DELETED:
            return way
        return Way(way.version, [first, *way.steps])
