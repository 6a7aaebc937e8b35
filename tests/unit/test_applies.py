"""What one command reads is bounded, however much there is: while it is applied, its service is away from its log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.records import (
    BlockRun,
    CaptureSnapshot,
    DeleteDirectory,
    DeleteKeys,
    DropSnapshot,
    ExpandDirectory,
    ExpansionOutcome,
    MakeDirectory,
    PositionRow,
    PutKey,
    RenameDirectory,
    RequeueOrphans,
    SpaceCellValue,
    SweepPage,
)
from schemas.stored_rows import row_codec
from services.domain.space_matrix import Holders, SpaceCell, merged_after_drop
from services.domain.table_keys import cell_key, holders_of_cell, local_id
from services.metadata.collecting import sweeps
from services.metadata.state import orphan_search
from services.metadata.state.batch_sums import PresentTxn
from services.metadata.state.directory_paths import DirectoryPaths
from services.metadata.state.space import cell_of
from services.metadata.state.tables import CHECKPOINTED, SNAPSHOT_LIST_TABLE, SPACE_TABLE
from services.storage.memory import MemoryStore
from services.storage.store import Batch
from services.storage.tables import CachedRows, RowCache, TableDefinition, TablesReader, UnitOfWork
from tests.unit.test_metadata import Shard

NO_BLOCKS_TXN = 1


class CountingStore(MemoryStore):
    """Counts the rows that were scanned and looked up, by family."""

    def __init__(self) -> None:
        super().__init__(CHECKPOINTED)
        self.read: Counter[str] = Counter()

    def get(self, family: str, key: bytes) -> bytes | None:
        self.read[family] += 1
        return super().get(family, key)

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for row in super().scan(family, start, end):
            self.read[family] += 1
            yield row


class CountedShard(Shard):
    """A shard over such a store."""

    def __init__(self) -> None:
        super().__init__()
        self.counted = CountingStore()
        self.counted._families.update(self.store._families)
        self.store = self.counted
        self.start()


def held_between(shard: Shard, snapshots: int) -> None:
    """A flat bucket whose snapshots hold versions between any two of them: half a square of cells."""
    for number in range(snapshots):
        shard.do(PutKey("vol", "flat", f"kept-{number}", 1))
        shard.internal(CaptureSnapshot("vol", "flat", f"s{number:03}"))
    rows = {}
    txns = _live_txns(shard)
    for number, first in enumerate(txns):
        for last in txns[number:]:
            value = SpaceCellValue(first, last, 1, 1, 1, 0, 0)
            rows[cell_key(shard.bucket("flat").object_id, first, last)] = row_codec(SpaceCellValue).encode(value)
    shard.store.write({SPACE_TABLE.name: rows})
    shard.start()


def _cells(shard: Shard) -> dict[Holders, SpaceCell]:
    rows = TablesReader(shard.store).table(SPACE_TABLE).scan(b"/", b"0")
    return {holders_of_cell(key): cell_of(value) for key, value in rows}


def _live_txns(shard: Shard) -> list[int]:
    return [row.txn for _, row in TablesReader(shard.store).table(SNAPSHOT_LIST_TABLE).scan(b"/", b"0") if row.is_live]


@pytest.mark.parametrize("snapshots", [20, 60])
def test_a_drop_reads_what_touches_its_snapshot_alone(snapshots: int) -> None:
    """Not the whole matrix, which grows as the square of the snapshots."""
    shard = CountedShard()
    held_between(shard, snapshots)
    before, live = _cells(shard), _live_txns(shard)
    shard.counted.read.clear()
    shard.internal(DropSnapshot(f"s{snapshots // 2:03}"))
    assert shard.counted.read[SPACE_TABLE.name] <= 3 * snapshots
    merged = before | merged_after_drop(before, live[snapshots // 2], live)
    assert _cells(shard) == {holder: cell for holder, cell in merged.items() if not cell.is_empty}


def test_a_sweeps_page_ends_after_so_many_rows_however_few_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "MAX_ROWS_READ", 5)
    shard = CountedShard()
    names = [f"key-{number:02}" for number in range(23)]
    births = [shard.do(PutKey("vol", "flat", name, 10)).txn for name in names]
    shard.do(DeleteKeys("vol", "flat", tuple(names)))
    sent, pages, table, key = 0, 0, 0, b""
    while table < 4:
        shard.counted.read.clear()
        page = SweepPage(1, pages + 1, shard.bucket("flat").object_id, 0, 0, births[-3], 0, table, key, 1_000, 1 << 20)
        answer = shard.internal(page)
        assert shard.counted.read["deletedTable"] <= 5 + 1
        sent, pages, table, key = sent + answer.rows, pages + 1, answer.next_table, answer.next_key
    assert (sent, pages) == (2, 5)
    swept = [entry.birth for entry in shard.entries() if entry.sweep_id]
    assert swept == births[-2:]


def test_of_rows_that_are_not_swept_no_more_than_the_birth_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = Shard()
    births = [shard.do(PutKey("vol", "flat", f"key-{number}", 10)).txn for number in range(6)]
    shard.do(DeleteKeys("vol", "flat", tuple(f"key-{number}" for number in range(6))))
    decoded: list[bytes] = []
    entry = sweeps._entry

    def counted(key: bytes, row: Any) -> Any:
        decoded.append(key)
        return entry(key, row)

    monkeypatch.setattr(sweeps, "_entry", counted)
    shard.internal(SweepPage(1, 1, shard.bucket("flat").object_id, 0, 0, births[3], births[4], 0, b"", 100, 1 << 20))
    assert len(decoded) == 1


def test_a_search_for_owners_reads_a_page_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphan_search, "MAX_ROWS_READ", 5)
    shard = CountedShard()
    txns = [shard.do(PutKey("vol", "flat", f"key-{number:02}", 10)).txn for number in range(23)]
    run = BlockRun(1, local_id(0, NO_BLOCKS_TXN, 0), 1, 1_024, 5)
    command = RequeueOrphans(shard.bucket("flat").object_id, txns[-1], (run,), 100)
    answers: list[str] = []
    while not answers or answers[-1]:
        shard.counted.read.clear()
        answers.append(shard.refusal(command, sender="audit"))
        assert shard.counted.read["keyTable"] <= 5 + 1
    assert answers == ["SEARCH_IN_PROGRESS"] * 4 + [""]


def test_a_refused_command_discards_what_it_has_cached_itself() -> None:
    """And nothing else: the next commands find their directories where they were."""
    shard = CountedShard()
    for number in range(50):
        shard.do(PutKey("vol", "tree", f"d{number}/e/f/one", 1))
    for body in (
        PutKey("vol", "tree", "d7/e/f/one/below", 1),
        RenameDirectory("vol", "tree", "d7/none", "d8"),
        MakeDirectory("vol", "tree", "d7/e/f/one"),
        DeleteDirectory("vol", "tree", "none"),
    ):
        assert shard.refusal(body)
        found = shard.runner.service._transaction.directories.find  # type: ignore[attr-defined]
        tree_id = shard.bucket("tree").object_id
        assert all(found(tree_id, f"d{number}/e/f") for number in range(50))


def test_a_directory_that_moves_takes_the_paths_below_with_it_and_no_others() -> None:
    shard = Shard()
    for path in ("a/b/c/k", "a/b/d/k", "a/bb/k", "e/k"):
        shard.do(PutKey("vol", "tree", path, 1))
    shard.do(RenameDirectory("vol", "tree", "a/b", "z"))
    paths, tree_id = shard.runner.service._transaction.directories, shard.bucket("tree").object_id  # type: ignore[attr-defined]
    assert [paths.find(tree_id, path) is None for path in ("a/b/c", "a/b/d", "a/bb", "e")] == [True, True, False, False]
    shard.do(DeleteDirectory("vol", "tree", "e"))
    assert paths.find(tree_id, "e") is None
    assert paths.find(tree_id, "a/bb") is not None


@pytest.mark.parametrize("paths", [7, 8, 9, 40])
def test_cached_paths_are_bounded_and_those_in_use_stay(paths: int) -> None:
    cache = DirectoryPaths(PresentTxn(), max_paths=8)
    for number in range(paths):
        cache.remember(1, f"d{number}", number + 1)
        assert cache.find(1, "d0") == 1
    known = [number for number in range(paths) if cache.find(1, f"d{number}")]
    assert known[0] == 0
    assert known[-1] == paths - 1
    assert len(known) <= 8


def test_a_path_is_forgotten_wherever_it_is_kept() -> None:
    """In the older half, too, and when what is above it was never asked for itself."""
    for others in range(6):
        cache = DirectoryPaths(PresentTxn(), max_paths=8)
        cache.remember(1, "a/b/c", 5)
        cache.remember(2, "a/b/c", 6)
        for number in range(others):
            cache.remember(1, f"d{number}", number + 1)
        cache.find(1, "a/b/c")
        cache.forget(1, "a/b")
        assert cache.find(1, "a/b/c") is None
        cache.remember(1, "a/b/c", 7)
        cache.forget(1)
        assert cache.find(1, "a/b/c") is None


def test_rows_that_are_cached_go_by_halves() -> None:
    rows = CachedRows(10)
    for number in range(100):
        rows.written({b"%d" % number: number})
        assert rows.get(b"0", None) == 0, "it is in use"
        assert len(rows) <= 15
        assert number < 1 or rows.get(b"%d" % (number - 1), None) == number - 1
    rows.written({b"0": None, **{b"x%d" % number: number for number in range(50)}})
    assert rows.get(b"0", "unknown") in (None, "unknown"), "never what it was before"
    assert len(rows) <= 10


def test_a_cached_row_is_never_older_than_the_written_one() -> None:
    table = TableDefinition("rows", PositionRow, is_cached=True, most_cached_rows=12)
    store, cache = MemoryStore(), RowCache()
    expected: dict[bytes, int] = {}
    for number in range(200):
        work = UnitOfWork(store, cache)
        key = b"%d" % (number * 7 % 11)
        work.table(table).put(key, PositionRow("topic", "id", number))
        expected[key] = number
        work.write()
        for one in (key, b"%d" % (number * 3 % 11)):
            row = UnitOfWork(store, cache).table(table).get(one)
            assert (row.next_offset if row else None) == expected.get(one)


class ForgetfulStore(CountingStore):
    """Counts removed rows that a scan steps over, as RocksDB does until it has compacted them away."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: dict[str, set[bytes]] = {}
        self.stepped_over = 0

    def write(self, batch: Batch) -> None:
        for family, rows in batch.items():
            self.removed.setdefault(family, set()).update(key for key, value in rows.items() if value is None)
        super().write(batch)

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        removed = sorted(key for key in self.removed.get(family, ()) if start <= key < end)
        for key, value in super().scan(family, start, end):
            while removed and removed[0] < key:
                removed.pop(0)
                self.stepped_over += 1
            yield key, value
        self.stepped_over += len(removed)


@pytest.mark.parametrize("entries", [1, 3, 7])
def test_each_page_of_an_expansion_goes_on_where_the_last_one_ended(entries: int) -> None:
    """A page that began with the first child again would step over all that were moved before it."""
    shard = CountedShard()
    store = ForgetfulStore()
    store._families.update(shard.store._families)
    shard.store = store
    shard.start()
    for number in range(20):
        shard.do(PutKey("vol", "tree", f"wide/f{number:02}", 1))
        shard.do(MakeDirectory("vol", "tree", f"wide/d{number:02}"))
    shard.do(DeleteDirectory("vol", "tree", "wide"))
    row, moved = shard.row(), 0
    while True:
        store.stepped_over = 0
        page = shard.internal(ExpandDirectory(row.bucket_id, row.object_id, row.death, entries, 1 << 20))
        moved += page.moved_directories + page.moved_files
        assert store.stepped_over <= entries
        if page.outcome is ExpansionOutcome.EXPANDED:
            break
    assert moved == 40
