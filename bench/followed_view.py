"""Measures within Spark how a marker of the snapshot chain reaches the table that batches are joined with."""

from __future__ import annotations

import gc
import os
import time
import uuid
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.rule_cost import BUCKET_ID, TXNS_PER_SNAPSHOT
from schemas.codec import codec
from schemas.records import (
    ChainCapture,
    ChainedBucket,
    ChainedSnapshot,
    DeletedEntries,
    DeletedKind,
    SnapshotChainRecord,
)
from services.domain.chain_view import ChainView
from services.domain.row_columns import DeletedEntry, entries_by_columns
from streaming.reclaiming.batch_plans import BatchPlans
from streaming.reclaiming.prepared_plan import handed_in
from streaming.reclaiming.view_table import VersionTable, ViewTable

WARM_MARKERS = 10
MESSAGE_TYPE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)


class _Followed:
    """A view of many buckets, and Spark's table of it."""

    def __init__(self, session: SparkSession, buckets: int, ever: int, live: int) -> None:
        self._random = Random(buckets)  # noqa: S311  the same at each run
        self._table, self._versions, self._plans = ViewTable(session), VersionTable(session), BatchPlans()
        self.view = ChainView()
        self.view.full(buckets, (self._bucket(BUCKET_ID + number, ever, live) for number in range(buckets)))
        self._joined = self._table.joined([self.view], {(0, bucket_id) for bucket_id in self.view.bucket_ids()})

    def _bucket(self, bucket_id: int, ever: int, live: int) -> ChainedBucket:
        ordinals = sorted(self._random.sample(range(1, ever + 1), live))
        snapshots = (ChainedSnapshot(str(uuid.uuid4()), one, one * TXNS_PER_SNAPSHOT, is_live=True) for one in ordinals)
        return ChainedBucket(bucket_id, tuple(snapshots), ever, ever * TXNS_PER_SNAPSHOT)

    def follow(self) -> float:
        """Apply the next marker; return the milliseconds until the table has it."""
        bucket_id = self._random.choice(self.view.bucket_ids())
        ordinal, txn = self.view.ever(bucket_id) + 1, self.view.newest_txn(bucket_id) + TXNS_PER_SNAPSHOT
        capture = ChainCapture(bucket_id, str(uuid.uuid4()), ordinal, txn)
        started = time.perf_counter()
        changed = self.view.follow(SnapshotChainRecord(self.view.version + 1, self.view.version, capture))
        self._joined = self._table.joined([self.view], {(0, bucket_id) for bucket_id in changed or ()})
        return 1_000 * (time.perf_counter() - started)

    def judge(self, batch: DataFrame) -> float:
        """Judge a batch with the table; return the milliseconds that it takes."""
        started = time.perf_counter()
        versions = self._versions.frame([self.view.version])
        with self._plans.over(batch, self._joined, versions) as judged:
            judged.to_send.collect()
            judged.outcome()
        return 1_000 * (time.perf_counter() - started)


def measure_following(session: SparkSession, options: dict[str, Any]) -> dict[str, Any]:
    """Return medians for each number of buckets, and the bytes that the last of them adds to both processes."""
    entry = DeletedEntry(BUCKET_ID, 1, DeletedKind.KEY, 5, 9, 0, 0)
    rows: list[tuple[Any, ...]] = [
        (b"", codec(DeletedEntries).encode_message(entries_by_columns([entry])), "", 0, 0, None, 0, [])
    ]
    batch = handed_in(session.createDataFrame(session.sparkContext.parallelize(rows, 1), MESSAGE_TYPE))
    views = list[_Followed]()
    for buckets in options["buckets"]:
        before = _resident_bytes(), _heap_bytes(session)
        views.append(_Followed(session, buckets, options["ever"], options["live"]))
        views[-1].judge(batch)
        added = _resident_bytes() - before[0], _heap_bytes(session) - before[1]
    table: list[list[float]] = [[] for _ in views]
    judged: list[list[float]] = [[] for _ in views]
    for number in range(options["markers"] + WARM_MARKERS):
        for place, view in enumerate(views):
            followed = view.follow()
            both = followed + view.judge(batch)
            if number >= WARM_MARKERS:
                table[place].append(followed)
                judged[place].append(both)
    return {
        "table": [median(one) for one in table],
        "judged": [median(one) for one in judged],
        "python": max(0, added[0]),
        "heap": max(0, added[1]),
    }


def _resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _heap_bytes(session: SparkSession) -> int:
    jvm: Any = session._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())
