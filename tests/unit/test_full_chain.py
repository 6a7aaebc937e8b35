"""The whole chain in parts of bounded size: as metadata writes it, and as each of its readers takes it in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from schemas.codec import codec
from schemas.records import (
    ChainCapture,
    ChainDrop,
    ChainedBucket,
    ChainedSnapshot,
    ChainRow,
    FullChain,
    MetadataCommand,
    PublishFullChain,
    SnapshotChainRecord,
    SnapshotCountRow,
    SnapshotListRow,
)
from schemas.topics import SNAPSHOT_CHAIN
from services.domain.chain_view import ChainGapError, ChainOrderError, ChainView
from services.domain.errors import InvariantError
from services.domain.full_chain import in_parts
from services.domain.names import MAX_SNAPSHOT_ID_LENGTH
from services.domain.reclaimability import Verdict
from services.domain.table_keys import bucket_id_key, snapshot_list_key
from services.log.port import MAX_MESSAGE_BYTES
from services.metadata.state.tables import SNAPSHOT_COUNT_TABLE, SNAPSHOT_LIST_TABLE
from services.plane.in_memory.judge import PureJudge
from services.plane.upkeep import trimming
from services.runtime.loop.service import Work
from services.runtime.parts.stored_chain import CHAIN_TABLE, StoredChain
from services.snapshots.lifecycle.chain_check import ChainCheck
from services.snapshots.state.rows import SnapshotRows
from services.storage.memory import MemoryStore
from services.storage.tables import RowCache, TablesReader
from streaming.reclaiming.shard_chain import ShardChain
from tests.unit.service_harness import Harness
from tests.unit.test_metadata import Shard

BUCKETS, EVER, LIVE_EVERY = 60, 5_000, 5
VERSION = BUCKETS * EVER


def id_of(bucket_id: int, ordinal: int) -> str:
    return f"{bucket_id}-{ordinal}".ljust(MAX_SNAPSHOT_ID_LENGTH, "x")


def txn_of(bucket_id: int, ordinal: int) -> int:
    return ordinal * BUCKETS + bucket_id


def all_snapshots(bucket_id: int) -> Iterator[ChainedSnapshot]:
    """All that a bucket ever had, as the full chain of an older build has them; a run at the end is dropped."""
    for n in range(1, EVER + 1):
        yield ChainedSnapshot(id_of(bucket_id, n), n, txn_of(bucket_id, n), n % LIVE_EVERY == 1 and n < EVER - 50)


@pytest.fixture(scope="module")
def unpaged() -> ChainView:
    """The view of 300,000 snapshots, of which a fifth live, from one message of an older build."""
    view = ChainView()
    assert view.full(VERSION, [ChainedBucket(one, tuple(all_snapshots(one))) for one in range(1, BUCKETS + 1)])
    return view


@pytest.fixture(scope="module")
def published() -> list[SnapshotChainRecord]:
    """The same chain as metadata publishes it from its tables."""
    shard = Shard()
    work = Work(0, shard.store, RowCache())
    for bucket_id in range(1, BUCKETS + 1):
        count = SnapshotCountRow(EVER, txn_of(bucket_id, EVER))
        work.table(SNAPSHOT_COUNT_TABLE).put(bucket_id_key(bucket_id), count)
        for one in all_snapshots(bucket_id):
            if one.is_live:
                row = SnapshotListRow(one.snapshot_id, bucket_id, one.ordinal, one.txn, True, 0, 0, 0, 0, 0)
                work.table(SNAPSHOT_LIST_TABLE).put(snapshot_list_key(bucket_id, one.ordinal), row)
    work.write()
    shard.start()
    shard.runner.service._transaction.counters.chain_version = VERSION  # type: ignore[attr-defined]
    shard.send(MetadataCommand(0, "", 0, PublishFullChain("asked for"), wants_reply=False))
    shard.runner.step()
    return shard.sent(SNAPSHOT_CHAIN)


def stored(records: list[SnapshotChainRecord]) -> ChainView:
    """As key_deletion and directory_deletion follow it, restarted behind every message."""
    store = MemoryStore()
    for record in records:
        chain = restored(store)
        give(chain, store, record)
    return restored(store).view


def restored(store: MemoryStore) -> StoredChain:
    chain = StoredChain()
    chain.restore(TablesReader(store))
    return chain


def give(chain: StoredChain, store: MemoryStore, record: SnapshotChainRecord) -> bool:
    work = Work(0, store, RowCache())
    work.begin_message()
    is_new = chain.follow(record, work)
    work.write()
    return is_new


def judged(records: list[SnapshotChainRecord]) -> ChainView:
    """As the judge in one process follows it."""
    harness = Harness(PureJudge)
    harness.give(*((SNAPSHOT_CHAIN, record) for record in records))
    harness.restart()
    view: ChainView = harness.service._chain.view  # type: ignore[attr-defined]
    return view


def read_by_spark(records: list[SnapshotChainRecord]) -> ChainView:
    """As Spark's driver follows it."""
    chain, encoder = ShardChain(), codec(SnapshotChainRecord)
    for offset, record in enumerate(records):
        changed = chain.receive(offset, encoder.encode_message(record))
        is_last = offset == len(records) - 1
        assert changed == (set(range(1, BUCKETS + 1)) if is_last else set())
    assert not chain.trouble
    return chain.view


def compared(records: list[SnapshotChainRecord]) -> ChainView:
    """As snapshots follows it, to compare it with its own rows."""
    store, check = MemoryStore(), ChainCheck(SnapshotRows())
    for record in records:
        work = Work(0, store, RowCache())
        check.follow(record, work)
        work.write()
    check = ChainCheck(SnapshotRows())
    check.restore(TablesReader(store))
    assert check.is_known
    view = check._chain.view
    live = sum(len(view.live(bucket_id)) for bucket_id in view.bucket_ids())
    assert len(check.different_snapshots()["unknown_here"]) == live > 0
    return view


def test_the_comparison_goes_on_from_a_full_chain_of_a_later_version() -> None:
    """metadata writes one where an operator has accepted the loss of markers."""
    work, check = Work(0, MemoryStore(), RowCache()), ChainCheck(SnapshotRows())
    check.follow(SnapshotChainRecord(1, 0, ChainCapture(7, "s1", 1, 10)), work)
    for version in (1, 1_000_001):  # the first one is that of a trim
        check.follow(SnapshotChainRecord(version, version, FullChain((ChainedBucket(7, (), 1, 10),))), work)
    check.follow(SnapshotChainRecord(1_000_002, 1_000_001, ChainCapture(7, "s2", 2, 20)), work)
    assert check.is_known
    assert check.different_snapshots()["unknown_here"] == ["s2"]


def test_no_part_is_larger_than_a_message_may_be(published: list[SnapshotChainRecord]) -> None:
    sizes = [len(codec(SnapshotChainRecord).encode(record)) for record in published]
    assert len(sizes) > 1
    assert max(sizes) < 1 << 20 < MAX_MESSAGE_BYTES


@pytest.mark.parametrize("read", [stored, judged, read_by_spark, compared], ids=lambda read: read.__name__)
def test_every_reader_judges_as_with_the_whole_list(
    unpaged: ChainView, published: list[SnapshotChainRecord], read: Callable[[list[SnapshotChainRecord]], ChainView]
) -> None:
    view = read(published)
    assert view == unpaged
    random, found = Random(1), set()
    for _ in range(2_000):
        bucket_id, n = random.randint(1, BUCKETS), random.randint(0, EVER)
        birth, death = txn_of(bucket_id, max(0, n - random.randint(0, 12))) - 1, txn_of(bucket_id, n) + 1
        verdict = view.judge(bucket_id, max(birth, 1), death, n)
        assert verdict is unpaged.judge(bucket_id, max(birth, 1), death, n)
        found.add(verdict)
    assert found == set(Verdict)


def test_what_a_reader_keeps_is_what_lives(published: list[SnapshotChainRecord]) -> None:
    store = MemoryStore()
    chain = restored(store)
    for record in published[:-1]:
        give(chain, store, record)
        assert chain.view.version == 0
    rows = list(TablesReader(store).table(CHAIN_TABLE).scan(b"", b"\xff"))
    assert len(rows) == len(published) - 1
    give(chain, store, published[-1])
    live = sum(len(chain.view.live(bucket_id)) for bucket_id in chain.view.bucket_ids())
    rows = list(TablesReader(store).table(CHAIN_TABLE).scan(b"", b"\xff"))
    assert len(rows) == live + BUCKETS + 1


def test_captures_and_drops_leave_no_rows_behind() -> None:
    store = MemoryStore()
    chain = restored(store)
    for n in range(1, 501):
        capture = ChainCapture(7, f"s{n}", n, 10 * n)
        give(chain, store, SnapshotChainRecord(2 * n - 1, 2 * n - 2, capture))
        give(chain, store, SnapshotChainRecord(2 * n, 2 * n - 1, ChainDrop(7, f"s{n}", 10 * n, 0)))
    assert len(list(TablesReader(store).table(CHAIN_TABLE).scan(b"", b"\xff"))) == 2
    assert restored(store).view == chain.view
    assert (chain.view.version, chain.view.ever(7), chain.view.newest_txn(7)) == (1_000, 500, 5_000)


# Few snapshots in small parts


def small_chain(drops: int = 0) -> ChainView:
    """Two buckets with four snapshots each; the first few of bucket 1 are dropped."""
    view = ChainView()
    for n in range(1, 5):
        for bucket_id in (1, 2):
            view.capture(view.version + 1, view.version, bucket_id, f"{bucket_id}-{n}", n, 10 * n + bucket_id)
    for n in range(1, drops + 1):
        view.drop(view.version + 1, view.version, 1, f"1-{n}")
    return view


def publication(view: ChainView, max_cells: int = 3) -> list[SnapshotChainRecord]:
    return [SnapshotChainRecord(view.version, view.version, part) for part in in_parts(view.buckets(), max_cells)]


def test_a_part_holds_no_more_than_it_may_and_a_bucket_goes_on_in_the_next() -> None:
    for max_cells in range(2, 12):
        parts = in_parts(small_chain().buckets(), max_cells)
        assert all(sum(1 + len(one.snapshots) for one in part.buckets) <= max_cells for part in parts)
        assert [(part.part, part.parts) for part in parts] == [(n, len(parts)) for n in range(1, len(parts) + 1)]
    assert in_parts([]) == [FullChain((), 1, 1)]
    assert in_parts([ChainedBucket(1, (), 5, 50)], 2) == [FullChain((ChainedBucket(1, (), 5, 50),), 1, 1)]


def test_one_who_begins_amid_the_parts_waits_for_the_next_full_chain() -> None:
    view = small_chain()
    parts = publication(view)
    reader = ChainView()
    assert [reader.follow(part) for part in parts[1:]] == [None] * (len(parts) - 1)
    assert reader == ChainView()
    with pytest.raises(ChainGapError):
        reader.follow(SnapshotChainRecord(9, 8, ChainDrop(1, "1-1", 11, 0)))
    assert [reader.follow(part) is not None for part in parts] == [False] * (len(parts) - 1) + [True]
    assert reader == view


def test_parts_that_are_sent_again_from_anywhere_make_the_same_view() -> None:
    older, newer = small_chain(), small_chain(drops=2)
    drops = [SnapshotChainRecord(8 + n, 7 + n, ChainDrop(1, f"1-{n}", 10 * n + 1, 0)) for n in (1, 2)]
    log = [*publication(older), *drops, *publication(newer), *publication(newer)]
    random = Random(7)
    for _ in range(200):
        store, first = MemoryStore(), 0
        while first < len(log):  # what was sent and not acknowledged is sent again, from there on
            end = random.randint(first + 1, len(log))
            for record in log[first:end]:
                chain = restored(store)
                give(chain, store, record)
                assert chain.view in (ChainView(), older, small_chain(drops=1), newer)
            first = end if end == len(log) else random.randint(max(0, first - 1), end)
        assert restored(store).view == newer
        parts = [key for key, _ in TablesReader(store).table(CHAIN_TABLE).scan(b"#PART/", b"#PART0")]
        assert not parts


def test_a_full_chain_that_contradicts_the_markers_is_refused_when_it_is_complete() -> None:
    reader = small_chain()
    *parts, last = publication(small_chain(drops=1))
    for part in parts:
        assert reader.follow(SnapshotChainRecord(8, 8, part.body)) is None
    with pytest.raises(ChainOrderError, match="differ in bucket 1"):
        reader.follow(SnapshotChainRecord(8, 8, last.body))


def test_a_reader_may_start_only_where_all_parts_follow() -> None:
    parts = publication(small_chain())
    capture = SnapshotChainRecord(9, 8, ChainCapture(1, "1-5", 5, 99))
    count = len(parts)
    assert count > 2
    assert trimming.newest_start(enumerate([capture, *parts])) == 1
    assert trimming.newest_start(enumerate(parts[:-1])) is None
    assert trimming.newest_start(enumerate(parts[1:])) is None
    assert trimming.newest_start(enumerate([*parts, capture, *parts[:-1]])) == 0
    assert trimming.newest_start(enumerate([*parts[:-1], *parts])) == count - 1
    assert trimming.newest_start(enumerate([*parts, capture, *parts, *parts[1:]])) == count + 1


def test_rows_of_an_older_build_are_refused() -> None:
    store = MemoryStore()
    work = Work(0, store, RowCache())
    work.table(CHAIN_TABLE).put(b"%016x" % 1, ChainRow(SnapshotChainRecord(1, 0, ChainCapture(1, "s1", 1, 10))))
    work.write()
    with pytest.raises(InvariantError, match="start this service on an empty directory"):
        restored(store)
    shard = Shard()
    work = Work(0, shard.store, RowCache())
    row = SnapshotListRow("s1", 1, 1, 10, False, 0, 0, 0, 1, 2)
    work.table(SNAPSHOT_LIST_TABLE).put(snapshot_list_key(1, 1), row)
    work.write()
    with pytest.raises(InvariantError, match="deepclean rebuild"):
        shard.start()
