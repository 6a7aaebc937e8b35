"""Random clients that write keys in steps: the log, read independently, says the same of each run as the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.metadata.state.tables import TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.plane.in_memory.plane import InMemoryPlane
from services.storage.tables import TablesReader
from services.verifier import writing
from services.verifier.history import History
from services.verifier.report import VerifyReport
from services.verifier.uploads import Uploads
from services.verifier.writing import Writing
from tests.property.test_ledger import verified
from tests.writing_workload import writers


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


def _agrees(report: VerifyReport, plane: InMemoryPlane) -> bool:
    return report.is_clean and report.txn == txn_of(plane)


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        (History, "_roll_back_growth", lambda *_: None),
        (History, "lengthen", lambda *_: None),
        (Writing, "_close", lambda *_: None),
        (Uploads, "end", lambda *_: 0),
        (writing, "free", lambda *_: None),
        (writing, "require_generation", lambda *_: None),
    ],
    ids=["rolled back growth", "grown blocks", "closed keys", "ended uploads", "unused blocks", "conditions"],
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
    for number in range(seed, seed + 20):
        written = writers(number, 120)
        written.settle()
        yield written.plane
