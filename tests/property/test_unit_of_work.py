"""A unit of work reads what it has changed: its scans are those of a map that its messages have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import PositionRow
from services.storage import rocks_views
from services.storage.memory import MemoryStore
from services.storage.rocks import RocksStore
from services.storage.rocks_views import Row
from services.storage.store import GapFound, Store
from services.storage.tables import RowCache, TableDefinition, UnitOfWork

TABLE = TableDefinition("table", PositionRow)
SWEPT = TableDefinition("swept", PositionRow, remembers_empty_stretches=True)
KEYS = st.lists(st.sampled_from(b"abcdef"), min_size=1, max_size=2).map(bytes)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(0, 9)),
    st.tuples(st.just("delete"), KEYS, st.none()),
    st.tuples(st.just("scan"), KEYS, KEYS),
    st.tuples(st.sampled_from(["keep message", "undo message", "write"]), st.none(), st.none()),
)


def _row(number: int) -> PositionRow:
    return PositionRow("topic", "id", number)


@pytest.mark.parametrize("table", [TABLE, SWEPT], ids=lambda table: table.name)
@given(steps=st.lists(STEPS, max_size=60))
def test_scans_are_those_of_a_map(table: TableDefinition[PositionRow], steps: list[tuple[str, bytes, object]]) -> None:
    store, cache = MemoryStore(), RowCache()
    work = UnitOfWork(store, cache)
    rows: dict[bytes, int] = {}
    kept: dict[bytes, int] = {}
    for step, key, value in steps:
        if step == "put" and isinstance(value, int):
            work.table(table).put(key, _row(value))
            rows[key] = value
        elif step == "delete":
            work.table(table).delete(key)
            rows.pop(key, None)
        elif step == "scan" and isinstance(value, bytes):
            found = [(at, row.next_offset) for at, row in work.table(table).scan(key, value)]
            assert found == sorted((at, number) for at, number in rows.items() if key <= at < value)
        elif step == "undo message":
            work.undo_message()
            rows = dict(kept)
        elif step in ("keep message", "write"):
            work.begin_message()
            kept = dict(rows)
            if step == "write":
                work.write()
                work = UnitOfWork(store, cache)


class TellingStore(MemoryStore):
    """Tells of what lies in front of each row, as RocksDB does where it takes long."""

    def scan_reporting_gaps(self, family: str, start: bytes, end: bytes, found: GapFound) -> Iterator[Row]:
        for key, row in self.scan(family, start, end):
            found(start, key)
            yield key, row
            start = key + b"\0"
        found(start, end)


UNITS = st.tuples(st.sets(KEYS, max_size=3), st.sets(KEYS, max_size=3), KEYS, KEYS, st.integers(0, 9))
Units = list[tuple[set[bytes], set[bytes], bytes, bytes, int]]


def _see_all_that_is_there(store: Store, prefix: bytes, units: Units) -> None:
    """Each unit puts rows, removes rows and is written; then the next one scans a range, perhaps not to its end."""
    cache, rows = RowCache(), set[bytes]()
    for put, removed, start, end, most in units:
        work = UnitOfWork(store, cache)
        for key in put:
            work.table(SWEPT).put(prefix + key, _row(1))
        for key in removed:
            work.table(SWEPT).delete(prefix + key)
        work.write()
        rows = (rows | put) - removed
        scan = UnitOfWork(store, cache).table(SWEPT).scan(prefix + start, prefix + end)
        found = [key.removeprefix(prefix) for key, _ in islice(scan, most)]
        assert found == sorted(key for key in rows if start <= key < end)[:most]


@pytest.mark.parametrize("make_store", [MemoryStore, TellingStore])
@given(units=st.lists(UNITS, max_size=20))
def test_scans_find_whatever_earlier_scans_have_not(make_store: Callable[[], MemoryStore], units: Units) -> None:
    _see_all_that_is_there(make_store(), b"", units)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocksStore]:
    """A database that tells of what lies in front of each row."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rocks_views, "SLOW_GAP_SECONDS", 0.0)
        store = RocksStore(tmp_path_factory.mktemp("disk") / "db", [SWEPT])
        yield store
        store.close()


EXAMPLES = count()


@settings(max_examples=30, deadline=None)
@given(units=st.lists(UNITS, max_size=20))
def test_scans_find_it_on_disk_too(disk: RocksStore, units: Units) -> None:
    _see_all_that_is_there(disk, b"%08d" % next(EXAMPLES), units)


@given(st.sets(KEYS, min_size=1), KEYS, KEYS)
def test_a_scan_shows_what_was_there_when_it_began(keys: set[bytes], first: bytes, second: bytes) -> None:
    work = UnitOfWork(MemoryStore(), RowCache())
    for key in keys:
        work.table(TABLE).put(key, _row(1))
    found = []
    for key, _ in work.table(TABLE).scan(b"", b"\xff\xff\xff"):
        found.append(key)
        work.table(TABLE).delete(first)
        work.table(TABLE).put(second, _row(2))
    assert found == sorted(keys)


class _Counted(bytes):
    """A key that counts how often keys are compared."""

    comparisons = 0

    def __lt__(self, other: bytes) -> bool:
        _Counted.comparisons += 1
        return bytes.__lt__(self, other)


def test_a_scan_looks_at_its_range_alone() -> None:
    """An expansion scans after each handful of rows that it has moved, and its unit of work moves many thousands."""
    table = UnitOfWork(MemoryStore(), RowCache()).table(TABLE)
    _Counted.comparisons = 0
    for number in range(4_000):
        table.put(_Counted(b"%08d" % (number * 7919 % 4_000)), _row(number))
        if number % 10 == 9:
            assert len(list(table.scan(_Counted(b"00000100"), _Counted(b"00000104")))) <= 4
    assert _Counted.comparisons < 60 * 4_000
