"""Follows a shard's collection states, which metadata publishes in the order of its log, for services that claim,
purge or wait.

Only states other than RUNNING are kept. A duplicate of a change is older than the newest change, and is ignored. Each
change names the one before it, so a missing change is noticed: the later change is applied, and the states count as
incomplete until metadata publishes all of them again.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.records import Barrier, BucketCollection, CollectionChanged, CollectionState, KnownCollectionsRow
from services.domain.collection import WHOLE_SHARD, is_looser, stricter
from services.runtime.loop.service import Work
from services.storage.tables import TableDefinition, Tables

COLLECTION_TABLE = TableDefinition("collectionTable", KnownCollectionsRow)
_KNOWN = b"#KNOWN"
_NOTHING_HEARD = KnownCollectionsRow((), 0, 0)


@dataclass(frozen=True, slots=True)
class Followed:
    """The result of applying a change."""

    is_changed: bool = False
    """Whether a state has changed, or a change before this one was missed."""
    looser: tuple[int, ...] = ()
    """Buckets whose suspended rows may be claimed now and have to be checked again; 0 for the whole shard."""
    different: tuple[int, ...] = ()
    """Buckets whose state is stricter or looser than before; 0 for the whole shard."""


class CollectionFollower:
    """The collection states of a shard, as one service knows them."""

    def __init__(self) -> None:
        self._states: dict[int, CollectionState] = {}
        self._heard_txn = 0
        self.complete_txn = 0
        """Txn up to which no change was missed."""

    def restore(self, tables: Tables) -> None:
        """Read the states from the tables."""
        known = tables.table(COLLECTION_TABLE).get(_KNOWN) or _NOTHING_HEARD
        self._states = {one.bucket_id: one.state for one in known.states}
        self._heard_txn, self.complete_txn = known.heard_txn, known.complete_txn

    @property
    def is_running(self) -> bool:
        """Return whether nothing is suspended."""
        return not self._states

    def of(self, bucket_id: int) -> CollectionState:
        """Return the stricter of the states of the shard and of a bucket."""
        return stricter(self._own(WHOLE_SHARD), self._own(bucket_id))

    def _own(self, bucket_id: int) -> CollectionState:
        return self._states.get(bucket_id, CollectionState.RUNNING)

    def follow(self, change: CollectionChanged, work: Work) -> Followed:
        """Apply a change, or all states of the shard; return the result. An old change is ignored."""
        if change.txn < self._heard_txn:
            return Followed()
        has_missed = self.complete_txn < change.previous_txn
        sent = {one.bucket_id: one.state for one in change.states}
        if change.is_whole:
            sent = dict.fromkeys(self._states, CollectionState.RUNNING) | sent
        different = {bucket_id: state for bucket_id, state in sent.items() if state is not self._own(bucket_id)}
        looser = [bucket_id for bucket_id, state in different.items() if is_looser(state, self._own(bucket_id))]
        if change.is_whole and has_missed:
            looser = [WHOLE_SHARD]  # rows may have been suspended and resumed between the two changes
        self._states = {
            bucket_id: state
            for bucket_id, state in (self._states | different).items()
            if state is not CollectionState.RUNNING
        }
        self._heard_txn = change.txn
        if change.is_whole or not has_missed:
            self.complete_txn = change.txn
        states = tuple(BucketCollection(bucket_id, state) for bucket_id, state in sorted(self._states.items()))
        work.table(COLLECTION_TABLE).put(_KNOWN, KnownCollectionsRow(states, self._heard_txn, self.complete_txn))
        return Followed(bool(different) or has_missed, tuple(sorted(looser)), tuple(sorted(different)))

    def is_behind(self, barrier: Barrier) -> bool:
        """Return whether a change from before a barrier has not arrived yet, so that its work is not done."""
        return self.complete_txn < barrier.collection_txn
