"""``deepclean import ozone`` on a plane in memory: what it makes of single cases, what it says, and its refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from schemas.records import Settle, SnapshotStatus
from services.cli.lens import import_command, importing
from services.cli.main import app
from services.cli.session import Session
from services.lens.ozone import tables
from services.lens.ozone.messages import MultipartKeyInfo
from services.lens.ozone.tables import BucketKeys
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.machine.spark_jobs import SparkJobError
from streaming.lens.ozone import changes, states
from tests.imported_buckets import check_listings_and_diffs, figures_of_lens, figures_of_plane
from tests.ozone_databases import LEGACY, OzoneDatabase, add_version, key_info
from tests.ozone_model import object_id
from tests.ozone_reading import Read

MEBIBYTE = 1 << 20
TREE = tables.FILE_SYSTEM_OPTIMIZED


class Line:
    """Imports into one plane."""

    def __init__(self, home: Path, shards: int = 1) -> None:
        self.plane = InMemoryClient(InMemoryPlane(shards=shards))
        self._home = home

    def run(self, *words: object, status: int = 0) -> str:
        session = Session(self._home, self.plane)
        result = CliRunner().invoke(app, ["import", "ozone", *map(str, words)], obj=session)
        assert result.exit_code == status, result.output
        return result.output

    def json(self, *words: object, status: int = 0) -> dict[str, Any]:
        output = self.run(*words, "--json", status=status)
        found: dict[str, Any] = json.loads(output[output.index("{") :])
        return found


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


@pytest.fixture
def database(tmp_path: Path) -> OzoneDatabase:
    return OzoneDatabase(tmp_path / "om")


def erasure_coded(row: Any, data: int, parity: int) -> Any:
    row.type = 4
    row.ClearField("factor")
    row.ec.data, row.ec.parity, row.ec.cell_bytes = data, parity, MEBIBYTE
    return row


def rename(database: OzoneDatabase, keys: BucketKeys, row: Any, name: str, parent_id: int, transaction: int) -> None:
    old_key = keys.key_of(row.name, row.parent_id)
    database.rows.put(tables.RENAMED, keys.by_name + b"%d" % row.object_id, old_key)
    database.remove(keys, row)
    row.name, row.parent_id, row.update_id = name.encode(), parent_id, transaction
    database.live(keys, row)


def changing_tree(database: OzoneDatabase) -> BucketKeys:
    """An FSO bucket with renames, overwrites, deletions and two replications before each of two snapshots."""
    tree = database.bucket("tree", 2, TREE)
    root = tree.bucket_id
    docs, old = (database.directory_row(tree, name, root, born) for name, born in (("docs", 3), ("old", 4)))
    inner = database.directory_row(tree, "inner", old, 5)
    kept, moved = (
        key_info(tree, name, born, [(born, 100 + born)], parent_id=docs, factor=3)
        for name, born in (("kept", 10), ("moved", 11))
    )
    coded = erasure_coded(key_info(tree, "coded", 12, [(12, 8 * MEBIBYTE), (13, 5)], parent_id=inner), 3, 2)
    gone = key_info(tree, "gone", 14, [(14, 77)], parent_id=inner)
    for row in (kept, moved, coded, gone):
        database.live(tree, row)
    database.snapshot(tree, "monday", 20, 1, creation_time_ms=1_700_000_000_000)
    rename(database, tree, moved, "docs-moved", root, 21)
    rename(database, tree, coded, "coded", docs, 22)  # out of a directory that is then deleted
    database.rows.delete(tables.DIRECTORY, tree.key_of(b"old", root))
    database.deleted_directory(tree, "old", root, 4)
    database.snapshot(tree, "tuesday", 30, 2, creation_time_ms=1_700_000_001_000)
    database.deleted(tree, 31, kept)
    database.live(tree, key_info(tree, "kept", 31, [(31, 9)], parent_id=docs, object_id=kept.object_id))
    database.directory_row(tree, "new", docs, 32)
    return tree


def test_a_tree_is_shown_with_the_figures_of_the_lens(line: Line, database: OzoneDatabase, tmp_path: Path) -> None:
    changing_tree(database)
    location = database.close()
    answer = line.json(location)
    (done,) = answer["buckets"]
    assert (done["bucket"], done["snapshots"], done["is_complete"]) == ("vol/tree", ["monday", "tuesday"], True)
    assert (answer["refused"], done["notes"], answer["notes"]) == (0, [], [])
    found = Read(location, tmp_path / "lens")
    line.plane.request(0, Settle("imported"))
    shown = dict(check_listings_and_diffs(line.plane, found.bucket("vol/tree"), ("vol", "tree"), tmp_path))
    assert set(shown[""]) == {"docs", "docs/kept", "docs/coded", "docs/new", "docs-moved"}
    assert set(shown["monday"]) >= {"old/inner/coded", "old/inner/gone"}
    figures = figures_of_plane(line.plane, ("vol", "tree"))
    assert figures == figures_of_lens(found, "vol/tree")
    assert figures.exclusive == [(77, 77), (0, 0)]
    assert figures.live[1] > 3 * MEBIBYTE
    infos = line.plane.snapshots(0).snapshots("vol", "tree")
    assert [info.creation_time_ms for info in infos] == [1_700_000_000_000, 1_700_000_001_000]
    assert {info.status for info in infos} == {SnapshotStatus.SNAPSHOT_ACTIVE}


def test_what_is_left_out_or_differs_is_said_with_counts(line: Line, database: OzoneDatabase) -> None:
    bucket = database.bucket("bbb", 2)
    synced = key_info(bucket, "synced", 10, [(1, 5)])
    versioned = key_info(bucket, "versioned", 11, [(2, 6)])
    for row in (synced, versioned):
        database.live(bucket, row)
    database.deleted(bucket, 13, key_info(bucket, "never-seen", 13, [(9, 100)]))
    database.snapshot(bucket, "one", 20, 1)
    database.snapshot(bucket, "two", 21, 2, status=2)
    synced.versions[0].locations[0].length = 8
    synced.data_bytes = 8
    add_version(versioned, [(3, 7)])
    odd = erasure_coded(key_info(bucket, "odd", 22, [(4, MEBIBYTE), (5, MEBIBYTE), (8, 3 * MEBIBYTE)]), 3, 2)
    for row in (synced, versioned, odd):
        database.live(bucket, row)
    database.rows.put(tables.OPEN_KEY, bucket.by_name + b"open/7", key_info(bucket, "open", 23, [(6, 256)]))
    database.rows.put(tables.OPEN_KEY, bucket.by_name + b"synced/8", key_info(bucket, "synced", 10, [(1, 256)]))
    upload = MultipartKeyInfo(upload=b"up", type=1, factor=1)
    upload.parts.add(number=1).info.CopyFrom(key_info(bucket, "part", 24, [(7, 40)]))
    database.rows.put(tables.MULTIPART, bucket.by_name + b"big/up", upload)
    (done,) = line.json(database.close())["buckets"]
    assert done["snapshots"] == ["one"]
    assert done["notes"] == [
        "Snapshot two is left out: it is deleted, and waits to be purged.",
        "1 deleted versions that no snapshot holds are left out: 100 bytes, 100 on disks.",
        "3 open keys and parts of uploads are left out: 296 bytes, 296 on disks.",
        (
            "2 versions have blocks of the version before (hsync, kept versions): each is whole here, so that held "
            "bytes are up to 11 more than in Ozone."
        ),
        "1 versions are put with the bytes of all their blocks, 7 more than their keys say.",
        (
            "1 versions have blocks whose replication or lengths the plane cannot have: what they take on disks "
            "differs by -2097152 bytes."
        ),
    ]
    sizes = {one.path: one.size_bytes for one in line.plane.metadata(0).entries("vol", "bbb")}
    assert sizes == {"synced": 8, "versioned": 13, "odd": 5 * MEBIBYTE}


def test_what_nobody_can_reach_and_what_is_read_but_freed(line: Line, database: OzoneDatabase) -> None:
    bucket = database.bucket("bbb", 2, TREE)
    lost = key_info(bucket, "k", 10, [(1, 5)], parent_id=object_id(77))
    database.live(bucket, lost)
    read = key_info(bucket, "read", 11, [(2, 6)], parent_id=bucket.bucket_id)
    database.live(bucket, read)
    database.snapshot(bucket, "one", 20, 1)
    database.remove(bucket, read)
    add_version(read, [(3, 7)])
    database.deleted(bucket, 11, read)
    (done,) = line.json(database.close())["buckets"]
    assert done["notes"] == [
        "1 files are left out that no directory leads to, nor did in an older snapshot: 5 bytes, 5 on disks.",
        (
            "1 deleted versions have blocks of a version that a snapshot shows, 6 bytes, and others: Ozone keeps or "
            "frees all blocks of such a version together, and the plane holds what is shown."
        ),
    ]


def test_a_snapshot_without_a_database_and_a_chain_that_does_not_fit(line: Line, database: OzoneDatabase) -> None:
    bucket = database.bucket("bbb", 2)
    database.live(bucket, key_info(bucket, "k", 10, [(1, 5)]))
    database.snapshot(bucket, "one", 20, 1)
    database.snapshot_row(bucket, "lost", UUID(int=7), None, create_transaction=b"1#30")
    (done,) = line.json(database.close())["buckets"]
    assert done["snapshots"] == ["one"]
    assert done["notes"] == [
        (
            "The chain of snapshots does not fit: snapshots one, lost all are the first of the chain. The snapshots "
            "are imported in the order of the lens."
        ),
        "Snapshot lost is left out: its database is missing.",
    ]


def test_a_full_disk_is_one_sentence(
    database: OzoneDatabase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the job's process; the scratch database says it."""
    bucket = database.bucket("bbb", 2)
    for number in range(3_000):
        database.live(bucket, key_info(bucket, f"{number:0500}", 10 + number, [(number, 5)]))
    monkeypatch.setattr(changes, "_START", changes._START + "PRAGMA max_page_count = 40;")
    monkeypatch.setattr(sys, "argv", ["states", str(database.close())])
    monkeypatch.setattr(states, "end_with_standard_input", lambda: None)
    with pytest.raises(SystemExit):
        states.main()
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "database or disk is full" in said["error"]
    assert "TMPDIR names another one" in said["error"]


def test_buckets_of_all_layouts_and_one_alone(line: Line, database: OzoneDatabase, tmp_path: Path) -> None:
    flat, legacy = database.bucket("flat", 2), database.bucket("legacy", 3, LEGACY)
    database.bucket("tree", 4, TREE)
    database.bucket("link", 5, source_volume=b"vol", source_bucket=b"flat")
    database.live(flat, key_info(flat, "a//b", 10, []))
    for number in range(3):
        database.live(legacy, key_info(legacy, f"d/{number}", 20 + number, [(20 + number, 5)]))
    database.live(legacy, key_info(legacy, "d/", 30, []))
    location = database.close()
    assert "vol/flat: 0 snapshots, 2 commands" in line.run(location)
    layouts = {row.bucket: str(row.layout) for row in line.plane.metadata(0).buckets("vol")}
    assert layouts == {"flat": "OBJECT_STORE", "legacy": "LEGACY", "tree": "FILE_SYSTEM_OPTIMIZED"}
    found = Read(location, tmp_path / "lens")
    for bucket in found.plan.buckets:
        check_listings_and_diffs(line.plane, bucket, ("vol", bucket.keys.bucket.decode()), tmp_path)
    line.run(location, "--bucket", "vol/legacy", "--volume", "copy")
    assert [row.bucket for row in line.plane.metadata(0).buckets("copy")] == ["legacy"]


def test_a_bucket_that_exists_is_refused_before_anything_is_done(line: Line, database: OzoneDatabase) -> None:
    database.bucket("bbb", 2)
    location = database.close()
    line.run(location)
    for words in ((), ("--bucket", "vol/bbb")):
        said = line.run(location, *words, status=1)
        assert "The plane has vol/bbb already: import into a volume of another name (--volume)" in said
        assert "The import stopped" not in said


def test_a_shard_is_chosen_for_a_new_volume(tmp_path: Path, database: OzoneDatabase) -> None:
    bucket = database.bucket("bbb", 2)
    database.live(bucket, key_info(bucket, "k", 10, [(1, 5)]))
    location = database.close()
    line = Line(tmp_path, shards=2)
    line.run(location, "--shard", "1", "--volume", "first")
    assert [one.path for one in line.plane.metadata(1).entries("first", "bbb")] == ["k"]
    assert "shard 5 is not one of the 2" in line.run(location, "--shard", "5", "--volume", "second", status=1)


def test_names_that_the_plane_refuses_are_counted_and_shown(line: Line, database: OzoneDatabase) -> None:
    bucket = database.bucket("bbb", 2)
    for number, name in enumerate((".snapshot/a", "fine")):
        database.live(bucket, key_info(bucket, name, 10 + number, [(number + 1, 5)]))
    answer = line.json(database.close(), status=1)
    assert (answer["refused"], len(answer["examples"])) == (1, 1)
    assert "paths below .snapshot are read-only" in answer["examples"][0]
    assert [one.path for one in line.plane.metadata(0).entries("vol", "bbb")] == ["fine"]


def test_a_key_that_could_not_be_deleted_is_counted(line: Line, database: OzoneDatabase) -> None:
    bucket = database.bucket("bbb", 2)
    row = key_info(bucket, ".snapshot/a", 10, [(1, 5)])
    database.live(bucket, row)
    database.snapshot(bucket, "one", 20, 1)
    database.remove(bucket, row)
    said = line.run(database.close(), status=1)
    assert "The plane has refused 2 changes, for example:" in said
    assert ".snapshot/a could not be deleted" in said


def test_an_unknown_bucket_and_an_unknown_place(line: Line, database: OzoneDatabase, tmp_path: Path) -> None:
    database.bucket("bbb", 2)
    location = database.close()
    assert "has no bucket vol/x: it has vol/bbb" in line.run(location, "--bucket", "vol/x", status=1)
    assert "nowhere is missing: name the directory" in line.run(tmp_path / "nowhere", status=1)


@pytest.mark.parametrize(("error", "status"), [(SparkJobError("the disk is full"), 1), (KeyboardInterrupt(), 130)])
def test_an_import_that_stops_says_what_is_there(
    line: Line, database: OzoneDatabase, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int
) -> None:
    def job(_module: str, _arguments: list[str], on_line: Any, **_: Any) -> None:
        on_line({"buckets": [["vol", "bbb", "LEGACY"]], "states": 3, "notes": []})
        on_line({"bucket": ["vol", "bbb"]})
        on_line({"snapshot": "one", "at_ms": 5})
        raise error

    monkeypatch.setattr(import_command, "run_job", job)
    said = line.run(database.close(), status=status)
    assert "The import stopped in vol/bbb, which has its states up to snapshot one, and a part of the next" in said
    assert str(error) in said


def test_many_commands_are_outstanding_at_most_so_many(
    line: Line, database: OzoneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "MAX_OUTSTANDING", 7)
    bucket = database.bucket("bbb", 2)
    for number in range(1_100):
        database.live(bucket, key_info(bucket, f"k{number}", 10 + number, [(number, 5)]))
    database.snapshot(bucket, "one", 5_000, 1)
    for number in range(0, 1_100, 2):
        database.rows.delete(tables.KEY, bucket.by_name + b"k%d" % number)
    (done,) = line.json(database.close())["buckets"]
    assert done["commands"] == 1 + 1_100 + 3  # deletions of many keys are one command
    assert len(line.plane.metadata(0).entries("vol", "bbb")) == 550
