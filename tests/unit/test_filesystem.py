"""Buckets and snapshots by fsspec: what pandas, PyArrow, DuckDB and fsspec itself see, and what they read."""

from __future__ import annotations

import io
import os
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from pyarrow import csv, dataset, parquet
from pyarrow.fs import FileSelector, FSSpecHandler, PyFileSystem

import deepclean
from deepclean.connection import Connection
from deepclean.filesystem import DeepcleanFileSystem
from schemas.block_store import MAX_CHUNK_BYTES
from tests.planes_with_bytes import ClientWithBytes

ROOT = Path(__file__).parents[2]
BLOCK_BYTES = 50_000
DATA = bytes(range(251)) * 1_000
FLAT, TREE = deepclean.BucketLayout.OBJECT_STORE, deepclean.BucketLayout.FILE_SYSTEM_OPTIMIZED


@pytest.fixture
def client(tmp_path: Path) -> ClientWithBytes:
    return ClientWithBytes(tmp_path)


@pytest.fixture
def plane(client: ClientWithBytes) -> Connection:
    return Connection(client)


@pytest.fixture
def bucket(plane: Connection) -> deepclean.Bucket:
    return plane.volume("vol1").create().bucket("data").create(TREE)


@pytest.fixture
def files(plane: Connection) -> Iterator[DeepcleanFileSystem]:
    fsspec.register_implementation("deepclean", DeepcleanFileSystem, clobber=True)
    yield DeepcleanFileSystem(connection=plane)
    DeepcleanFileSystem.clear_instance_cache()


def parquet_bytes(numbers: list[int]) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pa.table({"number": numbers}), sink)
    return sink.getvalue()


class TestReading:
    """Bytes of keys by the objects, which the file system is made of."""

    def test_bytes_come_back_whole_and_in_part(self, bucket: deepclean.Bucket) -> None:
        bucket.put("a/key", data=DATA, block_size_bytes=BLOCK_BYTES)
        assert bucket.read("a/key") == DATA
        for offset, length in ((0, 1), (49_999, 2), (100_000, 50_000), (250_000, 10_000), (300_000, 5)):
            assert bucket.read("a/key", offset=offset, length=length) == DATA[offset : offset + length]

    def test_a_part_is_read_without_the_blocks_around_it(
        self, bucket: deepclean.Bucket, client: ClientWithBytes
    ) -> None:
        bucket.put("key", data=DATA, block_size_bytes=BLOCK_BYTES)
        client.datanode.read_lengths.clear()
        bucket.read("key", offset=149_990, length=20)
        assert client.datanode.read_lengths == [10, 10]

    def test_a_large_block_is_read_in_chunks(self, bucket: deepclean.Bucket, client: ClientWithBytes) -> None:
        data = b"x" * (MAX_CHUNK_BYTES + 1)
        bucket.put("key", data=io.BytesIO(data))
        client.datanode.read_lengths.clear()
        assert bucket.read("key") == data
        assert client.datanode.read_lengths == [MAX_CHUNK_BYTES, 1]

    def test_a_file_of_a_snapshot_outlives_the_key(self, bucket: deepclean.Bucket) -> None:
        bucket.put("key", data=DATA, block_size_bytes=BLOCK_BYTES)
        snapshot = bucket.create_snapshot("first")
        bucket.put("key", data=b"other")
        with snapshot.open("key") as file:
            file.seek(-10, os.SEEK_END)
            assert file.read() == DATA[-10:]
            assert file.seek(5) == file.tell() == 5
            assert file.read(3) == DATA[5:8]
            file.seek(len(DATA) + 7)
            assert file.read() == b""
            with pytest.raises(ValueError, match="before the beginning"):
                file.seek(-1)
        assert bucket.read("key") == b"other"

    @pytest.mark.parametrize("call", ["stat", "key_blocks"])
    def test_an_overwrite_between_two_reads_mixes_no_versions(
        self, bucket: deepclean.Bucket, client: ClientWithBytes, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        """The reader takes one version whole, whichever one."""
        bucket.put("key", data=b"old")
        reads = type(client.metadata(0))
        read = getattr(reads, call)

        def after_an_overwrite(*arguments: Any, **named: Any) -> Any:
            monkeypatch.setattr(reads, call, read)
            bucket.put("key", data=b"new contents")
            return read(*arguments, **named)

        monkeypatch.setattr(reads, call, after_an_overwrite)
        assert bucket.read("key") in (b"old", b"new contents")

    def test_what_has_no_bytes_cannot_be_read(self, bucket: deepclean.Bucket) -> None:
        bucket.put("a/key", size_bytes=10)
        with pytest.raises(deepclean.MissingBytesError):
            bucket.read("a/key")
        with pytest.raises(deepclean.InvalidRequestError):
            bucket.open("a")
        with pytest.raises(deepclean.NotFoundError):
            bucket.open("b")


class TestListing:
    @pytest.mark.parametrize("layout", [FLAT, TREE])
    def test_paths_lead_from_volumes_to_keys(
        self, plane: Connection, files: DeepcleanFileSystem, layout: deepclean.BucketLayout
    ) -> None:
        bucket = plane.volume("vol1").create().bucket("data").create(layout)
        bucket.put("a/b/c", size_bytes=1)
        bucket.put("d", size_bytes=2)
        bucket.create_snapshot("first")
        bucket.delete_key("d")
        assert files.ls("", detail=False) == ["vol1"]
        assert files.ls("deepclean://vol1", detail=False) == ["vol1/data"]
        assert files.ls("vol1/data/", detail=False) == ["vol1/data/a"]
        assert files.ls("vol1/data/.snapshot", detail=False) == ["vol1/data/.snapshot/first"]
        below = "vol1/data/.snapshot/first"
        assert sorted(files.ls(below, detail=False)) == [f"{below}/a", f"{below}/d"]
        assert files.ls(f"{below}/a/b/c", detail=False) == [f"{below}/a/b/c"]
        assert files.find(below) == [f"{below}/a/b/c", f"{below}/d"]
        assert files.find("vol1/data/a/b/c") == ["vol1/data/a/b/c"]
        assert files.find("vol1") == ["vol1/data/a/b/c"]
        assert files.find("vol1/data", maxdepth=1) == []
        assert files.find("vol1/data/none") == []
        assert files.glob("vol1/data/.snapshot/*/d") == [f"{below}/d"]
        assert [files.isdir(path) for path in ("vol1/data/a/b", below, "vol1/data/.snapshot", "")] == [True] * 4
        assert [files.isfile(path) for path in (f"{below}/d", "vol1/data/d")] == [True, False]
        assert not any(map(files.exists, ("vol2", "vol1/none", "vol1/data/.snapshot/second", f"{below}/e")))

    def test_a_walk_meets_everything_once(self, bucket: deepclean.Bucket, files: DeepcleanFileSystem) -> None:
        for key in ("a/b/c", "a/d", "e"):
            bucket.put(key, size_bytes=1)
        assert [(path, sorted(names), sorted(keys)) for path, names, keys in files.walk("vol1/data")] == [
            ("vol1/data", ["a"], ["e"]),
            ("vol1/data/a", ["b"], ["d"]),
            ("vol1/data/a/b", [], ["c"]),
        ]
        everything = files.find("vol1/data", withdirs=True, detail=True)
        assert {name: info["type"] for name, info in everything.items()} == {
            "vol1/data": "directory",
            "vol1/data/a": "directory",
            "vol1/data/a/b": "directory",
            "vol1/data/a/b/c": "file",
            "vol1/data/a/d": "file",
            "vol1/data/e": "file",
        }
        assert files.du("vol1/data") == 3

    def test_keys_with_empty_parts_are_met(self, plane: Connection, files: DeepcleanFileSystem) -> None:
        """A flat bucket takes them, as object stores do."""
        bucket = plane.volume("vol1").create().bucket("data").create(FLAT)
        keys = ["//two", "/lead/c", "a//b", "a//d/e", "a/f", "dir/", "g"]
        for key in keys:
            bucket.put(key, size_bytes=1)
        assert [entry.path for entry in bucket.listdir()] == ["//two", "/lead", "a", "dir", "g"]
        assert [(entry.path, entry.is_directory) for entry in bucket.listdir("a")] == [
            ("a//b", False),
            ("a//d", True),
            ("a/f", False),
        ]
        assert [entry.path for entry in bucket.listdir("/lead")] == ["/lead/c"]
        assert [entry.path for entry in bucket.listdir("dir")] == ["dir/"]
        walked = [info["name"] for _, _, found in files.walk("vol1/data", detail=True) for info in found.values()]
        assert sorted(walked) == files.find("vol1/data") == [f"vol1/data/{key}" for key in keys]
        assert all(files.isfile(f"vol1/data/{key}") for key in keys if key != "dir/")

    def test_a_file_has_a_size_and_times(self, bucket: deepclean.Bucket, files: DeepcleanFileSystem) -> None:
        bucket.put("key", size_bytes=7, tag="mine")
        info = files.info("vol1/data/key")
        assert (info["name"], info["size"], info["type"], info["tag"]) == ("vol1/data/key", 7, "file", "mine")
        (listed,) = files.ls("vol1/data")
        assert {**info, **listed} == info
        assert files.modified("vol1/data/key") == files.created("vol1/data/key")
        assert datetime(2020, 1, 1, tzinfo=UTC) < files.modified("vol1/data/key") < datetime.now(UTC)

    def test_what_is_wrong_is_said_as_programs_expect(
        self, bucket: deepclean.Bucket, files: DeepcleanFileSystem
    ) -> None:
        bucket.put("a/key", data=DATA)
        for path in ("none", "vol1/none", "vol1/data/none", "vol1/data/.snapshot/none/key"):
            with pytest.raises(FileNotFoundError, match=path):
                files.info(path)
        with pytest.raises(IsADirectoryError):
            files.cat_file("vol1/data/a")
        with pytest.raises(IsADirectoryError):
            files.open("vol1/data")
        with pytest.raises(NotImplementedError, match="not written"):
            files.open("vol1/data/key", "wb")
        bucket.put("b", size_bytes=10)
        with pytest.raises(OSError, match="vol1/data/b: "):
            files.cat_file("vol1/data/b")
        snapshot = bucket.create_snapshot("first")
        assert files.isdir("vol1/data/.snapshot/first")
        snapshot.delete()
        assert not files.exists("vol1/data/.snapshot/first")
        with pytest.raises(FileNotFoundError, match="deleted"):
            files.cat_file("vol1/data/.snapshot/first/a/key")


class TestPrograms:
    """The same snapshot, read by each of the programs."""

    @pytest.fixture(autouse=True)
    def _table(self, bucket: deepclean.Bucket) -> None:
        for number in range(3):
            bucket.put(f"table/part-{number}.parquet", data=parquet_bytes([number, number + 10]))
        bucket.put("text.csv", data=b"name,count\nbeach,3\nsea,4\n")
        bucket.create_snapshot("first")
        bucket.delete_directory("table")
        bucket.put("text.csv", data=b"name,count\n")

    def test_fsspec_reads_parts(self, files: DeepcleanFileSystem) -> None:
        path = "vol1/data/.snapshot/first/text.csv"
        assert files.cat_file(path, 5, 10) == b"count"
        assert files.cat_file(path, -6) == b"sea,4\n"
        assert files.head(path, 4) == b"name"
        with files.open(path, block_size=4) as file:
            assert file.readlines() == [b"name,count\n", b"beach,3\n", b"sea,4\n"]
        with fsspec.open("deepclean://vol1/data/text.csv", "rt", connection=files.connection) as text:
            assert text.read() == "name,count\n"

    def test_pyarrow_reads_a_dataset(self, files: DeepcleanFileSystem) -> None:
        system = PyFileSystem(FSSpecHandler(files))
        below = "vol1/data/.snapshot/first"
        names = {info.path for info in system.get_file_info(FileSelector(below, recursive=True)) if info.is_file}
        assert names == {f"{below}/text.csv", *(f"{below}/table/part-{n}.parquet" for n in range(3))}
        table = dataset.dataset(f"{below}/table", filesystem=system, format="parquet").to_table()
        assert sorted(table["number"].to_pylist()) == [0, 1, 2, 10, 11, 12]
        with system.open_input_stream(f"{below}/text.csv") as stream:
            assert csv.read_csv(stream)["count"].to_pylist() == [3, 4]

    def test_duckdb_queries_a_snapshot(self, files: DeepcleanFileSystem) -> None:
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect() as database:
            database.register_filesystem(files)
            asked = "select sum(number), count(*) from '{}'"
            path = "deepclean://vol1/data/.snapshot/first/table/*.parquet"
            assert database.sql(asked.format(path)).fetchall() == [(36, 6)]
            path = "deepclean://vol1/data/.snapshot/first/text.csv"
            assert database.sql(f"select name from read_csv('{path}') order by 1").fetchall() == [("beach",), ("sea",)]

    def test_pandas_reads_files(self, files: DeepcleanFileSystem) -> None:
        pandas: Any = pytest.importorskip("pandas", reason="pip install pandas")
        options = {"connection": files.connection}
        below = "deepclean://vol1/data/.snapshot/first"
        frame = pandas.read_csv(f"{below}/text.csv", storage_options=options)
        assert frame["count"].tolist() == [3, 4]
        assert pandas.read_parquet(f"{below}/table/part-2.parquet", storage_options=options)["number"].sum() == 14


def test_an_installed_deepclean_is_known_to_fsspec() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["fsspec.specs"] == {
        "deepclean": f"{DeepcleanFileSystem.__module__}:{DeepcleanFileSystem.__name__}"
    }
    assert DeepcleanFileSystem.protocol == "deepclean"
