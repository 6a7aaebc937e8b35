"""Garbage collection that runs at settles only, for workloads with quotas.

A quota counts what is deleted until it is freed, and a plane frees it at some time after the deletion. Whether a later
operation fits must not depend on that: so the collection of the workload's buckets is paused from one settle to the
next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.records import CollectionState, SetCollection
from services.client.plane import Plane

_REASON = "a workload with quotas frees deleted versions at its settles only"


@dataclass(slots=True)
class HeldCollection:
    """The collection of a workload's buckets."""

    plane: Plane
    is_needed: bool = False
    _buckets: dict[tuple[int, tuple[str, str]], None] = field(default_factory=dict)
    """Shard and names of each bucket."""
    _is_paused: bool = False

    def hold(self, shard: int, names: tuple[str, str]) -> None:
        """Pause the collection of a new bucket, if that is needed at all."""
        if self.is_needed:
            self._buckets[shard, names] = None
            self._set(shard, names, CollectionState.PAUSED)

    def pause(self) -> None:
        """Pause collection until the next settle."""
        if not self._is_paused:
            self._set_all(CollectionState.PAUSED)
            self._is_paused = True

    def resume(self) -> None:
        """Let collection run."""
        self._set_all(CollectionState.RUNNING)
        self._is_paused = False

    def _set_all(self, state: CollectionState) -> None:
        for shard, names in self._buckets:
            self._set(shard, names, state)

    def _set(self, shard: int, names: tuple[str, str], state: CollectionState) -> None:
        """Set the state of a bucket. There may be no bucket: it was refused, or is deleted."""
        number = self.plane.submit(shard, SetCollection(*names, state, _REASON))
        self.plane.answer(shard, number)
