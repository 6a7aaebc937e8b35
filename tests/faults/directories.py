"""Defects of deleted directories in progress, put back by hand."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.records import DirectoryRemoval, RemovalOutcome
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.directory_deletion.tables import TREE_TABLE, tree_row_key
from services.directory_deletion.trees import Trees
from services.runtime.loop.service import Work
from tests.faults.fault import Fault


def a_repeated_suspension_puts_a_row_off(patch: pytest.MonkeyPatch) -> None:
    """The answer to an earlier removal, read a second time, put off a row that could have been removed."""
    original = Trees.removed

    def removed(self: Trees, answer: DirectoryRemoval, work: Work) -> None:
        row = work.table(TREE_TABLE).get(tree_row_key(answer.bucket_id, answer.death, answer.object_id))
        if row is not None and answer.outcome is RemovalOutcome.SUSPENDED:
            self._put_off(row, answer.outcome, work)
        else:
            original(self, answer, work)

    patch.setattr(Trees, "removed", removed)


def an_undo_window_is_timed_again(patch: pytest.MonkeyPatch) -> None:
    """A clock that was behind for a while would end a window early."""
    original = Trees.__init__

    def init(self: Trees, settings: DirectoryDeletionSettings, *others: Any) -> None:
        original(self, settings, *others)
        self._to_expand._longest_ms = settings.undo_window_ms

    patch.setattr(Trees, "__init__", init)


FAULTS = (
    Fault(
        an_undo_window_is_timed_again,
        caught_by="tests/unit/test_clock_set_back.py::TestDirectoryDeletion::test_an_undo_window_ends_when_it_was_to",
        message=r"assert not \[",
    ),
    Fault(
        a_repeated_suspension_puts_a_row_off,
        caught_by="tests/unit/test_collection.py::TestDirectoryDeletion::"
        "test_a_suspension_that_is_told_twice_is_no_answer_to_the_next_request",
        message=r"assert \[\]",
    ),
)
