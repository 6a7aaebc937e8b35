"""The ways of deletions: the steps of each deleted version, in order, and what it waits for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from services.tracing.steps import Station, Step, Version

MOST_WAYS = 100_000
"""Ways of a shard that are kept at a time: some 150 MB."""
OVER = frozenset({Station.FREED, Station.REMOVED, Station.MISSING})
_WAITS_FOR = {
    Station.REQUESTED: "metadata to apply it",
    Station.DELETED: "the first judge, or for the snapshots that hold it",
    Station.SWEPT: "the first judge, or for the snapshots that hold it",
    Station.JUDGED: "key_deletion: the undo window, purge hours and rates",
    Station.EXPANDED: "directory_deletion: what is below it, and the snapshots that hold it",
    Station.CLAIM_SENT: "metadata to apply the claim",
    Station.CLAIMED: "key_deletion to send the block deletion",
    Station.REFUSED: "the snapshot that holds it",
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
        return self.steps[-1].station in OVER

    @property
    def state(self) -> str:
        """Return where the version is, or what it waits for."""
        last = self.steps[-1].station
        return last.says if last in OVER else f"waits for {_WAITS_FOR[last]}"

    @property
    def total_ms(self) -> int:
        """Return the time from the first step to the last."""
        return self.steps[-1].time_ms - self.steps[0].time_ms

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
    """The ways of the versions that are wanted, the first ones forgotten once there are more than ``most``."""

    is_wanted: Callable[[Version], bool]
    most: int = MOST_WAYS
    known: OrderedDict[Version, Way] = field(default_factory=OrderedDict)
    forgotten: int = 0

    def add(self, step: Step) -> Way | None:
        """Add a step; return the way that was forgotten for it, if any."""
        if not self.is_wanted(step.version):
            return None
        way = self.known.get(step.version)
        if way is None:
            way = self.known[step.version] = Way(step.version)
        way.add(Step(way.version, *step[1:]))  # all steps of a way share one name
        if len(self.known) <= self.most:
            return None
        self.forgotten += 1
        return self.known.popitem(last=False)[1]

    def pop_over(self) -> list[Way]:
        """Remove and return the ways that are over."""
        found = [way for way in self.known.values() if way.is_over]
        for way in found:
            del self.known[way.version]
        return found
