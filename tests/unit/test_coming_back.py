"""As what a deleted key or directory comes back: what its row says, and what was taken and rolled back since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.records import DeletedDirectoryRow, DeletedKeyRow, DirectoryRow, KeyRow
from services.domain.coming_back import Return, return_of_directory, return_of_key
from services.domain.table_keys import object_id

BIRTH, DEATH = 10, 20
HOLDS, IN_BETWEEN = 15, 25
"""Snapshots: one that lists it, and one that was taken since it died."""
OBJECT_ID = object_id(0, BIRTH, 1)
KEY = DeletedKeyRow(KeyRow(OBJECT_ID, BIRTH, 1, None, 7, "k", BIRTH, 0, "", 0, 0), DEATH, 1)
DIRECTORY = DeletedDirectoryRow(DirectoryRow(OBJECT_ID, 7, "d", BIRTH, 0, 0, 0), DEATH, 1, False, 0)


@pytest.mark.parametrize(
    ("is_overwritten", "rolled_back_txn", "live", "expected"),
    [
        (False, 0, [], Return.ITSELF),
        (False, 0, [HOLDS], Return.ITSELF),
        (False, DEATH - 1, [HOLDS], Return.ITSELF),
        (False, DEATH, [], Return.NEW_OBJECT),  # the rollback may have brought the object back as another version
        (False, DEATH, [HOLDS], Return.HELD),
        (True, 0, [], Return.NEW_OBJECT),
        (True, 0, [HOLDS], Return.HELD),
        (False, 0, [IN_BETWEEN], Return.NEW_OBJECT),
        (False, 0, [HOLDS, IN_BETWEEN], Return.SNAPSHOT_IN_BETWEEN),
        (True, DEATH, [HOLDS, IN_BETWEEN], Return.SNAPSHOT_IN_BETWEEN),
    ],
)
def test_a_key_comes_back_as_itself_as_a_new_object_or_not(
    is_overwritten: bool, rolled_back_txn: int, live: list[int], expected: Return
) -> None:
    row = replace(KEY, is_overwritten=is_overwritten)
    assert return_of_key(row, rolled_back_txn, live) is expected


@pytest.mark.parametrize(
    ("is_expansion_begun", "has_parent_in_garbage", "live", "expected"),
    [
        (False, False, [], Return.ITSELF),
        (False, False, [HOLDS], Return.ITSELF),
        (True, False, [], Return.EXPANDED),
        (False, True, [], Return.EXPANDED),
        (True, True, [HOLDS, IN_BETWEEN], Return.EXPANDED),
        (False, False, [IN_BETWEEN], Return.SNAPSHOT_IN_BETWEEN),  # held or not: all below would have to be new
        (False, False, [HOLDS, IN_BETWEEN], Return.SNAPSHOT_IN_BETWEEN),
    ],
)
def test_a_directory_comes_back_as_itself_or_not_as_a_whole(
    is_expansion_begun: bool, has_parent_in_garbage: bool, live: list[int], expected: Return
) -> None:
    row = replace(DIRECTORY, is_expansion_begun=is_expansion_begun)
    assert return_of_directory(row, live, has_parent_in_garbage=has_parent_in_garbage) is expected
