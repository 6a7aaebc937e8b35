"""The view of a shard's snapshot chain that every judge holds: complete up to its version, or no view at all.

Per bucket it knows all snapshots that were ever taken, by ordinal. An entry carries how many there had been at its
death (n); cell n of the bucket's array is the newest live snapshot among the first n, so that a verdict is one
array access. A bucket stays in the view when it is deleted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.domain.reclaimability import Txn, Verdict, judge_with_previous


class ChainGapError(ValueError):
    """A marker is missing: this view ends, and nothing may be judged."""

    def __init__(self, *, have: int, predecessor: int, got: int) -> None:
        super().__init__(f"chain version {got} follows {predecessor}, but the last one known is {have}")
        self.have = have
        self.got = got


class ChainOrderError(ValueError):
    """A marker contradicts those before it: this view ends, and nothing may be judged."""


class UnknownDeathError(ValueError):
    """An entry names more snapshots than its bucket ever had: it is kept."""


@dataclass(frozen=True, slots=True)
class ViewedSnapshot:
    """One snapshot of a bucket."""

    snapshot_id: str
    ordinal: int
    txn: Txn
    is_live: bool


@dataclass(slots=True)
class _Bucket:
    """All snapshots of one bucket, and the newest live one before each place."""

    snapshots: list[ViewedSnapshot] = field(default_factory=list)
    previous: list[Txn] = field(default_factory=lambda: [0])
    places: dict[str, int] = field(default_factory=dict)

    def append(self, snapshot: ViewedSnapshot) -> None:
        if snapshot.ordinal != len(self.snapshots) + 1:
            raise ChainOrderError(f"snapshot {snapshot.ordinal} of a bucket that had {len(self.snapshots)}")
        if self.snapshots and snapshot.txn <= self.snapshots[-1].txn:
            raise ChainOrderError(f"snapshot at {snapshot.txn} behind the one at {self.snapshots[-1].txn}")
        self.places[snapshot.snapshot_id] = len(self.snapshots)
        self.snapshots.append(snapshot)
        self.previous.append(snapshot.txn if snapshot.is_live else self.previous[-1])

    def drop(self, snapshot_id: str) -> None:
        place = self.places.get(snapshot_id)
        if place is None or not self.snapshots[place].is_live:
            raise ChainOrderError(f"snapshot {snapshot_id} is dropped but not live")
        dropped = self.snapshots[place]
        self.snapshots[place] = ViewedSnapshot(dropped.snapshot_id, dropped.ordinal, dropped.txn, is_live=False)
        heir = self.previous[place]
        cell = place + 1
        while cell < len(self.previous) and self.previous[cell] == dropped.txn:
            self.previous[cell] = heir
            cell += 1


@dataclass(slots=True)
class ChainView:
    """The chain of one shard, complete up to ``version``."""

    version: int = 0
    _buckets: dict[int, _Bucket] = field(default_factory=dict)

    def _advance(self, version: int, predecessor_version: int) -> bool:
        """Whether a marker is the next one; False when it is known already."""
        if version <= self.version:
            return False
        if predecessor_version != self.version or version != self.version + 1:
            raise ChainGapError(have=self.version, predecessor=predecessor_version, got=version)
        return True

    def take(
        self, version: int, predecessor_version: int, bucket_id: int, snapshot_id: str, ordinal: int, txn: Txn
    ) -> bool:
        """Add a snapshot that was taken; says whether the marker was new.

        Raises:
            ChainGapError: a marker before this one is missing.
            ChainOrderError: the marker contradicts those before it.
        """
        if not self._advance(version, predecessor_version):
            return False
        bucket = self._buckets.setdefault(bucket_id, _Bucket())
        bucket.append(ViewedSnapshot(snapshot_id, ordinal, txn, is_live=True))
        self.version = version
        return True

    def drop(self, version: int, predecessor_version: int, bucket_id: int, snapshot_id: str) -> bool:
        """Remove a snapshot that was dropped; says whether the marker was new. Raises as ``take``."""
        if not self._advance(version, predecessor_version):
            return False
        bucket = self._buckets.get(bucket_id)
        if bucket is None:
            raise ChainOrderError(f"snapshot {snapshot_id} is dropped in the unknown bucket {bucket_id}")
        bucket.drop(snapshot_id)
        self.version = version
        return True

    def full(self, version: int, buckets: Iterable[tuple[int, Iterable[ViewedSnapshot]]]) -> bool:
        """Start from a full-chain record; says whether it was used. Only a view at its beginning needs one."""
        if self.version:
            if version > self.version:
                raise ChainGapError(have=self.version, predecessor=version, got=version)
            return False
        for bucket_id, snapshots in buckets:
            bucket = self._buckets[bucket_id] = _Bucket()
            for snapshot in snapshots:
                bucket.append(snapshot)
        self.version = version
        return True

    def bucket_ids(self) -> list[int]:
        """Buckets that ever had a snapshot."""
        return sorted(self._buckets)

    def snapshots(self, bucket_id: int) -> tuple[ViewedSnapshot, ...]:
        """All snapshots that a bucket ever had."""
        bucket = self._buckets.get(bucket_id)
        return tuple(bucket.snapshots) if bucket else ()

    def live(self, bucket_id: int) -> tuple[ViewedSnapshot, ...]:
        """Live snapshots of a bucket, oldest first."""
        return tuple(snapshot for snapshot in self.snapshots(bucket_id) if snapshot.is_live)

    def previous_array(self, bucket_id: int) -> list[Txn]:
        """For each n from 0 to all snapshots ever: the newest live one among the first n; 0 when there is none."""
        bucket = self._buckets.get(bucket_id)
        return bucket.previous if bucket else [0]

    def previous(self, bucket_id: int, snapshots_before_death: int) -> Txn:
        """The newest live snapshot before a death; 0 when there is none.

        Raises:
            UnknownDeathError: the bucket never had that many snapshots.
        """
        if snapshots_before_death == 0:
            return 0
        bucket = self._buckets.get(bucket_id)
        if bucket is None or not 0 < snapshots_before_death < len(bucket.previous):
            ever = len(bucket.snapshots) if bucket else 0
            raise UnknownDeathError(
                f"bucket {bucket_id} had {ever} snapshots by version {self.version}, not {snapshots_before_death}"
            )
        return bucket.previous[snapshots_before_death]

    def before_previous(self, bucket_id: int, snapshots_before_death: int) -> Txn:
        """The live snapshot before ``previous``; 0 when there is none. Raises as ``previous``."""
        previous = self.previous(bucket_id, snapshots_before_death)
        if previous == 0:
            return 0
        bucket = self._buckets[bucket_id]
        place = bisect_left(bucket.snapshots, previous, key=lambda snapshot: snapshot.txn)
        return bucket.previous[place]

    def judge(self, bucket_id: int, birth: Txn, death: Txn, snapshots_before_death: int) -> Verdict:
        """Say who holds a version.

        Raises:
            UnknownDeathError: as ``previous``.
            LifetimeError: as ``services.domain.reclaimability.judge_with_previous``.
        """
        return judge_with_previous(
            birth,
            death,
            self.previous(bucket_id, snapshots_before_death),
            self.before_previous(bucket_id, snapshots_before_death),
        )

    def find(self, bucket_id: int, snapshot_id: str) -> ViewedSnapshot | None:
        """A snapshot of a bucket, live or dropped."""
        bucket = self._buckets.get(bucket_id)
        place = bucket.places.get(snapshot_id) if bucket else None
        return bucket.snapshots[place] if bucket and place is not None else None

    def previous_live(self, bucket_id: int, snapshot_id: str) -> ViewedSnapshot | None:
        """The live snapshot before one, which may be dropped."""
        bucket = self._buckets[bucket_id]
        for snapshot in reversed(bucket.snapshots[: bucket.places[snapshot_id]]):
            if snapshot.is_live:
                return snapshot
        return None

    def next_live(self, bucket_id: int, snapshot_id: str) -> ViewedSnapshot | None:
        """The live snapshot after one, which may be dropped."""
        bucket = self._buckets[bucket_id]
        for snapshot in bucket.snapshots[bucket.places[snapshot_id] + 1 :]:
            if snapshot.is_live:
                return snapshot
        return None
