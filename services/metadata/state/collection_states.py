"""What the collector may do, for each bucket and for all of the shard, in memory and in its table.

There is a row for each bucket for which something was ever set: few, so all of them are in memory.

Who claims and purges is told of each change. A change that went missing would part him from metadata until the next
one; so all of it is told again now and then: at a start, in each hour of the log, when a tail of the log is given up
for lost, and before a barrier of who does not know of the last change.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemas.records import BucketCollection, CollectionChanged, CollectionRow, CollectionState, MetadataProgress
from schemas.topics import METADATA_PROGRESS
from services.domain.collection import WHOLE_SHARD, stricter
from services.domain.table_keys import bucket_id_key, bucket_id_of_key
from services.metadata.state.tables import COLLECTION_TABLE
from services.runtime.loop.service import Work
from services.storage.tables import TablesReader

MOST_SENT = 100_000
"""Buckets that one message tells of; if it runs for fewer, all is not told again, and changes alone have to do."""
NEVER_SET = CollectionRow(CollectionState.RUNNING, "", "", -1, 0)
"""The row of a bucket for which nothing was ever set."""


def read_collection_rows(tables: Work | TablesReader) -> dict[int, CollectionRow]:
    """All rows by bucket id."""
    rows = tables.table(COLLECTION_TABLE).scan()
    return {bucket_id_of_key(key): row for key, row in rows}


def own_state(row: CollectionRow | None, stopped_because: str = "") -> CollectionState:
    """What one row says by itself; claims of a shard that are stopped are so whatever its row says."""
    if stopped_because:
        return CollectionState.STOPPED
    if row is None:
        return CollectionState.RUNNING
    return stricter(row.state, CollectionState.TRIPPED) if row.trip else row.state


class CollectionStates:
    """The rows of a shard."""

    def __init__(self) -> None:
        self._rows: dict[int, CollectionRow] | None = None
        self._changed: dict[int, CollectionState] = {}
        self._previous_txn = 0

    def clear(self) -> None:
        """Forget what is in memory: a command or a unit of work was thrown away."""
        self._rows = None
        self._changed.clear()

    def rows(self, work: Work) -> dict[int, CollectionRow]:
        """All rows by bucket id; for reading alone."""
        if self._rows is None:
            self._rows = read_collection_rows(work)
        return self._rows

    def state_of(self, work: Work, bucket_id: int, stopped_because: str) -> CollectionState:
        """What may be done for a bucket."""
        rows = self.rows(work)
        everything = own_state(rows.get(WHOLE_SHARD), stopped_because)
        return stricter(everything, own_state(rows.get(bucket_id)))

    def newest_txn(self, work: Work) -> int:
        """txn of the last change; 0 when there never was one."""
        return max((row.changed_txn for row in self.rows(work).values()), default=0)

    def put(self, work: Work, bucket_id: int, row: CollectionRow, stopped_because: str = "") -> None:
        """Change a row; ``send_changed`` then tells the services that claim and purge."""
        if not self._changed:
            self._previous_txn = self.newest_txn(work)
        self.rows(work)[bucket_id] = row
        work.table(COLLECTION_TABLE).put(bucket_id_key(bucket_id), row)
        self._changed[bucket_id] = own_state(row, stopped_because)

    def send_changed(self, work: Work, txn: int, feature_level: int) -> None:
        """Tell what the command of a txn has changed, in one message: it is heard as a whole or not at all."""
        if self._changed:
            change = CollectionChanged(_bucket_collections(self._changed), txn, self._previous_txn)
            _send(work, change, feature_level)
            self._changed.clear()

    def send_all(self, work: Work, txn: int, stopped_because: str, feature_level: int) -> None:
        """Tell all that the collector does at a txn, for whoever has missed something."""
        rows = self.rows(work)
        states = {bucket_id: own_state(row) for bucket_id, row in rows.items()}
        states[WHOLE_SHARD] = own_state(rows.get(WHOLE_SHARD), stopped_because)
        suspended = {one: state for one, state in states.items() if state is not CollectionState.RUNNING}
        if len(suspended) <= MOST_SENT:
            change = CollectionChanged(_bucket_collections(suspended), txn, self.newest_txn(work), is_whole=True)
            _send(work, change, feature_level)


def _send(work: Work, change: CollectionChanged, feature_level: int) -> None:
    work.send(METADATA_PROGRESS, MetadataProgress(change.txn, change, feature_level))


def _bucket_collections(states: Mapping[int, CollectionState]) -> tuple[BucketCollection, ...]:
    return tuple(BucketCollection(bucket_id, state) for bucket_id, state in sorted(states.items()))
