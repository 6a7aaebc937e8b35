"""The ways of deletions: the steps of each deleted version, in order, and what it waits for."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from services.tracing.steps import Station, Step, Version

MOST_WAYS = 250_000
"""Deletions of a shard that are kept while they are in progress: some 350 MB."""
GRACE_MS = 5_000
"""How long after its end a way waits for a step whose broker has another clock."""
BEGINNINGS = frozenset({Station.DELETED, Station.SWEPT})
OVER = frozenset({Station.FREED, Station.REMOVED, Station.MISSING})
_WAITS_FOR = {
    Station.REQUESTED: "metadata to apply it",
    Station.DELETED: "the first judge, or for a drop of the snapshots that hold it",
    Station.SWEPT: "the first judge, or for a drop of the snapshots that hold it",
    Station.JUDGED: "key_deletion: the undo window, purge hours and rates, or suspended collection",
    Station.EXPANDED: "directory_deletion: removal of the rows below the directory, and the drop of the snapshots that "
    "hold the directory",
    Station.CLAIM_SENT: "metadata to apply the claim",
    Station.CLAIMED: "key_deletion to send the block deletion",
    Station.REFUSED: "a drop of the snapshot that holds it",
    Station.SUSPENDED: "collection to resume (deepclean gc, deepclean breaker)",
    Station.BLOCKS_SENT: "the block store",
    Station.BLOCKS_DELETED: "key_deletion to send the finish",
    Station.BLOCKS_FAILED: "the next attempt of key_deletion",
    Station.FINISH_SENT: "metadata to apply the finish",
}


@dataclass(slots=True)
class Way:
    """The way of one version, as far as the messages that were read tell it."""

    version: Version
    steps: list[Step] = field(default_factory=list)
    """In their order; a step that was repeated, after a crash or by a sweep, is there again."""

    @property
    def is_over(self) -> bool:
        """Return whether nothing more happens to the version."""
        return self._end is not None

    @property
    def state(self) -> str:
        """Return where the version is, or what it waits for."""
        return self._end.says if self._end else f"waits for {_WAITS_FOR[self.steps[-1].station]}"

    @property
    def _end(self) -> Station | None:
        """Return the last end: by another broker's clock it may be before the step that has led to it."""
        return next((step.station for step in reversed(self.steps) if step.station in OVER), None)

    @property
    def total_ms(self) -> int:
        """Return the time from the first step to the last."""
        return self.steps[-1].time_ms - self.steps[0].time_ms

    @property
    def has_beginning(self) -> bool:
        """Return whether its first step is known, and not only what came after a way was given up."""
        return any(step.station in BEGINNINGS for step in self.steps)

    def waits(self) -> Iterator[tuple[Step, int]]:
        """Yield each step with the time since the one before it, in milliseconds."""
        before = self.steps[0].time_ms
        for step in self.steps:
            yield step, step.time_ms - before
            before = step.time_ms

    def longest(self) -> tuple[Step, int]:
        """Return the step that took longest, and its time in milliseconds."""
        return max(self.waits(), key=lambda one: one[1])

    def fact(self, name: str) -> int:
        """Return what the last step that says it says; 0 if none does."""
        return next((value for step in reversed(self.steps) for known, value in step.facts if known == name), 0)

    def add(self, step: Step) -> None:
        """Add a step at its place; messages of different topics come in any order."""
        self.steps.append(step)
        if len(self.steps) > 1 and step.place < self.steps[-2].place:
            self.steps.sort(key=lambda one: one.place)


@dataclass(slots=True)
class Ways:
    """The ways of the versions that are wanted, from steps in the order of time.

    A way is given out some time after it is over, since the clocks of brokers differ a little. If more than ``most``
    are in progress, the first ones are given up.
    """

    is_wanted: Callable[[Version], bool]
    most: int = MOST_WAYS
    known: OrderedDict[Version, Way] = field(default_factory=OrderedDict)
    given_up: int = 0
    """Number of deletions that were given up, each once."""
    _ended: deque[tuple[int, Version]] = field(default_factory=deque)

    def add(self, step: Step) -> list[Way]:
        """Add a step; return the ways that are given out for it, or up."""
        if not self.is_wanted(step.version):
            return []
        way = self.known.get(step.version)
        if way is None:
            way = self.known[step.version] = Way(step.version)
        way.add(Step(way.version, *step[1:]))  # all steps of a way share one name
        if step.station in OVER:
            self._ended.append((step.time_ms, way.version))
        found = self.pop_over(step.time_ms - GRACE_MS)
        if len(self.known) > self.most:
            first = self.known.popitem(last=False)[1]
            self.given_up += first.has_beginning  # what is left of one that was given up has none
            found.append(first)
        return found

    def pop_over(self, until_ms: float) -> list[Way]:
        """Remove and return the ways that were over before a time."""
        found = []
        while self._ended and self._ended[0][0] < until_ms:
            way = self.known.pop(self._ended.popleft()[1], None)
            if way is not None:
                found.append(way)
        return found
