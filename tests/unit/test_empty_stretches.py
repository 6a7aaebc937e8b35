"""Scans jump over what was removed, and never over a row that is there."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.records import PositionRow
from services.storage.empty_stretches import MAX_STRETCHES, EmptyStretches
from services.storage.memory import MemoryStore
from services.storage.rocks_views import Row
from services.storage.store import GapFound
from services.storage.tables import RowCache, TableDefinition, UnitOfWork

SWEPT = TableDefinition("swept", PositionRow, remembers_empty_stretches=True)
BEYOND = b"z"


class WatchedStore(MemoryStore):
    """Notes where scans begin."""

    begun: bytes = b""

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.begun = start
        return super().scan(family, start, end)


class SlowStore(WatchedStore):
    """Takes long to step over three letters and more."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[bytes] = []

    def scan_reporting_gaps(self, family: str, start: bytes, end: bytes, found: GapFound) -> Iterator[Row]:
        self.begins.append(start)
        for key, row in self.scan(family, start, end):
            if key[0] - start[0] > 3:
                found(start, key)
            yield key, row
            start = key + b"\0"


class Swept:
    """A table, each of whose units of work does one thing."""

    def __init__(self) -> None:
        self.store, self._cache = WatchedStore(), RowCache()

    def change(self, put: str = "", delete: str = "") -> None:
        work = UnitOfWork(self.store, self._cache)
        for letter in put:
            work.table(SWEPT).put(letter.encode(), PositionRow("", "", 0))
        for letter in delete:
            work.table(SWEPT).delete(letter.encode())
        work.write()

    def scan(self, start: bytes = b"a", end: bytes = BEYOND) -> str:
        self.store.begun = b""
        work = UnitOfWork(self.store, self._cache)
        return b"".join(key for key, _ in work.table(SWEPT).scan(start, end)).decode()

    def begins(self, start: bytes = b"a", end: bytes = BEYOND) -> bytes:
        """Where a scan steps through the store; empty when it does not."""
        self.scan(start, end)
        return self.store.begun


def test_a_scan_begins_where_the_one_before_has_found_the_first_row() -> None:
    table = Swept()
    table.change(put="bcdefgh")
    table.change(delete="bcde")
    assert (table.scan(), table.store.begun) == ("fgh", b"a")
    assert (table.scan(), table.store.begun) == ("fgh", b"f")
    assert (table.scan(b"c"), table.store.begun) == ("fgh", b"f")
    assert (table.scan(b"g"), table.store.begun) == ("gh", b"g")


def test_a_stretch_grows_with_what_is_removed_next() -> None:
    table = Swept()
    table.change(put="bcdef")
    table.scan()
    for removed, next_row in ("b", "c"), ("c", "d"), ("d", "e"):
        table.change(delete=removed)
        table.scan()
        assert table.begins() == next_row.encode()


def test_an_empty_range_is_not_looked_through_again() -> None:
    table = Swept()
    table.change(put="x")
    assert (table.scan(end=b"m"), table.store.begun) == ("", b"a")
    assert (table.scan(end=b"m"), table.store.begun) == ("", b"")
    assert table.scan() == "x"


def test_a_row_that_is_put_into_a_stretch_is_found() -> None:
    table = Swept()
    table.change(put="k")
    table.scan()
    table.change(put="d")
    assert (table.scan(), table.store.begun) == ("dk", b"d")
    table.change(put="a")
    assert (table.scan(), table.store.begun) == ("adk", b"a")


def test_a_scan_jumps_over_a_stretch_behind_a_row() -> None:
    stretches, store = EmptyStretches(), SlowStore()
    store.write({"swept": dict.fromkeys((b"b", b"c", b"h", b"i"), b"row")})

    def scan() -> list[bytes]:
        store.begins.clear()
        return [key for key, _ in stretches.scan(store, "swept", b"a", BEYOND)]

    assert (scan(), store.begins) == ([b"b", b"c", b"h", b"i"], [b"a"])
    assert (scan(), store.begins) == ([b"b", b"c", b"h", b"i"], [b"a", b"h"])


def test_a_scan_that_began_before_a_write_remembers_nothing() -> None:
    stretches, store = EmptyStretches(), SlowStore()
    store.write({"swept": dict.fromkeys((b"b", b"h"), b"row")})
    scan = stretches.scan(store, "swept", b"a", BEYOND)
    assert next(scan)[0] == b"b"
    store.write({"swept": {b"e": b"row"}})
    stretches.written({b"e": b"row"})
    assert [key for key, _ in scan] == [b"h"]
    assert [key for key, _ in stretches.scan(store, "swept", b"a", BEYOND)] == [b"b", b"e", b"h"]


def test_the_stretch_that_was_used_longest_ago_is_forgotten() -> None:
    stretches, store = EmptyStretches(), WatchedStore()

    def begins(number: int) -> bytes:
        store.begun = b""
        assert not list(stretches.scan(store, "swept", b"%03d" % number, b"%03d5" % number))
        return store.begun

    for number in range(MAX_STRETCHES):
        assert begins(number) == b"%03d" % number
    assert begins(0) == b""
    assert begins(MAX_STRETCHES) == b"%03d" % MAX_STRETCHES
    assert begins(0) == b""
    assert begins(1) == b"001"
