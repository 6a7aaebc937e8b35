"""Stores since when versions that no snapshot holds can be claimed, and measures how long freeing took.

The first is state and follows from the log. The second is a measurement: it goes to the metrics when a unit of work is
durable, and no decision depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from schemas.codec import codec
from schemas.records import ClaimedRow, ReclaimClockRow
from services.domain.collection import WHOLE_SHARD
from services.domain.reclaim_clock import DEATHS_APART_MS, NEVER, Held, death_times, with_drop
from services.domain.table_keys import bucket_id_key
from services.metadata.state.tables import RECLAIM_CLOCK_TABLE
from services.runtime.loop.service import Work

_CLAIMED_ROW = codec(ClaimedRow)


@dataclass(frozen=True, slots=True)
class Freed:
    """Times of freed versions of one command that became reclaimable at the same moment."""

    shard: int
    deletion_ms: int
    """Log time of the deaths; 0 for rows that were written before it was noted."""
    since_ms: int
    """Log time of the drop of their last holder or of the last resume of collection, the later one; 0 for neither."""
    finished_ms: int


def note_drop(work: Work, bucket_id: int, snapshot_txn: int, time_ms: int) -> None:
    """Note the drop of a snapshot."""
    _put(work, bucket_id, with_drop(_row(work, bucket_id), snapshot_txn, time_ms))


def note_running(work: Work, bucket_id: int, time_ms: int) -> None:
    """Note that the claims of a bucket, or of the shard, are not suspended any more by its own row."""
    _put(work, bucket_id, replace(_row(work, bucket_id), running_since_ms=time_ms))


def _row(work: Work, bucket_id: int) -> ReclaimClockRow:
    return work.table(RECLAIM_CLOCK_TABLE).get(bucket_id_key(bucket_id)) or NEVER


def _put(work: Work, bucket_id: int, row: ReclaimClockRow) -> None:
    work.table(RECLAIM_CLOCK_TABLE).put(bucket_id_key(bucket_id), row)


class FreedVersions:
    """The versions that a unit of work has finished."""

    def __init__(self) -> None:
        self._freed: Counter[Freed] = Counter()

    def clear(self) -> None:
        """Discard the versions of an aborted unit of work."""
        self._freed.clear()

    def pop(self) -> Counter[Freed]:
        """Return the number of versions by their times since the last call, and clear them."""
        freed, self._freed = self._freed, Counter()
        return freed

    def note(
        self,
        work: Work,
        finished_ms: int,
        bucket_id: int,
        births: Sequence[int],
        deaths: Sequence[int],
        rows: Sequence[bytes],
    ) -> None:
        """Add finished versions of one bucket, at least one: birth, death and encoded claimed row of each."""
        clock = _row(work, bucket_id)
        running_ms = max(clock.running_since_ms, _row(work, WHOLE_SHARD).running_since_ms)
        held = Held(clock)
        # In most commands all rows died within a moment, after every dropped snapshot: then none has to be looked at.
        oldest_ms, newest_ms = (_deletion_time_ms(rows[deaths.index(most(deaths))]) for most in (min, max))
        if newest_ms - oldest_ms < DEATHS_APART_MS and not held.has_held(min(births)):
            self._freed[Freed(work.shard, oldest_ms, running_ms, finished_ms)] += len(rows)
            return
        row_of = dict(zip(deaths, rows, strict=True))
        times = death_times(row_of, lambda death: _deletion_time_ms(row_of[death]))
        moments = Counter(
            (times[death], max(running_ms, held.until_ms(birth, death)))
            for birth, death in zip(births, deaths, strict=True)
        )
        for (deletion_ms, since_ms), versions in moments.items():
            self._freed[Freed(work.shard, deletion_ms, since_ms, finished_ms)] += versions


def _deletion_time_ms(claimed_row: bytes) -> int:
    row: ClaimedRow = _CLAIMED_ROW.decode_head(claimed_row)
    return row.version.deletion_time_ms
