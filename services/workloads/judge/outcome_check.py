"""Check a plane's listings and blocks after a workload against a model and an independent truth.

``ExpectedVersions`` applies every operation that the plane accepted to the model, and so knows each version; each put
makes one version. The truth holds the expected listing of each view; its source may be git. The check compares the
plane's listings with the truth, the model's listings with the truth, and the existing versions with the versions that
the active namespace or a live snapshot lists.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from services.workloads.judge.namespace_model import NamespaceModel, Version, View
from services.workloads.workload import Operation

_MOST_EXAMPLES_COUNT: Final = 10


@dataclass(frozen=True, slots=True)
class ListedKey:
    """The content of one path in a listing."""

    tag: str
    size_bytes: int


Listing = Mapping[str, ListedKey]


def listing_of(view: View) -> dict[str, ListedKey]:
    """Return a view of the model as a listing."""
    return {path: ListedKey(version.tag, version.size_bytes) for path, version in view.keys.items()}


class ExpectedVersions:
    """Every version that was put into one bucket, and the views that list it."""

    def __init__(self, volume: str, bucket: str) -> None:
        self.volume = volume
        self.bucket = bucket
        self._model = NamespaceModel()
        self.operation_count = 0

    def record(self, operation: Operation) -> int:
        """Apply an operation to the model and return its number.

        Raises:
            OperationRefusedError: the plane must refuse this operation.
        """
        number = self.operation_count
        self._model.apply(number, operation)
        self.operation_count += 1
        return number

    @property
    def versions(self) -> Mapping[int, Version]:
        """All versions by the operation number of their put."""
        return self._model.versions

    @property
    def snapshots(self) -> Mapping[str, View]:
        """The view of each live snapshot, oldest first."""
        return self._model.snapshots(self.volume, self.bucket)

    def active(self) -> View:
        """Return the view of the active namespace."""
        return self._model.active(self.volume, self.bucket)

    def needed_versions(self) -> frozenset[int]:
        """Return the numbers of the versions that the active namespace or a live snapshot lists."""
        return self._model.held_versions()

    def exclusive_bytes(self) -> dict[str, int]:
        """Return for each live snapshot the bytes of the versions that no other view lists."""
        return self._model.exclusive_bytes(self.volume, self.bucket)


class ListingTruth(Protocol):
    """The expected listing of every view."""

    def snapshot(self, name: str) -> Listing:
        """Return the expected listing of a live snapshot."""
        ...

    def active(self) -> Listing:
        """Return the expected listing of the active namespace."""
        ...


class ModelTruth:
    """Takes the expected listings from the model, for a workload without an independent source."""

    def __init__(self, model: ExpectedVersions) -> None:
        self._model = model

    def snapshot(self, name: str) -> Listing:
        """Return the expected listing of a live snapshot."""
        return listing_of(self._model.snapshots[name])

    def active(self) -> Listing:
        """Return the expected listing of the active namespace."""
        return listing_of(self._model.active())


@dataclass(slots=True)
class CheckResult:
    """The outcome: three error counts, and at most ``_MOST_EXAMPLES_COUNT`` example sentences."""

    listing_mismatches: int = 0
    lost: int = 0
    leaked: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Return whether all counts are 0."""
        return not (self.listing_mismatches or self.lost or self.leaked)

    def counts(self) -> dict[str, int]:
        """Return the counts by their names in a report."""
        return {"listing_mismatches": self.listing_mismatches, "lost": self.lost, "leaked": self.leaked}

    def add_example(self, example: str) -> None:
        """Keep an example, at most ``_MOST_EXAMPLES_COUNT``."""
        if len(self.examples) < _MOST_EXAMPLES_COUNT:
            self.examples.append(example)


class OutcomeCheck:
    """Compares the plane's listings view by view, so that only one listing is in memory at a time.

    A check that compared nothing must not pass: ``finish`` counts each view that was not compared as a mismatch, and
    raises ValueError if the versions were not compared.
    """

    def __init__(self, model: ExpectedVersions, truth: ListingTruth) -> None:
        self._model = model
        self._truth = truth
        self._result = CheckResult()
        self._unseen = set(model.snapshots)
        self._has_seen_active = False
        self._has_seen_versions = False

    def compare_snapshot(self, name: str, listing: Listing) -> None:
        """Compare the plane's listing of a snapshot."""
        if name not in self._model.snapshots:
            self._result.listing_mismatches += 1
            self._result.add_example(f"snapshot {name} is listed although it does not exist or was deleted")
            return
        self._unseen.discard(name)
        self._compare(f"snapshot {name}", self._truth.snapshot(name), listing, self._model.snapshots[name])

    def compare_active(self, listing: Listing) -> None:
        """Compare the plane's listing of the active namespace."""
        self._has_seen_active = True
        self._compare("active namespace", self._truth.active(), listing, self._model.active())

    def compare_versions(self, existing: Mapping[int, bool]) -> None:
        """Compare the versions that have blocks in the store, by the number of their put. A missing number has none.

        Raises:
            ValueError: a number is not that of a put.
        """
        self._has_seen_versions = True
        versions = self._model.versions
        unknown = [number for number in existing if number not in versions]
        if unknown:
            raise ValueError(f"operation {unknown[0]} is no put of this workload; report versions by their put")
        needed = self._model.needed_versions()
        for number, version in versions.items():
            if not version.size_bytes:
                continue  # it has no blocks
            is_there = existing.get(number, False)
            if number in needed and not is_there:
                self._result.lost += 1
                self._result.add_example(f"lost: {_describe(version)} can still be reached and its blocks are gone")
            elif is_there and number not in needed:
                self._result.leaked += 1
                self._result.add_example(f"leaked: {_describe(version)} cannot be reached and its blocks are kept")

    def finish(self) -> CheckResult:
        """Return the result of all comparisons.

        Raises:
            ValueError: the versions were not compared.
        """
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
        # Lost and leaked versions are counted with the model, so the model itself must agree with the truth.
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
