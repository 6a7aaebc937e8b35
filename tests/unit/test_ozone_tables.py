"""The lens on made databases of an Ozone Manager: what the recorded ones do not show. Read without Spark."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from services.lens.ozone import tables
from services.lens.ozone.layout import OzoneLocationError
from services.lens.ozone.messages import KeyInfo, MultipartKeyInfo, MultipartPartInfo
from streaming.lens.ozone import searches
from tests.ozone_databases import LEGACY, OzoneDatabase, add_version, key_info
from tests.ozone_model import object_id
from tests.ozone_reading import Read


@pytest.fixture
def database(tmp_path: Path) -> OzoneDatabase:
    return OzoneDatabase(tmp_path / "om")


def read(database: OzoneDatabase, bucket: str = "") -> Read:
    location = database.close()
    return Read(location, location.with_name("scratch"), bucket)


def test_a_bucket_whose_name_begins_like_another(database: OzoneDatabase) -> None:
    """Its rows are not the other one's, neither live nor deleted, also in a snapshot's database, which has both."""
    b1, b10 = database.bucket("b1", 2), database.bucket("b10", 3)
    database.live(b1, key_info(b1, "k", 10, [(1, 5)]))
    database.live(b10, key_info(b10, "k", 11, [(2, 7)]))
    database.deleted(b10, 12, key_info(b10, "gone", 12, [(3, 11)]))
    database.deleted(b1, 13, key_info(b1, "gone", 13, [(4, 13)]))
    database.snapshot(b1, "snap", 20, 1)
    found = read(database)
    assert found.held("vol/b1") == {"k": [(5, (0, 1))], "gone": [(13, None)]}
    assert found.held("vol/b10") == {"k": [(7, (0, 0))], "gone": [(11, None)]}


def test_one_bucket_alone(database: OzoneDatabase) -> None:
    b1, b10 = database.bucket("b1", 2), database.bucket("b10", 3)
    for bucket, number in ((b1, 1), (b10, 2)):
        database.live(bucket, key_info(bucket, "k", 10 + number, [(number, 5)]))
        database.deleted(bucket, 12, key_info(bucket, "gone", 14 + number, [(3 + number, 11)]))
    found = read(database, "vol/b1")
    assert found.held("vol/b1") == {"k": [(5, (0, 0))], "gone": [(11, None)]}
    assert {row["bucket"] for row in found.rows} == {"vol/b1"}


def test_legacy_keys_may_hold_slashes_and_directories_are_keys(database: OzoneDatabase) -> None:
    bucket = database.bucket("b", 2, LEGACY)
    database.live(bucket, key_info(bucket, "a//b/c", 10, [(1, 5)]))
    database.live(bucket, key_info(bucket, "a/", 11, []))
    found = read(database)
    assert found.held("vol/b") == {"a//b/c": [(5, (0, 0))]}
    assert found.sums("used-rows") == (2, 0)


def test_a_link_holds_no_keys(database: OzoneDatabase) -> None:
    database.bucket("b", 2)
    database.bucket("link", 3, source_volume=b"vol", source_bucket=b"b")
    assert [bucket.keys.name for bucket in read(database).plan.buckets] == ["vol/b"]


def test_versions_of_a_key_are_held_each_by_its_own_snapshots(database: OzoneDatabase) -> None:
    """A versioned bucket: the row keeps the blocks of all versions. A block that two lists name counts once."""
    bucket = database.bucket("b", 2)
    row = key_info(bucket, "k", 10, [(1, 5)])
    database.live(bucket, row)
    database.snapshot(bucket, "one", 20, 1)
    add_version(row, [(1, 5), (2, 7)])
    row.update_id = 25
    database.live(bucket, row)
    database.snapshot(bucket, "two", 30, 2)
    add_version(row, [(3, 9)])
    row.update_id = 35
    database.live(bucket, row)
    assert read(database).held("vol/b") == {"k": [(5, (0, 2)), (7, (1, 2)), (9, (2, 2))]}


def test_a_deleted_key_with_versions_is_compared_by_the_last_and_freed_whole(database: OzoneDatabase) -> None:
    """Ozone frees the blocks of the first version, too, although a snapshot reads them: this has to be said."""
    bucket = database.bucket("b", 2)
    row = key_info(bucket, "k", 10, [(1, 5)])
    database.live(bucket, row)
    database.snapshot(bucket, "one", 20, 1)
    database.remove(bucket, row)
    add_version(row, [(2, 7)])
    row.update_id = 25
    database.deleted(bucket, 10, row)
    found = read(database)
    assert found.held("vol/b") == {"k": [(12, None)]}
    assert found.listed("read-but-freed") == [("k", 5)]


def test_a_row_with_several_infos_and_one_of_blocks_that_were_never_used(database: OzoneDatabase) -> None:
    """Each info is judged alone. Object id 0: the size is that of the blocks, not the key's, and nobody holds it."""
    bucket = database.bucket("b", 2)
    row = key_info(bucket, "k", 10, [(1, 5)])
    database.live(bucket, row)
    database.snapshot(bucket, "one", 20, 1)
    unused = key_info(bucket, "k", 30, [(9, 256)], object_id=0, data_bytes=5)
    newer = key_info(bucket, "k", 25, [(2, 7)], object_id=row.object_id)
    database.remove(bucket, row)
    database.deleted(bucket, object_id(30), row, newer, unused)
    assert read(database).held("vol/b") == {"k": [(5, (0, 0)), (7, None), (256, None)]}


def test_erasure_coded_keys(database: OzoneDatabase) -> None:
    """The factor is missing, and the sum over the blocks is not the formula on the key."""
    bucket = database.bucket("b", 2)
    mebibyte = 1 << 20
    row = key_info(bucket, "k", 10, [(1, 4 * mebibyte), (2, 4 * mebibyte)], type=4)
    row.ClearField("factor")
    row.ec.data, row.ec.parity, row.ec.cell_bytes = 3, 2, mebibyte
    database.live(bucket, row)
    (thing,) = (found := read(database)).things("vol/b")
    assert (thing["bytes"], thing["replicated_bytes"]) == (8 * mebibyte, 16 * mebibyte)
    assert found.sums("used") == (8 * mebibyte, 14 * mebibyte)


def test_ids_are_signed_and_renames_are_followed_through_several_snapshots(database: OzoneDatabase) -> None:
    bucket = database.bucket("b", 2, tables.FILE_SYSTEM_OPTIMIZED)
    directory = database.directory_row(bucket, "d", bucket.bucket_id, 5)
    assert directory < 0
    row = key_info(bucket, "k", 10, [(1, 5)], parent_id=bucket.bucket_id)
    database.live(bucket, row)
    for number, (name, parent_id) in enumerate((("k1", bucket.bucket_id), ("k2", directory), ("k3", directory))):
        database.snapshot(bucket, f"snap-{number}", 20 + 10 * number, number + 1)
        old_key = bucket.key_of(row.name, row.parent_id)
        database.remove(bucket, row)
        row.name, row.parent_id, row.update_id = name.encode(), parent_id, 25 + 10 * number
        database.rows.put(tables.RENAMED, bucket.by_name + b"%d" % row.object_id, old_key)
        database.live(bucket, row)
    database.remove(bucket, row)
    row.name = b"d/k3"  # a deleted row has the full path
    database.deleted(bucket, row.object_id, row)
    assert read(database).held("vol/b") == {"d/k3": [(5, (0, 2))]}


def test_an_overwritten_file_has_its_leaf_alone_and_gets_its_path(database: OzoneDatabase) -> None:
    bucket = database.bucket("b", 2, tables.FILE_SYSTEM_OPTIMIZED)
    directory = database.directory_row(bucket, "d", bucket.bucket_id, 5)
    row = key_info(bucket, "k", 10, [(1, 5)], parent_id=directory)
    database.live(bucket, row)
    database.snapshot(bucket, "snap", 20, 1)
    database.deleted(bucket, object_id(25), row)
    database.live(bucket, key_info(bucket, "k", 25, [(2, 7)], object_id=row.object_id, parent_id=directory))
    assert read(database).held("vol/b") == {"d/k": [(5, (0, 0)), (7, (1, 1))]}


def test_reachable_waiting_and_orphaned_are_told_apart(database: OzoneDatabase) -> None:
    """The row of the deleted directory lies in a snapshot's database, the children are in the active one."""
    bucket = database.bucket("b", 2, tables.FILE_SYSTEM_OPTIMIZED)
    reachable = database.directory_row(bucket, "reachable", bucket.bucket_id, 5)
    below_deleted = database.directory_row(bucket, "below", object_id(6), 7)
    orphaned = database.directory_row(bucket, "orphaned", object_id(77), 8)
    for number, parent_id in enumerate((reachable, below_deleted, orphaned)):
        row = key_info(bucket, f"k{number}", 10 + number, [(1 + number, 5)], parent_id=parent_id)
        database.live(bucket, row)
    database.snapshot(bucket, "first", 20, 1)
    database.deleted_directory(bucket, "deleted", bucket.bucket_id, 6)
    database.snapshot(bucket, "second", 30, 2)
    found = read(database)
    assert found.held("vol/b") == {
        "reachable/k0": [(5, (0, 2))],
        "deleted/below/k1": [(5, (0, 0))],
        "orphaned/k2": [(5, (0, 2))],
    }
    assert found.listed("orphaned-file") == [("orphaned/k2", 5)]
    assert found.listed("orphaned-directory") == [("orphaned", 0)]
    assert found.sums("unreachable") == (5, 5)
    assert found.sums("used") == (15, 15)


def test_directories_in_a_circle_are_orphans(database: OzoneDatabase) -> None:
    bucket = database.bucket("b", 2, tables.FILE_SYSTEM_OPTIMIZED)
    database.directory_row(bucket, "a", object_id(6), 5)
    database.directory_row(bucket, "b", object_id(5), 6)
    assert len(read(database).listed("orphaned-directory")) == 2


def test_open_keys_and_parts_of_uploads(database: OzoneDatabase) -> None:
    """Parts in the upload's row, and in the table with binary keys: part 47 has the byte of a slash in it."""
    bucket = database.bucket("b", 2)
    database.rows.put(tables.OPEN_KEY, bucket.by_name + b"open/123", key_info(bucket, "open", 10, [(1, 256)]))
    upload = MultipartKeyInfo(upload=b"id", type=1, factor=3, object_id=object_id(11))
    part = upload.parts.add(number=1)
    part.info.CopyFrom(key_info(bucket, "up/load", 12, [(2, 5)], factor=3))
    database.rows.put(tables.MULTIPART, bucket.by_name + b"up/load/id", upload)
    for number, local in ((47, 3), (48, 4)):
        row = MultipartPartInfo(number=number, data_bytes=7, object_id=object_id(13))
        location = row.versions.locations.add(length=7)
        location.block.id.container, location.block.id.local = 1, local
        database.rows.put(tables.MULTIPART_PARTS, b"id/" + number.to_bytes(4), row)
    found = read(database)
    kinds = sorted((row["kind"], row["path"], row["bytes"], row["replicated_bytes"]) for row in found.things("vol/b"))
    assert kinds == [
        ("open-key", "open", 256, 256),
        ("upload-part", "up/load", 5, 15),
        ("upload-part", "up/load", 7, 21),
        ("upload-part", "up/load", 7, 21),
    ]
    assert found.sums("used-parts") == (19, 57)
    assert all(row["runs"] == [{"first": 0, "last": 0}] for row in found.things("vol/b"))


def test_an_expired_open_file_has_ids_in_its_key(database: OzoneDatabase) -> None:
    """It is in the active table and, as a copy, in a later snapshot's: it counts once."""
    bucket = database.bucket("b", 2, tables.FILE_SYSTEM_OPTIMIZED)
    row = key_info(bucket, "k", 10, [(1, 5)], parent_id=bucket.bucket_id)
    database.deleted(bucket, "", row, key=bucket.key_of(b"k", bucket.bucket_id) + b"/123/%d" % row.object_id)
    database.snapshot(bucket, "snap", 20, 1)
    assert read(database).held("vol/b") == {"k": [(5, None)]}


def test_a_bucket_that_was_made_again_is_another_one(database: OzoneDatabase) -> None:
    bucket = database.bucket("b", 30)
    former = key_info(bucket, "k", 10, [(1, 5)])
    former.metadata.add(key="CKDEL", value="true")
    database.deleted(bucket, former.object_id, former, bucket_id=object_id(2))
    gone = database.bucket("gone", 3)
    database.deleted(gone, 11, key_info(gone, "x", 11, [(2, 7)]))
    database.rows.delete(tables.BUCKET, b"/vol/gone")
    found = read(database)
    assert found.held("vol/b") == {"k": [(5, None)]}
    assert found.sums("snapshot-used") == (0, 0)
    assert found.sums("without-bucket") == (7, 7)


def test_rows_that_are_in_the_log_alone_are_read(database: OzoneDatabase) -> None:
    """A copy without the files that end in .log would lose them without an error."""
    bucket = database.bucket("b", 2)
    database.snapshot(bucket, "snap", 20, 1)
    database.live(bucket, key_info(bucket, "k", 25, [(1, 5)]))
    assert list(database.directory.glob("om.db/*.log"))
    assert read(database).held("vol/b") == {"k": [(5, (1, 1))]}


class TestSnapshots:
    def test_the_local_data_says_which_directory_counts(self, database: OzoneDatabase) -> None:
        """Not the highest version that is there. The UUID has dashes, too."""
        bucket = database.bucket("b", 2)
        row = key_info(bucket, "k", 10, [(1, 5)])
        database.live(bucket, row)
        snapshot = database.snapshot(bucket, "snap", 20, 1)
        plain = database.directory_of(snapshot)
        for version in (1, 2):
            plain.with_name(f"{plain.name}-{version}").mkdir()
        plain.rename(plain.with_name(f"{plain.name}-3"))
        plain.with_name(f"{plain.name}.yaml").write_text(
            "!<OmSnapshotLocalData>\nversion: 3\nversionSstFileInfos:\n  0: x\n"
        )
        found = read(database)
        assert found.plan.buckets[0].stores[0].directory == f"{plain}-3"
        assert found.held("vol/b") == {"k": [(5, (0, 1))]}

    @pytest.mark.parametrize("release", ["1.4", "2.0", "2.1"])
    def test_snapshots_of_older_releases_do_not_name_their_transaction(
        self, database: OzoneDatabase, release: str
    ) -> None:
        """The last transaction of a row can be much later than the snapshot. Its own database knows better."""
        bucket = database.bucket("b", 2)
        row = key_info(bucket, "k", 10, [(1, 5)])
        database.live(bucket, row)
        first = database.snapshot(bucket, "one", 20, 1)
        database.deleted(bucket, object_id(25), row)
        database.live(bucket, key_info(bucket, "k", 25, [(2, 7)], object_id=row.object_id))
        second = database.snapshot(bucket, "two", 30, 2)
        transactions = {"1.4": {}, "2.0": {"last_transaction": b"1#90"}, "2.1": {"create_transaction": b"1#21"}}
        database.snapshot_row(bucket, "one", first, None, **transactions[release])
        database.snapshot_row(bucket, "two", second, first)
        found = read(database)
        assert found.held("vol/b") == {"k": [(5, (0, 0)), (7, (1, 2))]}
        assert not found.plan.buckets[0].notes

    def test_a_status_that_is_missing_is_not_deleted_and_the_order_is_that_of_the_links(
        self, database: OzoneDatabase
    ) -> None:
        bucket = database.bucket("b", 2)
        database.snapshot(bucket, "zz", 20, 1, creation_time_ms=900, status=1)
        database.snapshot(bucket, "aa", 30, 2, creation_time_ms=100)
        found = read(database).plan.buckets[0]
        assert [store.snapshot.name for store in found.stores if store.snapshot] == ["zz", "aa"]
        assert found.held_places == [0, 1]

    def test_two_heads_are_a_broken_chain(self, database: OzoneDatabase) -> None:
        bucket = database.bucket("b", 2)
        database.snapshot(bucket, "one", 20, 1)
        second = database.snapshot(bucket, "two", 30, 2)
        database.snapshot_row(bucket, "two", second, None, create_transaction=b"1#31")
        found = read(database).plan.buckets[0]
        assert found.chain_problems == ["snapshots one, two all are the first of the chain"]
        assert any("does not fit" in note for note in found.notes)

    def test_transactions_that_do_not_ascend_are_not_used(self, database: OzoneDatabase) -> None:
        bucket = database.bucket("b", 2)
        database.live(bucket, key_info(bucket, "k", 10, [(1, 5)]))
        database.snapshot(bucket, "one", 40, 1)
        database.snapshot(bucket, "two", 20, 2)
        found = read(database)
        assert any("do not ascend" in note for note in found.plan.buckets[0].notes)
        assert found.held("vol/b") == {"k": [(5, (0, 2))]}

    def test_a_directory_without_a_row_is_left_alone(self, database: OzoneDatabase) -> None:
        bucket = database.bucket("b", 2)
        database.snapshot(bucket, "snap", 20, 1)
        database.rows.delete(tables.SNAPSHOT_INFO, bucket.by_name + b"snap")
        assert len(read(database).plan.buckets[0].stores) == 1


def test_tables_of_a_newer_release_are_named(database: OzoneDatabase) -> None:
    database.bucket("b", 2)
    database.rows.add_table("snapshotLedgerTable")
    assert any("snapshotLedgerTable" in note for note in read(database).plan.notes)


def test_an_object_of_an_older_id_is_looked_up(database: OzoneDatabase) -> None:
    """Its id says nothing of the log, since it was made without Ratis."""
    bucket = database.bucket("b", 2)
    row = key_info(bucket, "k", 15, [(1, 5)], object_id=(1 << 62) | 5 << 8)
    database.live(bucket, row)
    database.snapshot(bucket, "snap", 20, 1)
    row.update_id = 25
    database.live(bucket, row)
    assert read(database).held("vol/b") == {"k": [(5, (0, 1))]}


def test_a_row_without_a_transaction_is_looked_up(database: OzoneDatabase) -> None:
    bucket = database.bucket("b", 2)
    first = key_info(bucket, "k", 10, [(1, 5)], update_id=0)
    database.live(bucket, first)
    database.snapshot(bucket, "one", 20, 1)
    database.live(bucket, key_info(bucket, "k", 10, [(2, 6)], update_id=0))
    found = read(database).held("vol/b")
    assert found == {"k": [(6, (1, 1))]}


def test_many_searches_of_many_buckets_run_when_enough_wait(
    database: OzoneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is that of a task, whatever the number of buckets."""
    monkeypatch.setattr(searches, "MAX_WAITING", 3)
    most = 0
    finish = searches.Searches.finish

    def counted(self: searches.Searches) -> None:
        nonlocal most
        most = max(most, len(self._waiting))
        finish(self)

    monkeypatch.setattr(searches.Searches, "finish", counted)
    buckets = [database.bucket(f"b{number}", 2 + number) for number in range(8)]
    for bucket in buckets:
        database.live(bucket, key_info(bucket, "k", 15, [(1, 5)], update_id=15))
        database.snapshot(bucket, "one", 20, 100 + buckets.index(bucket))
        database.live(bucket, key_info(bucket, "k", 15, [(1, 5)], update_id=25))
    reading = read(database)
    for bucket in buckets:
        assert reading.held(bucket.name) == {"k": [(5, (0, 1))]}
    assert most == 3


def test_an_unknown_uuid_is_written_as_java_does() -> None:
    from services.lens.ozone.chain import snapshot_of
    from services.lens.ozone.messages import SnapshotInfo

    row = SnapshotInfo(name="s")
    row.id.most, row.id.least = -1, -2
    assert snapshot_of(row).id == str(UUID("ffffffff-ffff-ffff-ffff-fffffffffffe"))


def test_unknown_fields_are_skipped() -> None:
    row = KeyInfo.FromString(b"\x1a\x01k" + b"\xfa\x3e\x03abc" + b"\x70\x80\x82\x80\x80\x80\x80\x80\x80\x80\x01")
    assert (row.name, row.object_id) == (b"k", -(1 << 63) + 256)


def test_a_directory_that_may_not_be_read(database: OzoneDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, which names it. The rights are taken away by hand: tests may run as a user who may do all."""
    bucket = database.bucket("b", 2)
    snapshot = database.directory_of(database.snapshot(bucket, "snap", 20, 1))
    location = database.close()
    is_file = Path.is_file

    def refusing(path: Path) -> bool:
        if path.parent == snapshot:
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refusing)
    with pytest.raises(OzoneLocationError, match=f"{snapshot}/CURRENT cannot be read: run as a user"):
        Read(location, location.with_name("scratch"))
