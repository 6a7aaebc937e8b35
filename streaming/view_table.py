"""Hands the chain views to Spark as one small table, to be broadcast with every batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

from services.domain.chain_view import ChainView

VIEW_TYPE = "array<struct<shard:int,bucket_id:bigint,previous_cells:array<bigint>,taken_cells:array<bigint>>>"


class ViewTable:
    """The views of all shards as a table of rows that are in the plan itself: it is broadcast without a job.

    It is made anew when a marker came; what is said of a bucket whose chain has not changed is kept as text.
    """

    def __init__(self, session: SparkSession, views: list[ChainView]) -> None:
        self._session = session
        self._views = views
        self._texts: dict[tuple[int, int], str] = {}
        self._frame = self._make_frame()

    def frame(self, changed: set[tuple[int, int]]) -> DataFrame:
        """The table, with what has changed since it was last asked for."""
        if changed:
            for shard, bucket_id in changed:
                self._texts[shard, bucket_id] = self._text(shard, bucket_id)
            self._frame = self._make_frame()
        return self._frame

    def _text(self, shard: int, bucket_id: int) -> str:
        view = self._views[shard]
        row = {
            "shard": shard,
            "bucket_id": bucket_id,
            "previous_cells": view.previous_array(bucket_id),
            "taken_cells": [0, *(snapshot.txn for snapshot in view.ever(bucket_id))],
        }
        return json.dumps(row, separators=(",", ":"))

    def _make_frame(self) -> DataFrame:
        text = functions.lit(f"[{','.join(self._texts.values())}]")
        parsed: Any = self._session.range(1).select(functions.inline(functions.from_json(text, VIEW_TYPE)))
        session: Any = self._session
        # A list of rows that the JVM holds becomes a relation without partitions, unlike one that Python holds.
        frame = session._jsparkSession.createDataFrame(parsed._jdf.collectAsList(), parsed._jdf.schema())
        make: Callable[[Any, SparkSession], DataFrame] = type(parsed)
        return make(frame, self._session)

    def versions(self) -> str:
        """The chain version of each shard, as the text of a Spark array."""
        return f"array({', '.join(f'{view.version}L' for view in self._views)})"
