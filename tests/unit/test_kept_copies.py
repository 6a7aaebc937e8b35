"""Copies of a database for backups: bounded, of one moment, whole or not there, and gone when nobody wants them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import nullcontext
from pathlib import Path

import pytest

from schemas.records import CountRow
from services.plane.machine.errors import StackError
from services.plane.machine.processes import identify
from services.plane.stack.plane_file import PlaneFile, PlaneState
from services.plane.upkeep import backups
from services.runtime.copies.asked_copies import AskedCopies
from services.runtime.copies.kept_copies import KeptCopies
from services.runtime.http.reads import ReadError
from services.storage.rocks import RocksStore
from services.storage.rocks_backups import copy_files
from services.storage.tables import TableDefinition

KEPT_SECONDS, PATIENCE_SECONDS = 3_600, 30.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    opened = RocksStore(tmp_path / "db", (TableDefinition("one", CountRow),))
    opened.write({"one": {b"key": b"row"}})
    yield opened
    opened.close()


@pytest.fixture
def kept(tmp_path: Path) -> KeptCopies:
    return KeptCopies(tmp_path / "copies", KEPT_SECONDS)


def made(copies: AskedCopies, store: RocksStore, name: str) -> Path:
    """What who asks gets, with a writer that comes round at once."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(copies.ask, name, PATIENCE_SECONDS)
        while not asked.done():
            copies.make_next(store)
        return asked.result()


def test_a_copy_waits_until_the_database_may_be_copied(store: RocksStore, kept: KeptCopies) -> None:
    copies, answers = AskedCopies(kept, max_copies=1), iter([False, False, True])
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(copies.ask, "copy", PATIENCE_SECONDS)
        while not asked.done():
            copies.make_next(store, lambda: next(answers))
        assert asked.result().is_dir()
    assert next(answers, None) is None


def grow_old(copy: Path) -> None:
    then = copy.stat().st_mtime - KEPT_SECONDS - 60
    os.utime(copy, (then, then))


def test_so_many_copies_may_be_kept_and_no_more(store: RocksStore, kept: KeptCopies) -> None:
    copies = AskedCopies(kept, max_copies=2)
    first, second = made(copies, store, "first"), made(copies, store, "second")
    assert first.is_dir()
    assert second == kept.directory / "second"
    with pytest.raises(ReadError, match="has 2 copies in use") as caught:
        made(copies, store, "third")
    assert caught.value.code == "TOO_MANY_COPIES"
    assert "DEEPCLEAN_MAX_COPIES is 2" in str(caught.value)
    with pytest.raises(ReadError) as caught:
        made(copies, store, "first")
    assert caught.value.code == "COPY_EXISTS"
    assert kept.remove("first")
    assert not kept.remove("first")
    assert made(copies, store, "third").is_dir()


def test_a_copy_that_is_too_old_makes_room(store: RocksStore, kept: KeptCopies) -> None:
    copies = AskedCopies(kept, max_copies=1)
    forgotten = made(copies, store, "forgotten")
    with pytest.raises(ReadError):
        made(copies, store, "next")
    grow_old(forgotten)
    assert made(copies, store, "next").is_dir()
    assert not forgotten.exists()


def test_old_copies_go_and_young_ones_and_what_is_being_made_stay(kept: KeptCopies) -> None:
    for name in ("old", "young", ".making-old"):
        (kept.directory / name / "db").mkdir(parents=True)
    grow_old(kept.directory / "old")
    grow_old(kept.directory / ".making-old")
    kept.remove_old()
    assert sorted(left.name for left in kept.directory.iterdir()) == [".making-old", "young"]
    kept.remove_all()
    assert not kept.directory.exists()
    kept.remove_old()


def test_a_copy_that_goes_is_missed_as_a_whole(store: RocksStore, kept: KeptCopies, tmp_path: Path) -> None:
    """Files that went one by one would leave less than the whole to who reads the directory just then."""
    copies = AskedCopies(kept, max_copies=1)
    copy = made(copies, store, "copy")
    seen: list[bool] = []
    rename = Path.rename

    def watched(source: Path, target: Path) -> Path:
        seen.append((source / "db" / "CURRENT").exists())
        moved = rename(source, target)
        seen.append(source.exists())
        return moved

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", watched)
        kept.remove("copy")
    assert seen == [True, False]
    assert not list(kept.directory.iterdir())
    with pytest.raises(FileNotFoundError):
        copy_files(copy, tmp_path / "backup")


def test_a_client_that_has_left_leaves_no_copy(store: RocksStore, kept: KeptCopies) -> None:
    copies = AskedCopies(kept, max_copies=1)
    with pytest.raises(FutureTimeoutError):
        copies.ask("late", 0.01)
    copies.make_next(store)
    assert not kept.directory.exists()


def test_a_copy_that_is_made_too_late_is_removed(
    store: RocksStore, kept: KeptCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer has begun with it when who asked gives up."""
    copies = AskedCopies(kept, max_copies=1)
    begun, gave_up = threading.Event(), threading.Event()
    back_up = store.back_up_to

    def slow(target: Path) -> None:
        begun.set()
        assert gave_up.wait(PATIENCE_SECONDS)
        back_up(target)

    monkeypatch.setattr(store, "back_up_to", slow)
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(copies.ask, "late", 0.5)

        def write() -> None:
            while not begun.is_set():
                copies.make_next(store)

        writer = pool.submit(write)
        assert isinstance(asked.exception(PATIENCE_SECONDS), FutureTimeoutError)
        gave_up.set()
        writer.result(PATIENCE_SECONDS)
    assert not list(kept.directory.iterdir())


def test_a_backup_removes_what_others_of_its_kind_have_left_and_nothing_else(tmp_path: Path) -> None:
    copies = tmp_path / "data" / "metadata" / "0" / "copies"
    for name in (f"{backups.COPY_PREFIX}20260101T000000-000000Z", "digest-17"):
        (copies / name / "db").mkdir(parents=True)
    backups._remove_what_was_cut_off(tmp_path, 1, tmp_path / "backups")
    assert [left.name for left in copies.iterdir()] == ["digest-17"]


def test_a_backup_whose_copy_went_says_so(
    tmp_path: Path, store: RocksStore, kept: KeptCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = made(AskedCopies(kept, max_copies=1), store, "copy")

    def went(source: Path, target: Path, **_: object) -> None:
        kept.remove(source.name)
        copy_files(source, target)

    monkeypatch.setattr(backups, "copy_files", went)
    monkeypatch.setattr(backups, "copy_of_running", lambda *_: nullcontext(copy))
    plane = PlaneFile(PlaneState.RUNNING, str(tmp_path), 1, identify(os.getpid()))
    making = backups._Making(plane, tmp_path / "backup", "one", {}, False, lambda _: None)
    with pytest.raises(StackError, match=r"was removed while the backup read it.*Back up again"):
        making.copy("metadata", 0)
