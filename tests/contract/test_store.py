"""One suite for every store: what services rely on holds on disk as it does in memory."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from schemas.codec import codec
from schemas.records import DeletedNameRow, KeyRow, PositionRow
from schemas.stored_rows import row_codec
from services.storage import rocks_views
from services.storage.memory import MemoryStore
from services.storage.rocks import FEWEST_IN_PARTS, RocksStore
from services.storage.rocks_backups import RocksCopy
from services.storage.rocks_checkpoints import Checkpoints
from services.storage.rocks_options import MEBIBYTE, RocksOptions
from services.storage.rocks_views import store_error
from services.storage.store import Batch, Reader, Store, StoreError, prefix_end
from services.storage.tables import RowCache, TableDefinition, TablesReader, UnitOfWork

FILES = TableDefinition("fileTable", KeyRow, prefix_separators=4)
KEYS = TableDefinition("keyTable", KeyRow, prefix_separators=3)
OUTBOX = TableDefinition("outbox", PositionRow)
FAMILIES = (FILES, KEYS, OUTBOX)
CHECKPOINTED = frozenset({"fileTable", "keyTable"})
BEYOND = b"\xff" * 9

OpenStore = Callable[[], Store]


def open_rocks(directory: Path) -> RocksStore:
    return RocksStore(directory / "db", FAMILIES, CHECKPOINTED)


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened: Store = MemoryStore(CHECKPOINTED) if request.param == "memory" else open_rocks(tmp_path)
    yield opened
    opened.close()


def rows(store: Store, family: str = "fileTable") -> dict[bytes, bytes]:
    return dict(store.scan(family, b"", BEYOND))


def test_a_batch_changes_every_family_at_once(store: Store) -> None:
    store.write({"fileTable": {b"/a": b"1", b"/b": b"2"}, "outbox": {b"\x00": b"message"}})
    store.write({"fileTable": {b"/a": None, b"/b": b"3"}, "outbox": {b"\x00": None, b"\x01": b""}})
    assert rows(store) == {b"/b": b"3"}
    assert rows(store, "outbox") == {b"\x01": b""}
    assert store.get("fileTable", b"/a") is None
    assert store.get("fileTable", b"/b") == b"3"
    assert store.get("outbox", b"\x01") == b""


def test_many_keys_are_looked_up_in_their_order(store: Store) -> None:
    store.write({"fileTable": {b"/a": b"1", b"/b": b"2"}})
    assert store.get_many("fileTable", [b"/b", b"/c", b"/a", b"", b"/b"]) == [b"2", None, b"1", None, b"2"]
    assert store.get_many("fileTable", []) == []
    assert store.get_many("noTable", [b"/a", b"/b"]) == [None, None]


@pytest.mark.parametrize("count", [0, 1, FEWEST_IN_PARTS - 1, FEWEST_IN_PARTS, 2_000])
def test_many_keys_are_looked_up_part_by_part_in_their_order(store: Store, count: int) -> None:
    keys = [b"/%05d" % number for number in range(count)]
    store.write({"fileTable": {key: key for key in keys[::3]}})
    parts = list(store.get_in_parts("fileTable", keys))
    assert [value for part in parts for value in part] == store.get_many("fileTable", keys)
    assert [value for part in store.get_in_parts("noTable", keys) for value in part] == [None] * count


def _many_keys(tmp_path: Path) -> tuple[RocksStore, list[bytes]]:
    """A store with so many keys that they are looked up in parts; each is its own value."""
    store = open_rocks(tmp_path)
    keys = [b"/%05d" % number for number in range(FEWEST_IN_PARTS)]
    store.write({"fileTable": {key: key for key in keys}})
    return store, keys


def _held_look_ups(store: RocksStore, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Look-ups of other threads say that they begin, and wait until they may go on."""
    is_begun, go_on, look_up, caller = threading.Event(), threading.Event(), store.get_many, threading.get_ident()

    def get_many(family: str, asked: list[bytes]) -> list[bytes | None]:
        if threading.get_ident() != caller:
            is_begun.set()
            assert go_on.wait(60)
        return look_up(family, asked)

    monkeypatch.setattr(store, "get_many", get_many)
    return is_begun, go_on


def test_the_first_values_are_there_while_others_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, keys = _many_keys(tmp_path)
    is_begun, go_on = _held_look_ups(store, monkeypatch)
    parts = store.get_in_parts("fileTable", keys)
    first = next(parts)
    assert first
    assert first == keys[: len(first)]
    assert is_begun.wait(60)
    go_on.set()
    assert next(parts) == keys[len(first) :]
    assert next(parts, None) is None
    store.close()


def test_without_another_thread_the_caller_looks_everything_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    store, keys = _many_keys(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        assert list(store.get_in_parts("fileTable", keys)) == [keys]
    store.close()


def test_a_look_up_that_fails_beside_is_an_error_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, keys = _many_keys(tmp_path)
    look_up, caller = store.get_many, threading.get_ident()

    def get_many(family: str, asked: list[bytes]) -> list[bytes | None]:
        if threading.get_ident() != caller:
            raise StoreError("its disk is broken")
        return look_up(family, asked)

    monkeypatch.setattr(store, "get_many", get_many)
    table = UnitOfWork(store, RowCache()).table(FILES)
    table.read_ahead(keys)
    with pytest.raises(StoreError, match="its disk is broken"):
        table.get_encoded(keys[-1])
    store.close()


def test_closing_waits_for_what_is_being_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, keys = _many_keys(tmp_path)
    is_begun, go_on = _held_look_ups(store, monkeypatch)
    parts = store.get_in_parts("fileTable", keys)
    first = next(parts)
    assert is_begun.wait(60)
    closing = threading.Thread(target=store.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    go_on.set()
    closing.join(60)
    assert not closing.is_alive()
    assert next(parts) == keys[len(first) :]
    with pytest.raises(StoreError, match="closed"):
        next(store.get_in_parts("fileTable", keys))


def test_what_was_read_ahead_is_as_old_as_the_unit_of_work(store: Store) -> None:
    names = TableDefinition("fileTable", DeletedNameRow)
    mark = row_codec(DeletedNameRow).mark
    store.write({"fileTable": {b"/a": mark + b"1", b"/b": mark + b"2"}})
    work = UnitOfWork(store, RowCache())
    table = work.table(names)
    table.put_encoded(b"/b", b"3")
    table.read_ahead([b"/a", b"/b", b"/c"])
    assert [table.get_encoded(key) for key in (b"/a", b"/b", b"/c")] == [b"1", b"3", None]
    work.begin_message()
    table.delete(b"/a")
    table.put_encoded(b"/c", b"4")
    assert [table.get_encoded(key) for key in (b"/a", b"/b", b"/c")] == [None, b"3", b"4"]
    work.undo_message()
    assert [table.get_encoded(key) for key in (b"/a", b"/b", b"/c")] == [b"1", b"3", None]
    work.write()
    assert UnitOfWork(store, RowCache()).table(names).get_encoded(b"/b") == b"3"


def test_a_unit_of_work_sees_every_row_that_it_reads_ahead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (PositionRow("topic", "id", next_offset) for next_offset in (1, 2))
    encode, stored = codec(PositionRow).encode, row_codec(PositionRow).encode
    keys = [b"/%05d" % number for number in range(3 * FEWEST_IN_PARTS)]
    store.write({"outbox": {key: stored(before) for key in keys[::2]}})
    expected = [encode(before), None] * (len(keys) // 2)
    table = UnitOfWork(store, RowCache()).table(OUTBOX)
    table.put(keys[-1], after)
    assert table.get_encoded(b"/none of them") is None
    table.read_ahead([*keys[:-FEWEST_IN_PARTS], keys[0]])  # a key may be asked for twice
    table.read_ahead(keys[-FEWEST_IN_PARTS:])  # more may be read ahead before all of the first are there
    singly: list[bytes] = []
    if isinstance(store, RocksStore):  # in memory many are looked up one by one
        monkeypatch.setattr(store, "get", lambda _, key: singly.append(key))
    assert [table.get_encoded(key) for key in reversed(keys)] == [encode(after), *reversed(expected[:-1])]
    assert not singly


def test_a_question_looks_each_row_up_once(store: Store) -> None:
    before, after = (PositionRow("topic", "id", next_offset) for next_offset in (1, 2))
    store.write({"outbox": {b"/a": row_codec(PositionRow).encode(before)}})
    outbox = TablesReader(store).looking_up_once().table(OUTBOX)
    assert (outbox.get(b"/a"), outbox.get(b"/b")) == (before, None)
    store.write({"outbox": {b"/a": None, b"/b": row_codec(PositionRow).encode(after)}})
    assert (outbox.get(b"/a"), outbox.get(b"/b")) == (before, None)  # neither was looked up again
    assert list(outbox.scan(b"", BEYOND)) == [(b"/b", after)]


def test_removing_what_is_not_there_does_nothing(store: Store) -> None:
    store.write({"fileTable": {b"/a": None}})
    store.write({})
    assert rows(store) == {}


def test_keys_are_in_the_order_of_their_bytes(store: Store) -> None:
    keys = [b"/", b"/\x00", b"/1/2", b"/1/20", b"/1/2/", b"/a", "/é".encode(), b"\xff\xff"]
    store.write({"fileTable": dict.fromkeys(keys, b"x")})
    assert [key for key, _ in store.scan("fileTable", b"", BEYOND)] == sorted(keys)


def test_a_scan_includes_its_start_and_not_its_end(store: Store) -> None:
    store.write({"fileTable": {b"/%d" % number: b"x" for number in range(5)}})
    assert [key for key, _ in store.scan("fileTable", b"/1", b"/3")] == [b"/1", b"/2"]
    assert list(store.scan("fileTable", b"/3", b"/3")) == []
    assert list(store.scan("fileTable", b"/4", b"/1")) == []


def test_a_prefix_scan_includes_no_longer_name(store: Store) -> None:
    store.write({"fileTable": {b"/1/b1/x": b"1", b"/1/b10/x": b"2", b"/1/b1/y": b"3", b"/1/b": b"4"}})
    found = list(store.scan("fileTable", b"/1/b1/", prefix_end(b"/1/b1/")))
    assert found == [(b"/1/b1/x", b"1"), (b"/1/b1/y", b"3")]


def test_a_scan_leaves_nothing_out_across_prefixes(store: Store) -> None:
    """Written out to files and left in memory, from a start that is shorter than any prefix."""
    expected = []
    for part, (bucket, parent) in enumerate(itertools.product(range(30), range(10))):
        batch = {b"/%d/%d/%d/name-%d" % (1 << 8, bucket << 8, parent << 8, name): b"x" for name in range(3)}
        store.write({"fileTable": batch})
        expected += list(batch)
        if part in (90, 210):
            store.checkpoint(f"after-{part}")  # writes the memtables out
    assert [key for key, _ in store.scan("fileTable", b"/", b"0")] == sorted(expected)
    for bucket in range(30):
        prefix = b"/%d/%d/" % (1 << 8, bucket << 8)
        found = [key for key, _ in store.scan("fileTable", prefix, prefix_end(prefix))]
        assert found == sorted(key for key in expected if key.startswith(prefix))


def test_a_scan_holds_on_to_its_end(store: Store) -> None:
    """RocksDB reads the upper bound from the memory that it was given: nobody else may get that memory."""
    store.write({"fileTable": {b"/%04d" % number: b"x" for number in range(1_000)}})
    scan = store.scan("fileTable", b"/", bytes(bytearray(b"/0900")))
    others = [bytes(bytearray(b"/05%02d" % (number % 100))) for number in range(1_000)]
    assert len(list(scan)) == 900
    assert len(others) == 1_000


def test_a_scan_goes_on_while_rows_are_written(store: Store) -> None:
    store.write({"fileTable": {b"/%04d" % number: b"x" for number in range(2_000)}})
    seen = []
    for key, _ in store.scan("fileTable", b"/", b"/1000"):
        seen.append(key)
        if len(seen) == 1:
            store.write({"fileTable": {b"/0500a": b"new", b"/3000": b"new"}})
    assert [key for key in seen if key != b"/0500a"] == [b"/%04d" % number for number in range(1_000)]


def test_a_checkpoint_does_not_change(store: Store) -> None:
    store.write({"fileTable": {b"/a": b"1", b"/b": b"2"}})
    store.checkpoint("first")
    store.write({"fileTable": {b"/a": b"9", b"/b": None, b"/c": b"3"}})
    store.checkpoint("second")
    store.write({"fileTable": {b"/a": None}})
    first, second = store.open_checkpoint("first"), store.open_checkpoint("second")
    assert dict(first.scan("fileTable", b"", BEYOND)) == {b"/a": b"1", b"/b": b"2"}
    assert first.get("fileTable", b"/c") is None
    assert dict(second.scan("fileTable", b"", BEYOND)) == {b"/a": b"9", b"/c": b"3"}
    assert second.get("fileTable", b"/a") == b"9"
    first.close()
    second.close()


def test_a_checkpoint_that_is_there_is_left_as_it_is(store: Store) -> None:
    store.write({"fileTable": {b"/a": b"1"}})
    store.checkpoint("once")
    store.write({"fileTable": {b"/a": b"2"}})
    store.checkpoint("once")
    view = store.open_checkpoint("once")
    assert view.get("fileTable", b"/a") == b"1"
    view.close()


def test_a_checkpoint_keeps_only_the_families_that_it_should(store: Store) -> None:
    store.write({"fileTable": {b"/a": b"1"}, "outbox": {b"/a": b"1"}})
    store.checkpoint("kept")
    view = store.open_checkpoint("kept")
    assert view.get("outbox", b"/a") is None
    assert list(view.scan("outbox", b"", BEYOND)) == []
    assert view.get("fileTable", b"/a") == b"1"
    view.close()


def test_checkpoints_are_listed_and_removed_by_name(store: Store) -> None:
    names = ["2b1c-77", "a.b", "../up", "ü/x", ".hidden"]
    for name in names:
        store.checkpoint(name)
    assert store.checkpoints() == sorted(names)
    store.remove_checkpoint("../up")
    store.remove_checkpoint("never there")
    assert store.checkpoints() == sorted(set(names) - {"../up"})
    with pytest.raises(KeyError):
        store.open_checkpoint("../up")


def test_a_recreated_checkpoint_outlives_the_readers_of_the_removed_one(store: Store) -> None:
    """A take that is applied again, while somebody looks into the checkpoint of its first time."""
    views = []
    for value in (b"1", b"2", b"3"):
        store.write({"fileTable": {b"/a": value}})
        store.remove_checkpoint("again")
        store.checkpoint("again")
        assert store.checkpoints() == ["again"]
        views.append(store.open_checkpoint("again"))
    assert [view.get("fileTable", b"/a") for view in views] == [b"1", b"2", b"3"]
    for view in views:
        view.close()
        assert store.checkpoints() == ["again"]
        newest = store.open_checkpoint("again")
        assert list(newest.scan("fileTable", b"", BEYOND)) == [(b"/a", b"3")]
        newest.close()
    store.remove_checkpoint("again")
    assert store.checkpoints() == []
    with pytest.raises(KeyError):
        store.open_checkpoint("again")


@dataclass(frozen=True, slots=True)
class Held:
    """A view of a checkpoint that stays open, and what it has to show."""

    view: Reader
    rows: dict[bytes, bytes]
    reopened: int
    """How often the store had been opened anew."""


class StoreAgainstDict(RuleBasedStateMachine):
    """Any sequence of writes, checkpoints, readers that stay and reopenings, against plain dicts."""

    kept = Bundle("kept")
    held = Bundle("held")
    keys = st.one_of(
        st.builds(b"/%d/%d/%d/%s".__mod__, st.tuples(*[st.integers(0, 300)] * 3, st.binary(max_size=3))),
        st.binary(min_size=1, max_size=6),
    )

    def open_store(self) -> Store:
        raise NotImplementedError

    def reopen(self) -> None:
        """Nothing to do for a store that cannot be closed."""

    @initialize()
    def start(self) -> None:
        self.model: dict[str, dict[bytes, bytes]] = {"fileTable": {}, "outbox": {}}
        self.kept_models: dict[str, dict[bytes, bytes]] = {}
        self.made = self.reopened = 0
        self.store = self.open_store()

    @rule(
        family=st.sampled_from(["fileTable", "outbox"]),
        changes=st.dictionaries(keys, st.one_of(st.none(), st.binary(max_size=4)), min_size=1, max_size=12),
    )
    def write(self, family: str, changes: dict[bytes, bytes | None]) -> None:
        batch: Batch = {family: changes}
        self.store.write(batch)
        for key, value in changes.items():
            if value is None:
                self.model[family].pop(key, None)
            else:
                self.model[family][key] = value

    @rule(target=kept)
    def checkpoint(self) -> str:
        self.made += 1
        name = f"checkpoint-{self.made}"
        self.store.checkpoint(name)
        self.kept_models[name] = dict(self.model["fileTable"])
        return name

    @rule(name=kept)
    def look_into(self, name: str) -> None:
        if name not in self.kept_models:
            with pytest.raises(KeyError):
                self.store.open_checkpoint(name)
            return
        view = self.store.open_checkpoint(name)
        assert list(view.scan("fileTable", b"", BEYOND)) == sorted(self.kept_models[name].items())
        view.close()

    @rule(name=kept)
    def remove(self, name: str) -> None:
        self.store.remove_checkpoint(name)
        if name in self.kept_models:
            del self.kept_models[name]

    @rule(name=kept)
    def recreate(self, name: str) -> None:
        self.store.remove_checkpoint(name)
        self.store.checkpoint(name)
        self.kept_models[name] = dict(self.model["fileTable"])

    @rule(target=held, name=kept)
    def hold(self, name: str) -> MultipleResults[Held]:
        if name not in self.kept_models:
            return multiple()
        return multiple(Held(self.store.open_checkpoint(name), self.kept_models[name], self.reopened))

    @rule(held=consumes(held))
    def let_go(self, held: Held) -> None:
        if held.reopened == self.reopened:  # else it was closed with its store
            assert list(held.view.scan("fileTable", b"", BEYOND)) == sorted(held.rows.items())
            held.view.close()

    @rule()
    def open_again(self) -> None:
        self.reopen()

    @rule(start=keys, end=keys)
    def scan(self, start: bytes, end: bytes) -> None:
        expected = sorted((key, value) for key, value in self.model["fileTable"].items() if start <= key < end)
        assert list(self.store.scan("fileTable", start, end)) == expected

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        assert self.store.get("fileTable", key) == self.model["fileTable"].get(key)

    @invariant()
    def holds_all(self) -> None:
        if hasattr(self, "store"):
            for family, expected in self.model.items():
                assert list(self.store.scan(family, b"", BEYOND)) == sorted(expected.items())
            assert self.store.checkpoints() == sorted(self.kept_models)


class MemoryAgainstDict(StoreAgainstDict):
    def open_store(self) -> Store:
        return MemoryStore(CHECKPOINTED)


class RocksAgainstDict(StoreAgainstDict):
    directory: Path

    def open_store(self) -> Store:
        self.directory = Path(tempfile.mkdtemp(prefix="deepclean-store-"))
        return open_rocks(self.directory)

    def reopen(self) -> None:
        self.store.close()
        self.store = open_rocks(self.directory)
        self.reopened += 1

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.store.close()
            shutil.rmtree(self.directory)


_few = settings(max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))
TestMemoryAgainstDict = MemoryAgainstDict.TestCase
TestRocksAgainstDict = RocksAgainstDict.TestCase
TestMemoryAgainstDict.settings = TestRocksAgainstDict.settings = _few


# What only a database on disk has to promise.


def test_a_reading_view_stands_still(tmp_path: Path) -> None:
    store = open_rocks(tmp_path)
    store.write({"fileTable": {b"/a": b"1", b"/b": b"2"}, "outbox": {b"/a": b"1"}})
    view = store.reading()
    store.write({"fileTable": {b"/a": b"9", b"/b": None, b"/c": b"3"}, "outbox": {b"/a": b"9"}})
    assert view.get("fileTable", b"/a") == b"1"
    assert view.get("fileTable", b"/c") is None
    assert view.get("outbox", b"/a") == b"1"
    assert dict(view.scan("fileTable", b"", BEYOND)) == {b"/a": b"1", b"/b": b"2"}
    view.close()
    with pytest.raises(StoreError):
        view.get("fileTable", b"/a")
    store.close()


def test_a_reading_view_finds_what_was_there_below_what_is_flushed_and_merged(tmp_path: Path) -> None:
    store = open_rocks(tmp_path)
    store.write({"fileTable": {b"/a": b"1", b"/b": b"1"}})
    store.checkpoint("flushed")
    view = store.reading()
    store.write({"fileTable": {b"/a": b"2", b"/b": None, b"/c": b"2"}})
    store.checkpoint("flushed too")
    store._database.get_column_family("fileTable").compact_range(None, None)
    assert [view.get("fileTable", key) for key in (b"/a", b"/b", b"/c")] == [b"1", b"1", None]
    assert [store.get("fileTable", key) for key in (b"/a", b"/b", b"/c")] == [b"2", None, b"2"]
    assert store._database.property_int_value("rocksdb.num-snapshots")
    view.close()
    assert not store._database.property_int_value("rocksdb.num-snapshots")
    with pytest.raises(StoreError, match="was closed"):
        view.get("fileTable", b"/a")
    store.close()


def test_views_see_whole_batches_while_a_writer_goes_on(tmp_path: Path) -> None:
    store = open_rocks(tmp_path)
    store.write({"fileTable": {b"/n": b"0"}, "keyTable": {b"/n": b"0"}, "outbox": {b"/n": b"0"}})
    stop = threading.Event()
    seen: list[set[bytes | None]] = []

    def read() -> None:
        while not stop.is_set():
            view = store.reading()
            seen.append({view.get(family.name, b"/n") for family in FAMILIES})
            seen.append({value for family in FAMILIES for _, value in view.scan(family.name, b"/", b"0")})
            view.close()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(300):
        store.write({family.name: {b"/n": b"%d" % number} for family in FAMILIES})
    stop.set()
    for reader in readers:
        reader.join()
    store.close()
    assert seen
    assert all(len(values) == 1 for values in seen)


def test_everything_is_there_after_closing_and_opening(tmp_path: Path) -> None:
    store = open_rocks(tmp_path)
    store.write({"fileTable": {b"/a": b"1"}, "outbox": {b"/b": b"2"}})
    store.checkpoint("kept")
    store.close()
    store = open_rocks(tmp_path)
    assert rows(store) == {b"/a": b"1"}
    assert rows(store, "outbox") == {b"/b": b"2"}
    assert store.checkpoints() == ["kept"]
    store.close()


CRASHING_WRITER = """
import os, sys
from pathlib import Path
from typing import Any
from tests.contract.test_store import open_rocks
store = open_rocks(Path(sys.argv[1]))
for number in range(50):
    store.write({"fileTable": {b"/%03d" % number: b"x" * 100}, "outbox": {b"last": b"%d" % number}})
    if number == 20:
        store.checkpoint("kept")
os.kill(os.getpid(), 9)
"""


def test_a_killed_process_loses_nothing_that_was_written(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", CRASHING_WRITER, str(tmp_path)], check=False)
    assert ended.returncode == -9
    store = open_rocks(tmp_path)
    assert list(rows(store)) == [b"/%03d" % number for number in range(50)]
    assert store.get("outbox", b"last") == b"49"
    view = store.open_checkpoint("kept")
    assert len(list(view.scan("fileTable", b"/", b"0"))) == 21
    view.close()
    store.close()


def test_half_made_and_half_removed_checkpoints_are_removed_at_a_start(tmp_path: Path) -> None:
    store = open_rocks(tmp_path)
    store.write({"fileTable": {b"/a": b"1"}})
    for name in ("whole", "making", "removing"):
        store.checkpoint(name)
    store.close()
    checkpoints = tmp_path / "checkpoints"
    (checkpoints / "making").rename(checkpoints / ".making-making")
    (checkpoints / ".making-making" / "CURRENT").unlink()
    (checkpoints / "removing").rename(checkpoints / ".removing-removing")
    store = open_rocks(tmp_path)
    assert store.checkpoints() == ["whole"]
    assert [path.name for path in checkpoints.iterdir()] == ["whole"]
    store.checkpoint("making")
    view = store.open_checkpoint("making")
    assert view.get("fileTable", b"/a") == b"1"
    view.close()
    store.close()


def test_the_writer_does_not_wait_for_a_checkpoint_that_is_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_rocks(tmp_path)
    store.checkpoint("slow")
    store.checkpoint("dropped")
    begun, may_go_on, open_handle = threading.Event(), threading.Event(), Checkpoints._open

    def slow_open(self: Checkpoints, path: Path) -> Any:
        begun.set()
        assert may_go_on.wait(30)
        return open_handle(self, path)

    monkeypatch.setattr(Checkpoints, "_open", slow_open)
    house = threading.Thread(target=store.trim_checkpoints)
    house.start()
    assert begun.wait(30)
    store.checkpoint("taken")
    store.remove_checkpoint("dropped")
    assert sorted(store.checkpoints()) == ["slow", "taken"]
    may_go_on.set()
    house.join()
    assert [path.parent.name for path in (tmp_path / "checkpoints").glob("*/TRIMMED")]
    store.close()


def test_removed_checkpoints_do_not_pile_up_without_a_clean_up_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.storage.rocks_checkpoints.MOST_LEFT", 2)
    store = open_rocks(tmp_path)
    for number in range(5):
        store.checkpoint(f"{number}")
        store.remove_checkpoint(f"{number}")
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [".removing-3", ".removing-4"]
    store.close()
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_checkpoint_in_use_is_removed_when_its_last_reader_ends(tmp_path: Path) -> None:
    store = open_rocks(tmp_path)
    store.write({"fileTable": {b"/%03d" % number: b"x" for number in range(100)}})
    store.checkpoint("used")
    first, second = store.open_checkpoint("used"), store.open_checkpoint("used")
    store.remove_checkpoint("used")
    assert store.checkpoints() == []
    with pytest.raises(KeyError):
        store.open_checkpoint("used")
    first.close()
    first.close()
    assert len(list(second.scan("fileTable", b"/", b"0"))) == 100
    assert (tmp_path / "checkpoints" / "used").is_dir()
    second.close()
    assert store.checkpoints() == []
    assert list((tmp_path / "checkpoints").iterdir()), "whoever lets go of it, as the writer may, deletes no files"
    store.trim_checkpoints()
    assert list((tmp_path / "checkpoints").iterdir()) == []
    store.close()


def image_of(directory: Path, image: Path) -> RocksStore:
    """What a machine that stops now finds at its next start."""
    shutil.copytree(directory, image, copy_function=shutil.copy2)
    return open_rocks(image)


def test_a_crash_keeps_the_checkpoint_that_was_made_last_and_no_removed_one(tmp_path: Path) -> None:
    store = open_rocks(tmp_path / "store")
    store.write({"fileTable": {b"/a": b"1"}})
    store.checkpoint("again")
    held = [store.open_checkpoint("again")]
    store.remove_checkpoint("again")
    image = image_of(tmp_path / "store", tmp_path / "removed")
    assert image.checkpoints() == []
    image.close()
    for value in (b"2", b"3"):
        store.write({"fileTable": {b"/a": value}})
        store.remove_checkpoint("again")
        store.checkpoint("again")
        held.append(store.open_checkpoint("again"))
    image = image_of(tmp_path / "store", tmp_path / "anew")
    assert image.checkpoints() == ["again"]
    view = image.open_checkpoint("again")
    assert view.get("fileTable", b"/a") == b"3"
    view.close()
    assert [path.name for path in (tmp_path / "anew" / "checkpoints").iterdir()] == ["again"]
    image.close()
    for view in held:
        view.close()
    store.trim_checkpoints()
    assert len(list((tmp_path / "store" / "checkpoints").iterdir())) == 1
    store.close()


def test_a_copy_and_a_backup_have_the_checkpoint_that_was_made_last(tmp_path: Path) -> None:
    store = open_rocks(tmp_path / "store")
    store.write({"fileTable": {b"/a": b"1"}})
    store.checkpoint("again")
    held = store.open_checkpoint("again")
    store.remove_checkpoint("again")
    with pytest.raises(KeyError):
        store.copy_checkpoint("again", tmp_path / "store" / "copies" / "none")
    store.write({"fileTable": {b"/a": b"2"}})
    store.checkpoint("again")
    assert store.checkpoint_sizes()[0] == 1
    store.back_up_to(tmp_path / "store" / "backup")
    store.copy_checkpoint("again", tmp_path / "store" / "backup" / "checkpoints" / "copied")
    copy = RocksCopy(tmp_path / "store" / "backup", FAMILIES, CHECKPOINTED)
    for name in ("again", "copied"):
        view = copy.open_checkpoint(name)
        assert view.get("fileTable", b"/a") == b"2"
        view.close()
    copy.close()
    backed_up = (tmp_path / "store" / "backup" / "checkpoints").iterdir()
    assert sorted(path.name for path in backed_up) == ["again", "copied"]
    held.close()
    store.close()


def test_trimming_removes_the_checkpoint_that_was_made_last(tmp_path: Path) -> None:
    store = open_rocks(tmp_path)
    store.write({"fileTable": {b"/a": b"1"}, "outbox": {b"/a": os.urandom(1_000)}})
    store.checkpoint("again")
    held = store.open_checkpoint("again")
    store.remove_checkpoint("again")
    assert store.trim_checkpoints() == 0
    store.checkpoint("again")
    assert (store.trim_checkpoints(), store.trim_checkpoints()) == (1, 0)
    held.close()
    assert store.checkpoints() == ["again"]
    store.close()


def test_more_checkpoints_than_handles_are_read_side_by_side(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "db", FAMILIES, CHECKPOINTED, RocksOptions(checkpoint_handles=2))
    for number in range(5):
        store.write({"fileTable": {b"/n": b"%d" % number}})
        store.checkpoint(f"{number}")
    views = [store.open_checkpoint(f"{number}") for number in range(5)]
    assert [view.get("fileTable", b"/n") for view in views] == [b"%d" % number for number in range(5)]
    for view in views:
        view.close()
    view = store.open_checkpoint("0")
    assert view.get("fileTable", b"/n") == b"0"
    view.close()
    store.close()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_an_open_checkpoint_has_no_room_for_what_nobody_writes(tmp_path: Path) -> None:
    many = 40
    store = RocksStore(tmp_path / "db", FAMILIES, CHECKPOINTED, RocksOptions(checkpoint_handles=many))
    store.write({family: {b"/n": b"1"} for family in CHECKPOINTED})
    for number in range(many):
        store.checkpoint(f"{number}")
    before = resident_bytes()
    views = [store.open_checkpoint(f"{number}") for number in range(many)]
    # With memtables as large as those that are written, and filters of them, it is 2 MB each.
    assert resident_bytes() - before < many * 700_000
    for view in views:
        view.close()
    store.close()


def test_rows_of_many_families_wait_for_each_other_in_memory(tmp_path: Path) -> None:
    families = [TableDefinition(f"table-{number}", KeyRow) for number in range(12)]
    store = RocksStore(tmp_path / "db", families)
    for unit in range(20):  # two busy families and ten with a row each, as in metadata
        store.write(
            {
                family.name: {b"%d/%d" % (unit, row): bytes(100) for row in range(1_000 if number < 2 else 1)}
                for number, family in enumerate(families)
            }
        )
    # 4 MB of rows: what is flushed earlier was pushed out by room that nobody uses.
    assert not list((tmp_path / "db").glob("*.sst"))
    store.close()


def test_flushes_of_rising_keys_do_not_pile_up_as_files(tmp_path: Path) -> None:
    """Each checkpoint flushes every changed family and links every file: with one more file for each, which levels
    would move down and never merge, the two-thousandth snapshot takes eight times as long as the first.
    """
    store = open_rocks(tmp_path)
    for number in range(100):
        store.write({"outbox": {b"%09d" % number: b"row"}})
        store.checkpoint(f"{number}")
    deadline = time.monotonic() + 60
    while (files := len(list((tmp_path / "db").glob("*.sst")))) > 30 and time.monotonic() < deadline:
        store.write({"outbox": {b"later": b"row"}})  # what it has merged is removed in the background
        store.checkpoint("later")
        store.remove_checkpoint("later")
    store.close()
    assert files <= 30


def read_bytes() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not tell")
def test_a_look_up_reads_a_part_of_a_large_filter(tmp_path: Path) -> None:
    keys, asked = 500_000, 200
    store = RocksStore(tmp_path / "db", FAMILIES, CHECKPOINTED, RocksOptions(block_cache_bytes=MEBIBYTE // 2))
    for first in range(10):  # each over all keys: what does not overlap is moved, and not written anew
        store.write({"keyTable": {b"/%09d" % number: b"" for number in range(first, keys, 10)}})
    store._database.get_column_family("keyTable").compact_range(None, None)
    before = read_bytes()
    assert not any(store.get("keyTable", b"/%09d." % number) for number in range(0, keys, keys // asked))
    # The whole filter of the one file is 625 kB, more than the cache has room for.
    assert read_bytes() - before < asked * 60_000
    store.close()


def test_a_scan_reports_each_stretch_that_it_took_long_to_step_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_rocks(tmp_path)
    keys = [b"/%03d" % number for number in range(100)]
    store.write({"outbox": dict.fromkeys(keys, b"row")})
    store.write({"outbox": dict.fromkeys(keys[10:60])})
    gaps: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(rocks_views, "SLOW_GAP_SECONDS", math.inf)
    assert len(list(store.scan_reporting_gaps("outbox", b"/", b"/09", lambda *gap: gaps.append(gap)))) == 40
    assert gaps == []
    monkeypatch.setattr(rocks_views, "SLOW_GAP_SECONDS", 0.0)
    list(store.scan_reporting_gaps("outbox", b"/", b"/09", lambda *gap: gaps.append(gap)))
    assert [gap for gap in gaps if any(gap[0] <= key < gap[1] for key in keys)] == [(b"/009\0", b"/060")]
    assert (gaps[0], gaps[-1]) == ((b"/", b"/000"), (b"/089\0", b"/09"))
    store.close()


def test_trimmed_checkpoints_give_up_what_they_need_not_keep(tmp_path: Path) -> None:
    store = open_rocks(tmp_path)
    outbox = {b"%d" % number: os.urandom(1_000) for number in range(500)}
    store.write({"fileTable": {b"/a": b"1"}, "outbox": dict(outbox)})
    store.checkpoint("kept")
    kept = tmp_path / "checkpoints" / "kept"
    before = sum(file.stat().st_size for file in kept.glob("*.sst"))
    assert (store.trim_checkpoints(), store.trim_checkpoints()) == (1, 0)
    after = sum(file.stat().st_size for file in kept.glob("*.sst"))
    assert before > 500_000 > after
    store.close()
    store = open_rocks(tmp_path)
    view = store.open_checkpoint("kept")
    assert view.get("fileTable", b"/a") == b"1"
    assert rows(store, "outbox") == outbox
    view.close()
    store.close()


def test_a_second_opener_gets_one_sentence(tmp_path: Path) -> None:
    store = open_rocks(tmp_path)
    with pytest.raises(StoreError, match="another process has it open"):
        open_rocks(tmp_path)
    store.close()


def test_closing_closes_views_and_half_read_scans_too(tmp_path: Path) -> None:
    store = open_rocks(tmp_path)
    store.write({"fileTable": {b"/%04d" % number: b"x" for number in range(1_000)}})
    store.checkpoint("kept")
    scans = [store.scan("fileTable", b"/", b"0"), store.reading().scan("fileTable", b"/", b"0")]
    scans.append(store.open_checkpoint("kept").scan("fileTable", b"/", b"0"))
    for scan in scans:
        next(scan)
    store.close()
    again = open_rocks(tmp_path)
    for scan in scans:
        with pytest.raises(StoreError):
            list(scan)
    with pytest.raises(StoreError):
        store.get("fileTable", b"/0001")
    again.close()


def test_a_damaged_file_is_an_error_and_never_a_shorter_scan(tmp_path: Path) -> None:
    store = open_rocks(tmp_path)
    store.write({"fileTable": {b"/%05d" % number: os.urandom(100) for number in range(5_000)}})
    store.checkpoint("flush")
    store.close()
    for file in (tmp_path / "db").glob("*.sst"):
        if file.stat().st_size < 100_000:
            continue  # of the format, which is read when the database is opened
        content = bytearray(file.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 5_000] = b"\xff" * 5_000
        file.write_bytes(content)
    store = open_rocks(tmp_path)
    with pytest.raises(StoreError, match="damaged"):
        list(store.scan("fileTable", b"/", b"0"))
    store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written_is_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="change its owner or mode"):
            open_rocks(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_a_name_that_is_no_name_is_refused(tmp_path: Path) -> None:
    store = open_rocks(tmp_path)
    for name in ("", "x" * 300):
        with pytest.raises(ValueError, match="choose another"):
            store.checkpoint(name)
    store.close()


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("IO error: No space left on device: While appending to file: /x/000012.log", "free some space"),
        ("IO error: While open a file for appending: /x/000012.log: Read-only file system", "mount it for writing"),
        ("IO error: While lock file: /x/LOCK: Resource temporarily unavailable", "stop that one first"),
        ("IO error: While open a file for random read: /x/7.sst: Too many open files", "ulimit -n"),
        ("Corruption: block checksum mismatch", "restore a copy"),
        ("Something that nobody has seen", "start again"),
    ],
)
def test_what_rocksdb_reports_becomes_what_to_do(text: str, remedy: str) -> None:
    sentence = str(store_error(Path("/x"), "written", Exception(text)))
    assert sentence.startswith("/x cannot be written")
    assert remedy in sentence
    assert text in sentence
