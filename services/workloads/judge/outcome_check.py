"""Check a plane's listings and blocks after a workload against a model and an independent truth.

``ExpectedVersions`` applies every operation that the plane accepted to the model, and so knows each version; each put
makes one version. The truth holds the expected listing of each view; its source may be git. The check compares the
plane's listings with the truth, the model's listings with the truth, and the existing versions with the versions that
the active namespace or a live snapshot lists.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from services.workloads.judge.model_bucket import Version, View
from services.workloads.judge.namespace_model import NamespaceModel
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

    def view(self, name: str) -> View:
        """Return the view of a live snapshot, or of the active namespace for an empty name."""
        return self.snapshots[name] if name else self.active()

    def needed_versions(self) -> frozenset[int]:
        """Return the numbers of the versions that the active namespace or a live snapshot lists."""
        return self._model.held_versions()

    def exclusive_bytes(self) -> dict[str, int]:
        """Return for each live snapshot the bytes of the versions that no other view lists."""
        return self._model.exclusive_bytes(self.volume, self.bucket)


Truth = Callable[[str], Listing]
"""Returns the expected listing of a live snapshot, or of the active namespace for an empty name."""


def model_truth(model: ExpectedVersions) -> Truth:
    """Return a truth from the model, for a workload without an independent source."""
    return lambda name: listing_of(model.view(name))


@dataclass(slots=True)
class CheckResult:
    """The outcome: the number of errors by kind, and at most ``_MOST_EXAMPLES_COUNT`` example sentences."""

    counts: dict[str, int] = field(default_factory=lambda: {"listing_mismatches": 0, "lost": 0, "leaked": 0})
    examples: list[str] = field(default_factory=list)

    def add(self, kind: str, example: str) -> None:
        """Count an error."""
        self.counts[kind] += 1
        if len(self.examples) < _MOST_EXAMPLES_COUNT:
            self.examples.append(example)


class OutcomeCheck:
    """Compares the plane's listings view by view, so that only one listing is in memory at a time.

    A check that compared nothing must not pass: ``finish`` counts each view that was not compared as a mismatch, and
    raises ValueError if the versions were not compared.
    """

    def __init__(self, model: ExpectedVersions, truth: Truth) -> None:
        self._model = model
        self._truth = truth
        self._result = CheckResult()
        self._unseen = {*model.snapshots, ""}
        self._has_seen_versions = False

    def compare(self, name: str, listing: Listing) -> None:
        """Compare the plane's listing of a snapshot, or of the active namespace for an empty name."""
        if name and name not in self._model.snapshots:
            example = f"snapshot {name} is listed although it does not exist or was deleted"
            self._result.add("listing_mismatches", example)
            return
        self._unseen.discard(name)
        expected = self._truth(name)
        # Lost and leaked versions are counted with the model, so the model itself must agree with the truth.
        for who, listed in (("plane", listing), ("model", listing_of(self._model.view(name)))):
            for path in expected.keys() | listed.keys():
                should, has = expected.get(path), listed.get(path)
                if should != has:
                    example = f"{_view_name(name)}: {path!r} should be {should}, the {who} has {has}"
                    self._result.add("listing_mismatches", example)

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
                self._result.add("lost", f"lost: {_describe(version)} can still be reached and its blocks are gone")
            elif is_there and number not in needed:
                self._result.add("leaked", f"leaked: {_describe(version)} cannot be reached and its blocks are kept")

    def finish(self) -> CheckResult:
        """Return the result of all comparisons.

        Raises:
            ValueError: the versions were not compared.
        """
        if not self._has_seen_versions:
            raise ValueError("call compare_versions before finish")
        for name in sorted(self._unseen, key=lambda name: (not name, name)):
            self._result.add("listing_mismatches", f"{_view_name(name)}: not listed at all")
        return self._result


def _view_name(name: str) -> str:
    return f"snapshot {name}" if name else "active namespace"


def _describe(version: Version) -> str:
    return f"put {version.number} of {version.key!r} ({version.size_bytes} bytes, tag {version.tag})"
