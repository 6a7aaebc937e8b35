"""What the collector may do, for each bucket and for all of the shard, in memory and in its table.

There is a row for each bucket for which something was ever set: few, so all of them are in memory.
"""

from __future__ import annotations

from schemas.records import CollectorChanged, CollectorRow, CollectorState, MetadataProgress
from schemas.topics import METADATA_PROGRESS
from services.domain.collector import WHOLE_SHARD, stricter
from services.domain.table_keys import bucket_id_key, bucket_id_of_key
from services.metadata.tables import COLLECTOR_TABLE
from services.runtime.service import Work
from services.storage.tables import TablesReader

_FIRST, _BEYOND = b"", b"\xff"
NEVER_SET = CollectorRow(CollectorState.RUNNING, "", "", -1, 0)
"""The row of a bucket for which nothing was ever set."""


def read_collectors(tables: Work | TablesReader) -> dict[int, CollectorRow]:
    """All rows by bucket id."""
    rows = tables.table(COLLECTOR_TABLE).scan(_FIRST, _BEYOND)
    return {bucket_id_of_key(key): row for key, row in rows}


def own_state(row: CollectorRow | None, stopped_because: str = "") -> CollectorState:
    """What one row says by itself; claims of a shard that are stopped are so whatever its row says."""
    if stopped_because:
        return CollectorState.STOPPED
    if row is None:
        return CollectorState.RUNNING
    return stricter(row.state, CollectorState.TRIPPED) if row.trip else row.state


class Collectors:
    """The rows of a shard."""

    def __init__(self) -> None:
        self._rows: dict[int, CollectorRow] | None = None

    def clear(self) -> None:
        """Forget what is in memory: a command or a unit of work was thrown away."""
        self._rows = None

    def rows(self, work: Work) -> dict[int, CollectorRow]:
        """All rows by bucket id; for reading alone."""
        if self._rows is None:
            self._rows = read_collectors(work)
        return self._rows

    def state_of(self, work: Work, bucket_id: int, stopped_because: str) -> CollectorState:
        """What may be done for a bucket."""
        rows = self.rows(work)
        everything = own_state(rows.get(WHOLE_SHARD), stopped_because)
        return stricter(everything, own_state(rows.get(bucket_id)))

    def newest_txn(self, work: Work) -> int:
        """txn of the last change; 0 when there never was one."""
        return max((row.changed_txn for row in self.rows(work).values()), default=0)

    def put(self, work: Work, bucket_id: int, row: CollectorRow, stopped_because: str = "") -> None:
        """Change a row, and tell the services that claim and purge."""
        self.rows(work)[bucket_id] = row
        work.table(COLLECTOR_TABLE).put(bucket_id_key(bucket_id), row)
        change = CollectorChanged(bucket_id, own_state(row, stopped_because), row.changed_txn)
        work.send(METADATA_PROGRESS, MetadataProgress(row.changed_txn, change))
