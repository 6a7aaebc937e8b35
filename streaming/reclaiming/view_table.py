"""Passes the chain views to Spark as two small tables, which are broadcast with the batches.

One table has a row for each bucket. A marker replaces the row of its bucket and no other row. The other table has the
chain version of each shard that is judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from services.domain.chain_view import ChainView
from services.domain.rank_pages import rank_pages
from streaming.reclaiming.rows_in_jvm import RowsInJvm

BUCKET_TYPE = (
    "struct<shard:int,bucket_id:bigint,page_shift:int,page_ranks:array<int>,live_ordinals:array<bigint>,"
    "live_txns:array<bigint>,snapshots_ever:bigint,newest_txn:bigint>"
)
VERSION_TYPE = "struct<shard:int,view_version:bigint>"
ROWS_PER_TEXT = 1_000
"""Most rows that are written as one JSON text."""
Bucket = tuple[int, int]
"""Shard and bucket id."""


@dataclass(frozen=True, slots=True)
class JoinedView:
    """The views of all shards, in the form that a plan joins with the entries of a batch."""

    rows: DataFrame
    """A row for each bucket. The rows are part of the plan, so that Spark broadcasts them without reading anything."""
    search_steps: int
    """Steps of the search among the live snapshots within any page of ``services.domain.rank_pages``."""


class ViewTable:
    """The views of all shards as rows in the JVM."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._rows = RowsInJvm(session, BUCKET_TYPE)
        self._places: dict[Bucket, int] = {}
        self._search_steps = 0
        self.rows_written = 0
        """Number of rows that were passed to the JVM so far."""
        self._joined = JoinedView(self._rows.frame(), 0)

    def joined(self, views: Sequence[ChainView], changed: Collection[Bucket]) -> JoinedView:
        """Return the table. It is the same as before unless ``changed`` names any bucket, whose row is then replaced.

        A bucket that the views do not know any more, after the loss of a chain, has all rows written again.
        """
        if changed:
            if not all(views[shard].knows(bucket_id) for shard, bucket_id in changed):
                self._rows, self._places = RowsInJvm(self._session, BUCKET_TYPE), {}
                changed = [(shard, bucket_id) for shard, view in enumerate(views) for bucket_id in view.bucket_ids()]
            for some in _pieces([one for one in changed if one in self._places]):
                self._rows.replace([self._places[one] for one in some], self._written(views, some))
            for some in _pieces([one for one in changed if one not in self._places]):
                self._rows.append(self._written(views, some))
                self._places |= {bucket: len(self._places) + number for number, bucket in enumerate(some)}
            self._joined = JoinedView(self._rows.frame(), self._search_steps)
        return self._joined

    def _written(self, views: Sequence[ChainView], buckets: Sequence[Bucket]) -> list[dict[str, Any]]:
        written = []
        for shard, bucket_id in buckets:
            row, steps = _row(shard, bucket_id, views[shard])
            self._search_steps = max(self._search_steps, steps)
            written.append(row)
        self.rows_written += len(written)
        return written


class VersionTable:
    """The chain versions of the shards as rows in the JVM; a shard that is passed over has none."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._versions: tuple[int | None, ...] = ()
        self._frame = RowsInJvm(session, VERSION_TYPE).frame()

    def frame(self, versions: Iterable[int | None]) -> DataFrame:
        """Return the table for a version of each shard, in their order; the same as before if they are the same."""
        wanted = tuple(versions)
        if wanted != self._versions:
            rows = RowsInJvm(self._session, VERSION_TYPE)
            known = [(shard, version) for shard, version in enumerate(wanted) if version is not None]
            rows.append([{"shard": shard, "view_version": version} for shard, version in known])
            self._versions, self._frame = wanted, rows.frame()
        return self._frame


def _pieces(buckets: Sequence[Bucket]) -> Iterable[Sequence[Bucket]]:
    return (buckets[first : first + ROWS_PER_TEXT] for first in range(0, len(buckets), ROWS_PER_TEXT))


def _row(shard: int, bucket_id: int, view: ChainView) -> tuple[dict[str, Any], int]:
    """Return the row of a bucket, and how many steps a search in it takes."""
    live = view.live(bucket_id)
    pages = rank_pages([snapshot.ordinal for snapshot in live], view.ever(bucket_id))
    row = {
        "shard": shard,
        "bucket_id": bucket_id,
        "page_shift": pages.shift,
        "page_ranks": pages.ranks,
        "live_ordinals": [0, *(snapshot.ordinal for snapshot in live)],
        "live_txns": [0, *(snapshot.txn for snapshot in live)],
        "snapshots_ever": view.ever(bucket_id),
        "newest_txn": view.newest_txn(bucket_id),
    }
    return row, pages.steps
