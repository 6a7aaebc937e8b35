"""What comes back from a snapshot has its bytes, where the plane keeps bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepclean
from deepclean.connection import Connection
from schemas.records import KeyRow
from services.client.errors import MissingBytesError
from tests.planes_with_bytes import ClientWithBytes

BLOCK_BYTES = 50_000
DATA = bytes(range(251)) * 1_000


@pytest.fixture
def bucket(tmp_path: Path) -> deepclean.Bucket:
    plane = Connection(ClientWithBytes(tmp_path))
    return plane.volume("vol1").create().bucket("data").create(deepclean.BucketLayout.FILE_SYSTEM_OPTIMIZED)


def test_a_key_comes_back_with_its_bytes_and_blocks_of_its_own(bucket: deepclean.Bucket) -> None:
    bucket.put("a", data=DATA, tag="first", block_size_bytes=BLOCK_BYTES)
    snapshot = bucket.create_snapshot("monday")
    bucket.put("a", data=b"worse")
    assert snapshot.restore("a").size_bytes == len(DATA)
    assert bucket.read("a") == snapshot.read("a") == DATA
    live, held = bucket.stat("a"), snapshot.stat("a")
    assert isinstance(live, KeyRow)
    assert isinstance(held, KeyRow)
    assert live.blocks is not None
    assert held.blocks is not None
    assert (live.tag, live.blocks.block_size_bytes) == ("first", BLOCK_BYTES)
    assert live.blocks.first_local_id != held.blocks.first_local_id


def test_so_does_a_directory_to_another_place(bucket: deepclean.Bucket) -> None:
    files = {"d/x": b"x" * 10, "d/e/y": b"y" * 20, "d/e/empty": b""}
    for path, data in files.items():
        bucket.put(path, data=data)
    snapshot = bucket.create_snapshot("monday")
    bucket.delete_directory("d", recursive=True)
    restored = snapshot.restore("d", to="back")
    assert (restored.keys, restored.directories, restored.size_bytes) == (3, 2, 30)
    for path, data in files.items():
        assert bucket.read(path.replace("d/", "back/", 1)) == data


def test_a_key_whose_bytes_are_missing_overwrites_nothing(bucket: deepclean.Bucket) -> None:
    bucket.put("a", size_bytes=100)
    snapshot = bucket.create_snapshot("monday")
    bucket.put("a", data=b"good")
    with pytest.raises(MissingBytesError):
        snapshot.restore("a")
    assert bucket.read("a") == b"good"
