"""Faults of what is durable: a kill cannot show them, a power cut does."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.storage import rocks, rocks_backups, rocks_checkpoints
from tests.faults.fault import Fault

_TEST = "tests/contract/test_power_cut.py::"
_WRITTEN = f"{_TEST}test_what_was_written_outlives_a_power_cut"
_BACKUP = f"{_TEST}test_a_backup_and_a_restored_copy_outlive_a_power_cut"
_LOST_CHECKPOINT = "a checkpoint that was acknowledged is lost"


def writes_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A write returned before the disk had it."""
    patch.setattr(rocks, "sync", lambda _: None)


def _make_without_sync(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)


def directories_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The directory of checkpoints was made, and its name was not on the disk."""
    patch.setattr(rocks_checkpoints, "make_directory", _make_without_sync)


def directories_of_backups_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A backup and a restored copy lay in directories whose names were not on the disk."""
    patch.setattr(rocks_backups, "make_directory", _make_without_sync)


def checkpoints_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint got its name by a rename that was not on the disk."""
    patch.setattr(rocks_checkpoints, "sync_directory", lambda _: None)


FAULTS = (
    Fault(writes_are_not_synced, caught_by=_WRITTEN, message="a write that was acknowledged is lost"),
    Fault(directories_are_not_synced, caught_by=_WRITTEN, message=_LOST_CHECKPOINT),
    Fault(directories_of_backups_are_not_synced, caught_by=_BACKUP, message="a write that was acknowledged is lost"),
    Fault(checkpoints_are_not_synced, caught_by=_WRITTEN, message="is lost"),
)
