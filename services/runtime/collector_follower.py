"""Follows what the collector may do, for services that claim, purge or wait: metadata tells it in the order of its log.

Only what is not simply running is kept. A change that is read once more is older than the newest one, and ignored.
"""

from __future__ import annotations

from typing import Any, Protocol

from schemas.records import Barrier, CollectorChanged, CollectorState
from services.domain.collector import WHOLE_SHARD, is_looser, stricter
from services.domain.table_keys import bucket_id_key
from services.runtime.service import Work
from services.storage.tables import TableDefinition

COLLECTOR_TABLE = TableDefinition("collectorTable", CollectorChanged)
_NEWEST = b"#NEWEST"
_FIRST, _BEYOND = b"/", b"0"


class ReadableTables(Protocol):
    """Where rows are read: committed, or as a unit of work has left them."""

    def table(self, definition: TableDefinition[Any]) -> Any:
        """One column family."""
        ...


class CollectorFollower:
    """What one service knows of a shard's collector."""

    def __init__(self) -> None:
        self._states: dict[int, CollectorState] = {}
        self._txn = 0

    def restore(self, tables: ReadableTables) -> None:
        """Make what is kept in memory anew."""
        self._states = {row.bucket_id: row.state for _, row in tables.table(COLLECTOR_TABLE).scan(_FIRST, _BEYOND)}
        newest = tables.table(COLLECTOR_TABLE).get(_NEWEST)
        self._txn = newest.txn if newest else 0

    @property
    def is_running(self) -> bool:
        """Whether nothing at all is held back."""
        return not self._states

    def of(self, bucket_id: int) -> CollectorState:
        """What may be done for a bucket."""
        everything = self._states.get(WHOLE_SHARD, CollectorState.RUNNING)
        return stricter(everything, self._states.get(bucket_id, CollectorState.RUNNING))

    def follow(self, change: CollectorChanged, work: Work) -> bool:
        """Take in a change; says whether rows that were held back may have to be looked at again."""
        if change.txn < self._txn:
            return False
        before = self._states.get(change.bucket_id, CollectorState.RUNNING)
        self._txn = change.txn
        table = work.table(COLLECTOR_TABLE)
        table.put(_NEWEST, change)
        key = bucket_id_key(change.bucket_id)
        if change.state is CollectorState.RUNNING:
            self._states.pop(change.bucket_id, None)
            table.delete(key)
        else:
            self._states[change.bucket_id] = change.state
            table.put(key, change)
        return is_looser(change.state, before)

    def is_behind(self, barrier: Barrier) -> bool:
        """Whether a change that lay before a barrier has not come yet: what it asks for is still to be done."""
        return self._txn < barrier.collector_txn
