"""Answers questions on a report: the plane's rules of the space matrix and of retention, on data that others wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow.compute as pc

from schemas.answers import ExpiringSnapshot, RetainedSnapshot, RetentionPreview, RetentionReason
from schemas.records import RetentionPolicy, SnapshotInfo, SnapshotStatus, TagRow
from schemas.space_answers import VersionStage
from services.domain.errors import DeepcleanError
from services.domain.retention import InvalidPolicyError, KeepReason, ReasonWithFacts, check_policy, decide_expiry
from services.domain.run_space import RunSpace
from services.domain.space_matrix import SpaceCell
from services.lens.ozone.figures import own_sizes_note
from services.lens.relation import DELETED_SNAPSHOT, LensBucket, LensFinding, Ref, RefKind, first_names
from services.lens.report import Report, Thing

MOST_VERSIONS = 10_000
"""Most versions of one answer of ``explain``."""
SOURCES_OF_MANY = frozenset({"ozone"})
"""Sources that read a namespace of buckets; the others read one table."""
PROTECTED = "PROTECTED"
"""The reason of retention that a tag, a branch or a consumer is: the relation says only their names."""


class QuestionError(DeepcleanError):
    """The question cannot be answered as it is; the message says what to ask instead."""


@dataclass(frozen=True, slots=True)
class LensSnapshot:
    """What one snapshot, tag or branch holds."""

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
    is_exact: bool
    """Whether nothing is missing in the source; otherwise the notes say what is, and what is right all the same."""
    notes: tuple[str, ...]
    """What is missing or not certain, and remarks that explain figures."""
    figures: dict[str, int]
    """Figures that the source itself keeps, by its own names."""


@dataclass(frozen=True, slots=True)
class LensFreed:
    """What dropping some snapshots frees because of that, beyond what nobody holds already."""

    bucket: str
    snapshots: tuple[str, ...]
    freed_bytes: int
    freed_replicated_bytes: int
    freed_versions: int
    protected_by: tuple[str, ...]
    """Tags, branches and consumers that have to be removed first. The figures are as if they were; notes say which
    snapshot is protected by what."""
    is_exact: bool
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
    is_exact: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LensVersion:
    """A version of a path, or another thing that costs bytes, and who holds it."""

    path: str
    id: str
    kind: str
    bytes: int
    replicated_bytes: int
    stage: VersionStage
    """LIVE, HELD or PENDING."""
    held_by: tuple[str, ...]
    """Snapshots, tags and branches, in their order."""


@dataclass(frozen=True, slots=True)
class LensExplanation:
    """Who holds a path, or the thing with an id."""

    bucket: str
    held_by: tuple[str, ...]
    """Snapshots, tags and branches that hold one of the versions, in their order."""
    is_live: bool
    """Whether the active namespace holds one of them."""
    bytes: int
    replicated_bytes: int
    versions: tuple[LensVersion, ...]
    is_exact: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LensRetention:
    """Which snapshots a policy would expire now, and what that would free."""

    bucket: str
    preview: RetentionPreview
    notes: tuple[str, ...]

    @property
    def expired(self) -> tuple[str, ...]:
        """The names of the snapshots that would expire, in their order."""
        return tuple(one.snapshot for one in self.preview.expired)


@dataclass(frozen=True, slots=True)
class LensOrphans:
    """What the source's own tools do not show."""

    findings: tuple[LensFinding, ...]
    not_looked_for: tuple[str, ...]
    """One sentence for each kind of finding that was not looked for: that there is none of it proves nothing."""
    notes: tuple[str, ...]


class BucketQuestions:
    """The questions on one bucket of a report."""

    def __init__(self, report: Report, bucket: LensBucket, *, is_one_of_all: bool = False) -> None:
        """``is_one_of_all``: other buckets of the report are asked, too."""
        self.report = report
        self.bucket = bucket
        self._columns = report.columns_of_all if is_one_of_all else report.columns
        self.notes = (*report.head.notes, *bucket.notes, *bucket.remarks)

    @cached_property
    def matrix(self) -> RunSpace:
        """The things of the bucket, summed by their holders."""
        return RunSpace(self._columns(self.bucket.name), self.bucket.active_place)

    @property
    def is_exact(self) -> bool:
        """Whether the source has told of nothing that is missing or not certain."""
        return not (self.report.head.notes or self.bucket.notes)

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
        sizes = {one.name: (one.referenced_bytes, one.exclusive_bytes) for one in found}
        return LensSpace(
            self.bucket.name,
            *_sizes(matrix.live),
            *_sizes(matrix.held),
            *_sizes(matrix.pending),
            tuple(found),
            self.is_exact,
            self.notes + own_sizes_note(self.bucket.figures, sizes),
            self.bucket.figures,
        )

    def what_if(self, names: Sequence[str]) -> LensFreed:
        """Return what dropping snapshots frees. What protects them counts as removed.

        Raises:
            QuestionError: one of them is not known, or cannot be dropped.
        """
        meant = self._meant(names)
        for name, place in meant.items():
            ref = self.bucket.refs[place]
            if not ref.is_droppable:
                raise QuestionError(f"{name} of {self.bucket.name} cannot be dropped: {_why_fixed(ref)}.")
        places = sorted(set(meant.values()))
        refs = [self.bucket.refs[place] for place in places]
        notes = self._stand_ins(meant) + tuple(
            f"{ref.name} is protected by {', '.join(ref.protected_by)}: the figures assume that this protection is "
            f"removed first."
            for ref in refs
            if ref.protected_by
        )
        return LensFreed(
            self.bucket.name,
            tuple(ref.name for ref in refs),
            *_sizes(self.matrix.freed_by_dropping(places)),
            tuple(sorted({name for ref in refs for name in ref.protected_by})),
            self.is_exact,
            (*self.notes, *notes),
        )

    def plan(self, wanted_bytes: int, keep: Sequence[str] = (), *, is_replicated: bool = False) -> LensPlan:
        """Return the smallest set of snapshots, older ones first, whose drop frees the wanted bytes.

        Raises:
            QuestionError: a snapshot to keep is not known.
        """
        meant = self._meant(keep)
        kept = set(meant.values())
        protected = {
            place
            for place, ref in enumerate(self.bucket.refs)
            if place in kept or ref.protected_by or not ref.is_droppable
        }
        found = self.matrix.plan(wanted_bytes, protected, is_replicated=is_replicated)
        return LensPlan(
            self.bucket.name,
            self._names(found.places),
            wanted_bytes,
            *_sizes(found.freed),
            is_enough=found.is_enough,
            is_smallest=found.is_enough and found.is_smallest,
            is_exact=self.is_exact,
            notes=(*self.notes, *self._stand_ins(meant)),
        )

    def explain(self, what: str) -> LensExplanation:
        """Return who holds a path, or the thing with an id.

        Raises:
            QuestionError: the report has no such thing.
        """
        path, identity = pc.field("path"), pc.field("id")
        named = (path == what) | (identity == what)
        part_of_identity = pc.starts_with(identity, f"{what}/") | pc.ends_with(identity, f"/{what}")
        things: list[Thing] = []
        for thing in self.report.things(self.bucket.name, named | part_of_identity):
            things.append(thing)
            if len(things) > MOST_VERSIONS:
                raise QuestionError(f"{what} has more than {MOST_VERSIONS:,} versions: ask for the id of one.")
        if not things:
            raise QuestionError(
                f"{self.bucket.name} has no {what}, live, held or pending: give a whole path, or an id."
            )
        things.sort(key=lambda one: (one.path, one.runs, one.id))
        holders = {place for one in things for first, last in one.runs for place in range(first, last + 1)}
        versions = tuple(self._version(one) for one in things)
        return LensExplanation(
            bucket=self.bucket.name,
            held_by=self._names(sorted(holders)),
            is_live=self.bucket.active_place in holders,
            bytes=sum(one.bytes for one in things),
            replicated_bytes=sum(one.replicated_bytes for one in things),
            versions=versions,
            is_exact=self.is_exact,
            notes=self.notes,
        )

    def retention(self, policy: RetentionPolicy, now_ms: int) -> LensRetention:
        """Return which snapshots a policy would expire, why others stay, and what that would free.

        Raises:
            QuestionError: the policy contradicts itself.
        """
        try:
            check_policy(policy)
        except InvalidPolicyError as error:
            raise QuestionError(f"{error}.") from error
        # The rule knows snapshots by their names here: snapshots of two branches can have one id.
        infos = [
            SnapshotInfo(ref.name, ref.name, "", "", SnapshotStatus.SNAPSHOT_ACTIVE, ref.time_ms, create_txn=place + 1)
            for place, ref in enumerate(self.bucket.refs)
            if ref.kind is RefKind.SNAPSHOT and ref.is_droppable
        ]
        by_name = {info.name: info for info in infos}
        tags = [
            TagRow("", "", protector, info.name, "", "", -1, -1, False)
            for info in infos
            for protector in self._ref(info).protected_by
        ]
        decision = decide_expiry(policy, infos, (), tags, now_ms)
        expired = [by_name[name] for name in decision.expired]
        freed = self.matrix.freed_by_dropping([info.create_txn - 1 for info in expired])
        undated = [info.name for info in infos if info.creation_time_ms < 0]
        notes = (
            (f"The times of {', '.join(undated)} are not known: age does not keep the snapshot before each.",)
            if undated
            else ()
        )
        if self.bucket.own_policy:
            notes = (self.bucket.own_policy, *notes)
        preview = RetentionPreview(
            now_ms=now_ms,
            policy=policy,
            expired=tuple(ExpiringSnapshot(*self._identity(info)) for info in expired),
            kept=tuple(
                RetainedSnapshot(*self._identity(by_name[name]), tuple(map(_reason, facts)))
                for name, facts in decision.kept.items()
            ),
            freed_bytes=freed.bytes,
            freed_versions=freed.versions,
            is_exact=self.is_exact and not undated,
            dropped_consumers=(),
            dropped_tags=(),
            freed_replicated_bytes=freed.replicated_bytes,
        )
        return LensRetention(self.bucket.name, preview, (*self.notes, *notes))

    def _ref(self, info: SnapshotInfo) -> Ref:
        return self.bucket.refs[info.create_txn - 1]

    def _identity(self, info: SnapshotInfo) -> tuple[str, str, int, int]:
        return info.name, self._ref(info).id, info.create_txn, info.creation_time_ms

    def _meant(self, names: Iterable[str]) -> dict[str, int]:
        """Return the place that each name means: that of the reference with this name, or else the one with this id,
        or else the one that a tag or branch of this name protects.
        """
        refs = self.bucket.refs
        how_often = Counter(ref.id for ref in refs)
        known = {ref.id: place for place, ref in enumerate(refs) if how_often[ref.id] == 1}
        known |= {ref.name: place for place, ref in enumerate(refs)}
        return {name: known[name] if name in known else self._protected_by(name) for name in names}

    def _protected_by(self, name: str) -> int:
        found = [place for place, ref in enumerate(self.bucket.refs) if name in ref.protected_by]
        if not found:
            raise QuestionError(self._unknown(name))
        if len(found) > 1:
            names = first_names([self.bucket.refs[place].name for place in found])
            raise QuestionError(f"{name} of {self.bucket.name} protects {names}: name one of them.")
        return found[0]

    def _unknown(self, name: str) -> str:
        """Return why a name means no reference, as a sentence."""
        for one in self.report.findings(self.bucket.name):
            if one.kind == DELETED_SNAPSHOT and name in (one.path, one.id):
                return (
                    f"{name} of {self.bucket.name} is already deleted and holds nothing: versions that only it held "
                    f"are pending. The question orphans says what it delays."
                )
        return f"{self.bucket.name} has no snapshot {name}: space lists its snapshots."

    def _stand_ins(self, meant: Mapping[str, int]) -> tuple[str, ...]:
        """Return a note for each tag or branch that was named instead of the snapshot that it protects."""
        refs = ((name, self.bucket.refs[place]) for name, place in meant.items())
        return tuple(
            f"{name} stands for {ref.name}, which it protects." for name, ref in refs if name not in (ref.name, ref.id)
        )

    def _names(self, places: Iterable[int]) -> tuple[str, ...]:
        """Return the names of snapshots, tags and branches."""
        return tuple(self.bucket.refs[place].name for place in places if place != self.bucket.active_place)

    def _version(self, thing: Thing) -> LensVersion:
        holders = [place for first, last in thing.runs for place in range(first, last + 1)]
        stage = VersionStage.HELD if holders else VersionStage.PENDING
        if self.bucket.active_place in holders:
            stage = VersionStage.LIVE
        sizes = (thing.bytes, thing.replicated_bytes)
        return LensVersion(thing.path, thing.id, thing.kind, *sizes, stage, self._names(holders))


def questions(report: Report, bucket: str = "") -> list[BucketQuestions]:
    """Return the questions of a bucket, or of all buckets of a report.

    Raises:
        QuestionError: the report has no such bucket.
    """
    if not bucket:
        return [BucketQuestions(report, one, is_one_of_all=len(report.buckets) > 1) for one in report.head.buckets]
    if bucket not in report.buckets:
        raise QuestionError(f"{report.head.location} has no {report.head.noun} {bucket}{_choice(report)}.")
    return [BucketQuestions(report, report.buckets[bucket])]


def one_bucket(report: Report, bucket: str = "") -> BucketQuestions:
    """Return the questions of a bucket; of the only one if none is named.

    Raises:
        QuestionError: the report has no such bucket, or several and none is named.
    """
    found = questions(report, bucket)
    if len(found) != 1:
        raise QuestionError(f"Name one {report.head.noun} with --bucket{_choice(report)}.")
    return found[0]


def orphans(report: Report, bucket: str = "") -> LensOrphans:
    """Return the findings of a bucket, or of all."""
    asked = [one.bucket for one in questions(report, bucket)]
    not_looked_for = tuple(sentence for one in asked for sentence in one.not_looked_for)
    notes = (note for one in asked for note in one.notes + one.remarks)
    return LensOrphans(tuple(report.findings(bucket)), not_looked_for, (*report.head.notes, *notes))


def _choice(report: Report) -> str:
    return f": it has {first_names(sorted(report.buckets))}" if report.buckets else ": it has none"


def _why_fixed(ref: Ref) -> str:
    if ref.kind is RefKind.ACTIVE:
        return "it is the active namespace"
    return f"its status is {ref.status}" if ref.status else "the source does not allow it"


def _sizes(cell: SpaceCell) -> tuple[int, int, int]:
    return cell.bytes, cell.replicated_bytes, cell.versions


def _reason(facts: ReasonWithFacts) -> RetentionReason:
    reason = PROTECTED if facts.reason is KeepReason.TAG else str(facts.reason)
    return RetentionReason(reason, facts.bound, facts.names, facts.until_ms)
