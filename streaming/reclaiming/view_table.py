"""Passes the chain views to Spark as one small table, which is broadcast with the batches.

The table lives in the JVM as a list of rows, one for each bucket. A marker replaces the row of its bucket and no other
row: Python writes the changed rows as JSON, and the JVM parses them. A batch that follows joins the list as it is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

from services.domain.chain_view import ChainView
from services.domain.rank_pages import rank_pages

VIEW_TYPE = (
    "array<struct<shard:int,bucket_id:bigint,page_shift:int,page_ranks:array<int>,live_ordinals:array<bigint>,live_txns:array<bigint>,"
    "snapshots_ever:bigint,newest_txn:bigint>>"
)
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
        self._session: Any = session
        parsed: Any = self._parsed("[]").schema["rows"].dataType
        self._columns = parsed.elementType
        self._rows = self._new_list()
        self._places: dict[Bucket, int] = {}
        self._search_steps = 0
        self.rows_written = 0
        """Number of rows that were passed to the JVM so far."""
        self._joined = self._make_joined()

    def joined(self, views: Sequence[ChainView], changed: Collection[Bucket]) -> JoinedView:
        """Return the table. It is the same as before unless ``changed`` names any bucket, whose row is then replaced.

        A bucket that the views do not know any more, after the loss of a chain, has all rows written again.
        """
        if changed:
            if not all(views[shard].knows(bucket_id) for shard, bucket_id in changed):
                self._rows, self._places = self._new_list(), {}
                changed = [(shard, bucket_id) for shard, view in enumerate(views) for bucket_id in view.bucket_ids()]
            self._replace(views, [one for one in changed if one in self._places])
            self._append(views, [one for one in changed if one not in self._places])
            self._joined = self._make_joined()
        return self._joined

    def _new_list(self) -> Any:
        return self._session._jvm.java.util.ArrayList()

    def _replace(self, views: Sequence[ChainView], buckets: Sequence[Bucket]) -> None:
        for some in _pieces(buckets):
            written = self._written(views, some)
            for number, bucket in enumerate(some):
                self._rows.set(self._places[bucket], written[number])

    def _append(self, views: Sequence[ChainView], buckets: Sequence[Bucket]) -> None:
        for some in _pieces(buckets):
            self._rows.addAll(self._session._jvm.java.util.Arrays.asList(self._written(views, some)))
            self._places |= {bucket: len(self._places) + number for number, bucket in enumerate(some)}

    def _written(self, views: Sequence[ChainView], buckets: Sequence[Bucket]) -> Any:
        """Return the rows of some buckets as an array in the JVM."""
        rows, steps = zip(*(_row(shard, bucket_id, views[shard]) for shard, bucket_id in buckets), strict=True)
        self._search_steps = max(self._search_steps, *steps)
        self.rows_written += len(rows)
        frame: Any = self._parsed(json.dumps(rows, separators=(",", ":")))
        # The optimizer has parsed the text already: no Spark job is needed.
        literal = frame._jdf.queryExecution().optimizedPlan().projectList().head().child()
        return literal.value().toObjectArray(literal.dataType().elementType())

    def _parsed(self, text: str) -> DataFrame:
        frame: DataFrame = self._session.range(1).select(
            functions.from_json(functions.lit(text), VIEW_TYPE).alias("rows")
        )
        return frame

    def _make_joined(self) -> JoinedView:
        jvm, session = self._session._jvm, self._session._jsparkSession
        empty = self._session.createDataFrame([], self._columns)._jdf.queryExecution().analyzed()
        relation = jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation(
            empty.output(), jvm.PythonUtils.toSeq(self._rows), False, jvm.scala.Option.empty()
        )
        rows = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, relation), self._session)
        return JoinedView(rows, self._search_steps)


def versions_text(versions: Iterable[int | None]) -> str:
    """Return the chain version of each shard as the text of a Spark array; null for a shard that is passed over."""
    texts = ("CAST(NULL AS BIGINT)" if version is None else f"{version}L" for version in versions)
    return f"array({', '.join(texts)})"


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
