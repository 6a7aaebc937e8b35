"""Bytes on datanodes of the real plane: what is freed is what was foretold, and what is live outlives its copies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyarrow.fs import FSSpecHandler, PyFileSystem

from deepclean import connect
from deepclean.filesystem import DeepcleanFileSystem
from schemas.block_store import BlockStoreStatus
from schemas.records import (
    BlockRun,
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteKey,
    DeleteSnapshot,
    Settle,
)
from schemas.space_answers import WhatIf
from services.client.errors import PlaneError
from services.client.kafka_plane import KafkaPlane
from services.client.plane import NamespaceCommand, SnapshotRequest
from services.client.tasks.key_bytes import KeyPlace, lost_blocks, put_bytes, read_bytes
from services.plane.stack.stack import Stack
from tests.datanodes import flip_a_bit
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.long]
BLOCK_BYTES = 100_000
FAST = {
    "DEEPCLEAN_MOCK_SCM_DEAD_AFTER_MS": "3000",
    "DEEPCLEAN_MOCK_SCM_DELETION_INTERVAL_MS": "200",
    "DEEPCLEAN_DATANODE_HEARTBEAT_MS": "200",
    "DEEPCLEAN_DATANODE_DELETION_INTERVAL_MS": "200",
    "DEEPCLEAN_DATANODE_SCRUB_INTERVAL_MS": "500",
}
NAMES = ("vol1", "files")
WAIT_SECONDS = 120.0


class Store:
    """A plane with datanodes, and what its keys have to contain."""

    def __init__(self, stack: Stack, plane: KafkaPlane) -> None:
        self.stack = stack
        self.plane = plane
        self.blocks = plane.block_store(0)
        self.contents: dict[str, bytes] = {}
        self.random = Random(7)
        self.execute(CreateVolume(NAMES[0]), CreateBucket(*NAMES, BucketLayout.FILE_SYSTEM_OPTIMIZED))

    def execute(self, *commands: NamespaceCommand) -> None:
        for command in commands:
            assert self.plane.answer(0, self.plane.submit(0, command)).error == ""

    def request(self, asked: SnapshotRequest) -> None:
        assert self.plane.request(0, asked).error == ""

    def put(self, key: str, size_bytes: int) -> None:
        """Write a key with other bytes than before."""
        data = self.random.randbytes(size_bytes)
        size, _ = put_bytes(self.plane, KeyPlace(0, *NAMES, key), BytesIO(data), block_size_bytes=BLOCK_BYTES)
        assert size == size_bytes
        self.contents[key] = data

    def runs(self, key: str, snapshot_id: str = "") -> list[BlockRun]:
        return self.plane.metadata(0).key_blocks(*NAMES, key, snapshot_id=snapshot_id)

    def read(self, key: str, size_bytes: int, snapshot_id: str = "") -> bytes:
        return b"".join(read_bytes(self.blocks, self.runs(key, snapshot_id), size_bytes))

    def check_contents(self) -> None:
        """Every key has its bytes."""
        for key, data in self.contents.items():
            assert self.read(key, len(data)) == data

    def await_status(self, is_so: Callable[[BlockStoreStatus], bool]) -> None:
        try:
            eventually(lambda: is_so(self.blocks.status()), WAIT_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{self.blocks.status()}, {self.plane.scm(0).totals()}") from error

    def await_whole(self, nodes: int, copies: int) -> None:
        """Wait until nothing is to be copied, healed or deleted."""

        def is_whole(one: BlockStoreStatus) -> bool:
            used_bytes = sum(node.used_bytes for node in one.nodes if node.is_alive)
            stored_bytes = self.plane.scm(0).totals().inventory_bytes
            damaged = sum(node.damaged_blocks for node in one.nodes if node.is_alive)
            return (
                sum(node.is_alive for node in one.nodes) == nodes
                and not (one.under_replicated or one.waiting_transactions or damaged)
                and used_bytes == copies * stored_bytes
            )

        self.await_status(is_whole)

    def du(self) -> int:
        """The bytes of all block files, as du counts them."""
        home = self.stack.home / "data"
        folders = sorted(str(path) for path in home.glob("datanode-*/disk-*/chunks"))
        ran = subprocess.run(["du", "-ab", *folders], capture_output=True, text=True, check=False)  # files come and go
        lines = [line.split("\t") for line in ran.stdout.splitlines()]
        return sum(int(size) for size, path in lines if path.endswith(".block"))

    def files_of(self, key: str) -> list[Path]:
        """The files of the blocks of a key on all datanodes."""
        ids = [
            (run.container_id, run.first_local_id + number)
            for run in self.runs(key)
            for number in range(run.block_count)
        ]
        home = self.stack.home / "data"
        return [
            path
            for container_id, local_id in ids
            for path in sorted(home.glob(f"datanode-*/disk-*/chunks/{container_id:016x}/{local_id}.block"))
        ]


@contextmanager
def store_on(home: Path, **settings: Any) -> Iterator[Store]:
    """A plane with datanodes. Its client goes on when a test kills one."""
    with Stack(home, 1, settings=FAST, **settings) as stack, KafkaPlane(stack.address) as plane:
        yield Store(stack, plane)


def test_three_copies_outlive_a_datanode_a_bit_and_a_disk_and_a_drop_frees_what_was_foretold(tmp_path: Path) -> None:
    with store_on(tmp_path / "home", datanodes=4) as store:
        for number in range(6):
            store.put(f"dir/{number}", 250_000 + number)
        held = {key: data for key, data in store.contents.items() if key in ("dir/0", "dir/1", "dir/2")}
        store.request(CreateSnapshot(*NAMES, "held"))
        store.put("dir/0", 120_000)
        store.put("dir/1", 1)
        store.execute(DeleteKey(*NAMES, "dir/2"))
        del store.contents["dir/2"]
        store.request(Settle("before"))
        store.await_whole(4, 3)
        snapshot_id = store.plane.snapshots(0).snapshot(*NAMES, "held").snapshot_id
        for key, data in held.items():
            assert store.read(key, len(data), snapshot_id) == data, "the snapshot shows the bytes of its time"
        foretold = store.plane.space(0).what_if(*NAMES, WhatIf((snapshot_id,)))
        assert foretold.freed_bytes == sum(map(len, held.values()))
        before = store.du()
        assert before == 3 * store.plane.scm(0).totals().inventory_bytes
        store.request(DeleteSnapshot(*NAMES, "held"))
        store.request(Settle("dropped"))
        store.await_whole(4, 3)
        assert before - store.du() == foretold.freed_replicated_bytes == 3 * foretold.freed_bytes
        store.check_contents()
        _kill_a_datanode(store)
        _flip_a_bit(store)
        _lose_a_disk(store)
        assert list(lost_blocks(store.blocks)) == []
        assert store.du() == 3 * sum(map(len, store.contents.values()))


def _kill_a_datanode(store: Store) -> None:
    """The containers of a datanode that is killed are copied to the fourth; back again, it drops its old copies."""
    child = store.stack.children["datanode-1"]
    child.kill()
    store.check_contents()
    store.put("written/while-one-is-down", 300_000)
    store.await_whole(3, 3)
    store.check_contents()
    child.start()
    store.await_whole(4, 3)
    store.check_contents()


def _flip_a_bit(store: Store) -> None:
    """A reader never gets the wrong bytes, and the scrubber has the copy healed."""
    path, *others = store.files_of("dir/3")
    good = path.read_bytes()
    flip_a_bit(path, 12_345)
    store.check_contents()
    eventually(lambda: path.read_bytes() == good, WAIT_SECONDS)
    others[0].unlink()
    eventually(others[0].exists, WAIT_SECONDS)
    store.await_whole(4, 3)


def _lose_a_disk(store: Store) -> None:
    """The disk of a datanode is replaced by an empty one."""
    name = store.files_of("dir/4")[0].relative_to(store.stack.home / "data").parts[0]
    child = store.stack.children[name]
    child.kill()
    before = store.du()
    rmtree(store.stack.home / "data" / name / "disk-0")
    assert store.du() < before
    child.start()
    eventually(lambda: store.du() == before, WAIT_SECONDS)
    store.await_whole(4, 3)
    store.check_contents()


def test_with_one_copy_it_is_said_what_is_lost(tmp_path: Path) -> None:
    with store_on(tmp_path / "home", datanodes=1) as store:
        store.put("dir/lost", 250_000)
        store.put("dir/overwritten", 5)
        store.await_whole(1, 1)
        assert list(lost_blocks(store.blocks)) == []
        child = store.stack.children["datanode-0"]
        child.kill()
        rmtree(store.stack.home / "data" / "datanode-0" / "disk-0")
        child.start()
        store.await_status(lambda one: one.lost_containers == 1)
        store.put("dir/overwritten", 70_000)
        store.request(Settle("replaced"))
        found = list(lost_blocks(store.blocks))
        (run,) = store.runs("dir/lost")[:1]
        assert sum(block.size_bytes for block in found) == 250_000
        assert min(block.first_local_id for block in found) == run.first_local_id
        with pytest.raises(PlaneError):
            store.read("dir/lost", 250_000)
        assert store.read("dir/overwritten", 70_000) == store.contents["dir/overwritten"]
        home = ["--home", str(store.stack.home)]
        listed = subprocess.run(
            [sys.executable, "-m", "services.cli.main", *home, "blocks", "lost"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert listed.returncode == 1
        assert "vol1/files/dir/lost" in listed.stdout


def test_files_travel_through_the_command_line_of_a_secured_plane(tmp_path: Path) -> None:
    with store_on(tmp_path / "home", datanodes=1, is_secured=True) as store:
        url = store.stack.url("datanode-0")
        for path in ("/metrics", "/v1/shards/0/containers/0/blocks"):
            assert httpx.get(url + path).status_code == 401, "who has no token reads nothing"

        def deepclean(*words: str, status: int = 0) -> bytes:
            program = [sys.executable, "-m", "services.cli.main", "--home", str(store.stack.home)]
            ran = subprocess.run([*program, *words], capture_output=True, timeout=120, check=False)
            assert ran.returncode == status, ran.stderr
            return ran.stdout or ran.stderr

        data = store.random.randbytes(3_000_000)
        (tmp_path / "file").write_bytes(data)
        block = ("--block-size", "1500000")
        assert b"key a/file put at txn" in deepclean("key", "put", str(tmp_path / "file"), "vol1/files/a/file", *block)
        deepclean("key", "get", "vol1/files/a/file", str(tmp_path / "copy"))
        assert (tmp_path / "copy").read_bytes() == data
        assert deepclean("key", "get", "vol1/files/a/file") == data
        (tmp_path / "empty").touch()
        deepclean("key", "put", str(tmp_path / "empty"), "vol1/files/empty")
        assert deepclean("key", "get", "vol1/files/empty") == b""
        deepclean("key", "put", "vol1/files/counted", "--size", "10")
        assert b"NO_SUCH_BLOCK" in deepclean("key", "get", "vol1/files/counted", status=1)
        assert b"datanode-0" in deepclean("blocks", "status")
        assert b"0 transactions sent again" in deepclean("blocks", "retry")
        assert b"DELTXNID" in deepclean("blocks", "parked")
        assert b"Every block" in deepclean("blocks", "lost")
        _programs_read_a_snapshot(store.stack.home, data)


def _programs_read_a_snapshot(home: Path, data: bytes) -> None:
    """By the library and its file system, over HTTP: whole, in part, and as a table."""
    table = BytesIO()
    parquet.write_table(pa.table({"number": list(range(1_000))}), table)
    with connect(home=home) as plane:
        bucket = plane.volume(NAMES[0]).bucket(NAMES[1])
        bucket.put("tables/one.parquet", data=table.getvalue(), block_size_bytes=1_000)
        snapshot = bucket.create_snapshot("closed")
        bucket.delete_directory("tables")
        assert snapshot.read("a/file", offset=1_499_990, length=20) == data[1_499_990:1_500_010]
        with snapshot.open("a/file") as file:
            file.seek(-5, os.SEEK_END)
            assert file.read() == data[-5:]
        below = f"{NAMES[0]}/{NAMES[1]}/.snapshot/closed"
        files = DeepcleanFileSystem(connection=plane, skip_instance_cache=True)
        assert files.cat_file(f"{below}/a/file", 100, 200) == data[100:200]
        read = parquet.read_table(f"{below}/tables/one.parquet", filesystem=PyFileSystem(FSSpecHandler(files)))
        assert read["number"].to_pylist() == list(range(1_000))
        with pytest.raises(OSError, match="counted"):
            files.cat_file(f"{below}/counted")
