"""Faults of the rule's edges, of scans and of clean flags: no simulated run can tell them from what is right.

A birth never equals a snapshot's txn in a real log, and the simulator keeps its rows in memory.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import NAMESPACE_URL, uuid5

import pytest
from rocksdict import ReadOptions

from schemas.records import SnapshotInfo
from services.domain import reclaimability
from services.runtime.loop.service import Work
from services.snapshots.lifecycle import requests, snapshots
from services.snapshots.state.tables import DEEP_CLEAN_TABLE
from services.storage import rocks_options
from tests.faults.fault import Fault


def a_birth_at_the_snapshot_counts_as_later(patch: pytest.MonkeyPatch) -> None:
    """The rule compared with >= instead of >."""
    patch.setattr(reclaimability, "is_reclaimable_after", lambda birth, previous: birth >= previous)


def scans_without_total_order(patch: pytest.MonkeyPatch) -> None:
    """A scan left rows out where the family has a prefix extractor."""
    patch.setattr(rocks_options, "total_order", ReadOptions)


def flags_outlive_a_reset(patch: pytest.MonkeyPatch) -> None:
    """Clean flags that were found before a reset counted after it."""

    def with_flags(row: SnapshotInfo, work: Work) -> SnapshotInfo:
        flags = work.table(DEEP_CLEAN_TABLE).get(row.snapshot_id.encode())
        return replace(row, has_deep_cleaned_keys=flags is not None, has_deep_cleaned_directories=flags is not None)

    patch.setattr(snapshots, "_with_flags", with_flags)


def a_period_has_one_snapshot_id(patch: pytest.MonkeyPatch) -> None:
    """metadata answered with an earlier snapshot: a dropped one, which let no settle end, or one that was renamed."""
    patch.setattr(requests, "scheduled_snapshot_id", lambda _, name, *__: str(uuid5(NAMESPACE_URL, name)))


FAULTS = (
    Fault(
        a_period_has_one_snapshot_id,
        caught_by="tests/unit/test_snapshots_retention.py::test_a_period_that_begins_twice_has_two_snapshots",
        message="assert 1 == 2",
    ),
    Fault(
        a_birth_at_the_snapshot_counts_as_later,
        caught_by="tests/unit/test_reclaimability.py::test_the_rule_at_its_edges",
        message=r"assert <Verdict\.RECLAIMABLE.* is <Verdict\.EXCLUSIVE_TO_PREVIOUS",
    ),
    Fault(
        scans_without_total_order,
        caught_by="tests/contract/test_store.py::test_a_scan_leaves_nothing_out_across_prefixes",
        message="assert",
    ),
    Fault(
        flags_outlive_a_reset,
        caught_by="tests/unit/test_snapshots_service.py::test_flags_found_before_the_last_reset_are_ignored",
        message="has_deep_cleaned_keys",
    ),
)
