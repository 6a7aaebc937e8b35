"""The space of a bucket: figures from metadata, names of snapshots from the snapshots service.

metadata knows snapshots by id and txn, the snapshots service knows them by name. Between a user's delete and metadata's
drop a snapshot has no name, but metadata still counts it. Every query to metadata therefore lists the ids of these
snapshots as leaving.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from schemas.answers import RetainedSnapshot, RetentionPreview, RetentionReason
from schemas.records import RetentionPolicy, SnapshotInfo, SnapshotStatus
from schemas.space_answers import (
    BlockExplanation,
    ExplainedDirectory,
    ExplainedVersion,
    FreedSpace,
    PathExplanation,
    PlanSpace,
    SnapshotSpaces,
    SpacePlan,
    VersionStage,
    WhatIf,
)
from services.client.errors import PlaneError
from services.client.plane import Plane
from services.domain.retention import KeepReason

_BY_NAME = frozenset({KeepReason.TAG, KeepReason.CONSUMER})
_BY_POLICY = _BY_NAME | {KeepReason.MINIMUM, KeepReason.AGE}
_ANY_POLICY = RetentionPolicy(num_retained_min=2**31 - 1)
"""Policy for the preview of a bucket without one: tags and consumers protect snapshots under any policy. By this one
all snapshots stay, so that nobody computes what dropping them would free.
"""


@dataclass(frozen=True, slots=True)
class NamedSnapshots:
    """The snapshots of a bucket: the active ones in chain order, and the ids of those that are being deleted."""

    volume: str
    bucket: str
    active: tuple[SnapshotInfo, ...]
    leaving_ids: tuple[str, ...]

    def ids_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the ids of named snapshots; raise PlaneError FILE_NOT_FOUND for an unknown name."""
        by_name = {info.name: info.snapshot_id for info in self.active}
        wanted = tuple(names)
        for name in wanted:
            if name not in by_name:
                raise PlaneError("FILE_NOT_FOUND", f"there is no snapshot {name} of {self.volume}/{self.bucket}")
        return tuple(by_name[name] for name in wanted)

    def names_of(self, snapshot_ids: Collection[str]) -> list[str]:
        """Return the names of these snapshots in chain order."""
        return [info.name for info in self.active if info.snapshot_id in snapshot_ids]

    def between(self, first_txn: int, last_txn: int) -> list[SnapshotInfo]:
        """Return the snapshots created from ``first_txn`` to ``last_txn``, both included."""
        return [info for info in self.active if first_txn <= info.create_txn <= last_txn]


@dataclass(frozen=True, slots=True)
class Held:
    """The bytes of a path or snapshot, and the snapshots that hold any of them."""

    holders: tuple[SnapshotInfo, ...]
    """In chain order."""
    bytes: int
    replicated_bytes: int
    """What the blocks of these bytes take on disks."""


@dataclass(frozen=True, slots=True)
class KeepReasons:
    """The reasons why each snapshot of a bucket is kept."""

    preview: RetentionPreview
    has_policy: bool

    def of(self, kept: RetainedSnapshot) -> tuple[RetentionReason, ...]:
        """Return the reasons that forbid deleting a snapshot. A run's deferral to the next run is none."""
        forbidding = _BY_POLICY if self.has_policy else _BY_NAME
        return tuple(reason for reason in kept.reasons if reason.reason in forbidding)


@dataclass(frozen=True, slots=True)
class BucketView:
    """The requests about the space of one bucket."""

    plane: Plane
    shard: int
    volume: str
    bucket: str

    def snapshots(self) -> NamedSnapshots:
        """Return the bucket's snapshots; raise PlaneError when there is no such bucket."""
        self.plane.metadata(self.shard).bucket(self.volume, self.bucket)
        infos = self.plane.snapshots(self.shard).snapshots(self.volume, self.bucket, with_deleted=True)
        active = tuple(info for info in infos if info.status is SnapshotStatus.SNAPSHOT_ACTIVE)
        leaving = tuple(info.snapshot_id for info in infos if info.status is not SnapshotStatus.SNAPSHOT_ACTIVE)
        return NamedSnapshots(self.volume, self.bucket, active, leaving)

    def keep_reasons(self) -> KeepReasons:
        """Return why snapshots are kept: by the bucket's policy, or by tags and consumers alone where it has none."""
        reads = self.plane.snapshots(self.shard)
        try:
            return KeepReasons(reads.retention_preview(self.volume, self.bucket), has_policy=True)
        except PlaneError as error:
            if error.code != "RETENTION_NOT_FOUND":
                raise
        return KeepReasons(reads.retention_preview(self.volume, self.bucket, policy=_ANY_POLICY), has_policy=False)

    def protected_ids(self) -> tuple[str, ...]:
        """Return the snapshots that a plan must not delete: those that a tag, a consumer or the policy protects."""
        reasons = self.keep_reasons()
        return tuple(kept.snapshot_id for kept in reasons.preview.kept if reasons.of(kept))

    def spaces(self) -> SnapshotSpaces:
        """Return the referenced and shared bytes of every live snapshot, all as of one txn."""
        return self.plane.space(self.shard).snapshot_spaces(self.volume, self.bucket)

    def what_if(self, snapshots: NamedSnapshots, names: Iterable[str]) -> FreedSpace:
        """Return the space that deleting these snapshots together would free."""
        question = WhatIf(snapshots.ids_of(names), snapshots.leaving_ids)
        return self.plane.space(self.shard).what_if(self.volume, self.bucket, question)

    def plan(
        self, snapshots: NamedSnapshots, free_bytes: int, kept: Iterable[str] = (), *, is_replicated: bool = False
    ) -> SpacePlan:
        """Return the smallest set of snapshots whose deletion frees at least the bytes; ties prefer older snapshots.

        Protected snapshots and those named in ``kept`` are left out. ``is_replicated``: the bytes are those that the
        blocks take on disks.
        """
        protected = (*self.protected_ids(), *snapshots.ids_of(kept))
        question = PlanSpace(free_bytes, protected, snapshots.leaving_ids, is_replicated)
        return self.plane.space(self.shard).plan(self.volume, self.bucket, question)

    def path(self, path: str) -> PathExplanation:
        """Return every version of a path."""
        return self.plane.space(self.shard).explain_path(self.volume, self.bucket, path)


def find_block(plane: Plane, shard: int, local_id: int, volume: str = "", bucket: str = "") -> BlockExplanation:
    """Return the version that owns a block, or an explanation without one; search page by page."""
    reads = plane.space(shard)
    found = reads.explain_block(local_id, volume=volume, bucket=bucket)
    while found.next_start:
        found = reads.explain_block(local_id, volume=volume, bucket=bucket, start=found.next_start)
    return found


def held_by_path(snapshots: NamedSnapshots, explanation: PathExplanation) -> Held:
    """Return the snapshots that hold a path, and its bytes.

    Holders are the snapshots that hold any version or directory of the path, under any name. The bytes are those of
    the live version, of the older versions that a snapshot holds, and for a directory of all such versions below it.
    Versions that are neither live nor held are not counted.
    """
    found: list[ExplainedVersion | ExplainedDirectory] = [*explanation.versions, *explanation.directories]
    holders = [info for info in snapshots.active if any(is_held_by(info, one) for one in found)]
    needed = [version for version in explanation.versions if _is_needed(snapshots, version)]
    return Held(
        tuple(holders),
        sum(version.size_bytes for version in needed) + explanation.below_bytes,
        sum(version.replicated_bytes for version in needed) + explanation.below_replicated_bytes,
    )


def held_by_snapshot(snapshots: NamedSnapshots, spaces: SnapshotSpaces, snapshot_id: str) -> Held:
    """Return the snapshots that share versions with a snapshot, itself included, and its referenced bytes.

    Raises:
        PlaneError: FILE_NOT_FOUND, the snapshot was dropped.
    """
    for space in spaces.snapshots:
        if space.snapshot_id == snapshot_id:
            sharers = tuple(snapshots.between(space.oldest_sharer, space.newest_sharer))
            return Held(sharers, space.referenced_bytes, space.referenced_replicated_bytes)
    raise PlaneError("FILE_NOT_FOUND", f"the snapshot {snapshot_id} was dropped a moment ago")


def is_held_by(info: SnapshotInfo, held: ExplainedVersion | ExplainedDirectory) -> bool:
    """Return whether a snapshot holds a version or a directory: first_holder <= create_txn <= last_holder."""
    return held.first_holder <= info.create_txn <= held.last_holder


def _is_needed(snapshots: NamedSnapshots, version: ExplainedVersion) -> bool:
    return version.stage is VersionStage.LIVE or any(is_held_by(info, version) for info in snapshots.active)
