"""What comes back is listed as it was, every figure equals a recount, and one interval still tells who sees what."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.answers import Returning
from schemas.records import BucketLayout, CaptureSnapshot, DeletedKind, MetadataReply, RollbackPage, Undelete
from schemas.topics import DEAD_LETTERS
from services.domain.coming_back import Return, return_of
from services.domain.table_keys import object_txn
from services.metadata.reads import queries
from services.metadata.reads.deleted_queries import list_deleted
from services.metadata.state.tables import (
    DELETED_DIRECTORY_TABLE,
    DELETED_TABLE,
    DIRECTORY_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    SNAPSHOT_LIST_TABLE,
)
from services.storage.tables import TablesReader
from tests.property.test_rollback import _Bucket

_REFUSALS = {
    "TOO_LATE",
    "KEY_ALREADY_EXISTS",
    "FILE_ALREADY_EXISTS",
    "NOT_A_FILE",
    "DIRECTORY_EXPANDED",
    "SNAPSHOT_IN_BETWEEN",
    "HELD_BY_SNAPSHOT",
}
_OF_THE_PLACE = {"KEY_ALREADY_EXISTS", "FILE_ALREADY_EXISTS", "NOT_A_FILE", "BUCKET_BUSY"}
_REFUSALS_OF = {
    Returning.ONLY_A_COPY: {"SNAPSHOT_IN_BETWEEN", "HELD_BY_SNAPSHOT"},
    Returning.ONLY_ITS_FILES: {"DIRECTORY_EXPANDED", "SNAPSHOT_IN_BETWEEN"},
    None: {"TOO_LATE"},
}
"""By what the listing says, why it does not come back so. Where it was to go may be in the way of anything."""


class _UndoBucket(_Bucket):
    """The same bucket, whose client changes his mind now and then."""

    def __init__(self, layout: BucketLayout, random: Random) -> None:
        super().__init__(layout, random)
        self.came_back = 0

    def deleted(self) -> list[Undelete]:
        found = []
        for _, row in self.tables.table(DELETED_TABLE).scan():
            found.append((DeletedKind.KEY, row.key.object_id, row.key.birth, row.death))
        for _, directory_row in self.tables.table(DELETED_DIRECTORY_TABLE).scan():
            object_id = directory_row.directory.object_id
            found.append((DeletedKind.DIRECTORY, object_id, object_txn(object_id), directory_row.death))
        free = f"{self.path()}/new{self.number}" if self.is_tree else f"new{self.number}"
        return [Undelete("vol", "bucket", self.random.choice((self.path(), free)), *one) for one in found]

    def undelete(self) -> None:
        deleted = self.deleted()
        if not deleted:
            return
        chosen, before = self.random.choice(deleted), self.listing()
        expected, returning = self._below(chosen), self._listed_return(chosen)
        reply: MetadataReply = self.do(chosen)
        if reply.error:
            assert reply.error in _REFUSALS
            assert reply.error in _REFUSALS_OF.get(returning, set()) | _OF_THE_PLACE
            assert self.listing() == before
            return
        self.came_back += 1
        assert expected is not None
        assert reply.committed is not None
        is_itself = reply.committed.object_id == chosen.object_id
        assert returning is (Returning.ITSELF if is_itself else Returning.NEW_OBJECT)
        made = {path: entry for path, entry in self.listing().items() if path not in before}
        parents = {path for path in made if chosen.path.startswith(f"{path}/")}
        assert before == {path: entry for path, entry in self.listing().items() if path in before}
        found = {path[len(chosen.path) :]: entry for path, entry in made.items() if path not in parents}
        assert found == expected
        assert self.do(chosen).error in ("TOO_LATE", "KEY_ALREADY_EXISTS", "FILE_ALREADY_EXISTS", "BUCKET_BUSY")

    def _listed_return(self, chosen: Undelete) -> Returning | None:
        """As what the listing says that it would come back."""
        bucket = queries.get_bucket(self.tables, "vol", "bucket")
        for entry in list_deleted(self.tables, bucket, limit=100_000):
            if (entry.kind, entry.object_id, entry.death) == (chosen.kind, chosen.object_id, chosen.death):
                return entry.returning
        return None

    def _below(self, chosen: Undelete) -> dict[str, tuple[bool, str, int]] | None:
        """What is to be listed, by its path from there: the version, or all that is below the directory."""
        if chosen.kind is DeletedKind.KEY:
            for _, row in self.tables.table(DELETED_TABLE).scan():
                if (row.key.object_id, row.key.birth, row.death) == (chosen.object_id, chosen.birth, chosen.death):
                    return {"": (False, row.key.tag, row.key.size_bytes)}
            return None
        found = {"": (True, "", 0)}
        children: list[tuple[str, Any]] = [("", chosen.object_id)]
        files = [row for _, row in self.tables.table(FILE_TABLE).scan()]
        directories = [row for _, row in self.tables.table(DIRECTORY_TABLE).scan()]
        while children:
            base, parent_id = children.pop()
            found |= {
                f"{base}/{row.name}": (False, row.tag, row.size_bytes) for row in files if row.parent_id == parent_id
            }
            for below in directories:
                if below.parent_id == parent_id:
                    found[f"{base}/{below.name}"] = (True, "", 0)
                    children.append((f"{base}/{below.name}", below.object_id))
        return found

    def check_intervals(self) -> None:
        """A live version is in exactly those snapshots that its birth says, and no object is live twice."""
        tables = self.tables
        keys = self._reachable(tables)
        assert len({object_id for object_id, _ in keys}) == len(keys)
        for _, snapshot in tables.table(SNAPSHOT_LIST_TABLE).scan(b"/", b"0"):
            if snapshot.is_live:
                listed = self._reachable(TablesReader(self.store.open_checkpoint(snapshot.snapshot_id)))
                assert {one for one in keys if one[1] <= snapshot.txn} <= listed
                assert not {one for one in keys if one[1] > snapshot.txn} & listed

    def _reachable(self, tables: TablesReader) -> set[tuple[int, int]]:
        bucket = queries.get_bucket(tables, "vol", "bucket")
        ids = {entry.object_id for entry in queries.walk(tables, bucket) if not entry.is_directory}
        rows = [row for table in (KEY_TABLE, FILE_TABLE) for _, row in tables.table(table).scan()]
        return {(row.object_id, row.birth) for row in rows if row.object_id in ids}


@pytest.mark.parametrize("layout", [BucketLayout.FILE_SYSTEM_OPTIMIZED, BucketLayout.OBJECT_STORE])
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_comes_back_is_as_it_was(layout: BucketLayout, seed: int) -> None:
    random = Random(seed)
    bucket = _UndoBucket(layout, random)
    taken: list[str] = []
    for _ in range(random.randint(10, 45)):
        what = random.random()
        if what < 0.3:
            bucket.undelete()
            bucket.check_figures()
            bucket.check_intervals()
        elif what < 0.36:
            taken.append(f"s{len(taken)}")
            bucket.internal(CaptureSnapshot("vol", "bucket", taken[-1]))
        else:
            bucket.change()
    bucket.check_figures()
    if taken:  # a rollback finds every version where it expects it, and nothing comes back under its fence
        chosen = bucket.deleted()
        page = bucket.internal(RollbackPage("rollback", bucket.id, taken[-1], 1, 1))
        if chosen and page.outcome != "DONE":
            assert bucket.do(random.choice(chosen)).error == "BUCKET_BUSY"
        bucket.internal(RollbackPage("rollback", bucket.id, taken[-1], 2, 100_000))
        assert bucket.listing() == bucket.listing(taken[-1])
        bucket.check_figures()
        for _ in range(random.randint(0, 10)):
            bucket.change()
            bucket.undelete()
        bucket.check_figures()
        bucket.check_intervals()
    assert not bucket.log.records(DEAD_LETTERS.name, 0)


@given(
    st.integers(1, 20), st.integers(1, 20), st.sets(st.integers(1, 60), max_size=8), st.booleans(), st.integers(1, 20)
)
def test_the_rule_equals_a_recount_of_who_sees_what(
    birth: int, lived: int, snapshots: set[int], may_be_live: bool, dead: int
) -> None:
    """Whoever held it still does, nobody else does, and no two lifetimes share blocks."""
    death, now = birth + lived, birth + lived + dead
    live = sorted(txn for txn in snapshots if txn < now)
    holders = {txn for txn in live if birth <= txn < death}
    outcome = return_of(birth, death, live, may_object_be_live=may_be_live)
    if outcome is Return.ITSELF:
        assert {txn for txn in live if birth <= txn} == holders
        assert not may_be_live
    elif outcome is Return.NEW_OBJECT:
        assert not holders
    else:
        assert holders
        is_in_between = any(txn >= death for txn in live)
        assert is_in_between or may_be_live
        assert (outcome is Return.SNAPSHOT_IN_BETWEEN) is is_in_between
