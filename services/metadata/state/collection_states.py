"""Collection states of each bucket and of the whole shard, in memory and in collectionTable.

There is a row for each bucket for which a state or limits were ever set. They are few, so all of them are in memory.

Each change is published to the services that claim and purge. If a change were lost, a service would disagree with
metadata until the next one. So all states are published again: at a start, in each hour of the log, when a lost tail is
accepted, and before a barrier whose sender does not know the last change.
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
"""Maximum buckets in one message. If more buckets are suspended, only changes are published."""
NEVER_SET = CollectionRow(CollectionState.RUNNING, "", "", -1, 0)
"""The row of a bucket for which no state or limits were ever set."""


def read_collection_rows(tables: Work | TablesReader) -> dict[int, CollectionRow]:
    """Return all rows by bucket id."""
    rows = tables.table(COLLECTION_TABLE).scan()
    return {bucket_id_of_key(key): row for key, row in rows}


def own_state(row: CollectionRow, stopped_because: str = "") -> CollectionState:
    """Return the state of one row alone. ``stopped_because`` means that claims of the shard are stopped: STOPPED."""
    if stopped_because:
        return CollectionState.STOPPED
    return stricter(row.state, CollectionState.TRIPPED) if row.trip else row.state


class CollectionStates:
    """The rows of a shard."""

    def __init__(self) -> None:
        self._rows: dict[int, CollectionRow] | None = None
        self.changed: dict[int, CollectionState] = {}
        """The own states of rows that the present command has changed."""
        self._previous_txn = 0

    def clear(self) -> None:
        """Discard the rows in memory: a command or a unit of work was aborted."""
        self._rows = None
        self.changed.clear()

    def rows(self, work: Work) -> dict[int, CollectionRow]:
        """Return all rows by bucket id. The caller must not change them."""
        if self._rows is None:
            self._rows = read_collection_rows(work)
        return self._rows

    def row(self, work: Work, bucket_id: int) -> CollectionRow:
        """Return the row of a bucket; ``NEVER_SET`` if it has none."""
        return self.rows(work).get(bucket_id, NEVER_SET)

    def state_of(self, work: Work, bucket_id: int, stopped_because: str) -> CollectionState:
        """Return the state that applies to a bucket: the stricter one of its own and its shard's."""
        everything = own_state(self.row(work, WHOLE_SHARD), stopped_because)
        return stricter(everything, own_state(self.row(work, bucket_id)))

    def newest_txn(self, work: Work) -> int:
        """Return the txn of the last change; 0 if there never was one."""
        return max((row.changed_txn for row in self.rows(work).values()), default=0)

    def put(self, work: Work, bucket_id: int, row: CollectionRow, stopped_because: str = "") -> None:
        """Change a row. ``send_changed`` then publishes the change to the services that claim and purge."""
        if not self.changed:
            self._previous_txn = self.newest_txn(work)
        self.rows(work)[bucket_id] = row
        work.table(COLLECTION_TABLE).put(bucket_id_key(bucket_id), row)
        self.changed[bucket_id] = own_state(row, stopped_because)

    def send_changed(self, work: Work, txn: int, feature_level: int) -> None:
        """Publish all changes of one command in one message, so that a service gets all of them or none."""
        if self.changed:
            _send(work, feature_level, CollectionChanged(_in_order(self.changed), txn, self._previous_txn))
            self.changed.clear()

    def send_all(self, work: Work, txn: int, stopped_because: str, feature_level: int) -> None:
        """Publish all states at a txn, for services that missed a change."""
        states = {bucket_id: own_state(row) for bucket_id, row in self.rows(work).items()}
        states[WHOLE_SHARD] = own_state(self.row(work, WHOLE_SHARD), stopped_because)
        suspended = {one: state for one, state in states.items() if state is not CollectionState.RUNNING}
        if len(suspended) <= MOST_SENT:
            whole = CollectionChanged(_in_order(suspended), txn, self.newest_txn(work), is_whole=True)
            _send(work, feature_level, whole)


def _send(work: Work, feature_level: int, change: CollectionChanged) -> None:
    work.send(METADATA_PROGRESS, MetadataProgress(change.txn, change, feature_level))


def _in_order(states: Mapping[int, CollectionState]) -> tuple[BucketCollection, ...]:
    return tuple(BucketCollection(bucket_id, state) for bucket_id, state in sorted(states.items()))
