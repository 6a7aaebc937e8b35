"""Defects of checkpoints, put back by hand."""

from __future__ import annotations

import pytest
from rocksdict import Rdict

from services.storage import rocks_checkpoints
from services.storage.rocks_checkpoints import Checkpoints, directory_name
from tests.faults.fault import Fault


def a_removed_checkpoint_counts_as_there(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint was not made anew while the removed one was still read, and went with that one's last reader."""
    make = Checkpoints.make

    def unless_there(self: Checkpoints, name: str, database: Rdict) -> None:
        if not (self.directory / directory_name(name)).is_dir():
            make(self, name, database)

    patch.setattr(Checkpoints, "make", unless_there)


def only_memory_knows_what_is_removed(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint that was removed while it was read was there again after a crash."""

    def in_memory(_: Checkpoints, handle: rocks_checkpoints.Handle) -> None:
        handle.is_removed = True

    patch.setattr(Checkpoints, "_mark_removed", in_memory)


FAULTS = (
    Fault(
        a_removed_checkpoint_counts_as_there,
        caught_by="tests/contract/test_store.py::test_a_recreated_checkpoint_outlives_the_readers_of_the_removed_one",
        message=r"assert \[\] == \['again'\]",
    ),
    Fault(
        a_removed_checkpoint_counts_as_there,
        caught_by="tests/unit/test_checkpoints.py::test_a_capture_that_is_applied_again_keeps_its_checkpoint_when_the_first_one_is_removed",
        message="snapshot s1 is live but has no checkpoint",
    ),
    Fault(
        only_memory_knows_what_is_removed,
        caught_by="tests/contract/test_store.py::test_a_crash_keeps_the_checkpoint_that_was_made_last_and_no_removed_one",
        message=r"assert \['again'\] == \[\]",
    ),
)
