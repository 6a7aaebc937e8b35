"""Arrow batches of what a worker finds: things with their holders, and sums and findings for the report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from services.lens.ozone.key_rows import Block
from services.lens.report import RUNS

BATCH_ROWS = 10_000
_BLOCK = pa.struct(
    [("container", pa.int64()), ("local", pa.int64()), ("bytes", pa.int64()), ("replicated_bytes", pa.int64())]
)
SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("fact", pa.string()),
        ("bucket", pa.string()),
        ("path", pa.string()),
        ("id", pa.string()),
        ("kind", pa.string()),
        ("bytes", pa.int64()),
        ("replicated_bytes", pa.int64()),
        ("runs", RUNS),
        ("blocks", pa.list_(_BLOCK)),
    ]
)
"""``row`` numbers the rows of all tasks. ``fact`` is null for a thing. Otherwise the row is no thing:
it names a sum, or is a finding."""


class ThingRows:
    """Rows on their way into a batch."""

    def __init__(self, first_row: int) -> None:
        self._next_row = first_row
        self._clear()

    def _clear(self) -> None:
        self.facts: list[str | None] = []
        self._buckets: list[str] = []
        self._paths: list[str] = []
        self._ids: list[str] = []
        self._kinds: list[str] = []
        self._bytes: list[int] = []
        self._replicated: list[int] = []
        self._run_ends: list[int] = [0]
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._block_ends: list[int] = [0]
        self._containers: list[int] = []
        self._locals: list[int] = []
        self._block_bytes: list[int] = []
        self._block_replicated: list[int] = []

    def add_thing(
        self,
        bucket: str,
        path: str,
        object_id: int,
        kind: str,
        blocks: Iterable[tuple[Block, int, int]],
        first: int,
        last: int,
    ) -> None:
        """Add blocks of one row that have the same holders, each with its length and what it takes on disks."""
        size_bytes = replicated = 0
        for (container, local), length, length_replicated in blocks:
            self._containers.append(container)
            self._locals.append(local)
            self._block_bytes.append(length)
            self._block_replicated.append(length_replicated)
            size_bytes += length
            replicated += length_replicated
        start = self._block_ends[-1]
        thing_id = f"{object_id}/{self._containers[start]}:{self._locals[start]}"
        self._add(None, bucket, path, thing_id, kind, size_bytes, replicated, first, last)

    def add_fact(
        self,
        fact: str,
        bucket: str,
        size_bytes: int,
        replicated: int,
        path: str = "",
        fact_id: str = "",
        first: int = 0,
        last: int = -1,
    ) -> None:
        """Add a sum, or a finding."""
        self._add(fact, bucket, path, fact_id, "", size_bytes, replicated, first, last)

    def _add(
        self,
        fact: str | None,
        bucket: str,
        path: str,
        row_id: str,
        kind: str,
        size: int,
        replicated: int,
        first: int,
        last: int,
    ) -> None:
        self.facts.append(fact)
        self._buckets.append(bucket)
        self._paths.append(path)
        self._ids.append(row_id)
        self._kinds.append(kind)
        self._bytes.append(size)
        self._replicated.append(replicated)
        if first <= last:
            self._firsts.append(first)
            self._lasts.append(last)
        self._run_ends.append(len(self._firsts))
        self._block_ends.append(len(self._containers))

    def __len__(self) -> int:
        return len(self.facts)

    def take(self) -> pa.RecordBatch:
        """Return the rows as a batch, and begin a new one."""
        runs = pa.StructArray.from_arrays(
            [pa.array(self._firsts, pa.int32()), pa.array(self._lasts, pa.int32())], names=["first", "last"]
        )
        blocks = pa.StructArray.from_arrays(
            [
                pa.array(column, pa.int64())
                for column in (self._containers, self._locals, self._block_bytes, self._block_replicated)
            ],
            names=["container", "local", "bytes", "replicated_bytes"],
        )
        columns: list[Any] = [pa.array(range(self._next_row, self._next_row + len(self)), pa.int64())]
        columns += [
            pa.array(column, pa.string()) for column in (self.facts, self._buckets, self._paths, self._ids, self._kinds)
        ]
        columns += [pa.array(self._bytes, pa.int64()), pa.array(self._replicated, pa.int64())]
        columns.append(pa.ListArray.from_arrays(pa.array(self._run_ends, pa.int32()), runs))
        columns.append(pa.ListArray.from_arrays(pa.array(self._block_ends, pa.int32()), blocks))
        self._next_row += len(self)
        self._clear()
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
