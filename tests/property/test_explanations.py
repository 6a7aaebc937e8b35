"""A path is explained as if every checkpoint and every garbage row had been read, after anything that can happen."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import (
    BucketLayout,
    CaptureSnapshot,
    DirectoryRow,
    DropSnapshot,
    KeyRow,
    RollbackOutcome,
    RollbackPage,
)
from services.domain.space_matrix import NOBODY, holders
from services.domain.table_keys import deleted_name_key, deleted_object_key
from services.metadata.reads import explanations
from services.metadata.state.tables import (
    DELETED_DIRECTORY_TABLE,
    DELETED_NAME_TABLE,
    DELETED_TABLE,
    SNAPSHOT_LIST_TABLE,
)
from services.storage.tables import TablesReader
from tests.property import explanation_model
from tests.property.test_rollback import _NAMES
from tests.property.test_undelete import _UndoBucket

pytestmark = pytest.mark.long


class _ExplainedBucket(_UndoBucket):
    """The same bucket, with snapshots that come and go."""

    def __init__(self, layout: BucketLayout, random: Random) -> None:
        super().__init__(layout, random)
        self.taken: list[str] = []
        self.ever = 0

    def act(self) -> None:
        """One thing that happens."""
        chance = self.random.random()
        if chance < 0.12:
            self.ever += 1
            self.taken.append(f"s{self.ever}")
            self.internal(CaptureSnapshot("vol", "bucket", self.taken[-1]))
        elif chance < 0.18 and self.taken:
            self.internal(DropSnapshot(self.taken.pop(self.random.randrange(len(self.taken)))))
        elif chance < 0.26:
            self.undelete()
        elif chance < 0.28 and self.taken:
            kept = self.random.randrange(len(self.taken)) + 1
            for name in reversed(self.taken[kept:]):
                self.internal(DropSnapshot(name))
            del self.taken[kept:]
            self.roll_back_fully(self.taken[-1])
        else:
            self.change()

    def roll_back_fully(self, snapshot_id: str) -> None:
        """To the newest snapshot, in one page."""

        self.number += 1
        answer = self.internal(RollbackPage(f"rollback-{self.number}", self.id, snapshot_id, 1, 1_000_000))
        assert answer.outcome is RollbackOutcome.DONE

    def open(self, snapshot_id: str) -> TablesReader:
        return TablesReader(self.store.open_checkpoint(snapshot_id))

    def check(self, paths: set[str]) -> None:
        bucket = self.row()
        for path in paths:
            model = explanation_model.explain_path(self.tables, bucket, path, self.open)
            found = explanations.explain_path(self.tables, bucket, path, self.open)
            assert replace(found, scanned_rows=0) == replace(model, scanned_rows=0), path

    def check_names(self) -> None:
        """deletedNameTable has what it must have, and nothing that points to no row."""
        tables = self.tables
        live = [row.txn for _, row in tables.table(SNAPSHOT_LIST_TABLE).scan(b"/", b"0") if row.is_live]
        held: set[bytes] = set()
        may_have: set[bytes] = set()
        for _, row in tables.table(DELETED_TABLE).scan():
            keys = self._name_keys(row.key, row.death)
            may_have |= keys
            if holders(row.key.birth, row.death, live) != NOBODY:
                held |= keys
        for _, deleted in tables.table(DELETED_DIRECTORY_TABLE).scan():
            held |= self._name_keys(deleted.directory, deleted.death)
        may_have |= held
        there = {key for key, _ in tables.table(DELETED_NAME_TABLE).scan_encoded()}
        assert held <= there <= may_have

    def _name_keys(self, row: KeyRow | DirectoryRow, death: int) -> set[bytes]:
        keys = {deleted_name_key(self.id, row.parent_id, row.name, death, row.object_id)}
        return keys | ({deleted_object_key(self.id, row.object_id, death)} if row.rename_txn else set())


def _every_path() -> set[str]:
    one = set(_NAMES)
    two = {f"{a}/{b}" for a in _NAMES for b in _NAMES}
    return one | two | {f"{a}/{b}" for a in two for b in _NAMES}


@pytest.mark.parametrize("layout", [BucketLayout.FILE_SYSTEM_OPTIMIZED, BucketLayout.OBJECT_STORE])
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_quick_way_finds_what_reading_everything_finds(layout: BucketLayout, seed: int) -> None:
    bucket = _ExplainedBucket(layout, Random(seed))
    for step in range(60):
        bucket.act()
        if step % 20 == 19:
            bucket.check(_every_path())
            bucket.check_names()
