"""The complete, versioned view of one shard's snapshot chain: what every judge holds, and the premise of its verdicts.

A bucket keeps all snapshots that it ever had, by ordinal. Beside them stand two arrays of ever + 1 cells: cell n names
the newest live snapshot among the first n, once by its ordinal and once by its txn, so that a verdict is one look-up.
A take appends a cell; a drop of snapshot k changes the run of cells that named k, and no other. A third array has the
txn of the n-th snapshot: a verdict reads no records, which for ten thousand snapshots lie all over the memory.

Any error here means that nothing may be judged reclaimable.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from schemas.records import ChainDrop, ChainedBucket, ChainedSnapshot, ChainTake, SnapshotChainRecord
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


class UnknownSnapshotError(ChainViewError):
    """A snapshot that its bucket never had: ask for one that a marker has named."""


@dataclass(slots=True)
class _BucketChain:
    """One bucket's list, and its arrays."""

    snapshots: list[ChainedSnapshot] = field(default_factory=list)
    ordinals: dict[str, int] = field(default_factory=dict)
    txns: list[Txn] = field(default_factory=lambda: [0])
    """Cell n is that of the n-th snapshot, live or not; cell 0 is before all."""
    newest_live_ordinals: list[int] = field(default_factory=lambda: [0])
    newest_live_txns: list[Txn] = field(default_factory=lambda: [0])
    live: tuple[ChainedSnapshot, ...] | None = None

    def append(self, snapshot: ChainedSnapshot) -> None:
        if snapshot.ordinal != len(self.snapshots) + 1:
            raise ChainOrderError(
                f"snapshot {snapshot.snapshot_id} has ordinal {snapshot.ordinal}, expected {len(self.snapshots) + 1}; "
                f"compare the bucket's markers on gc.snapshot-chain with metadata's list"
            )
        newest_txn = self.txns[-1]
        if snapshot.txn <= newest_txn:
            raise ChainOrderError(
                f"snapshot {snapshot.snapshot_id} was taken at txn {snapshot.txn}, which is not after the one at "
                f"{newest_txn}; compare the bucket's markers on gc.snapshot-chain with metadata's list"
            )
        if snapshot.snapshot_id in self.ordinals:
            raise ChainOrderError(f"snapshot {snapshot.snapshot_id} was taken before: an id is never used twice")
        self.snapshots.append(snapshot)
        self.ordinals[snapshot.snapshot_id] = snapshot.ordinal
        self.txns.append(snapshot.txn)
        self.newest_live_ordinals.append(snapshot.ordinal if snapshot.is_live else self.newest_live_ordinals[-1])
        self.newest_live_txns.append(snapshot.txn if snapshot.is_live else self.newest_live_txns[-1])
        self.live = None

    def drop(self, ordinal: int) -> None:
        self.snapshots[ordinal - 1] = replace(self.snapshots[ordinal - 1], is_live=False)
        beyond = bisect_right(self.newest_live_ordinals, ordinal, lo=ordinal)
        cell_count = beyond - ordinal
        self.newest_live_txns[ordinal:beyond] = [self.newest_live_txns[ordinal - 1]] * cell_count
        self.newest_live_ordinals[ordinal:beyond] = [self.newest_live_ordinals[ordinal - 1]] * cell_count
        self.live = None

    def ordinal_of(self, snapshot_id: str) -> int:
        ordinal = self.ordinals.get(snapshot_id)
        if ordinal is None:
            raise UnknownSnapshotError(f"the bucket never had a snapshot {snapshot_id}")
        return ordinal

    def at(self, ordinal: int) -> ChainedSnapshot | None:
        return self.snapshots[ordinal - 1] if ordinal else None


_NEVER_TAKEN = _BucketChain()

_Bounds = tuple[Txn, Txn, Txn, Txn]
"""txn of the live snapshot before the previous one, of the previous one, of the n-th and of the one after it."""
_BEYOND_ALL: Txn = 1 << 63
"""After every txn."""
_NO_DEATH: _Bounds = (0, 0, 0, 0)


@dataclass
class ChainView:
    """All snapshots that the shard's buckets ever had, as of one chain version; those of deleted buckets, too."""

    version: int = 0
    _buckets: dict[int, _BucketChain] = field(default_factory=dict, repr=False)

    def follow(self, marker: SnapshotChainRecord) -> tuple[int, ...] | None:
        """Take in a marker as it comes from the log; says which buckets changed, or None when it told nothing new.

        Raises:
            ChainGapError: a marker before this one is missing.
            ChainOrderError: the marker contradicts those before it.
        """
        version, predecessor, body = marker.version, marker.predecessor_version, marker.body
        if isinstance(body, ChainTake):
            is_new = self.take(version, predecessor, body.bucket_id, body.snapshot_id, body.ordinal, body.txn)
            return (body.bucket_id,) if is_new else None
        if isinstance(body, ChainDrop):
            is_new = self.drop(version, predecessor, body.bucket_id, body.snapshot_id)
            return (body.bucket_id,) if is_new else None
        is_new = self.full(version, body.buckets)
        return tuple(bucket.bucket_id for bucket in body.buckets) if is_new else None

    def take(
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
        self.version = version
        return True

    def drop(self, version: int, predecessor_version: int, bucket_id: int, snapshot_id: str) -> bool:
        """Follow the marker of a drop; says whether it was new.

        Raises:
            ChainGapError: a marker before this one is missing.
            ChainOrderError: the bucket has no such live snapshot.
        """
        if not self._is_next(version, predecessor_version):
            return False
        chain = self._buckets.get(bucket_id, _NEVER_TAKEN)
        ordinal = chain.ordinals.get(snapshot_id)
        if ordinal is None or not chain.snapshots[ordinal - 1].is_live:
            raise ChainOrderError(
                f"snapshot {snapshot_id} of bucket {bucket_id} is dropped but was not live; compare the bucket's "
                f"markers on gc.snapshot-chain with metadata's list"
            )
        chain.drop(ordinal)
        self.version = version
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
                chain.append(snapshot)
        if version == self.version:
            self._check_agrees(version, chains)
            return False
        self._buckets = chains
        self.version = version
        return True

    def previous(self, bucket_id: int, snapshots_before_death: int) -> Txn:
        """txn of the newest live snapshot among the bucket's first n; 0 when there is none.

        Raises:
            UnknownDeathError: the bucket never had that many snapshots.
        """
        if snapshots_before_death == 0:
            return 0
        return self._known(bucket_id, snapshots_before_death).newest_live_txns[snapshots_before_death]

    def before_previous(self, bucket_id: int, snapshots_before_death: int) -> Txn:
        """txn of the live snapshot before ``previous``; 0 when there is none.

        Raises:
            UnknownDeathError: the bucket never had that many snapshots.
        """
        if snapshots_before_death == 0:
            return 0
        chain = self._known(bucket_id, snapshots_before_death)
        previous_ordinal = chain.newest_live_ordinals[snapshots_before_death]
        return chain.newest_live_txns[previous_ordinal - 1] if previous_ordinal else 0

    def previous_array(self, bucket_id: int) -> list[Txn]:
        """``previous`` for every n from 0 to the number of snapshots that the bucket ever had; the caller's own."""
        return self._chain(bucket_id).newest_live_txns.copy()

    def judge(self, bucket_id: int, birth: Txn, death: Txn, snapshots_before_death: int) -> Verdict:
        """Say who holds a version.

        Raises:
            UnknownDeathError: the bucket never had that many snapshots before the death.
            LifetimeError: birth, death and n contradict one another or the chain.
        """
        previous = self.previous(bucket_id, snapshots_before_death)
        before_previous = self.before_previous(bucket_id, snapshots_before_death)
        self._check_death(bucket_id, death, snapshots_before_death)
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
        row costs several times what the row does. A row between the bounds has 0 <= previous <= last_taken < death.
        """
        reclaimable, exclusive, shared = Verdict.RECLAIMABLE, Verdict.EXCLUSIVE_TO_PREVIOUS, Verdict.SHARED
        verdicts: list[Verdict | None] = []
        of_bucket = of_before = -1
        before_previous, previous, last_taken, next_taken = _NO_DEATH
        for bucket_id, birth, death, before in zip(bucket_ids, births, deaths, snapshots_before_death, strict=True):
            if before != of_before or bucket_id != of_bucket:
                of_bucket, of_before = bucket_id, before
                before_previous, previous, last_taken, next_taken = self._bounds(bucket_id, before)
            if not last_taken < death < next_taken:
                verdicts.append(None)
            elif birth > previous:
                verdicts.append(reclaimable if birth < death else None)
            elif birth > before_previous:
                verdicts.append(exclusive)
            else:
                verdicts.append(shared if birth > 0 else None)
        return verdicts

    def _bounds(self, bucket_id: int, snapshots_before_death: int) -> _Bounds:
        """What the rule asks of a bucket and n; no death lies within for an n that the bucket never had."""
        txns = self._chain(bucket_id).txns
        next_ordinal = snapshots_before_death + 1
        if not 0 < next_ordinal <= len(txns):
            return _NO_DEATH
        return (
            self.before_previous(bucket_id, snapshots_before_death),
            self.previous(bucket_id, snapshots_before_death),
            txns[snapshots_before_death],
            _BEYOND_ALL if next_ordinal == len(txns) else txns[next_ordinal],
        )

    def snapshots_before(self, bucket_id: int, death: Txn) -> int:
        """How many snapshots the bucket had ever had at a death: n, worked out from the txns."""
        return bisect_left(self._chain(bucket_id).txns, death, lo=1) - 1

    def live(self, bucket_id: int) -> tuple[ChainedSnapshot, ...]:
        """The bucket's live snapshots, ascending."""
        chain = self._chain(bucket_id)
        if chain.live is None:
            chain.live = tuple(snapshot for snapshot in chain.snapshots if snapshot.is_live)
        return chain.live

    def ever(self, bucket_id: int) -> tuple[ChainedSnapshot, ...]:
        """All snapshots that the bucket ever had, ascending."""
        return tuple(self._chain(bucket_id).snapshots)

    def bucket_ids(self) -> tuple[int, ...]:
        """Every bucket that ever had a snapshot, deleted buckets too."""
        return tuple(self._buckets)

    def find(self, bucket_id: int, snapshot_id: str) -> ChainedSnapshot | None:
        """A snapshot that the bucket has or had; None when it never had it."""
        chain = self._chain(bucket_id)
        return chain.at(chain.ordinals.get(snapshot_id, 0))

    def previous_live(self, bucket_id: int, snapshot_id: str) -> ChainedSnapshot | None:
        """The newest live snapshot before one that is live or dropped; None when there is none.

        Raises:
            UnknownSnapshotError: the bucket never had it.
        """
        chain = self._chain(bucket_id)
        return chain.at(chain.newest_live_ordinals[chain.ordinal_of(snapshot_id) - 1])

    def next_live(self, bucket_id: int, snapshot_id: str) -> ChainedSnapshot | None:
        """The oldest live snapshot after one that is live or dropped; None when there is none.

        Raises:
            UnknownSnapshotError: the bucket never had it.
        """
        chain = self._chain(bucket_id)
        next_ordinal = bisect_right(chain.newest_live_ordinals, chain.ordinal_of(snapshot_id))
        return chain.at(next_ordinal) if next_ordinal <= len(chain.snapshots) else None

    def _is_next(self, version: int, predecessor_version: int) -> bool:
        if version <= self.version:
            return False
        if predecessor_version != self.version:
            raise ChainGapError(self.version, predecessor_version)
        return True

    def _check_agrees(self, version: int, chains: dict[int, _BucketChain]) -> None:
        for bucket_id in chains.keys() | self._buckets.keys():
            if chains.get(bucket_id, _NEVER_TAKEN).snapshots != self._chain(bucket_id).snapshots:
                raise ChainOrderError(
                    f"the full chain {version} and the markers up to it differ in bucket {bucket_id}; judge nothing, "
                    f"and compare both with metadata's list"
                )

    def _check_death(self, bucket_id: int, death: Txn, snapshots_before_death: int) -> None:
        txns, next_ordinal = self._chain(bucket_id).txns, snapshots_before_death + 1
        is_after_last = snapshots_before_death == 0 or txns[snapshots_before_death] < death
        is_before_next = next_ordinal == len(txns) or txns[next_ordinal] > death
        if not (is_after_last and is_before_next):
            raise LifetimeError(
                f"a death at {death} in bucket {bucket_id} does not follow {snapshots_before_death} snapshots; "
                f"keep the row, and compare it with metadata's list"
            )

    def _known(self, bucket_id: int, snapshots_before_death: int) -> _BucketChain:
        chain = self._chain(bucket_id)
        if not 0 <= snapshots_before_death <= len(chain.snapshots):
            raise UnknownDeathError(
                f"a death after {snapshots_before_death} snapshots of bucket {bucket_id}, which had "
                f"{len(chain.snapshots)} by chain version {self.version}; keep the row"
            )
        return chain

    def _chain(self, bucket_id: int) -> _BucketChain:
        return self._buckets.get(bucket_id, _NEVER_TAKEN)
