"""The library on a real plane: a whole session, many keys from several threads, and the documents' examples."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import fsspec
import pytest

import deepclean
from deepclean.connection import Connection
from deepclean.filesystem import DeepcleanFileSystem
from services.plane.stack.stack import Stack
from tests.library_examples import DOCUMENTS, examples, needs_bytes, run_examples

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]
KEYS = 3_000
THREADS = 4


@pytest.fixture
def plane(shared_stack: Stack) -> Iterator[Connection]:
    with deepclean.connect(home=shared_stack.home) as connection:
        yield connection


def test_many_keys_of_several_threads_are_written_once_and_seen_in_a_snapshot(plane: Connection) -> None:
    bucket = plane.volume("library").create().bucket("many").create(deepclean.BucketLayout.OBJECT_STORE)

    def write(thread: int) -> int:
        with bucket.writer(max_in_flight=500) as writer:
            for number in range(KEYS):
                writer.put(f"{thread}/{number:05}", size_bytes=1_000)
            for number in range(0, KEYS, 3):
                writer.delete(f"{thread}/{number:05}")
        return writer.put_count + writer.deleted_count

    with ThreadPoolExecutor(THREADS) as threads:
        assert sum(threads.map(write, range(THREADS))) == THREADS * (KEYS + KEYS // 3)
    snapshot = bucket.create_snapshot("first")
    bucket.put("0/00001", size_bytes=2_000)
    with snapshot as first:
        listed = [entry.path for entry in first.list()]
        assert len(listed) == THREADS * KEYS * 2 // 3
        assert [entry.path for entry in first.listdir()] == [str(thread) for thread in range(THREADS)]
        assert first.stat("0/00001").size_bytes == 1_000  # type: ignore[union-attr]
    assert [(change.kind, change.path) for change in snapshot.diff()] == [("M", "0/00001")]
    plane.settle()
    space = bucket.space()
    assert (space.freed_versions, space.held_versions) == (THREADS * KEYS // 3, 1)
    assert snapshot.what_if().freed_bytes == 1_000
    with pytest.raises(deepclean.BulkWriteError) as told, bucket.writer() as writer:
        writer.delete("none")
    assert isinstance(told.value.failures[0].error, deepclean.NotFoundError)


def test_programs_list_a_snapshot_over_http(plane: Connection) -> None:
    bucket = plane.volume("library-files").create().bucket("tree").create()
    for key in ("a/b", "a/c/d", "e"):
        bucket.put(key, size_bytes=10)
    bucket.create_snapshot("first")
    bucket.delete_directory("a")
    fsspec.register_implementation("deepclean", DeepcleanFileSystem, clobber=True)
    try:
        files = fsspec.filesystem("deepclean", connection=plane)
        below = "library-files/tree/.snapshot/first"
        assert files.find(below) == [f"{below}/a/b", f"{below}/a/c/d", f"{below}/e"]
        assert files.ls("library-files/tree", detail=False) == ["library-files/tree/e"]
        with pytest.raises(OSError, match=r"tree/\.snapshot/first/e: "):
            files.cat_file(f"{below}/e")
    finally:
        DeepcleanFileSystem.clear_instance_cache()


def test_the_examples_run_on_a_real_plane(shared_stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each document begins with the same volume; those with bytes need datanodes (``test_every_example_runs``)."""
    connect = deepclean.connect
    for number, document in enumerate(DOCUMENTS):
        blocks = [block for block in examples(document) if not needs_bytes(block)]
        of_its_own = [block.replace('"photos"', f'"photos-{number}"') for block in blocks]
        run_examples(of_its_own, lambda: connect(home=shared_stack.home), monkeypatch)
