"""Buckets that keep versions of their keys, on one shard: what becomes noncurrent, what dies, and what snapshots hold.

After each test all figures equal a recount of the rows, and a rebuild from the log has the same digest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from schemas.answers import Returning
from schemas.records import (
    BucketVersioning,
    CreateBucketLink,
    DeleteBucket,
    DeleteDirectory,
    DeleteKey,
    DeleteKeys,
    DeleteKeyVersion,
    DropSnapshot,
    ExpandDirectory,
    KeyRow,
    PutKey,
    PutKeyIf,
    RenameDirectory,
    RenameKey,
    RollbackOutcome,
    RollbackPage,
    RowName,
    SetBucketVersioning,
    SetQuota,
    SyncKey,
)
from schemas.topics import DEAD_LETTERS
from services.metadata.namespace import key_versions
from services.metadata.namespace.key_versions import versions_of
from services.metadata.reads import queries
from services.metadata.reads.deleted_queries import list_deleted
from services.metadata.recovery.digest import digest_shard
from services.metadata.state.tables import KEY_PART_TABLE, KEY_VERSION_TABLE
from services.storage.tables import TablesReader
from tests.shard_copies import rebuilt_digest
from tests.unit.writing_shard import WritingShard

BOTH = pytest.mark.parametrize("bucket", ["flat", "tree"])
ENABLED, SUSPENDED = BucketVersioning.ENABLED, BucketVersioning.SUSPENDED


class VersionsShard(WritingShard):
    """A shard on which both buckets keep versions."""

    def __init__(self) -> None:
        super().__init__()
        for bucket in ("flat", "tree"):
            self.versioning(bucket, ENABLED)

    def versioning(self, bucket: str, versioning: BucketVersioning) -> None:
        self.done(SetBucketVersioning("vol", bucket, versioning))

    def put(self, bucket: str, key: str, tag: str, size_bytes: int = 10) -> int:
        """Put a version, and say its id."""
        self.done(PutKey("vol", bucket, key, size_bytes, tag))
        return self.txn

    def delete_version(self, bucket: str, key: str, version: int) -> None:
        self.done(DeleteKeyVersion("vol", bucket, key, version))

    def versions(self, bucket: str, path: str, snapshot_id: str = "") -> list[str]:
        """Tags of a key's versions, oldest first and the current one last, now or in a snapshot."""
        tables = TablesReader(self.store.open_checkpoint(snapshot_id)) if snapshot_id else self.tables
        row = queries.get_bucket(tables, "vol", bucket)
        key = queries.stat(tables, row, path)
        assert isinstance(key, KeyRow)
        return [one.tag for one in (*versions_of(tables, (row.volume_id, row.object_id), key), key)]

    def tags(self) -> list[str]:
        """Tags of the rows of deletedTable, oldest death first."""
        return [row.key.tag for row in self.garbage()]

    def row_of(self, tag: str) -> RowName:
        """The row of the only run of a deleted version."""
        (found,) = [one for one in self.garbage() if one.key.tag == tag]
        return next(one for one in self.rows() if (one.object_id, one.death) == (found.key.object_id, found.death))


@pytest.fixture
def shard() -> Iterator[VersionsShard]:
    made = VersionsShard()
    yield made
    assert not made.sent(DEAD_LETTERS)
    made.check()


@BOTH
class TestKeeping:
    def test_an_overwrite_keeps_the_version_as_a_noncurrent_one(self, shard: VersionsShard, bucket: str) -> None:
        for tag in ("one", "two", "three"):
            shard.put(bucket, "k", tag)
        assert shard.versions(bucket, "k") == ["one", "two", "three"]
        assert (shard.names(bucket), shard.entries()) == ({"k": "three"}, [])
        figures = shard.bucket(bucket)
        assert (figures.used_bytes, figures.used_namespace) == (30, 1)
        assert (figures.snapshot_used_bytes, figures.snapshot_used_namespace) == (0, 0)

    def test_a_deleted_key_dies_with_all_of_its_versions(self, shard: VersionsShard, bucket: str) -> None:
        for tag in ("one", "two", "three"):
            shard.put(bucket, "k", tag)
        shard.done(DeleteKey("vol", bucket, "k"))
        assert shard.names(bucket) == {}
        assert sorted(shard.tags()) == ["one", "three", "two"]
        assert list(shard.tables.table(KEY_VERSION_TABLE).scan()) == []
        assert [shard.is_held(row) for row in shard.rows()] == [False] * 3
        assert (shard.bucket(bucket).used_bytes, shard.bucket(bucket).used_namespace) == (0, 0)

    def test_one_of_many_deleted_keys_has_versions(self, shard: VersionsShard, bucket: str) -> None:
        shard.put(bucket, "a", "a")
        for tag in ("one", "two"):
            shard.put(bucket, "k", tag)
        shard.put(bucket, "z", "empty", 0)
        shard.done(DeleteKeys("vol", bucket, ("a", "k", "z", "none")))
        assert sorted(shard.tags()) == ["a", "one", "two"]

    def test_a_version_is_born_and_dies_by_itself(self, shard: VersionsShard, bucket: str) -> None:
        one = shard.put(bucket, "k", "one")
        shard.capture(bucket, "s1")
        two = shard.put(bucket, "k", "two")
        shard.capture(bucket, "s2")
        shard.delete_version(bucket, "k", one)
        assert shard.versions(bucket, "k") == ["two"]
        assert [shard.versions(bucket, "k", name) for name in ("s1", "s2")] == [["one"], ["one", "two"]]
        shard.put(bucket, "k", "three")
        shard.delete_version(bucket, "k", two)
        assert [shard.is_held(shard.row_of(tag)) for tag in ("one", "two")] == [True, True]
        shard.internal(DropSnapshot("s2"))
        assert [shard.is_held(shard.row_of(tag)) for tag in ("one", "two")] == [True, False]
        shard.internal(DropSnapshot("s1"))
        assert not shard.is_held(shard.row_of("one"))

    def test_deleting_a_key_leaves_each_snapshot_the_versions_that_it_lists(
        self, shard: VersionsShard, bucket: str
    ) -> None:
        """Ozone deletes the blocks of all of them there: the rows have different numbers of versions."""
        shard.put(bucket, "k", "one")
        shard.capture(bucket, "s1")
        shard.put(bucket, "k", "two")
        shard.capture(bucket, "s2")
        shard.put(bucket, "k", "three")
        shard.done(DeleteKey("vol", bucket, "k"))
        assert [shard.is_held(shard.row_of(tag)) for tag in ("one", "two", "three")] == [True, True, False]
        cells = {(cell.first_holder, cell.last_holder): cell.bytes for cell in shard.space(bucket).cells if cell.bytes}
        s1, s2 = (row.txn for row in queries.live_snapshots(shard.tables, shard.bucket(bucket).object_id))
        assert cells == {(s1, s2): 10, (s2, s2): 10}
        shard.internal(DropSnapshot("s1"))
        assert [shard.is_held(shard.row_of(tag)) for tag in ("one", "two")] == [True, True]
        shard.internal(DropSnapshot("s2"))
        assert [shard.is_held(shard.row_of(tag)) for tag in ("one", "two")] == [False, False]

    def test_without_its_current_version_the_newest_noncurrent_one_becomes_current(
        self, shard: VersionsShard, bucket: str
    ) -> None:
        births = [shard.put(bucket, "d/k", tag) for tag in ("one", "two", "three")]
        shard.delete_version(bucket, "d/k", births[2])
        assert shard.versions(bucket, "d/k") == ["one", "two"]
        shard.delete_version(bucket, "d/k", births[1])
        shard.delete_version(bucket, "d/k", births[0])
        assert not shard.names(bucket).get("d/k")
        assert shard.tags() == ["three", "two", "one"]
        assert [shard.is_held(row) for row in shard.rows()] == [False] * 3

    def test_a_version_that_is_not_there_is_refused(self, shard: VersionsShard, bucket: str) -> None:
        birth = shard.put(bucket, "k", "one")
        assert shard.refusal(DeleteKeyVersion("vol", bucket, "k", birth + 1)) == "KEY_NOT_FOUND"
        assert shard.refusal(DeleteKeyVersion("vol", bucket, "none", birth)) == "KEY_NOT_FOUND"
        assert shard.refusal(DeleteKeyVersion("vol", bucket, "", birth)) == "KEY_NOT_FOUND"
        assert shard.refusal(DeleteKeyVersion("vol", bucket, "no/k", birth)) == "KEY_NOT_FOUND"
        assert shard.versions(bucket, "k") == ["one"]

    def test_versions_without_bytes_are_kept_and_leave_nothing(self, shard: VersionsShard, bucket: str) -> None:
        empty = shard.put(bucket, "k", "empty", 0)
        shard.put(bucket, "k", "one")
        shard.put(bucket, "k", "empty too", 0)
        assert shard.versions(bucket, "k") == ["empty", "one", "empty too"]
        shard.delete_version(bucket, "k", empty)
        assert (shard.versions(bucket, "k"), shard.entries()) == (["one", "empty too"], [])
        shard.done(DeleteKey("vol", bucket, "k"))
        assert shard.tags() == ["one"]

    def test_a_renamed_key_keeps_its_versions(self, shard: VersionsShard, bucket: str) -> None:
        shard.put(bucket, "k", "one")
        shard.capture(bucket, "s1")
        shard.put(bucket, "k", "two")
        shard.done(RenameKey("vol", bucket, "k", "moved"))
        assert shard.versions(bucket, "moved") == ["one", "two"]
        shard.done(DeleteKey("vol", bucket, "moved"))
        assert {row.key.name for row in shard.garbage()} == {"moved"}
        assert shard.is_held(shard.row_of("one"))

    def test_a_version_of_several_runs_moves_with_all_of_them(self, shard: VersionsShard, bucket: str) -> None:
        session = shard.write(bucket, "k", 30, 250, tag="long")
        shard.commit(bucket, "k", session, 250)
        shard.capture(bucket, "s1")
        other = shard.write(bucket, "k", 70, 320, tag="longer")
        shard.commit(bucket, "k", other, 320)
        parts = list(shard.tables.table(KEY_PART_TABLE).scan())
        assert len(parts) == 2
        newest = shard.put(bucket, "k", "short")
        shard.delete_version(bucket, "k", newest)
        assert (shard.versions(bucket, "k"), shard.size(bucket, "k")) == (["long", "longer"], 320)
        shard.done(DeleteKey("vol", bucket, "k"))
        assert list(shard.tables.table(KEY_PART_TABLE).scan()) == []
        held = [(row.key.tag, shard.is_held(name)) for row in shard.garbage() for name in [_name(shard, row)]]
        assert sorted(held) == [("long", True), ("long", True), *[("longer", False)] * 2, ("short", False)]

    def test_a_completed_upload_and_a_sync_keep_the_version_that_they_replace(
        self, shard: VersionsShard, bucket: str
    ) -> None:
        shard.put(bucket, "k", "put")
        upload = shard.initiate(bucket, "k")
        shard.part(bucket, "k", upload, 1, 150)
        shard.part(bucket, "k", upload, 2, 20)
        shard.complete(bucket, "k", upload, 1, 2, tag="parts")
        session = shard.write(bucket, "k", 30, 60, tag="stream")
        assert shard.versions(bucket, "k") == ["put", "parts", "stream"]
        put = shard.put(bucket, "k", "last")
        assert shard.refusal(SyncKey("vol", bucket, "k", session, 60)) == "KEY_NOT_FOUND"
        shard.delete_version(bucket, "k", put)
        shard.commit(bucket, "k", session, 60)
        assert (shard.versions(bucket, "k"), shard.size(bucket, "k")) == (["put", "parts", "stream"], 60)

    def test_a_condition_looks_at_the_current_version(self, shard: VersionsShard, bucket: str) -> None:
        shard.put(bucket, "k", "one")
        first = shard.txn
        shard.put(bucket, "k", "two")
        assert shard.refusal(PutKeyIf("vol", bucket, "k", 1, expected_generation=first)) == "KEY_NOT_FOUND"
        assert shard.refusal(PutKeyIf("vol", bucket, "k", 1, expected_generation=shard.txn)) == ""
        assert shard.refusal(PutKeyIf("vol", bucket, "k", 1, expected_generation=-1)) == "KEY_ALREADY_EXISTS"

    def test_versions_count_in_the_quota_of_bytes_and_not_of_names(self, shard: VersionsShard, bucket: str) -> None:
        block = 1 << 28
        shard.done(SetQuota("vol", bucket, 25 + block, 2))
        for tag in ("one", "two", "three"):
            shard.put(bucket, "k", tag)
        assert shard.refusal(PutKey("vol", bucket, "k", 10)) == "QUOTA_EXCEEDED"
        assert shard.refusal(PutKey("vol", bucket, "k", 0)) == "", "one name is free"


def _name(shard: WritingShard, row: Any) -> RowName:
    return next(one for one in shard.rows() if (one.object_id, one.death) == (row.key.object_id, row.death))


@BOTH
def test_a_key_has_a_limit_of_versions(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = VersionsShard()
    births = [shard.put(bucket, "k", tag) for tag in ("one", "two", "three")]
    monkeypatch.setattr(key_versions, "MAX_VERSION_ROWS", 2)
    assert shard.refusal(PutKey("vol", bucket, "k", 10)) == "INVALID_REQUEST"
    assert shard.versions(bucket, "k") == ["one", "two", "three"]
    shard.delete_version(bucket, "k", births[0])
    assert shard.refusal(PutKey("vol", bucket, "k", 10)) == ""
    shard.done(DeleteKey("vol", bucket, "k"))
    shard.check()


@BOTH
class TestSuspended:
    def test_an_overwrite_ends_no_version_that_was_written_while_versions_were_kept(
        self, shard: VersionsShard, bucket: str
    ) -> None:
        shard.put(bucket, "k", "one")
        shard.put(bucket, "k", "two")
        shard.versioning(bucket, SUSPENDED)
        for tag in ("three", "four"):
            shard.put(bucket, "k", tag)
        assert shard.versions(bucket, "k") == ["one", "two", "four"]
        assert (shard.tags(), shard.garbage()[0].is_overwritten) == (["three"], True)
        shard.versioning(bucket, ENABLED)
        shard.put(bucket, "k", "five")
        assert shard.versions(bucket, "k") == ["one", "two", "four", "five"]

    def test_a_key_from_before_becomes_noncurrent(self, shard: VersionsShard, bucket: str) -> None:
        other = WritingShard()
        other.done(PutKey("vol", bucket, "k", 1, "plain"))
        other.done(SetBucketVersioning("vol", bucket, SUSPENDED))
        other.done(PutKey("vol", bucket, "k", 1, "suspended"))
        assert [row.key.tag for row in other.garbage()] == ["plain"]
        other.done(SetBucketVersioning("vol", bucket, ENABLED))
        other.done(PutKey("vol", bucket, "k", 1, "enabled"))
        assert [row.tag for _, row in other.tables.table(KEY_VERSION_TABLE).scan()] == ["suspended"]
        other.check()

    def test_no_bucket_becomes_unversioned_again(self, shard: VersionsShard, bucket: str) -> None:
        body = SetBucketVersioning("vol", bucket, BucketVersioning.UNVERSIONED)
        assert shard.refusal(body) == "INVALID_REQUEST"
        shard.done(CreateBucketLink("vol", "link", "vol", bucket))
        shard.done(SetBucketVersioning("vol", "link", SUSPENDED))
        assert shard.bucket(bucket).versioning is SUSPENDED


class TestTrees:
    def test_the_versions_of_a_file_die_with_its_directory(self, shard: VersionsShard) -> None:
        shard.put("tree", "d/e/k", "one")
        shard.capture("tree", "s1")
        shard.put("tree", "d/e/k", "two")
        shard.done(DeleteDirectory("vol", "tree", "d", is_recursive=True))
        death = shard.txn
        shard.capture("tree", "s2")
        assert shard.bucket("tree").used_bytes == 20
        shard.expand(shard.entry().object_id)
        assert [row.death for row in shard.garbage()] == [death, death]
        assert [shard.is_held(shard.row_of(tag)) for tag in ("one", "two")] == [True, False]
        assert shard.bucket("tree").used_bytes == 0
        referenced = [row.referenced_bytes for row in queries.live_snapshots(shard.tables, shard.row().bucket_id)]
        assert referenced == [10, 0]


class TestBuckets:
    def test_a_bucket_can_be_deleted_before_the_versions_in_it_are_freed(self) -> None:
        shard = VersionsShard()
        for tag in ("one", "two"):
            shard.put("tree", "d/k", tag)
        bucket_id = shard.bucket("tree").object_id
        shard.done(DeleteDirectory("vol", "tree", "d", is_recursive=True))
        directory = shard.entry()
        shard.done(DeleteBucket("vol", "tree"))
        shard.internal(ExpandDirectory(bucket_id, directory.object_id, directory.death, 1_000, 1 << 62))
        assert sorted(shard.tags()) == ["one", "two"]
        assert list(shard.tables.table(KEY_VERSION_TABLE).scan()) == []
        assert rebuilt_digest(shard.log, 1).differences(digest_shard(shard.store)) == []

    def test_a_bucket_with_versions_is_not_empty(self) -> None:
        shard = VersionsShard()
        birth = shard.put("flat", "k", "one")
        shard.put("flat", "k", "two")
        assert shard.refusal(DeleteBucket("vol", "flat")) == "BUCKET_NOT_EMPTY"
        shard.delete_version("flat", "k", birth)
        shard.done(DeleteKey("vol", "flat", "k"))
        assert shard.refusal(DeleteBucket("vol", "flat")) == ""


@BOTH
class TestUndelete:
    def test_a_key_comes_back_and_then_its_versions(self, shard: VersionsShard, bucket: str) -> None:
        for tag in ("one", "two", "three"):
            shard.put(bucket, "k", tag)
        shard.done(DeleteKey("vol", bucket, "k"))
        rows = {tag: shard.row_of(tag) for tag in ("one", "two", "three")}
        assert shard.undelete(bucket, "k", rows["three"]) == ""
        for tag in ("two", "one"):
            assert shard.undelete(bucket, "k", rows[tag]) == ""
        assert shard.versions(bucket, "k") == ["one", "two", "three"]
        assert shard.garbage() == []
        assert shard.undelete(bucket, "k", rows["one"]) == "TOO_LATE"

    def test_a_deleted_current_version_becomes_current_again(self, shard: VersionsShard, bucket: str) -> None:
        shard.put(bucket, "k", "one")
        birth = shard.put(bucket, "k", "two")
        shard.delete_version(bucket, "k", birth)
        assert shard.undelete(bucket, "k", shard.row_of("two")) == ""
        assert shard.versions(bucket, "k") == ["one", "two"]

    def test_a_version_of_several_runs_comes_back_whole(self, shard: VersionsShard, bucket: str) -> None:
        shard.commit(bucket, "k", shard.write(bucket, "k", 30, 250, tag="long"), 250)
        long = shard.tables.table(KEY_PART_TABLE)
        assert len(list(long.scan())) == 1
        birth = queries.stat(shard.tables, shard.bucket(bucket), "k")
        assert isinstance(birth, KeyRow)
        shard.put(bucket, "k", "short")
        shard.delete_version(bucket, "k", birth.birth)
        first, _ = sorted(shard.garbage(), key=lambda row: row.part_of != 0)
        assert shard.undelete(bucket, "k", _name(shard, first)) == ""
        assert (shard.versions(bucket, "k"), shard.garbage()) == (["long", "short"], [])

    def test_without_its_key_a_version_becomes_a_key_of_its_own(self, shard: VersionsShard, bucket: str) -> None:
        shard.put(bucket, "k", "one")
        shard.put(bucket, "k", "two")
        shard.done(DeleteKey("vol", bucket, "k"))
        row = shard.row_of("one")
        assert shard.undelete(bucket, "k", row) == ""
        assert shard.versions(bucket, "k") == ["one"]
        assert shard.undelete(bucket, "k", shard.row_of("two")) == "KEY_ALREADY_EXISTS" if bucket == "flat" else True

    def test_a_snapshot_in_between_keeps_a_version_from_its_key(self, shard: VersionsShard, bucket: str) -> None:
        birth = shard.put(bucket, "k", "one")
        shard.put(bucket, "k", "two")
        shard.delete_version(bucket, "k", birth)
        shard.capture(bucket, "s1")
        row = shard.row_of("one")
        assert shard.undelete(bucket, "k", row) == "SNAPSHOT_IN_BETWEEN"
        assert shard.undelete(bucket, "k", row, "other") == ""
        assert shard.names(bucket) == {"k": "two", "other": "one"}

    def test_a_held_version_is_only_copied_when_its_key_has_gone(self, shard: VersionsShard, bucket: str) -> None:
        shard.put(bucket, "k", "one")
        shard.capture(bucket, "s1")
        shard.put(bucket, "k", "two")
        shard.done(DeleteKey("vol", bucket, "k"))
        assert shard.undelete(bucket, "k", shard.row_of("one")) == "HELD_BY_SNAPSHOT"
        listed = list_deleted(shard.tables, shard.bucket(bucket))
        assert {one.tag: one.returning for one in listed} == {"one": Returning.ONLY_A_COPY, "two": Returning.ITSELF}


@BOTH
@pytest.mark.parametrize("entries", [1, 1_000])
class TestRollback:
    def _roll_back(self, shard: VersionsShard, bucket: str, entries: int) -> None:
        done: Any = None
        for page in range(1, 200):
            bucket_id = shard.bucket(bucket).object_id
            done = shard.internal(RollbackPage(f"at {shard.txn - page}", bucket_id, "s1", page, entries))
            name = done.rollback_id
            break
        while done.outcome is RollbackOutcome.PARTLY:
            page += 1
            done = shard.internal(RollbackPage(name, bucket_id, "s1", page, entries))
        assert done.outcome is RollbackOutcome.DONE, done.message

    def test_every_version_is_again_what_it_is_in_the_snapshot(
        self, shard: VersionsShard, bucket: str, entries: int
    ) -> None:
        for tag in ("one", "two"):
            shard.put(bucket, "overwritten", f"overwritten {tag}")
            shard.put(bucket, "deleted", f"deleted {tag}")
            shard.put(bucket, "moved", f"moved {tag}")
        births = [shard.put(bucket, "shorter", f"shorter {tag}") for tag in ("one", "two", "three")]
        empty = [shard.put(bucket, "empty", f"empty {size}", size) for size in (0, 5, 0)]
        shard.capture(bucket, "s1")
        before = {key: shard.versions(bucket, key) for key in shard.names(bucket)}
        shard.put(bucket, "overwritten", "later")
        shard.put(bucket, "overwritten", "later still")
        shard.done(DeleteKey("vol", bucket, "deleted"))
        shard.put(bucket, "deleted", "another")
        shard.put(bucket, "deleted", "another still")
        shard.put(bucket, "moved", "later")
        shard.done(RenameKey("vol", bucket, "moved", "away"))
        shard.put(bucket, "away", "after")
        shard.put(bucket, "moved", "in its place")
        shard.delete_version(bucket, "shorter", births[0])
        shard.delete_version(bucket, "shorter", births[2])
        shard.put(bucket, "shorter", "later")
        shard.delete_version(bucket, "empty", empty[2])
        shard.delete_version(bucket, "empty", empty[0])
        shard.put(bucket, "new", "new")
        shard.put(bucket, "new", "newer")
        self._roll_back(shard, bucket, entries)
        assert {key: shard.versions(bucket, key) for key in shard.names(bucket)} == before
        used = shard.bucket(bucket)
        assert (used.used_bytes, used.used_namespace) == (6 * 10 + 30 + 5, 5)
        assert len(shard.garbage()) == used.snapshot_used_namespace == 10

    def test_a_version_that_is_promoted_and_grows_is_noncurrent_and_short_again(
        self, shard: VersionsShard, bucket: str, entries: int
    ) -> None:
        session = shard.open(bucket, "k", 500, tag="stream")
        shard.sync(bucket, "k", session, 30)
        put = shard.put(bucket, "k", "put")
        shard.capture(bucket, "s1")
        shard.delete_version(bucket, "k", put)
        shard.sync(bucket, "k", session, 90)
        shard.sync(bucket, "k", session, 250)
        shard.put(bucket, "k", "later")
        self._roll_back(shard, bucket, entries)
        assert shard.versions(bucket, "k") == ["stream", "put"]
        (version,) = [row for _, row in shard.tables.table(KEY_VERSION_TABLE).scan()]
        assert version.size_bytes == 30

    def test_a_version_of_several_runs_is_current_again(self, shard: VersionsShard, bucket: str, entries: int) -> None:
        session = shard.write(bucket, "k", 30, 250, tag="long")
        shard.commit(bucket, "k", session, 250)
        shard.capture(bucket, "s1")
        shard.commit(bucket, "k", shard.write(bucket, "k", 70, 120, tag="other"), 120)
        shard.put(bucket, "k", "put")
        self._roll_back(shard, bucket, entries)
        assert (shard.versions(bucket, "k"), shard.size(bucket, "k")) == (["long"], 250)
        shard.done(DeleteKey("vol", bucket, "k"))
        assert sum(row.key.size_bytes for row in shard.garbage() if row.key.tag == "long") == 300 - 50


class TestRenamedDirectories:
    def test_a_version_below_a_renamed_directory_finds_its_place(self, shard: VersionsShard) -> None:
        shard.put("tree", "d/k", "one")
        shard.capture("tree", "s1")
        shard.done(RenameDirectory("vol", "tree", "d", "e"))
        shard.put("tree", "e/k", "two")
        shard.roll_back("tree", "s1")
        assert shard.names("tree") == {"d/": "", "d/k": "one"} or shard.versions("tree", "d/k") == ["one"]
