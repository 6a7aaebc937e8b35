"""The rows of the tables that show a state, from random planes: they are what the plane itself says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from hypothesis import given, settings
from hypothesis import strategies as st

from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from streaming.rocksdb.checkpoint_rows import WHOLE
from streaming.tables.copied_shard import CopiedShard, read_shard
from streaming.tables.inventory import READERS, SCHEMA, buckets_to_read
from tests.audited_plane import CopiedRows
from tests.property.test_ledger import played
from tests.steps_workload import random_workload as steps_workload


def any_played(seed: int) -> InMemoryPlane:
    """A plane after a random workload: with rollbacks, or with keys that are written in steps, and uploads."""
    if seed % 2:
        return played(seed)
    plane = InMemoryPlane()
    for _ in Replay(InMemoryClient(plane), is_wide=True).run(steps_workload(seed, "vol")):
        pass
    return plane


def copied(plane: InMemoryPlane) -> tuple[CopiedShard, list[dict[str, object]]]:
    """What a copy of the plane's only shard says, and the rows of its inventory."""
    store = plane.processes["metadata", 0].store.clone()

    @contextmanager
    def opener(_: str, __: Sequence[str]) -> Iterator[CopiedRows]:
        yield CopiedRows(store)

    found = read_shard(0, "copy", opener)
    buckets = buckets_to_read(found, opener)
    rows = [row for table in READERS for batch in buckets.batches(table, WHOLE) for row in batch.to_pylist()]
    assert all(list(row) == SCHEMA.names for row in rows)
    return found, rows


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_inventory_sums_up_to_the_space_matrix_and_the_figures(seed: int) -> None:
    found, rows = copied(any_played(seed))
    held, live = Counter[tuple[object, ...]](), Counter[object]()
    for row in rows:
        assert isinstance(row["size_bytes"], int)
        if row["stage"] in ("HELD", "PENDING"):
            assert (row["stage"] == "HELD") is (row["first_holder"] is not None)
            held[row["bucket_id"], row["first_holder"] or 0, row["last_holder"] or 0] += row["size_bytes"]
        elif row["stage"] in ("LIVE", "UPLOAD"):
            live[row["bucket_id"]] += row["size_bytes"]
    cells = {
        (row["bucket_id"], row["first_holder"], row["last_holder"]): row["size_bytes"] for row in found.rows("space")
    }
    assert +held == +Counter(cells)
    for bucket in found.rows("buckets"):
        assert live[bucket["bucket_id"]] == bucket["live_bytes"]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_space_of_buckets_and_snapshots_is_what_the_plane_answers(seed: int) -> None:
    plane = any_played(seed)
    found, _ = copied(plane)
    client = InMemoryClient(plane)
    for bucket in found.rows("buckets"):
        asked = asdict(client.metadata(0).space(bucket["volume"], bucket["bucket"]))
        figures = {name: value for name, value in bucket.items() if name.endswith(("_bytes", "_versions"))}
        assert figures == {name: asked[name] for name in figures}
        spaces = client.space(0).snapshot_spaces(bucket["volume"], bucket["bucket"]).snapshots
        mine = [row for row in found.rows("snapshot_space") if row["bucket_id"] == bucket["bucket_id"]]
        names = ("snapshot_id", *(name for name in mine[0] if name.endswith(("_bytes", "_versions")))) if mine else ()
        assert [[row[name] for name in names] for row in mine] == [
            [getattr(one, name) for name in names] for one in spaces
        ]
