"""Defects of backups: files that are copied too often or shared wrongly, and backups that are deleted too early."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.plane.upkeep import old_backups
from services.plane.upkeep.old_backups import KeptBackup, Place
from services.runtime.copies.manifests import ServiceCopy
from services.storage import rocks_backups
from tests.faults.fault import Fault

_COPIED = "tests/unit/test_backups.py::"
_DELETED = "tests/unit/test_old_backups.py::"


def files_are_followed_by_their_names(patch: pytest.MonkeyPatch) -> None:
    """A backup on another disk had a table file once for each checkpoint that shares it."""

    def link_table(_: rocks_backups._Copying, file: Path, target: Path) -> bool:
        return file.suffix == rocks_backups.TABLE_SUFFIX and rocks_backups._link(file, target)

    patch.setattr(rocks_backups._Copying, "_link_known", link_table)


def table_files_are_told_apart_by_name_size_and_time(patch: pytest.MonkeyPatch) -> None:
    """A backup shared a file with one of another database: rewritten checkpoints have the same small numbers."""
    patch.setattr(rocks_backups, "_is_same_table", lambda *_: True)


def another_name_counts_as_a_backup(patch: pytest.MonkeyPatch) -> None:
    """A link to a backup replaced this backup, which was deleted."""
    patch.setattr(KeptBackup, "is_counted", property(lambda _: True))


def any_newer_copy_replaces_one(patch: pytest.MonkeyPatch) -> None:
    """A backup of another log, or one that had been begun earlier, replaced one that was needed."""

    def is_replaced_by(_: ServiceCopy, newer: KeptBackup, place: Place) -> bool:
        return place in newer.copies and place not in newer.damaged

    patch.setattr(old_backups, "_is_replaced_by", is_replaced_by)


FAULTS = (
    Fault(
        files_are_followed_by_their_names,
        caught_by=f"{_COPIED}test_what_checkpoints_share_is_copied_to_another_disk_and_back_once",
        message="shared",
    ),
    Fault(
        table_files_are_told_apart_by_name_size_and_time,
        caught_by=f"{_COPIED}test_a_later_backup_shares_the_table_files_of_an_earlier_one",
        message="st_ino",
    ),
    Fault(
        another_name_counts_as_a_backup,
        caught_by=f"{_DELETED}test_another_name_of_a_backup_replaces_nothing_and_stays",
        message=r"assert \[Kept",
    ),
    Fault(
        any_newer_copy_replaces_one,
        caught_by=f"{_DELETED}test_what_goes_has_newer_whole_copies_that_read_as_far_and_all_such_go",
        message="assert",
    ),
)
