"""Random clients that write keys in steps: the log, read independently, says the same of each run as the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import BucketLayout
from services.metadata.namespace.key_parts import parts_of, stored_bytes
from services.metadata.reads.queries import get_bucket
from services.metadata.state.tables import (
    FILE_TABLE,
    KEY_PART_TABLE,
    KEY_TABLE,
    TRANSACTION_INFO_KEY,
    TRANSACTION_INFO_TABLE,
    namespace_prefix,
)
from services.plane.in_memory.plane import InMemoryPlane
from services.storage.store import prefix_end
from services.storage.tables import TablesReader
from services.verifier import writing
from services.verifier.history import History
from services.verifier.namespace import Namespace
from services.verifier.replay import LogReplay
from services.verifier.report import VerifyReport
from services.verifier.uploads import Uploads
from services.verifier.writing import Writing
from tests.property.test_ledger import verified
from tests.unit.writing_shard import checked_versions
from tests.writing_workload import BUCKET, VOLUME, writers


def txn_of(plane: InMemoryPlane) -> int:
    """How far metadata is."""
    state = TablesReader(plane.processes["metadata", 0].store).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
    assert state is not None
    return state.txn


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(20, 150))
def test_the_ledger_of_keys_that_are_written_in_steps_is_what_the_log_says(seed: int, steps: int) -> None:
    written = writers(seed, steps)
    report = verified(written.plane)
    assert report.is_clean, report.examples
    written.settle()
    report = verified(written.plane)
    assert report.is_clean, report.examples
    assert report.txn == txn_of(written.plane)
    assert (report.unfinished_rows, report.size_bytes) == (0, report.deleted_bytes_after)
    check_rows(written.plane)


def check_rows(plane: InMemoryPlane) -> None:
    """Each run of blocks that is left belongs to a live version, and the bucket counts them all."""
    tables = TablesReader(plane.processes["metadata", 0].store)
    bucket = get_bucket(tables, VOLUME, BUCKET)
    ids, prefix = (bucket.volume_id, bucket.object_id), namespace_prefix(bucket)
    table = FILE_TABLE if bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED else KEY_TABLE
    keys = [row for _, row in tables.table(table).scan(prefix, prefix_end(prefix))]
    keys += checked_versions(tables, ids, keys)
    parts = {key.object_id: parts_of(tables, ids, key) for key in keys}
    live_bytes = sum(stored_bytes(key, parts[key.object_id]) for key in keys)
    assert bucket.used_bytes == live_bytes + bucket.upload_bytes
    assert sum(map(len, parts.values())) == len(list(tables.table(KEY_PART_TABLE).scan()))


def _agrees(report: VerifyReport, plane: InMemoryPlane) -> bool:
    return report.is_clean and report.txn == txn_of(plane)


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        (History, "_roll_back_growth", lambda *_: None),
        (History, "lengthen", lambda *_: None),
        (History, "_roll_back_versions", lambda *_: None),
        (History, "_name_as_current", lambda *_: None),
        (History, "die_with_key", lambda *_: None),
        (Namespace, "_is_kept", lambda *_: False),
        (LogReplay, "_undelete_version", lambda *_: False),
        (Writing, "_close", lambda *_: None),
        (Uploads, "end", lambda *_: 0),
        (writing, "free", lambda *_: None),
        (writing, "require_generation", lambda *_: None),
    ],
    ids=[
        *("rolled back growth", "grown blocks", "rolled back versions", "current in the snapshot"),
        *("versions of deleted keys", "kept versions", "versions that come back"),
        *("closed keys", "ended uploads", "unused blocks", "conditions"),
    ],
)
def test_each_part_of_the_replay_is_needed(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, instead: Callable[..., Any]
) -> None:
    """Without it the replay of some workload disagrees with metadata."""
    plane = next(_workloads_of(0))
    assert _agrees(verified(plane), plane)
    monkeypatch.setattr(owner, name, instead)
    assert any(not _agrees(verified(plane), plane) for plane in _workloads_of(0))


def _workloads_of(seed: int) -> Any:
    for number in range(seed, seed + 60):
        written = writers(number, 120)
        written.settle()
        yield written.plane
