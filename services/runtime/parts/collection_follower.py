"""Follows what the collector may do, for services that claim, purge or wait: metadata tells it in the order of its log.

Only what is not simply running is kept. A change that is read once more is older than the newest one, and ignored.
Each change names the one before it, so that one that went missing is noticed; what was said then is believed, and
held to be incomplete until metadata tells all of it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from schemas.records import Barrier, BucketCollection, CollectionChanged, CollectionState, KnownCollectionsRow
from services.domain.collection import WHOLE_SHARD, is_looser, stricter
from services.runtime.loop.service import Work
from services.storage.tables import TableDefinition

COLLECTION_TABLE = TableDefinition("collectionTable", KnownCollectionsRow)
_KNOWN = b"#KNOWN"
_NOTHING_HEARD = KnownCollectionsRow((), 0, 0)


class ReadableTables(Protocol):
    """Where rows are read: committed, or as a unit of work has left them."""

    def table(self, definition: TableDefinition[Any]) -> Any:
        """One column family."""
        ...


@dataclass(frozen=True, slots=True)
class Followed:
    """What has come of something that metadata told."""

    is_changed: bool = False
    """Whether anything is known now that was not."""
    looser: tuple[int, ...] = ()
    """Buckets of which rows that were held back may have to be looked at again; 0 for all of the shard."""
    different: tuple[int, ...] = ()
    """Buckets of which something else is known now, stricter or looser; 0 for all of the shard."""


class CollectionFollower:
    """What one service knows of a shard's collector."""

    def __init__(self) -> None:
        self._states: dict[int, CollectionState] = {}
        self._heard_txn = 0
        self._complete_txn = 0

    def restore(self, tables: ReadableTables) -> None:
        """Make what is kept in memory anew."""
        known: KnownCollectionsRow = tables.table(COLLECTION_TABLE).get(_KNOWN) or _NOTHING_HEARD
        self._states = {one.bucket_id: one.state for one in known.states}
        self._heard_txn, self._complete_txn = known.heard_txn, known.complete_txn

    @property
    def is_running(self) -> bool:
        """Whether nothing at all is held back."""
        return not self._states

    @property
    def complete_txn(self) -> int:
        """Up to which txn no change was missed."""
        return self._complete_txn

    def of(self, bucket_id: int) -> CollectionState:
        """What may be done for a bucket."""
        return stricter(self._own(WHOLE_SHARD), self._own(bucket_id))

    def _own(self, bucket_id: int) -> CollectionState:
        return self._states.get(bucket_id, CollectionState.RUNNING)

    def follow(self, change: CollectionChanged, work: Work) -> Followed:
        """Take in a change, or all that the collector does."""
        if change.txn < self._heard_txn:
            return Followed()
        has_missed = self._complete_txn < change.previous_txn
        sent = {one.bucket_id: one.state for one in change.states}
        if change.is_whole:
            sent = dict.fromkeys(self._states, CollectionState.RUNNING) | sent
        different = {bucket_id: state for bucket_id, state in sent.items() if state is not self._own(bucket_id)}
        looser = [bucket_id for bucket_id, state in different.items() if is_looser(state, self._own(bucket_id))]
        if change.is_whole and has_missed:
            looser = [WHOLE_SHARD]  # what was held back, and let go, between two things that were heard
        self._states = {
            bucket_id: state
            for bucket_id, state in (self._states | different).items()
            if state is not CollectionState.RUNNING
        }
        self._heard_txn = change.txn
        if change.is_whole or not has_missed:
            self._complete_txn = change.txn
        self._keep(work)
        return Followed(bool(different) or has_missed, tuple(sorted(looser)), tuple(sorted(different)))

    def _keep(self, work: Work) -> None:
        states = tuple(BucketCollection(bucket_id, state) for bucket_id, state in sorted(self._states.items()))
        work.table(COLLECTION_TABLE).put(_KNOWN, KnownCollectionsRow(states, self._heard_txn, self._complete_txn))

    def is_behind(self, barrier: Barrier) -> bool:
        """Whether a change that lay before a barrier has not come yet: what it asks for is still to be done."""
        return self._complete_txn < barrier.collection_txn
