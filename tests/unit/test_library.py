"""The objects of the library over the plane in memory: what they send, what they show, and what they raise."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

import deepclean
from deepclean import errors
from deepclean.connection import Connection
from schemas.error_codes import ErrorCode
from schemas.records import CreateVolume, DirectoryRow, KeyRow
from services.client import errors as client_errors
from services.domain.snapshot_diff import DiffKind
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane

FLAT, TREE = deepclean.BucketLayout.OBJECT_STORE, deepclean.BucketLayout.FILE_SYSTEM_OPTIMIZED
LAYOUTS = pytest.mark.parametrize("layout", [FLAT, TREE])


@pytest.fixture
def plane() -> Iterator[Connection]:
    with Connection(InMemoryClient(InMemoryPlane(shards=2)), busy_seconds=0) as connection:
        yield connection


def bucket_of(plane: Connection, layout: deepclean.BucketLayout = TREE) -> deepclean.Bucket:
    return plane.volume("photos").create(exist_ok=True).bucket("holidays").create(layout)


def paths(entries: Iterator[object]) -> list[str]:
    return [getattr(entry, "path") for entry in entries]  # noqa: B009  any kind of row with a path


class TestNames:
    def test_volumes_and_buckets_come_and_go(self, plane: Connection) -> None:
        volume = plane.volume("photos")
        assert not volume.exists()
        assert volume.create(owner="ann").exists()
        assert volume.info().owner == "ann"
        volume.create(exist_ok=True)
        with pytest.raises(errors.AlreadyExistsError):
            volume.create()
        bucket = volume.bucket("holidays")
        assert not bucket.exists()
        bucket.create(FLAT, replication=deepclean.Replication.RATIS_THREE)
        bucket.create(exist_ok=True)
        assert (bucket.info().layout, bucket.info().replication) == (FLAT, deepclean.Replication.RATIS_THREE)
        with pytest.raises(errors.AlreadyExistsError) as refused:
            bucket.create()
        assert (refused.value.code, refused.value.message) == ("BUCKET_ALREADY_EXISTS", str(refused.value))
        assert [row.bucket for row in volume.buckets()] == ["holidays"]
        with pytest.raises(errors.NotEmptyError):
            volume.delete()
        bucket.delete()
        volume.delete()
        with pytest.raises(errors.NotFoundError):
            volume.info()

    def test_volumes_of_all_shards_are_listed(self, plane: Connection) -> None:
        for number in range(4):
            plane.volume(f"volume-{number}").create(shard=number % 2, owner=f"user-{number % 2}")
        assert [row.volume for row in plane.volumes()] == [f"volume-{number}" for number in (0, 2, 1, 3)]
        assert [row.volume for row in plane.volumes(user="user-1")] == ["volume-1", "volume-3"]
        assert plane.volume("volume-3").info().volume == "volume-3"
        assert not plane.volume("volume-30").exists()

    def test_owners_and_quotas_are_set(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        bucket.set_owner("ann")
        bucket.set_quota(quota_bytes=1_000, quota_names=2)
        row = bucket.info()
        assert (row.owner, row.quota_bytes, row.quota_namespace) == ("ann", 1_000, 2)
        plane.volume("photos").set_quota(quota_bytes=2_000)
        plane.volume("photos").set_owner("bob")
        assert (plane.volume("photos").info().quota_bytes, plane.volume("photos").info().owner) == (2_000, "bob")
        with pytest.raises(errors.QuotaError):
            bucket.put("large", size_bytes=5_000)


class TestKeys:
    @LAYOUTS
    def test_keys_are_put_read_renamed_and_deleted(self, plane: Connection, layout: deepclean.BucketLayout) -> None:
        bucket = bucket_of(plane, layout)
        txn = bucket.put("2026/beach", size_bytes=7, tag="first")
        row = bucket.stat("2026/beach")
        assert isinstance(row, KeyRow)
        assert (row.birth, row.size_bytes, row.tag) == (txn, 7, "first")
        bucket.rename_key("2026/beach", "2026/sea")
        assert not bucket.has("2026/beach")
        assert bucket.has("2026/sea")
        bucket.delete_key("2026/sea")
        with pytest.raises(errors.NotFoundError, match="2026/sea"):
            bucket.delete_key("2026/sea")

    def test_a_condition_is_kept(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        bucket.put_if("key", size_bytes=1, expected_generation=-1)
        with pytest.raises(errors.AlreadyExistsError):
            bucket.put_if("key", size_bytes=2, expected_generation=-1)
        generation = bucket.stat("key").update_id
        bucket.put_if("key", size_bytes=3, expected_generation=generation)
        with pytest.raises(errors.NotFoundError):
            bucket.put_if("key", size_bytes=4, expected_generation=generation)

    def test_versions_are_kept_and_deleted(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        bucket.set_versioning(deepclean.BucketVersioning.ENABLED)
        first, second = (bucket.put("key", size_bytes=size) for size in (1, 2))
        assert [one.version for one in bucket.versions("key")] == [first, second]
        assert bucket.stat("key", version=first).size_bytes == 1  # type: ignore[union-attr]
        bucket.delete_key("key", version=first)
        assert [one.version for one in bucket.versions("key")] == [second]

    def test_directories_are_made_moved_and_deleted(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        bucket.make_directory("a/b")
        bucket.put("a/b/c", size_bytes=1)
        bucket.rename_directory("a/b", "a/d")
        assert isinstance(bucket.stat("a/d"), DirectoryRow)
        with pytest.raises(errors.NotEmptyError):
            bucket.delete_directory("a", recursive=False)
        bucket.delete_directory("a")
        assert paths(bucket.list()) == []

    def test_a_key_has_a_size_or_bytes(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        for wrong in ({}, {"size_bytes": 1, "data": b"x"}):
            with pytest.raises(ValueError, match="either"):
                bucket.put("key", **wrong)  # type: ignore[arg-type]
        with pytest.raises(errors.NotSupportedError):
            bucket.put("key", data=b"bytes")

    def test_a_link_is_another_name(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        link = plane.volume("photos").bucket("other").create_link(bucket)
        link.put("key", size_bytes=1)
        link.create_snapshot("first")
        assert [info.name for info in bucket.snapshots()] == [info.name for info in link.snapshots()] == ["first"]
        assert paths(link.snapshot("first").list()) == ["key"]


class TestListings:
    @LAYOUTS
    def test_pages_are_fetched_by_the_iterator(
        self, plane: Connection, layout: deepclean.BucketLayout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("deepclean.namespace.PAGE_ROWS", 3)
        bucket = bucket_of(plane, layout)
        names = [f"key-{number:02}" for number in range(10)]
        with bucket.writer() as writer:
            for name in names:
                writer.put(name, size_bytes=1)
        assert paths(bucket.list()) == names
        assert paths(bucket.list(limit=4)) == names[:4]
        assert paths(bucket.list(limit=0)) == []
        assert paths(bucket.list("key-0", start_after="key-07")) == ["key-08", "key-09"]

    @LAYOUTS
    @pytest.mark.parametrize("page_rows", [1, 2, 3, 1_000])
    def test_a_directory_shows_what_is_directly_below_it(
        self, plane: Connection, layout: deepclean.BucketLayout, page_rows: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("deepclean.namespace.PAGE_ROWS", page_rows)
        bucket = bucket_of(plane, layout)
        for key in ("a/b/c", "a/b/d", "a/b-e", "a/f", "a0", "b/g/h/i", "c"):
            bucket.put(key, size_bytes=1)
        shown = {path: [(one.path, one.is_directory) for one in bucket.listdir(path)] for path in ("", "a", "b/g")}
        assert sorted(shown[""]) == [("a", True), ("a0", False), ("b", True), ("c", False)]
        assert sorted(shown["a"]) == [("a/b", True), ("a/b-e", False), ("a/f", False)]
        assert shown["b/g"] == [("b/g/h", True)]
        with pytest.raises(errors.InvalidRequestError):
            list(bucket.listdir("c"))
        with pytest.raises(errors.NotFoundError):
            list(bucket.listdir("z"))

    def test_an_empty_directory_has_nothing_below_it(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        bucket.make_directory("empty")
        assert paths(bucket.listdir("empty")) == []
        assert paths(bucket.listdir("/empty/")) == []

    def test_a_missing_bucket_is_missing(self, plane: Connection) -> None:
        plane.volume("photos").create()
        for listed in ("list", "listdir", "snapshots", "deleted"):
            with pytest.raises(errors.NotFoundError):
                list(getattr(plane.volume("photos").bucket("none"), listed)())


class TestSnapshots:
    def test_a_snapshot_shows_what_was_there(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        bucket.put("a/key", size_bytes=5)
        snapshot = bucket.create_snapshot("first")
        bucket.delete_key("a/key")
        assert paths(snapshot.list()) == ["a", "a/key"]
        with bucket.snapshot("first") as same:
            assert paths(same.listdir("a")) == ["a/key"]
            assert same.id() == snapshot.id() == snapshot.info().snapshot_id
        assert [(entry.kind, entry.path) for entry in snapshot.diff()] == [(DiffKind.DELETED, "a/key")]
        bucket.create_snapshot("second")
        assert snapshot.diff("second") == bucket.diff("first", "second") == bucket.diff("first")
        assert [info.name for info in bucket.snapshots()] == ["first", "second"]

    def test_within_a_block_a_snapshot_stays_the_same(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        bucket.put("key", size_bytes=5)
        bucket.create_snapshot("first")
        with bucket.snapshot("first") as snapshot:
            bucket.snapshot("first").rename("renamed")
            bucket.delete_key("key")
            bucket.create_snapshot("first")
            assert paths(snapshot.list()) == ["key"]
            assert paths(bucket.snapshot("first").list()) == []

    def test_within_a_block_acts_are_on_the_same_snapshot(self, plane: Connection) -> None:
        """A program that reads a snapshot and then deletes it deletes what it has read."""
        bucket = bucket_of(plane)
        bucket.put("key", size_bytes=5)
        known = bucket.create_snapshot("first")
        bucket.delete_key("key")
        with bucket.snapshot("first") as snapshot:
            bucket.snapshot("first").rename("renamed")
            other = bucket.create_snapshot("first")
            assert snapshot.id() == snapshot.info().snapshot_id == known.id() != other.id()
            assert (snapshot.info().name, other.info().name) == ("renamed", "first")
            assert (snapshot.what_if().freed_bytes, other.what_if().freed_bytes) == (5, 0)
            snapshot.tag("keep")
            assert [one.snapshot for one in bucket.tags()] == ["renamed"]
            bucket.delete_tag("keep")
            snapshot.rename("again")
            snapshot.delete()
            assert [info.name for info in bucket.snapshots()] == ["first"]
            assert not snapshot.exists()
            plane.settle()
            for act in (snapshot.delete, snapshot.info, snapshot.what_if, lambda: snapshot.tag("keep")):
                with pytest.raises(errors.NotFoundError):
                    act()
        assert [info.name for info in bucket.snapshots()] == ["first"]

    def test_what_is_not_there_is_said(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        assert not bucket.snapshot("never").exists()
        with pytest.raises(errors.NotFoundError), bucket.snapshot("never"):
            pass
        snapshot = bucket.create_snapshot("first")
        with pytest.raises(errors.AlreadyExistsError):
            bucket.create_snapshot("first")
        snapshot.delete()
        with pytest.raises(errors.SnapshotExpiredError):
            bucket.snapshot("first").id()
        assert not snapshot.exists()

    def test_a_tag_protects(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        snapshot = bucket.create_snapshot("first")
        snapshot.tag("keep", reason="for the tests")
        assert [(one.tag, one.snapshot) for one in bucket.tags()] == [("keep", "first")]
        with pytest.raises(errors.ProtectedError):
            snapshot.delete()
        bucket.delete_tag("keep")
        snapshot.delete()

    def test_a_copy_comes_out_of_a_snapshot_and_a_bucket_goes_back_to_one(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        bucket.put("a/key", size_bytes=5)
        snapshot = bucket.create_snapshot("first")
        bucket.delete_directory("a")
        assert snapshot.restore("a", to="b").keys == 1
        assert paths(bucket.list()) == ["b", "b/key"]
        bucket.roll_back("first")
        assert paths(bucket.list()) == ["a", "a/key"]


class TestSpace:
    def test_figures_of_a_bucket_and_its_snapshots(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        bucket.put("key", size_bytes=5_000)
        snapshot = bucket.create_snapshot("first")
        bucket.delete_key("key")
        assert (bucket.space().live_bytes, bucket.space().held_bytes) == (0, 5_000)
        assert snapshot.space().exclusive_bytes == 5_000
        assert [one.snapshot_id for one in bucket.snapshot_spaces().snapshots] == [snapshot.id()]
        assert snapshot.what_if().freed_bytes == bucket.what_if(["first"]).freed_bytes == 5_000
        plan = bucket.plan(1)
        assert (plan.snapshots, plan.space.freed_bytes, plan.space.is_enough) == (("first",), 5_000, True)
        assert bucket.plan(1, keep=["first"]).snapshots == ()
        (version,) = bucket.explain("key").versions
        assert (version.stage, version.size_bytes) == ("HELD", 5_000)
        snapshot.delete()
        plane.settle()
        assert bucket.space().freed_bytes == 5_000

    def test_deletions_are_listed_and_undone(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        bucket.set_collection(deepclean.CollectionState.PAUSED, reason="a test")
        bucket.put("key", size_bytes=5)
        death = bucket.delete_key("key")
        assert [(one.path, one.death) for one in bucket.deleted()] == [("key", death)]
        assert bucket.undelete("key", to="again").returned[0].path == "again"
        with pytest.raises(errors.CannotUndeleteError):
            bucket.undelete("key")

    def test_retention_is_set_previewed_and_run(self, plane: Connection) -> None:
        bucket = bucket_of(plane)
        assert bucket.retention() is None
        for name in ("first", "second", "third"):
            bucket.create_snapshot(name)
        policy = deepclean.RetentionPolicy(num_retained_min=1, num_retained_max=1)
        assert [one.snapshot for one in bucket.preview_retention(policy).expired] == ["first", "second"]
        bucket.set_consumer("reader", "second")
        assert [one.consumer for one in bucket.consumers()] == ["reader"]
        bucket.set_retention(policy)
        row = bucket.retention()
        assert row is not None
        assert row.policy == policy
        assert bucket.expire() == ("first",)
        bucket.delete_consumer("reader")
        assert bucket.expire() == ("second",)
        bucket.unset_retention()
        assert bucket.retention() is None


class TestErrors:
    def test_every_code_has_a_class(self) -> None:
        assert {str(code) for code in ErrorCode} <= set(client_errors.CODES)
        assert all(type(deepclean.PlaneError(code, "why")) is cls for code, cls in client_errors.CODES.items())

    def test_codes_of_newer_planes_have_one_by_their_form(self) -> None:
        assert type(deepclean.PlaneError("DRAWER_NOT_FOUND", "why")) is errors.NotFoundError
        assert type(deepclean.PlaneError("DRAWER_ALREADY_EXISTS", "why")) is errors.AlreadyExistsError
        assert type(deepclean.PlaneError("DRAWER_NOT_EMPTY", "why")) is errors.NotEmptyError
        assert type(deepclean.PlaneError("INVALID_DRAWER", "why")) is errors.InvalidRequestError
        assert type(deepclean.PlaneError("DRAWER_STUCK", "why")) is errors.PlaneError

    def test_no_class_of_the_tree_is_without_a_code_and_all_are_public(self) -> None:
        defined = {cls for cls in vars(client_errors).values() if isinstance(cls, type)}
        below = {cls for cls in defined if issubclass(cls, deepclean.PlaneError)} - {deepclean.PlaneError}
        assert below == set(client_errors.CODES.values())
        public = {name for name in errors.__all__ if name != "KeyFailure"}
        assert {cls.__name__ for cls in below} <= public <= set(deepclean.__all__)
        assert all(issubclass(getattr(errors, name), deepclean.DeepcleanError) for name in public)

    def test_errors_cross_processes(self) -> None:
        error = deepclean.PlaneError("SNAPSHOT_EXPIRED", "it has expired", "next")
        again = pickle.loads(pickle.dumps(error))  # noqa: S301  made here
        assert isinstance(again, errors.SnapshotExpiredError)
        assert (again.code, again.message, again.next_snapshot) == ("SNAPSHOT_EXPIRED", "it has expired", "next")
        failure = deepclean.KeyFailure("key", False, error)
        bulk = pickle.loads(pickle.dumps(deepclean.BulkWriteError([failure], 3)))  # noqa: S301  made here
        assert (bulk.written, bulk.failures[0].error.code) == (3, "SNAPSHOT_EXPIRED")
        lost = client_errors.NotDeliveredError("the broker is silent", may_be_applied=True)
        again = pickle.loads(pickle.dumps(lost))  # noqa: S301  made here
        assert (str(again), again.may_be_applied) == ("the broker is silent", True)


def test_the_layer_below_goes_on_working(plane: Connection) -> None:
    assert plane.answer(0, plane.submit(0, CreateVolume("photos"))).error == ""
    assert plane.answer(0, plane.submit(0, CreateVolume("photos"))).error == "VOLUME_ALREADY_EXISTS"
    assert deepclean.VolumeShards(plane).shard_of("photos") == 0
    assert [row.volume for row in plane.metadata(0).volumes()] == ["photos"]
