"""A rewritten checkpoint has the rows of the one whose place it takes, whoever reads, removes or crashes meanwhile."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from services.storage import defragmentation, rocks_checkpoints, rocks_options
from services.storage.defragmentation import Ranges
from services.storage.rocks import RocksStore
from services.storage.rocks_backups import RocksCopy
from services.storage.rocks_checkpoints import Checkpoints
from services.storage.rocks_options import RocksOptions
from services.storage.store import BEYOND
from tests.contract.test_store import CHECKPOINTED, FAMILIES

ROWS = 3_000
OWN = {"fileTable": (b"/a/", b"/a0"), "keyTable": (b"/k/", b"/k0")}


def opened(directory: Path, least_gain_bytes: int = 1) -> RocksStore:
    options = RocksOptions(least_gain_bytes=least_gain_bytes)
    return RocksStore(directory / "db", FAMILIES, CHECKPOINTED, options)


def everything(_: str) -> Ranges:
    return {}


def at_once(_: int) -> bool:
    return True


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "checkpoints").iterdir())


def content(store: RocksStore, name: str = "kept") -> dict[tuple[str, bytes], bytes]:
    with closing(store.open_checkpoint(name)) as view:
        return {(family, key): value for family in CHECKPOINTED for key, value in view.scan(family, b"", BEYOND)}


def fragmented(directory: Path) -> RocksStore:
    """A store whose checkpoint has rows of two buckets in several versions, which the database has replaced since."""
    store = opened(directory)
    for version in range(4):
        for bucket in (b"a", b"b"):
            values = {b"/%b/%06d" % (bucket, one): b"%d/%06d" % (version, one) for one in range(ROWS)}
            store.write({"fileTable": values, "keyTable": {b"/k/%d" % version: b"x"}, "outbox": values})
        if version == 2:
            store.write({"fileTable": {b"/a/%06d" % one: None for one in range(0, ROWS, 3)}})
            store.checkpoint("kept")
        elif version < 3:
            store.checkpoint("flushed")
            store.remove_checkpoint("flushed")
    store.checkpoint("flushed")
    store.remove_checkpoint("flushed")
    store.trim_checkpoints()
    with closing(store.open_checkpoint("kept")):
        store.compact_at_rest(0)
    return store


def test_a_rewritten_checkpoint_has_the_same_rows_in_fewer_bytes(tmp_path: Path) -> None:
    store = fragmented(tmp_path)
    before, own = content(store), store.checkpoint_sizes()[1]
    rewritten = store.defragment(everything, at_once)
    assert rewritten is not None
    assert rewritten[0] == "kept"
    store.trim_checkpoints()
    assert content(store) == before
    assert len(before) > ROWS
    assert store.checkpoint_sizes()[1] < own / 2
    assert store.defragment(everything, at_once) is None, "a rewritten checkpoint is not rewritten again"
    store.close()
    store = opened(tmp_path)
    assert content(store) == before
    assert names_in(tmp_path) == ["kept"]
    assert store.defragment(everything, at_once) is None
    store.close()


def test_rows_that_need_not_be_kept_are_left_out(tmp_path: Path) -> None:
    store = fragmented(tmp_path)
    own = {at: row for at, row in content(store).items() if OWN[at[0]][0] <= at[1] < OWN[at[0]][1]}
    assert store.defragment(lambda _: OWN, at_once)
    assert content(store) == own
    store.close()


def test_a_checkpoint_that_nobody_lets_go_of_is_left_as_it_is(tmp_path: Path) -> None:
    store = fragmented(tmp_path)
    assert store.defragment(lambda _: None, at_once) is None
    assert names_in(tmp_path) == ["kept"]
    store.close()


def test_files_that_the_database_shares_are_not_rewritten(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.write({"fileTable": {b"/%06d" % one: os.urandom(20) for one in range(ROWS)}})
    store.checkpoint("kept")
    store.trim_checkpoints()
    assert store.defragment(everything, at_once) is None
    store.close()


def test_files_that_many_checkpoints_share_are_not_rewritten_for_each(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.write({"fileTable": {b"/%06d" % one: os.urandom(20) for one in range(ROWS)}})
    for number in range(10):
        store.write({"keyTable": {b"/k": b"%d" % number}})
        store.checkpoint(f"{number}")
    store.write({"fileTable": dict.fromkeys((b"/%06d" % one for one in range(ROWS)), b"")})
    store.checkpoint("flushed")
    store.remove_checkpoint("flushed")
    store.compact_at_rest(0)
    store.trim_checkpoints(100)
    before = store.checkpoint_sizes()[1]
    assert before > 20 * ROWS, "the checkpoints alone have the first rows"
    while store.defragment(everything, at_once):
        pass
    assert store.checkpoint_sizes()[1] <= before
    store.close()


def test_who_reads_the_old_files_goes_on(tmp_path: Path) -> None:
    store = fragmented(tmp_path)
    before = content(store)
    view = store.open_checkpoint("kept")
    scan = view.scan("fileTable", b"", BEYOND)
    first = next(scan)
    assert store.defragment(everything, at_once)
    assert content(store) == before
    rest = {("fileTable", key): value for key, value in (first, *scan)}
    assert rest == {at: value for at, value in before.items() if at[0] == "fileTable"}
    assert names_in(tmp_path) == ["kept", "kept+2"]
    view.close()
    assert len([name for name in names_in(tmp_path) if not name.startswith(".")]) == 1
    store.close()


def test_a_checkpoint_that_is_removed_meanwhile_stays_removed(tmp_path: Path) -> None:
    store = fragmented(tmp_path)

    def removed_now(_: int) -> bool:
        store.remove_checkpoint("kept")
        return True

    assert store.defragment(everything, removed_now) is None
    assert store.checkpoints() == []
    store.trim_checkpoints()
    assert names_in(tmp_path) == []
    store.close()


def test_one_that_is_made_again_meanwhile_is_not_replaced_by_the_earlier_rows(tmp_path: Path) -> None:
    store = fragmented(tmp_path)
    store.write({"keyTable": {b"/new": b"1"}})

    def made_again(_: int) -> bool:
        if ("keyTable", b"/new") not in content(store):
            store.remove_checkpoint("kept")
            store.checkpoint("kept")
        return True

    store.defragment(everything, made_again)
    assert ("keyTable", b"/new") in content(store)
    store.close()


def test_a_stop_leaves_everything_as_it_was(tmp_path: Path) -> None:
    store = fragmented(tmp_path)
    before = content(store)
    assert store.defragment(everything, lambda _: False) is None
    assert names_in(tmp_path) == ["kept"]
    assert content(store) == before
    store.close()


def test_a_backup_and_a_copy_have_the_rewritten_rows(tmp_path: Path) -> None:
    store = fragmented(tmp_path / "store")
    before = content(store)
    assert store.defragment(everything, at_once)
    store.back_up_to(tmp_path / "backup")
    store.copy_checkpoint("kept", tmp_path / "backup" / "checkpoints" / "copied")
    store.close()
    copy = RocksCopy(tmp_path / "backup", FAMILIES, CHECKPOINTED)
    for name in ("kept", "copied"):
        with closing(copy.open_checkpoint(name)) as view:
            for family in CHECKPOINTED:
                expected = {key: row for (table, key), row in before.items() if table == family}
                assert dict(view.scan(family, b"", BEYOND)) == expected
    copy.close()


STEPS: dict[str, tuple[Any, str]] = {
    "rows are copied": (defragmentation, "islice"),
    "all rows are copied": (Checkpoints, "replace"),
    "a name is on disk": (rocks_checkpoints, "sync_directory"),
    "it has its place": (Checkpoints, "_mark_removed"),
    "the old one is removed": (Checkpoints, "release"),
    "the old one is deleted": (shutil, "rmtree"),
}
"""Functions that are called at each step."""


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_leaves_the_rows(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the disk has at each step, as the next start finds it."""
    store = fragmented(tmp_path / "store")
    before, images = content(store), list[Path]()
    owner, name = STEPS[step]
    called = getattr(owner, name)

    def imaged(*arguments: Any, **options: Any) -> Any:
        _image(tmp_path, images)
        return called(*arguments, **options)

    monkeypatch.setattr(owner, name, imaged)
    assert store.defragment(everything, at_once)
    monkeypatch.undo()
    store.close()
    assert images
    for image in images:
        again = opened(image)
        assert again.checkpoints() == ["kept"]
        assert content(again) == before
        assert names_in(image) == ["kept"]
        again.close()


def _image(directory: Path, images: list[Path]) -> None:
    images.append(directory / f"image-{len(images)}")
    shutil.copytree(directory / "store", images[-1])


def test_the_newest_checkpoint_shares_the_files_of_a_merge_at_rest(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for version in range(3):
        store.write({"fileTable": {b"/%06d" % one: b"%d/%06d" % (version, one) for one in range(ROWS)}})
        store.checkpoint(f"{version}")
    before = content(store, "2")
    assert store.compact_at_rest(3_600) == [], "it was written a moment ago"
    assert "fileTable" in store.compact_at_rest(0)
    assert content(store, "2") == before
    with closing(store.open_checkpoint("2")) as view:
        files = {file.stat().st_ino for file in view.path.glob("*.sst")}
    assert files & {file.stat().st_ino for file in store.path.glob("*.sst")} == files
    store.close()
    assert content(opened(tmp_path), "2") == before


def test_a_checkpoint_is_not_made_again_from_later_rows(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for version in range(3):
        store.write({"fileTable": {b"/%06d" % one: b"%d/%06d" % (version, one) for one in range(ROWS)}})
        store.checkpoint(f"{version}")
    before = content(store, "2")
    store.write({"fileTable": {b"/later": b"1"}})
    assert "fileTable" in store.compact_at_rest(0)
    assert content(store, "2") == before
    store.close()


def test_a_checkpoint_that_was_there_already_is_not_made_again_at_rest(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for version in range(3):
        store.write({"fileTable": {b"/%06d" % one: b"%d/%06d" % (version, one) for one in range(ROWS)}})
        store.checkpoint("first")
        store.checkpoint(f"{version}")
    store.checkpoint("first")
    assert "fileTable" in store.compact_at_rest(0)
    assert content(store, "first")["fileTable", b"/000000"] == b"0/000000"
    store.close()


def test_a_checkpoint_is_not_made_again_from_a_write_beside_its_making(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A diff makes one beside the writer."""
    store, make = opened(tmp_path), Checkpoints.make

    def written_then(self: Checkpoints, name: str, database: Any) -> bool:
        is_made = make(self, name, database)
        store.write({"fileTable": {b"/during": b"1"}})
        return is_made

    for version in range(3):
        store.write({"fileTable": {b"/%06d" % one: b"%d/%06d" % (version, one) for one in range(ROWS)}})
        store.checkpoint(f"{version}")
    store.write({"fileTable": {b"/before": b"1"}})
    monkeypatch.setattr(Checkpoints, "make", written_then)
    store.checkpoint("diff-1")
    assert "fileTable" in store.compact_at_rest(0)
    assert ("fileTable", b"/before") in content(store, "diff-1")
    assert ("fileTable", b"/during") not in content(store, "diff-1")
    store.close()


def test_reads_and_removals_go_on_beside_the_rewriting(tmp_path: Path) -> None:
    store = fragmented(tmp_path)
    before = content(store)
    inside, may_go_on = threading.Event(), threading.Event()

    def waiting(_: int) -> bool:
        inside.set()
        return may_go_on.wait(30)

    beside = threading.Thread(target=store.defragment, args=(everything, waiting))
    beside.start()
    assert inside.wait(30)
    store.write({"fileTable": {b"/a/during": b"1"}})
    store.checkpoint("during")
    store.remove_checkpoint("during")
    assert content(store) == before
    may_go_on.set()
    beside.join()
    assert content(store) == before
    store.close()


def test_the_manifest_in_a_checkpoint_does_not_grow_with_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks_options, "MANIFEST_BYTES", 4_096)
    store = opened(tmp_path)
    for number in range(150):
        store.write({"fileTable": {b"/%d" % number: b"1"}})
        store.checkpoint(f"{number}")
    with closing(store.open_checkpoint("149")) as view:
        assert sum(file.stat().st_size for file in view.path.glob("MANIFEST-*")) < 2 * 4_096
    store.close()
