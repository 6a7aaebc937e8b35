"""Defects of changedTable, put back by hand."""

from __future__ import annotations

import pytest

from services.domain.table_keys import bucket_id_prefix, changed_key
from services.metadata.state import changed_rows
from services.metadata.state.changed_rows import Range, UnneededChanges
from services.storage.store import prefix_end
from tests.faults.fault import Fault


def a_trim_removes_changes_after_a_capture(patch: pytest.MonkeyPatch) -> None:
    """Without a live snapshot all changes of a bucket were to be removed, and those after a later take as well."""

    def unneeded_of(bucket_id: int, oldest_live: int | None, _: int) -> Range:
        prefix = bucket_id_prefix(bucket_id)
        return prefix, prefix_end(prefix) if oldest_live is None else changed_key(bucket_id, oldest_live)

    patch.setattr(changed_rows, "unneeded_of", unneeded_of)


def each_range_begins_at_the_buckets_first_change(patch: pytest.MonkeyPatch) -> None:
    """A drop stepped over all that drops before it had removed."""
    patch.setattr(UnneededChanges, "_remember", lambda *_: None)


FAULTS = (
    Fault(
        a_trim_removes_changes_after_a_capture,
        caught_by="tests/unit/test_replay_of_diffs.py::test_a_diff_is_whole_while_the_changes_of_a_dropped_snapshot_are_removed",
        message=r"'diff': \[\]",
    ),
    Fault(
        a_trim_removes_changes_after_a_capture,
        caught_by="tests/unit/test_changed_rows.py::test_what_changes_after_a_snapshot_stays_while_older_changes_are_removed",
        message=r"Right contains \d+ more items, first extra item: DiffEntry",
    ),
    Fault(
        a_trim_removes_changes_after_a_capture,
        caught_by="tests/unit/test_changed_rows.py::test_a_path_is_explained_by_changes_that_stay",
        message=r"assert \[\] == \[\['two'\]\]",
    ),
    Fault(
        a_trim_removes_changes_after_a_capture,
        caught_by="tests/property/test_changed_rows.py::test_removing_changes_changes_no_answer",
        message=r"assert \['changedTable'\] == \[\]",
    ),
    Fault(
        each_range_begins_at_the_buckets_first_change,
        caught_by="tests/unit/test_changed_rows.py::test_a_removal_does_not_step_over_what_was_removed_before",
        message=r"a scan begins before",
    ),
)
