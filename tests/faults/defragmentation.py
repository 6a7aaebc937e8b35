"""Defects of the rewriting of checkpoints, put back by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.storage import rocks
from services.storage.rocks import RocksStore
from services.storage.rocks_checkpoints import Checkpoints, CheckpointView
from tests.faults.fault import Fault

_TEST = "tests/contract/test_defragmentation.py::"


def the_old_one_goes_first(patch: pytest.MonkeyPatch) -> None:
    """The old checkpoint was marked as removed before the new one had its place: a crash in between lost both."""
    replace = Checkpoints.replace

    def marked_first(self: Checkpoints, view: CheckpointView, made: Path) -> bool:
        assert view.handle is not None
        self._mark_removed(view.handle)
        view.handle.is_removed = False
        return replace(self, view, made)

    patch.setattr(Checkpoints, "replace", marked_first)


def a_removed_one_comes_back(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint that was removed while it was rewritten was there again."""
    replace = Checkpoints.replace

    def whatever_happened(self: Checkpoints, view: CheckpointView, made: Path) -> bool:
        assert view.handle is not None
        view.handle.is_removed = False
        return replace(self, view, made)

    patch.setattr(Checkpoints, "replace", whatever_happened)


def the_newest_is_made_from_later_rows(patch: pytest.MonkeyPatch) -> None:
    """After a merge at rest the newest checkpoint was made again, although rows had been written since."""
    checkpoint = RocksStore.checkpoint
    link_again = RocksStore._link_newest_again
    newest: dict[int, str] = {}

    def noted(self: RocksStore, name: str) -> None:
        checkpoint(self, name)
        newest[id(self)] = name

    def of_whatever_rows(self: RocksStore) -> None:
        self._newest = (newest[id(self)], self._kept_writes) if id(self) in newest else None
        link_again(self)

    patch.setattr(RocksStore, "checkpoint", noted)
    patch.setattr(RocksStore, "_link_newest_again", of_whatever_rows)


def shared_files_count_as_its_own(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint was rewritten although the database has the same files: both then took space."""
    fragmented = RocksStore._fragmented

    def with_all_files(self: RocksStore) -> Any:
        with patch.context() as nothing_shared:
            nothing_shared.setattr(rocks, "file_sizes", lambda _: {})
            return fragmented(self)

    patch.setattr(RocksStore, "_fragmented", with_all_files)


FAULTS = (
    Fault(
        the_old_one_goes_first,
        caught_by=f"{_TEST}test_a_crash_at_any_step_leaves_the_rows",
        message=r"assert \[\] == \['kept'\]",
    ),
    Fault(
        a_removed_one_comes_back,
        caught_by=f"{_TEST}test_a_checkpoint_that_is_removed_meanwhile_stays_removed",
        message="assert",
    ),
    Fault(
        the_newest_is_made_from_later_rows,
        caught_by=f"{_TEST}test_a_checkpoint_is_not_made_again_from_later_rows",
        message=r"b'/later'",
    ),
    Fault(
        shared_files_count_as_its_own,
        caught_by=f"{_TEST}test_files_that_the_database_shares_are_not_rewritten",
        message="is None",
    ),
)
