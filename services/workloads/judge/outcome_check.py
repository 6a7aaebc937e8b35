"""Judges what a plane shows and keeps after a workload, with the model and an independent truth.

``ExpectedVersions`` plays every operation that the plane accepted and so knows each version, a version being one
put. The truth says what each view must list; it may be git itself. The check compares: listings with
the truth, the expected versions with the truth, and the versions that exist with those that somebody can still reach.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from services.workloads.judge.namespace_model import NamespaceModel, Version, View
from services.workloads.workload import Operation

_MOST_EXAMPLES_COUNT: Final = 10


@dataclass(frozen=True, slots=True)
class ListedKey:
    """What a listing says of one path."""

    tag: str
    size_bytes: int


Listing = Mapping[str, ListedKey]


def listing_of(view: View) -> dict[str, ListedKey]:
    """A view of the model as a listing."""
    return {path: ListedKey(version.tag, version.size_bytes) for path, version in view.keys.items()}


class ExpectedVersions:
    """Every version that was put into one bucket, and which views hold it."""

    def __init__(self, volume: str, bucket: str) -> None:
        self.volume = volume
        self.bucket = bucket
        self._model = NamespaceModel()
        self.operation_count = 0

    def record(self, operation: Operation) -> int:
        """Play an operation that the plane is given and return its number; one that must be refused raises."""
        number = self.operation_count
        self._model.apply(number, operation)
        self.operation_count += 1
        return number

    @property
    def versions(self) -> Mapping[int, Version]:
        """Every version by the operation number of its put."""
        return self._model.versions

    @property
    def snapshots(self) -> Mapping[str, View]:
        """What each live snapshot holds, oldest first."""
        return self._model.snapshots(self.volume, self.bucket)

    def active(self) -> View:
        """What the active namespace holds."""
        return self._model.active(self.volume, self.bucket)

    def needed_versions(self) -> frozenset[int]:
        """The versions that the active namespace or a live snapshot holds."""
        return self._model.held_versions()

    def exclusive_bytes(self) -> dict[str, int]:
        """For each live snapshot the bytes that it alone holds."""
        return self._model.exclusive_bytes(self.volume, self.bucket)


class ListingTruth(Protocol):
    """Knows what every view must list."""

    def snapshot(self, name: str) -> Listing:
        """What this live snapshot must list."""
        ...

    def active(self) -> Listing:
        """What the active namespace must list."""
        ...


class ModelTruth:
    """The truth of a workload that no one else knows: the model of the expected versions."""

    def __init__(self, model: ExpectedVersions) -> None:
        self._model = model

    def snapshot(self, name: str) -> Listing:
        """What this live snapshot must list."""
        return listing_of(self._model.snapshots[name])

    def active(self) -> Listing:
        """What the active namespace must list."""
        return listing_of(self._model.active())


@dataclass(slots=True)
class CheckResult:
    """The outcome: three counts that must be 0, and a few sentences about what is behind them."""

    listing_mismatches: int = 0
    lost: int = 0
    leaked: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.listing_mismatches or self.lost or self.leaked)

    def counts(self) -> dict[str, int]:
        """The part of a report."""
        return {"listing_mismatches": self.listing_mismatches, "lost": self.lost, "leaked": self.leaked}

    def add_example(self, example: str) -> None:
        """Keep an example unless there are enough."""
        if len(self.examples) < _MOST_EXAMPLES_COUNT:
            self.examples.append(example)


class OutcomeCheck:
    """Takes what the plane shows, view by view, so that only one listing is in memory at a time.

    ``finish`` counts each view that was never compared as a mismatch, and refuses to answer at all
    before the versions were compared: a check that looked at nothing must not pass.
    """

    def __init__(self, model: ExpectedVersions, truth: ListingTruth) -> None:
        self._model = model
        self._truth = truth
        self._result = CheckResult()
        self._unseen = set(model.snapshots)
        self._has_seen_active = False
        self._has_seen_versions = False

    def compare_snapshot(self, name: str, listing: Listing) -> None:
        """Compare what the plane lists in a snapshot."""
        if name not in self._model.snapshots:
            self._result.listing_mismatches += 1
            self._result.add_example(f"snapshot {name} is listed although it does not exist or was deleted")
            return
        self._unseen.discard(name)
        self._compare(f"snapshot {name}", self._truth.snapshot(name), listing, self._model.snapshots[name])

    def compare_active(self, listing: Listing) -> None:
        """Compare what the plane lists in the active namespace."""
        self._has_seen_active = True
        self._compare("active namespace", self._truth.active(), listing, self._model.active())

    def compare_versions(self, existing: Mapping[int, bool]) -> None:
        """Compare which versions' blocks exist, by the number of the put; a number left out is one that is gone."""
        self._has_seen_versions = True
        versions = self._model.versions
        unknown = [number for number in existing if number not in versions]
        if unknown:
            raise ValueError(f"operation {unknown[0]} is no put of this workload; report versions by their put")
        needed = self._model.needed_versions()
        for number, version in versions.items():
            if not version.size_bytes:
                continue  # no blocks, nothing to lose
            is_there = existing.get(number, False)
            if number in needed and not is_there:
                self._result.lost += 1
                self._result.add_example(f"lost: {_describe(version)} can still be reached and its blocks are gone")
            elif is_there and number not in needed:
                self._result.leaked += 1
                self._result.add_example(f"leaked: {_describe(version)} cannot be reached and its blocks are kept")

    def finish(self) -> CheckResult:
        """The result of all comparisons."""
        if not self._has_seen_versions:
            raise ValueError("call compare_versions before finish")
        unseen = [f"snapshot {name}" for name in sorted(self._unseen)]
        if not self._has_seen_active:
            unseen.append("active namespace")
        for view in unseen:
            self._result.listing_mismatches += 1
            self._result.add_example(f"{view}: not listed at all")
        self._unseen.clear()
        self._has_seen_active = True
        return self._result

    def _compare(self, view_name: str, expected: Listing, listed: Listing, held: View) -> None:
        self._count_differences(view_name, "plane", expected, listed)
        # Lost and leaked are judged by the expected versions, so they must themselves agree with the truth.
        self._count_differences(view_name, "model", expected, listing_of(held))

    def _count_differences(self, view_name: str, who: str, expected: Listing, listed: Listing) -> None:
        for path in expected.keys() | listed.keys():
            if expected.get(path) != listed.get(path):
                self._result.listing_mismatches += 1
                self._result.add_example(
                    f"{view_name}: {path!r} should be {expected.get(path)}, the {who} has {listed.get(path)}"
                )


def _describe(version: Version) -> str:
    return f"put {version.number} of {version.key!r} ({version.size_bytes} bytes, tag {version.tag})"
