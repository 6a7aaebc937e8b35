"""Answers questions on a report: the plane's rules of the space matrix and of retention, on data that others wrote."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow.compute as pc

from schemas.records import RetentionPolicy, SnapshotInfo, SnapshotStatus, TagRow
from services.domain.errors import DeepcleanError
from services.domain.retention import ExpiryDecision, InvalidPolicyError, check_policy, decide_expiry
from services.domain.run_space import RunCells, RunSpace
from services.domain.space_matrix import SpaceCell, by_replicated_bytes
from services.lens.relation import LensBucket, LensFinding, Ref, RefKind
from services.lens.report import Report, Thing

MOST_VERSIONS = 10_000
"""Most versions of one answer of ``explain``."""


class QuestionError(DeepcleanError):
    """The question cannot be answered as it is; the message says what to ask instead."""


@dataclass(frozen=True, slots=True)
class LensSnapshot:
    """What one snapshot holds."""

    name: str
    id: str
    kind: RefKind
    time_ms: int
    status: str
    protected_by: tuple[str, ...]
    referenced_bytes: int
    referenced_replicated_bytes: int
    exclusive_bytes: int
    exclusive_replicated_bytes: int
    exclusive_versions: int
    shared_with_previous_bytes: int
    shared_with_previous_replicated_bytes: int
    shared_with_next_bytes: int
    shared_with_next_replicated_bytes: int


@dataclass(frozen=True, slots=True)
class LensSpace:
    """Where the bytes of a bucket are."""

    bucket: str
    live_bytes: int
    live_replicated_bytes: int
    live_versions: int
    held_bytes: int
    held_replicated_bytes: int
    held_versions: int
    pending_bytes: int
    """What nobody holds, and has not gone yet."""
    pending_replicated_bytes: int
    pending_versions: int
    snapshots: tuple[LensSnapshot, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LensFreed:
    """What dropping some snapshots frees because of that, beyond what nobody holds already."""

    bucket: str
    snapshots: tuple[str, ...]
    freed_bytes: int
    freed_replicated_bytes: int
    freed_versions: int
    protected_by: tuple[str, ...]
    """Tags, branches or consumers that have to go first; the figures are as if they had gone."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LensPlan:
    """Snapshots whose drop frees the wanted bytes."""

    bucket: str
    snapshots: tuple[str, ...]
    wanted_bytes: int
    freed_bytes: int
    freed_replicated_bytes: int
    freed_versions: int
    is_enough: bool
    is_smallest: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LensVersion:
    """A version of a path, or another thing that costs bytes, and who holds it."""

    path: str
    id: str
    kind: str
    bytes: int
    replicated_bytes: int
    held_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LensExplanation:
    """Who holds a path, or the thing with an id."""

    bucket: str
    held_by: tuple[str, ...]
    """All that hold one of the versions, in their order."""
    bytes: int
    replicated_bytes: int
    versions: tuple[LensVersion, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LensRetention:
    """Which snapshots a policy would expire now, and what that would free."""

    bucket: str
    expired: tuple[str, ...]
    kept: dict[str, tuple[str, ...]]
    """By the name of a snapshot why it stays: MINIMUM, TAG, LIMIT, AGE."""
    freed_bytes: int
    freed_replicated_bytes: int
    freed_versions: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LensOrphans:
    """What the source's own tools do not show."""

    findings: tuple[LensFinding, ...]
    notes: tuple[str, ...]


class BucketQuestions:
    """The questions on one bucket of a report."""

    def __init__(self, report: Report, bucket: LensBucket) -> None:
        self.report = report
        self.bucket = bucket
        self.notes = (*report.head.notes, *bucket.notes)

    @cached_property
    def cells(self) -> RunCells:
        """The things of the bucket, summed by their holders."""
        return self.report.cells(self.bucket.name)

    @cached_property
    def matrix(self) -> RunSpace:
        """The same, to be asked."""
        return RunSpace(self.cells, self.bucket.active_place)

    def space(self) -> LensSpace:
        """Return where the bytes of the bucket are."""
        matrix = self.matrix
        refs = self.bucket.refs[: self.bucket.active_place]
        found = []
        for ref, share in zip(refs, matrix.shares(), strict=True):
            found.append(
                LensSnapshot(
                    name=ref.name,
                    id=ref.id,
                    kind=ref.kind,
                    time_ms=ref.time_ms,
                    status=ref.status,
                    protected_by=ref.protected_by,
                    referenced_bytes=share.referenced.bytes,
                    referenced_replicated_bytes=share.referenced.replicated_bytes,
                    exclusive_bytes=share.exclusive.bytes,
                    exclusive_replicated_bytes=share.exclusive.replicated_bytes,
                    exclusive_versions=share.exclusive.versions,
                    shared_with_previous_bytes=share.shared_with_previous.bytes,
                    shared_with_previous_replicated_bytes=share.shared_with_previous.replicated_bytes,
                    shared_with_next_bytes=share.shared_with_next.bytes,
                    shared_with_next_replicated_bytes=share.shared_with_next.replicated_bytes,
                )
            )
        return LensSpace(
            self.bucket.name,
            *_sizes(matrix.live),
            *_sizes(matrix.held),
            *_sizes(matrix.pending),
            tuple(found),
            self.notes,
        )

    def what_if(self, names: Sequence[str]) -> LensFreed:
        """Return what dropping snapshots frees.

        Raises:
            QuestionError: one of them is not known, or cannot be dropped.
        """
        places = self._places(names)
        refs = [self.bucket.refs[place] for place in places]
        fixed = next((ref for ref in refs if not ref.is_droppable), None)
        if fixed is not None:
            raise QuestionError(f"{fixed.name} is the active namespace of {self.bucket.name}: it cannot be dropped.")
        freed = self.matrix.freed_by_dropping(places)
        protectors = tuple(sorted({name for ref in refs for name in ref.protected_by}))
        return LensFreed(self.bucket.name, tuple(ref.name for ref in refs), *_sizes(freed), protectors, self.notes)

    def plan(self, wanted_bytes: int, keep: Sequence[str] = (), *, is_replicated: bool = False) -> LensPlan:
        """Return the smallest set of snapshots, older ones first, whose drop frees the wanted bytes.

        Raises:
            QuestionError: a snapshot to keep is not known.
        """
        kept = set(self._places(keep))
        protected = {
            place
            for place, ref in enumerate(self.bucket.refs[: self.bucket.active_place])
            if place in kept or ref.protected_by or not ref.is_droppable
        }
        found = self._matrix_of(is_replicated=is_replicated).plan(wanted_bytes, protected)
        freed = self.matrix.freed_by_dropping(found.places)
        return LensPlan(
            bucket=self.bucket.name,
            snapshots=self._names(found.places),
            wanted_bytes=wanted_bytes,
            freed_bytes=freed.bytes,
            freed_replicated_bytes=freed.replicated_bytes,
            freed_versions=freed.versions,
            is_enough=found.is_enough,
            is_smallest=found.is_smallest,
            notes=self.notes,
        )

    def explain(self, what: str) -> LensExplanation:
        """Return who holds a path, or the thing with an id.

        Raises:
            QuestionError: the report has no such thing.
        """
        named = (pc.field("path") == what) | (pc.field("id") == what) | pc.starts_with(pc.field("id"), f"{what}/")
        things: list[Thing] = []
        for thing in self.report.things(self.bucket.name, named):
            things.append(thing)
            if len(things) > MOST_VERSIONS:
                raise QuestionError(f"{what} has more than {MOST_VERSIONS:,} versions: ask for the id of one.")
        if not things:
            raise QuestionError(
                f"{self.bucket.name} has no {what}, live, held or pending: give a whole path, or an id."
            )
        things.sort(key=lambda one: (one.path, one.runs, one.id))
        holders = {place for one in things for first, last in one.runs for place in range(first, last + 1)}
        versions = [
            LensVersion(one.path, one.id, one.kind, one.bytes, one.replicated_bytes, self._holders(one))
            for one in things
        ]
        return LensExplanation(
            bucket=self.bucket.name,
            held_by=self._names(sorted(holders)),
            bytes=sum(one.bytes for one in things),
            replicated_bytes=sum(one.replicated_bytes for one in things),
            versions=tuple(versions),
            notes=self.notes,
        )

    def retention(self, policy: RetentionPolicy, now_ms: int) -> LensRetention:
        """Return which snapshots a policy would expire, and what that would free.

        Raises:
            QuestionError: the policy contradicts itself.
        """
        try:
            check_policy(policy)
        except InvalidPolicyError as error:
            raise QuestionError(f"{error}.") from error
        refs = [
            (place, ref)
            for place, ref in enumerate(self.bucket.refs)
            if ref.kind is RefKind.SNAPSHOT and ref.is_droppable
        ]
        infos = [_as_snapshot(place, ref) for place, ref in refs]
        tags = [TagRow("", "", name, ref.id, "", "", -1, -1, False) for _, ref in refs for name in ref.protected_by]
        decision: ExpiryDecision = decide_expiry(policy, infos, (), tags, now_ms)
        by_id = {ref.id: (place, ref.name) for place, ref in refs}
        freed = self.matrix.freed_by_dropping([by_id[snapshot_id][0] for snapshot_id in decision.expired])
        return LensRetention(
            self.bucket.name,
            tuple(by_id[snapshot_id][1] for snapshot_id in decision.expired),
            {by_id[one][1]: tuple(str(fact.reason) for fact in facts) for one, facts in decision.kept.items()},
            *_sizes(freed),
            self.notes,
        )

    def _matrix_of(self, *, is_replicated: bool) -> RunSpace:
        if not is_replicated:
            return self.matrix
        return RunSpace(by_replicated_bytes(self.cells), self.bucket.active_place)

    def _places(self, names: Collection[str]) -> list[int]:
        known = {ref.name: place for place, ref in enumerate(self.bucket.refs)}
        known |= {ref.id: place for place, ref in enumerate(self.bucket.refs) if ref.id not in known}
        unknown = next((name for name in names if name not in known), None)
        if unknown is not None:
            raise QuestionError(f"{self.bucket.name} has no snapshot {unknown}: space lists its snapshots.")
        return sorted({known[name] for name in names})

    def _names(self, places: Collection[int]) -> tuple[str, ...]:
        return tuple(self.bucket.refs[place].name for place in places)

    def _holders(self, thing: Thing) -> tuple[str, ...]:
        return self._names([place for first, last in thing.runs for place in range(first, last + 1)])


def questions(report: Report, bucket: str = "") -> list[BucketQuestions]:
    """Return the questions of a bucket, or of all buckets of a report.

    Raises:
        QuestionError: the report has no such bucket.
    """
    if not bucket:
        return [BucketQuestions(report, one) for one in report.head.buckets]
    if bucket not in report.buckets:
        raise QuestionError(f"{report.head.location} has no bucket {bucket}: space without --bucket lists all.")
    return [BucketQuestions(report, report.buckets[bucket])]


def orphans(report: Report, bucket: str = "") -> LensOrphans:
    """Return the findings of a bucket, or of all."""
    asked = questions(report, bucket)
    notes = [note for one in asked for note in one.bucket.notes]
    return LensOrphans(tuple(report.findings(bucket)), (*report.head.notes, *notes))


def _sizes(cell: SpaceCell) -> tuple[int, int, int]:
    return cell.bytes, cell.replicated_bytes, cell.versions


def _as_snapshot(place: int, ref: Ref) -> SnapshotInfo:
    return SnapshotInfo(ref.id, ref.name, "", "", SnapshotStatus.SNAPSHOT_ACTIVE, ref.time_ms, create_txn=place + 1)
