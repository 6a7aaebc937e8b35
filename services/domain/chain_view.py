"""The complete, versioned view of one shard's snapshot chain: what every judge holds, and the premise of its verdicts.

Of a bucket stay its live snapshots, how many it ever had, and the txn of the newest one that it ever had. A run of
dropped ordinals is nothing but the gap between two live ones: for every n within it the newest live snapshot among the
first n is the one before the gap, so a verdict is one search among live ordinals. What a view costs follows from what
lives, and not from what was ever taken.

Nothing that a verdict needs is lost with a dropped snapshot. A death is checked against the live snapshots around n:
one that lies between them has, by the txns, the very snapshot before it that n names.

Any error here means that nothing may be judged reclaimable.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from schemas.records import ChainCapture, ChainDrop, ChainedBucket, ChainedSnapshot, FullChain, SnapshotChainRecord
from services.domain.full_chain import FullChainParts
from services.domain.reclaimability import LifetimeError, Txn, Verdict, judge_with_previous


class ChainViewError(Exception):
    """The view cannot answer or follow: whoever asked keeps the row."""


class ChainGapError(ChainViewError):
    """A marker names another predecessor than the version at hand: at least one marker is missing."""

    def __init__(self, have: int, got: int) -> None:
        super().__init__(
            f"a marker follows chain version {got}, but the view is at {have}; judge nothing, and read the chain again "
            f"from version 1 or from a full-chain record"
        )
        self.have = have
        self.got = got


class ChainOrderError(ChainViewError):
    """A marker contradicts the bucket's list: the list or the marker is wrong, and a person has to say which."""


class UnknownDeathError(ChainViewError):
    """A death after a snapshot that a complete view has not got: a dead letter, and the row is kept."""


Bounds = tuple[Txn, Txn, Txn, Txn]
"""txn of the live snapshot before the previous one and of the previous one, 0 when there is none; and between which
txns the death lies."""
_BEYOND_ALL: Txn = 1 << 63
"""After every txn."""
_NO_DEATH: Bounds = (0, 0, 0, 0)


@dataclass(slots=True)
class _BucketChain:
    """What one bucket's verdicts follow from."""

    ever: int = 0
    """How many snapshots the bucket ever had: the ordinal of the newest one, live or dropped."""
    newest_txn: Txn = 0
    """When that one was taken."""
    snapshots: list[ChainedSnapshot] = field(default_factory=list)
    """Those that live, in the order of their ordinals."""
    ordinals: list[int] = field(default_factory=lambda: [0])
    txns: list[Txn] = field(default_factory=lambda: [0])
    """Cell i is that of the i-th live snapshot; cell 0 is before all."""
    by_id: dict[str, int] = field(default_factory=dict)

    def append(self, snapshot: ChainedSnapshot) -> None:
        """The bucket's next snapshot."""
        if snapshot.ordinal != self.ever + 1:
            raise ChainOrderError(
                f"snapshot {snapshot.snapshot_id} has ordinal {snapshot.ordinal}, expected {self.ever + 1}; "
                f"compare the bucket's markers on gc.snapshot-chain with metadata's list"
            )
        self.add(snapshot)

    def add(self, snapshot: ChainedSnapshot) -> None:
        """A later snapshot of the bucket: ordinals that are left out are of dropped ones."""
        if snapshot.ordinal <= self.ever or snapshot.txn <= self.newest_txn:
            raise ChainOrderError(
                f"snapshot {snapshot.snapshot_id} has ordinal {snapshot.ordinal} and was taken at txn {snapshot.txn}, "
                f"which is not after ordinal {self.ever} at txn {self.newest_txn}; "
                f"compare the bucket's markers on gc.snapshot-chain with metadata's list"
            )
        if snapshot.snapshot_id in self.by_id:
            raise ChainOrderError(f"snapshot {snapshot.snapshot_id} was taken before: an id is never used twice")
        self.ever, self.newest_txn = snapshot.ordinal, snapshot.txn
        if snapshot.is_live:
            self.snapshots.append(snapshot)
            self.ordinals.append(snapshot.ordinal)
            self.txns.append(snapshot.txn)
            self.by_id[snapshot.snapshot_id] = snapshot.ordinal

    def end(self, ever: int, newest_txn: Txn) -> None:
        """Account for the dropped snapshots behind the last one that was added."""
        dropped, later = ever - self.ever, newest_txn - self.newest_txn
        if min(dropped, later) < 0 or (dropped == 0) != (later == 0):
            raise ChainOrderError(
                f"a bucket is said to have had {ever} snapshots up to txn {newest_txn}, but has ordinal {self.ever} at "
                f"txn {self.newest_txn}; compare the full chain on gc.snapshot-chain with metadata's list"
            )
        self.ever, self.newest_txn = ever, newest_txn

    def drop(self, ordinal: int) -> None:
        """Let go of a live snapshot: its ordinal joins the gap."""
        place = bisect_left(self.ordinals, ordinal)
        del self.ordinals[place], self.txns[place]
        del self.by_id[self.snapshots.pop(place - 1).snapshot_id]

    def place(self, snapshots_before_death: int) -> int:
        """Place of the newest live snapshot among the first ``snapshots_before_death``; 0 when there is none."""
        return bisect_right(self.ordinals, snapshots_before_death) - 1


_NO_SNAPSHOTS = _BucketChain()


@dataclass
class ChainView:
    """The snapshots of all buckets of the shard, as of one chain version; buckets that are deleted, too."""

    version: int = 0
    _buckets: dict[int, _BucketChain] = field(default_factory=dict, repr=False)
    _parts: FullChainParts = field(default_factory=FullChainParts, repr=False, compare=False)
    """What has come of a full chain that is not complete: it does not count yet."""

    def follow(self, marker: SnapshotChainRecord) -> tuple[int, ...] | None:
        """Take in a marker as it comes from the log; says which buckets changed, or None when it told nothing new.

        A full chain counts once its last part has come.

        Raises:
            ChainGapError: a marker before this one is missing.
            ChainOrderError: the marker contradicts those before it.
        """
        version, predecessor, body = marker.version, marker.predecessor_version, marker.body
        if isinstance(body, ChainCapture):
            is_new = self.capture(version, predecessor, body.bucket_id, body.snapshot_id, body.ordinal, body.txn)
            return (body.bucket_id,) if is_new else None
        if isinstance(body, ChainDrop):
            is_new = self.drop(version, predecessor, body.bucket_id, body.snapshot_id)
            return (body.bucket_id,) if is_new else None
        if version < self.version or not self._parts.follow(version, body):
            return None
        buckets = self._parts.pop()
        changed = {*self._buckets, *(bucket.bucket_id for bucket in buckets)}
        return tuple(sorted(changed)) if self.full(version, buckets) else None

    def capture(
        self, version: int, predecessor_version: int, bucket_id: int, snapshot_id: str, ordinal: int, txn: Txn
    ) -> bool:
        """Follow the marker of a take; says whether it was new.

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
        """Follow the marker of a drop; says whether it was new.

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
        """Follow a full-chain record: it replaces an older view, and has to agree with one of its own version.

        Raises:
            ChainOrderError: the record's lists have gaps, or contradict the view at the same version.
        """
        if version < self.version:
            return False
        chains: dict[int, _BucketChain] = {}
        for bucket in buckets:
            if bucket.bucket_id in chains:
                raise ChainOrderError(
                    f"the full chain {version} names bucket {bucket.bucket_id} twice; have metadata write another one"
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
        """Whether a marker that comes now says, with the parts before it, the whole chain up to this view's version."""
        if not isinstance(marker.body, FullChain) or marker.version != self.version:
            return False
        return self._parts.is_completed_by(marker.version, marker.body)

    @property
    def pending_parts(self) -> int:
        """How many parts have come of a full chain that is not complete."""
        return len(self._parts)

    def judge(self, bucket_id: int, birth: Txn, death: Txn, snapshots_before_death: int) -> Verdict:
        """Say who holds a version.

        Raises:
            UnknownDeathError: the bucket never had that many snapshots before the death.
            LifetimeError: birth, death and n contradict one another or the chain.
        """
        before_previous, previous, last_captured, next_captured = self.bounds(bucket_id, snapshots_before_death)
        if not last_captured < death < next_captured:
            self._known(bucket_id, snapshots_before_death)
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
        """``judge`` for the rows of a message; None where it raises an error, which it then tells.

        What follows from bucket and n alone is asked for once, and the rule itself stands here in full: a call for each
        row costs several times what the row does. A row between the bounds has 0 <= previous <= last_captured < death.
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
                verdicts.append(reclaimable if birth < death else None)
            elif birth > before_previous:
                verdicts.append(exclusive)
            else:
                verdicts.append(shared if birth > 0 else None)
        return verdicts

    def bounds(self, bucket_id: int, snapshots_before_death: int) -> Bounds:
        """What the rule asks of a bucket and n, by one search; no death lies between the last two for an unknown n."""
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
        """How many snapshots the bucket ever had."""
        return self._chain(bucket_id).ever

    def newest_txn(self, bucket_id: int) -> Txn:
        """When the newest snapshot was taken that the bucket ever had, live or dropped; 0 when it never had one."""
        return self._chain(bucket_id).newest_txn

    def live(self, bucket_id: int) -> tuple[ChainedSnapshot, ...]:
        """The bucket's live snapshots, ascending."""
        return tuple(self._chain(bucket_id).snapshots)

    def bucket_ids(self) -> tuple[int, ...]:
        """Every bucket that ever had a snapshot, deleted buckets too."""
        return tuple(self._buckets)

    def knows(self, bucket_id: int) -> bool:
        """Whether the bucket ever had a snapshot."""
        return bucket_id in self._buckets

    def find(self, bucket_id: int, snapshot_id: str) -> ChainedSnapshot | None:
        """A live snapshot of the bucket; None for any other."""
        chain = self._chain(bucket_id)
        ordinal = chain.by_id.get(snapshot_id)
        return None if ordinal is None else chain.snapshots[chain.place(ordinal) - 1]

    def buckets(self) -> list[ChainedBucket]:
        """All that the view says, as a full chain says it."""
        return [
            ChainedBucket(bucket_id, tuple(chain.snapshots), chain.ever, chain.newest_txn)
            for bucket_id, chain in sorted(self._buckets.items())
        ]

    def previous_live(self, bucket_id: int, txn: Txn) -> ChainedSnapshot | None:
        """The newest live snapshot that was taken before a txn; None when there is none."""
        chain = self._chain(bucket_id)
        before = bisect_left(chain.txns, txn, lo=1) - 1
        return chain.snapshots[before - 1] if before else None

    def next_live(self, bucket_id: int, txn: Txn) -> ChainedSnapshot | None:
        """The oldest live snapshot that was taken after a txn; None when there is none."""
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

    def _known(self, bucket_id: int, snapshots_before_death: int) -> _BucketChain:
        chain = self._chain(bucket_id)
        if not 0 <= snapshots_before_death <= chain.ever:
            raise UnknownDeathError(
                f"a death after {snapshots_before_death} snapshots of bucket {bucket_id}, which had "
                f"{chain.ever} by chain version {self.version}; keep the row"
            )
        return chain

    def _chain(self, bucket_id: int) -> _BucketChain:
        return self._buckets.get(bucket_id, _NO_SNAPSHOTS)
