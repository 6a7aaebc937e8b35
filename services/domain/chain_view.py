"""The complete, versioned view of one shard's snapshot chain. Every judge keeps one; its verdicts rest on it.

For each bucket the view keeps the live snapshots, the number of snapshots that the bucket ever had, and the txn of the
newest of them. A run of dropped ordinals is the gap between two live ones. For every n within the gap, the newest live
snapshot among the first n is the one before the gap, so a verdict is one search among live ordinals. The memory of a
view grows with the live snapshots, not with all that were ever captured.

A dropped snapshot takes nothing away that a verdict needs. A death is checked against the live snapshots around n: if
its txn lies between theirs, the live snapshot before the death is the one that n names.

After any error of this module nothing may be judged reclaimable.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from schemas.records import ChainCapture, ChainedBucket, ChainedSnapshot, FullChain, SnapshotChainRecord
from services.domain.full_chain import FullChainParts
from services.domain.reclaimability import LifetimeError, Txn, Verdict, judge_with_previous


class ChainViewError(Exception):
    """The view cannot judge a row or apply a marker: the caller keeps the row."""


class ChainGapError(ChainViewError):
    """A marker names a predecessor other than the view's version: at least one marker is missing."""

    def __init__(self, have: int, got: int) -> None:
        super().__init__(
            f"a marker follows chain version {got}, but the view is at {have}; judge nothing, and read the chain again "
            f"from version 1 or from a full-chain record"
        )
        self.have = have
        self.got = got


class ChainOrderError(ChainViewError):
    """A marker contradicts the bucket's list: one of them is wrong, and an operator has to decide which."""


class UnknownDeathError(ChainViewError):
    """A death names a snapshot that a complete view does not have: the entry is dead-lettered and the row is kept."""


Bounds = tuple[Txn, Txn, Txn, Txn]
"""txns of the live snapshot before the previous one and of the previous one (0: there is none), then the two txns
between which the death lies."""
_BEYOND_ALL: Txn = 1 << 63
"""Higher than every txn."""
_NO_DEATH: Bounds = (0, 0, 0, 0)


@dataclass(slots=True)
class _BucketChain:
    """The snapshots of one bucket, from which its verdicts follow."""

    ever: int = 0
    """Number of snapshots that the bucket ever had: the ordinal of the newest one, live or dropped."""
    newest_txn: Txn = 0
    """txn at which the newest snapshot, live or dropped, was captured."""
    snapshots: list[ChainedSnapshot] = field(default_factory=list)
    """The live snapshots, in the order of their ordinals."""
    ordinals: list[int] = field(default_factory=lambda: [0])
    txns: list[Txn] = field(default_factory=lambda: [0])
    """Item i belongs to the i-th live snapshot; item 0 comes before all of them."""
    by_id: dict[str, int] = field(default_factory=dict)

    def append(self, snapshot: ChainedSnapshot) -> None:
        """Add the bucket's next snapshot."""
        if snapshot.ordinal != self.ever + 1:
            raise ChainOrderError(
                f"snapshot {snapshot.snapshot_id} has ordinal {snapshot.ordinal}, expected {self.ever + 1}; "
                f"compare the bucket's markers on gc.snapshot-chain with metadata's list"
            )
        self.add(snapshot)

    def add(self, snapshot: ChainedSnapshot) -> None:
        """Add a later snapshot of the bucket. Skipped ordinals belong to dropped snapshots."""
        if snapshot.ordinal <= self.ever or snapshot.txn <= self.newest_txn:
            raise ChainOrderError(
                f"snapshot {snapshot.snapshot_id} has ordinal {snapshot.ordinal} and was captured at txn "
                f"{snapshot.txn}, which is not after ordinal {self.ever} at txn {self.newest_txn}; "
                f"compare the bucket's markers on gc.snapshot-chain with metadata's list"
            )
        if snapshot.snapshot_id in self.by_id:
            raise ChainOrderError(f"snapshot {snapshot.snapshot_id} was captured before: an id is never used twice")
        self.ever, self.newest_txn = snapshot.ordinal, snapshot.txn
        if snapshot.is_live:
            self.snapshots.append(snapshot)
            self.ordinals.append(snapshot.ordinal)
            self.txns.append(snapshot.txn)
            self.by_id[snapshot.snapshot_id] = snapshot.ordinal

    def end(self, ever: int, newest_txn: Txn) -> None:
        """Set the bucket's totals, which also count the dropped snapshots after the last added one."""
        dropped, later = ever - self.ever, newest_txn - self.newest_txn
        if min(dropped, later) < 0 or (dropped == 0) != (later == 0):
            raise ChainOrderError(
                f"a full chain gives a bucket {ever} snapshots up to txn {newest_txn}, but also ordinal {self.ever} at "
                f"txn {self.newest_txn}; compare the full chain on gc.snapshot-chain with metadata's list"
            )
        self.ever, self.newest_txn = ever, newest_txn

    def drop(self, ordinal: int) -> None:
        """Remove a live snapshot: its ordinal joins the gap."""
        place = bisect_left(self.ordinals, ordinal)
        del self.ordinals[place], self.txns[place]
        del self.by_id[self.snapshots.pop(place - 1).snapshot_id]

    def place(self, snapshots_before_death: int) -> int:
        """Return the place of the newest live snapshot among the first ``snapshots_before_death``; 0 for none."""
        return bisect_right(self.ordinals, snapshots_before_death) - 1


_NO_SNAPSHOTS = _BucketChain()


@dataclass
class ChainView:
    """The snapshots of all buckets of the shard at one chain version. Deleted buckets are included."""

    version: int = 0
    _buckets: dict[int, _BucketChain] = field(default_factory=dict, repr=False)
    _parts: FullChainParts = field(default_factory=FullChainParts, repr=False, compare=False)
    """Parts of a full chain that is not complete. They do not count yet."""

    def follow(self, marker: SnapshotChainRecord) -> tuple[int, ...] | None:
        """Apply a marker of the log. Return the ids of the changed buckets, or None when the marker was not new.

        A full chain is applied with its last part.

        Raises:
            ChainGapError: a marker before this one is missing.
            ChainOrderError: the marker contradicts those before it.
        """
        version, predecessor, body = marker.version, marker.predecessor_version, marker.body
        if isinstance(body, FullChain):
            if version < self.version or not self._parts.follow(version, body):
                return None
            buckets = self._parts.pop()
            changed = {*self._buckets, *(bucket.bucket_id for bucket in buckets)}
            return tuple(sorted(changed)) if self.full(version, buckets) else None
        if isinstance(body, ChainCapture):
            is_new = self.capture(version, predecessor, body.bucket_id, body.snapshot_id, body.ordinal, body.txn)
        else:
            is_new = self.drop(version, predecessor, body.bucket_id, body.snapshot_id)
        return (body.bucket_id,) if is_new else None

    def capture(
        self, version: int, predecessor_version: int, bucket_id: int, snapshot_id: str, ordinal: int, txn: Txn
    ) -> bool:
        """Apply the marker of a captured snapshot. Return whether it was new.

        Raises:
            ChainGapError: a marker before this one is missing.
            ChainOrderError: it is not the bucket's next snapshot.
        """
        if not self._is_next(version, predecessor_version):
            return False
        chain = self._buckets.get(bucket_id) or _BucketChain()
        chain.append(ChainedSnapshot(snapshot_id, ordinal, txn, is_live=True))
        self._buckets[bucket_id] = chain
        self._advance(version)
        return True

    def drop(self, version: int, predecessor_version: int, bucket_id: int, snapshot_id: str) -> bool:
        """Apply the marker of a dropped snapshot. Return whether it was new.

        Raises:
            ChainGapError: a marker before this one is missing.
            ChainOrderError: the bucket has no such live snapshot.
        """
        if not self._is_next(version, predecessor_version):
            return False
        chain = self._buckets.get(bucket_id, _NO_SNAPSHOTS)
        ordinal = chain.by_id.get(snapshot_id)
        if ordinal is None:
            raise ChainOrderError(
                f"snapshot {snapshot_id} of bucket {bucket_id} is dropped but was not live; compare the bucket's "
                f"markers on gc.snapshot-chain with metadata's list"
            )
        chain.drop(ordinal)
        self._advance(version)
        return True

    def full(self, version: int, buckets: Iterable[ChainedBucket]) -> bool:
        """Apply a full chain. It replaces an older view, and must agree with a view of its own version.

        Return whether the view changed.

        Raises:
            ChainOrderError: the record's lists have gaps, or contradict the view at the same version.
        """
        if version < self.version:
            return False
        chains: dict[int, _BucketChain] = {}
        for bucket in buckets:
            if bucket.bucket_id in chains:
                raise ChainOrderError(
                    f"the full chain {version} names bucket {bucket.bucket_id} twice; have metadata publish another one"
                )
            chain = chains[bucket.bucket_id] = _BucketChain()
            for snapshot in bucket.snapshots:
                chain.add(snapshot)
            if bucket.snapshots_ever:
                chain.end(bucket.snapshots_ever, bucket.newest_txn)
        if version == self.version:
            self._check_agrees(version, chains)
            return False
        self._buckets = chains
        self.version = version
        return True

    def is_confirmed_by_full_chain(self, marker: SnapshotChainRecord) -> bool:
        """Return whether this marker completes a full chain of this view's version."""
        if not isinstance(marker.body, FullChain) or marker.version != self.version:
            return False
        return self._parts.is_completed_by(marker.version, marker.body)

    @property
    def pending_parts(self) -> int:
        """Number of received parts of a full chain that is not complete."""
        return len(self._parts)

    def judge(self, bucket_id: int, birth: Txn, death: Txn, snapshots_before_death: int) -> Verdict:
        """Return the verdict about a version.

        Raises:
            UnknownDeathError: the bucket never had that many snapshots.
            LifetimeError: birth, death and ``snapshots_before_death`` contradict one another or the chain.
        """
        before_previous, previous, last_captured, next_captured = self.bounds(bucket_id, snapshots_before_death)
        if not last_captured < death < next_captured:
            ever = self.ever(bucket_id)
            if not 0 <= snapshots_before_death <= ever:
                raise UnknownDeathError(
                    f"a death after {snapshots_before_death} snapshots of bucket {bucket_id}, which had {ever} by "
                    f"chain version {self.version}; keep the row"
                )
            raise LifetimeError(
                f"a death at {death} in bucket {bucket_id} does not follow {snapshots_before_death} snapshots; "
                f"keep the row, and compare it with metadata's list"
            )
        return judge_with_previous(birth, death, previous, before_previous)

    def judge_columns(
        self,
        bucket_ids: Sequence[int],
        births: Sequence[Txn],
        deaths: Sequence[Txn],
        snapshots_before_death: Sequence[int],
    ) -> list[Verdict | None]:
        """Return the verdict of ``judge`` for each row of a message, or None where ``judge`` raises an error.

        The bounds are looked up once for each run of equal bucket and n, and the rule is repeated here: one call for
        each row would cost several times as much. A row between the bounds has 0 <= previous <= last_captured < death.
        """
        reclaimable, exclusive, shared = Verdict.RECLAIMABLE, Verdict.EXCLUSIVE_TO_PREVIOUS, Verdict.SHARED
        verdicts: list[Verdict | None] = []
        of_bucket = of_before = -1
        before_previous, previous, last_captured, next_captured = _NO_DEATH
        for bucket_id, birth, death, before in zip(bucket_ids, births, deaths, snapshots_before_death, strict=True):
            if before != of_before or bucket_id != of_bucket:
                of_bucket, of_before = bucket_id, before
                before_previous, previous, last_captured, next_captured = self.bounds(bucket_id, before)
            if not last_captured < death < next_captured:
                verdicts.append(None)
            elif birth > previous:
                verdicts.append(reclaimable if birth <= death else None)
            elif birth > before_previous:
                verdicts.append(exclusive)
            else:
                verdicts.append(shared if birth > 0 else None)
        return verdicts

    def bounds(self, bucket_id: int, snapshots_before_death: int) -> Bounds:
        """Return the bounds of a bucket and n, by one search. For an unknown n no death lies between the last two."""
        chain = self._buckets.get(bucket_id, _NO_SNAPSHOTS)
        if not 0 <= snapshots_before_death <= chain.ever:
            return _NO_DEATH
        txns = chain.txns
        place = bisect_right(chain.ordinals, snapshots_before_death)
        previous = txns[place - 1]
        before_previous = txns[place - 2] if place > 1 else 0
        if snapshots_before_death == chain.ever:
            return before_previous, previous, chain.newest_txn, _BEYOND_ALL
        return before_previous, previous, previous, txns[place] if place < len(txns) else chain.newest_txn

    def ever(self, bucket_id: int) -> int:
        """Return the number of snapshots that the bucket ever had."""
        return self._chain(bucket_id).ever

    def newest_txn(self, bucket_id: int) -> Txn:
        """Return the txn of the newest snapshot that the bucket ever had, live or dropped; 0 if it never had one."""
        return self._chain(bucket_id).newest_txn

    def live(self, bucket_id: int) -> tuple[ChainedSnapshot, ...]:
        """Return the bucket's live snapshots, ascending."""
        return tuple(self._chain(bucket_id).snapshots)

    def bucket_ids(self) -> tuple[int, ...]:
        """Return the ids of all buckets that ever had a snapshot, deleted buckets included."""
        return tuple(self._buckets)

    def knows(self, bucket_id: int) -> bool:
        """Return whether the bucket ever had a snapshot."""
        return bucket_id in self._buckets

    def find(self, bucket_id: int, snapshot_id: str) -> ChainedSnapshot | None:
        """Return a live snapshot of the bucket, or None when no live one has the id."""
        chain = self._chain(bucket_id)
        ordinal = chain.by_id.get(snapshot_id)
        return None if ordinal is None else chain.snapshots[chain.place(ordinal) - 1]

    def buckets(self) -> list[ChainedBucket]:
        """Return all buckets as a full chain contains them."""
        return [
            ChainedBucket(bucket_id, tuple(chain.snapshots), chain.ever, chain.newest_txn)
            for bucket_id, chain in sorted(self._buckets.items())
        ]

    def previous_live(self, bucket_id: int, txn: Txn) -> ChainedSnapshot | None:
        """Return the newest live snapshot captured before a txn, or None."""
        chain = self._chain(bucket_id)
        before = bisect_left(chain.txns, txn, lo=1) - 1
        return chain.snapshots[before - 1] if before else None

    def next_live(self, bucket_id: int, txn: Txn) -> ChainedSnapshot | None:
        """Return the oldest live snapshot captured after a txn, or None."""
        chain = self._chain(bucket_id)
        after = bisect_right(chain.txns, txn, lo=1) - 1
        return chain.snapshots[after] if after < len(chain.snapshots) else None

    def _is_next(self, version: int, predecessor_version: int) -> bool:
        if version <= self.version:
            return False
        if predecessor_version != self.version:
            raise ChainGapError(self.version, predecessor_version)
        return True

    def _advance(self, version: int) -> None:
        self.version = version
        self._parts.clear()

    def _check_agrees(self, version: int, chains: dict[int, _BucketChain]) -> None:
        for bucket_id in chains.keys() | self._buckets.keys():
            if chains.get(bucket_id, _NO_SNAPSHOTS) != self._chain(bucket_id):
                raise ChainOrderError(
                    f"the full chain {version} and the markers up to it differ in bucket {bucket_id}; judge nothing, "
                    f"and compare both with metadata's list"
                )

    def _chain(self, bucket_id: int) -> _BucketChain:
        return self._buckets.get(bucket_id, _NO_SNAPSHOTS)
