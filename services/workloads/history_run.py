"""Replay a history on a plane and check the outcome, for ``deepclean git`` and ``make run``.

The history is replayed commit by commit. Then a tree and some snapshots are deleted, the plane settles, and every
listing is compared with git, or, for a generated history, with a model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from schemas.answers import BucketSpace
from schemas.records import SnapshotInfo
from services.client.plane import Plane
from services.client.tasks.diffs import diff
from services.client.tasks.space_pages import all_cells
from services.domain.space_matrix import SpaceCell, cell_counts, freed_by_dropping
from services.workloads.closing import Closing, choose_closing, closing_operations
from services.workloads.judge.diff_check import flattened, listed_difference
from services.workloads.judge.outcome_check import CheckResult, ExpectedVersions, ListedKey, OutcomeCheck, Truth
from services.workloads.observing import list_everything
from services.workloads.replay import Replay
from services.workloads.source import WorkloadSource
from services.workloads.workload import Operation

SHARD = 0
"""Shard of every history: a history is one volume, and a replay puts its first volume on the first shard."""


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """The reported figures of one snapshot."""

    name: str
    commit: str
    created_ms: int
    keys: int
    referenced_bytes: int
    exclusive_bytes: int
    frees_bytes: int
    """Bytes that deleting this snapshot alone would free."""
    frees_versions: int


@dataclass(frozen=True, slots=True)
class Amount:
    """Versions and their bytes. Versions of zero bytes have no blocks and are not counted."""

    versions: int
    bytes: int


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """The report of a replayed history: its size, its times, the resulting snapshots and the outcome of the check."""

    source: str
    commits: int
    operations: int
    seconds: float
    played_seconds: float
    settled_seconds: float
    settle_rounds: int
    versions: dict[str, Amount]
    """Amounts by ``put``, ``live``, ``held``, ``pending``, ``claimed`` and ``freed``."""
    snapshots: list[SnapshotReport]
    removed_directory: str | None
    deleted_snapshots: tuple[str, ...]
    check: dict[str, int]
    """``listing_mismatches``, ``lost``, ``leaked``, ``refused``, ``wrong_sizes``, ``wrong_diffs`` and
    ``unaccounted_bytes``. All are 0 in a correct run."""
    examples: list[str]

    @property
    def is_clean(self) -> bool:
        """Return whether all counts of the check are 0."""
        return not any(self.check.values())


@dataclass(slots=True)
class HistoryRun:
    """The run of one history on one plane."""

    plane: Plane
    source: WorkloadSource
    source_name: str
    make_truth: Callable[[ExpectedVersions, Closing], Truth]
    on_stage: Callable[[str], None] = lambda _stage: None
    on_commits: Callable[[int, int], None] = lambda _commits, _operations: None
    _model: ExpectedVersions = field(init=False)
    _replay: Replay = field(init=False)
    _refused: list[str] = field(init=False, default_factory=list)
    _wrong_diffs: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._model = ExpectedVersions(self.source.volume, self.source.bucket)
        self._replay = Replay(self.plane)

    def run(self) -> HistoryReport:
        """Replay the history, delete a tree and some snapshots, settle the plane, and return the compared outcome."""
        started = time.monotonic()
        self.on_stage("playing the history")
        for operation in self.source.operations():
            self._execute(operation)
            self.on_commits(self.source.commits_read_count, self._model.operation_count)
        closing = choose_closing(self._model.active().keys, list(self._model.snapshots))
        self.on_stage("removing a tree and some snapshots")
        for operation in closing_operations(closing, self.source.volume, self.source.bucket):
            self._execute(operation)
        self._note_refusals(list(self._replay.collect()))
        played = time.monotonic()
        self.on_stage("settling")
        rounds = self._replay.settle()
        settled = time.monotonic()
        self.on_stage("comparing every snapshot")
        return self._report(closing, rounds, started, played, settled)

    def _execute(self, operation: Operation) -> None:
        number = self._model.record(operation)
        self._note_refusals(list(self._replay.execute(number, operation)))

    def _note_refusals(self, lines: list[dict[str, Any]]) -> None:
        self._refused += [f"operation {line['op']} was refused: {line['error']}" for line in lines]

    def _report(self, closing: Closing, rounds: int, started: float, played: float, settled: float) -> HistoryReport:
        volume, bucket = self.source.volume, self.source.bucket
        infos = self.plane.snapshots(SHARD).snapshots(volume, bucket)
        space = self.plane.metadata(SHARD).space(volume, bucket)
        check = OutcomeCheck(self._model, self.make_truth(self._model, closing))
        key_counts: dict[str, int] = {}
        before: tuple[str, dict[str, ListedKey]] | None = None
        for snapshot_id, name in [*((info.snapshot_id, info.name) for info in infos), ("", "")]:
            listing = self._listing(snapshot_id)
            check.compare(name, listing)
            if before is not None:
                self._compare_with_the_one_before(*before, snapshot_id, listing)
            before, key_counts[name] = (snapshot_id, listing), len(listing)
        existing = self._replay.existing_versions()
        check.compare_versions(
            {version.number: there for version, there in zip(self._replay.versions, existing, strict=True)}
        )
        result = check.finish()
        return HistoryReport(
            source=self.source_name,
            commits=self.source.commit_count,
            operations=self._model.operation_count,
            seconds=round(time.monotonic() - started, 3),
            played_seconds=round(played - started, 3),
            settled_seconds=round(settled - played, 3),
            settle_rounds=rounds,
            versions=self._amounts(space),
            snapshots=self._snapshot_reports(infos, key_counts),
            removed_directory=closing.directory,
            deleted_snapshots=closing.snapshots,
            check=self._counts(result, infos, space),
            examples=[*self._refused[:10], *self._wrong_diffs[:5], *result.examples],
        )

    def _compare_with_the_one_before(
        self, before_id: str, listing_before: dict[str, ListedKey], snapshot_id: str, listing: dict[str, ListedKey]
    ) -> None:
        """Check that the diff of two adjacent states equals the difference of their listings.

        The listings themselves are compared with the truth elsewhere.
        """
        names = (self.source.volume, self.source.bucket)
        reads = self.plane.metadata(SHARD)
        entries = diff(reads, *names, from_snapshot_id=before_id, to_snapshot_id=snapshot_id)
        if flattened(entries, listing_before, listing) != listed_difference(listing_before, listing):
            self._wrong_diffs.append(f"the diff of {before_id} and {snapshot_id or 'the present'} is not what differs")

    def _snapshot_reports(self, infos: list[SnapshotInfo], key_counts: dict[str, int]) -> list[SnapshotReport]:
        commits = {point.name: point.commit for point in self.source.snapshots}
        matrix = {
            (cell.first_holder, cell.last_holder): SpaceCell(*cell_counts(cell))
            for cell in all_cells(self.plane.metadata(SHARD), self.source.volume, self.source.bucket)
        }
        live = [info.create_txn for info in infos]
        frees = {info.name: freed_by_dropping(matrix, {info.create_txn}, live) for info in infos}
        return [
            SnapshotReport(
                name=info.name,
                commit=commits.get(info.name, ""),
                created_ms=info.creation_time_ms,
                keys=key_counts[info.name],
                referenced_bytes=info.referenced_bytes,
                exclusive_bytes=info.exclusive_bytes + info.exclusive_delta_bytes,
                frees_bytes=frees[info.name].bytes,
                frees_versions=frees[info.name].versions,
            )
            for info in infos
        ]

    def _listing(self, snapshot_id: str) -> dict[str, ListedKey]:
        entries = list_everything(self.plane, SHARD, self.source.volume, self.source.bucket, snapshot_id)
        return {entry.path: ListedKey(entry.tag, entry.size_bytes) for entry in entries if not entry.is_directory}

    def _amounts(self, space: BucketSpace) -> dict[str, Amount]:
        put = [version for version in self._replay.versions if version.size_bytes]
        live = [version for version in self._model.active().keys.values() if version.size_bytes]
        return {
            "put": Amount(len(put), sum(version.size_bytes for version in put)),
            "live": Amount(len(live), space.live_bytes),
            "held": Amount(space.held_versions, space.held_bytes),
            "pending": Amount(space.pending_versions, space.pending_bytes),
            "claimed": Amount(space.claimed_versions, space.claimed_bytes),
            "freed": Amount(space.freed_versions, space.freed_bytes),
        }

    def _counts(self, result: CheckResult, infos: list[SnapshotInfo], space: BucketSpace) -> dict[str, int]:
        exclusive = self._model.exclusive_bytes()
        wrong = [
            info.name
            for info in infos
            if info.exclusive_bytes + info.exclusive_delta_bytes != exclusive.get(info.name)
            or info.referenced_bytes != self._model.snapshots[info.name].referenced_bytes
        ]
        result.examples += [f"the sizes of snapshot {name} are not what a recount gives" for name in wrong[:5]]
        accounted = space.live_bytes + space.held_bytes + space.pending_bytes + space.claimed_bytes
        inventory = self.plane.scm(SHARD).totals().inventory_bytes
        return {
            **result.counts,
            "refused": len(self._refused),
            "wrong_sizes": len(wrong),
            "wrong_diffs": len(self._wrong_diffs),
            "unaccounted_bytes": abs(inventory - accounted),
        }
