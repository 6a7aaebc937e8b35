"""Passes the chain views to Spark as one small table, which is broadcast with every batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

from services.domain.chain_view import ChainView
from services.domain.rank_pages import rank_pages

VIEW_TYPE = (
    "array<struct<shard:int,bucket_id:bigint,page_shift:int,page_mask:bigint,page_starts:array<bigint>,"
    "page_ranks:array<bigint>,live_txns:array<bigint>,snapshots_ever:bigint,newest_txn:bigint>>"
)


class ViewTable:
    """The views of all shards as a table whose rows are part of the plan, so that Spark broadcasts it without a job.

    The table is rebuilt when a view has changed; the rows of unchanged buckets are kept as text.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._texts: dict[tuple[int, int], str] = {}
        self._frame = self._make_frame()

    def frame(self, views: Sequence[ChainView], changed: set[tuple[int, int]]) -> DataFrame:
        """Return the table, rebuilt if ``changed`` names any (shard, bucket id); otherwise the same table as before."""
        if changed:
            for shard, bucket_id in changed:
                if views[shard].knows(bucket_id):
                    self._texts[shard, bucket_id] = _text(shard, bucket_id, views[shard])
                else:
                    self._texts.pop((shard, bucket_id), None)
            self._frame = self._make_frame()
        return self._frame

    def _make_frame(self) -> DataFrame:
        text = functions.lit(f"[{','.join(self._texts.values())}]")
        parsed: Any = self._session.range(1).select(functions.inline(functions.from_json(text, VIEW_TYPE)))
        session: Any = self._session
        # A list of rows in the JVM becomes a relation without partitions; a list in Python would not.
        frame = session._jsparkSession.createDataFrame(parsed._jdf.collectAsList(), parsed._jdf.schema())
        return DataFrame(frame, session)


def versions_text(versions: Iterable[int | None]) -> str:
    """Return the chain version of each shard as the text of a Spark array; null for a shard that is passed over."""
    texts = ("CAST(NULL AS BIGINT)" if version is None else f"{version}L" for version in versions)
    return f"array({', '.join(texts)})"


def _text(shard: int, bucket_id: int, view: ChainView) -> str:
    live = view.live(bucket_id)
    pages = rank_pages([snapshot.ordinal for snapshot in live], view.ever(bucket_id))
    row = {
        "shard": shard,
        "bucket_id": bucket_id,
        "page_shift": pages.shift,
        "page_mask": pages.mask,
        "page_starts": pages.starts,
        "page_ranks": pages.ranks,
        "live_txns": [0, *(snapshot.txn for snapshot in live)],
        "snapshots_ever": view.ever(bucket_id),
        "newest_txn": view.newest_txn(bucket_id),
    }
    return json.dumps(row, separators=(",", ":"))
