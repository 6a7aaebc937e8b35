"""What Spark makes of a batch of messages, without a broker: which are read, judged, passed over and named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from schemas.codec import codec
from schemas.records import (
    Barrier,
    ChainCapture,
    ChainDrop,
    DeletedEntries,
    DeletedKind,
    SnapshotChainRecord,
    SweptParts,
)
from schemas.topics import BY_NAME, DEAD_LETTERS, PURGE_KEYS, SWEEP_RESULTS, Topic
from services.domain.chain_view import ChainView
from services.domain.row_columns import DeletedEntry, deleted_entries, entries_by_columns, row_names
from streaming.reclaiming import batch_plans
from streaming.reclaiming.batch_plans import BatchPlans
from streaming.reclaiming.outcome import BatchOutcome, PlacedBarrier, PrematureMessage, PublishedEntries, Stretch
from streaming.reclaiming.prepared_plan import PreparedPlan, handed_in
from streaming.reclaiming.reclaim import is_one_of
from streaming.reclaiming.view_table import VersionTable, ViewTable
from streaming.reclaiming.waiting import MOST_PREMATURE
from tests.spark_session import SPARK_MARKS, started_session

pytestmark = [*SPARK_MARKS, pytest.mark.timeout(180)]

MESSAGE_TYPE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)
BUCKET_ID = 256
WRITTEN_AT = datetime(2026, 11, 28, tzinfo=UTC)
"""When the first message of a batch was written; each further one a second later."""
BARRIER = Barrier("settle-1", 1, 3, "", collection_txn=5, passed_txn=9)
FREE = DeletedEntry(BUCKET_ID, 1, DeletedKind.KEY, 5, 9, 0, 1)
HELD = replace(FREE, object_id=2, birth=50, death=150, snapshots_before_death=1)
ENTRIES = codec(DeletedEntries)


@dataclass(slots=True)
class Found:
    """All that a batch came to."""

    outcome: BatchOutcome
    sent: dict[tuple[Topic, int], list[Any]] = field(default_factory=dict)

    def of(self, topic: Topic, shard: int = 0) -> list[Any]:
        return self.sent.get((topic, shard), [])

    def purged(self, shard: int = 0) -> list[int]:
        names = row_names(purge.rows for purge in self.of(PURGE_KEYS, shard))
        return sorted(name.object_id for name in names)


class Bench:
    """A view of the chain, with one snapshot at txn 100, and batches that are judged by it."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self.plans, self.versions = BatchPlans(), VersionTable(session)
        view = ChainView()
        view.follow(SnapshotChainRecord(1, 0, ChainCapture(BUCKET_ID, "s1", 1, 100)))
        self.view = ViewTable(session).joined([view, view], {(0, BUCKET_ID), (1, BUCKET_ID)})

    def frame(self, messages: Sequence[tuple[int, bytes | None]], partitions: int = 1) -> DataFrame:
        rows: list[tuple[Any, ...]] = [
            (b"", body, "gc.deleted-entries", shard, offset, WRITTEN_AT + timedelta(seconds=offset), 0, [])
            for offset, (shard, body) in enumerate(messages)
        ]
        return self.session.createDataFrame(self.session.sparkContext.parallelize(rows, partitions), MESSAGE_TYPE)

    def judge(
        self,
        *messages: tuple[int, bytes | None],
        versions: Sequence[int | None] = (1, 1),
        is_patient: bool = True,
        partitions: int = 1,
    ) -> Found:
        batch = self.frame(messages, partitions)
        with self.plans.over(batch, self.view, self.versions.frame(versions), is_patient=is_patient) as judged:
            rows = judged.to_send.collect()
            found = Found(judged.outcome())
        for row in rows:
            topic = BY_NAME[row["topic"]]
            record = codec(topic.record).decode_message(bytes(row["value"]))
            found.sent.setdefault((topic, row["partition"]), []).append(record)
        return found


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with started_session() as session:
        yield Bench(session)


def written_ms(offset: int) -> int:
    """When the message at an offset of a batch was written."""
    return int(WRITTEN_AT.timestamp() + offset) * 1_000


def body(*entries: DeletedEntry, barrier: Barrier | None = None) -> bytes:
    return ENTRIES.encode_message(replace(entries_by_columns(entries), barrier=barrier))


def in_blocks(encoded: bytes, sizes: Sequence[int]) -> bytes:
    """The same message, the lists of its three bucket ids cut into blocks; a negative count has its size behind it."""
    number = b"\x80\x04"
    whole = b"\x06" + number * 3 + b"\x00"
    assert encoded.count(whole) == 1
    blocks = b""
    for size in sizes:
        blocks += bytes([2 * size]) if size > 0 else bytes([-2 * size - 1, 2 * len(number) * -size])
        blocks += number * abs(size)
    return encoded.replace(whole, blocks + b"\x00")


@pytest.mark.parametrize("sizes", [(3,), (1, 2), (-3,), (-1, 1, -1)])
def test_a_list_may_come_in_blocks(bench: Bench, sizes: Sequence[int]) -> None:
    entries = [replace(FREE, object_id=number) for number in (1, 2, 3)]
    blocked = in_blocks(body(*entries), sizes)
    assert deleted_entries(ENTRIES.decode_message(blocked)) == entries, "Avro allows it, and so does the codec"
    found = bench.judge((0, blocked))
    assert found.of(DEAD_LETTERS) == []
    assert found.purged() == [1, 2, 3]


@pytest.mark.parametrize("behind", [b"\x00", b"\x01" * 15, b"\x01" * 16, b"\x01" * 40])
def test_whatever_follows_a_message_makes_it_unreadable(bench: Bench, behind: bytes) -> None:
    found = bench.judge((0, body(FREE) + behind), (0, body(FREE)[:-1]), (0, body(HELD)))
    assert [letter.error for letter in found.of(DEAD_LETTERS)] == ["DecodeError", "DecodeError"]
    assert (found.outcome.dead_letters, found.outcome.held, found.purged()) == (2, 1, [])


def test_a_barrier_whose_text_is_none_is_unreadable(bench: Bench) -> None:
    sound = body(FREE, barrier=Barrier("settle-é", 1, 3, ""))
    broken = sound.replace("é".encode(), b"\xc3\x28")
    found = bench.judge((0, sound), (0, broken))
    assert [letter.offset for letter in found.of(DEAD_LETTERS)] == [1]
    assert [one.offset for one in found.outcome.barriers] == [0]


@pytest.mark.parametrize("partitions", [1, 4])
def test_rows_beside_a_barrier_are_judged_and_the_barrier_comes_once(bench: Bench, partitions: int) -> None:
    broken = replace(FREE, object_id=3, birth=10)
    together = body(broken, FREE, HELD, barrier=BARRIER)
    alone = ENTRIES.encode_message(DeletedEntries(0, entries_by_columns([FREE]).rows, (0,), barrier=BARRIER))
    found = bench.judge((0, together), (1, alone), partitions=partitions)
    assert found.purged() == [1]
    assert found.purged(1) == [1]
    assert found.outcome.held == 1
    assert [letter.error for letter in found.of(DEAD_LETTERS)] == ["LifetimeError"]
    assert found.outcome.barriers == (PlacedBarrier(0, 0, BARRIER), PlacedBarrier(1, 1, BARRIER))


def test_a_barrier_beside_rows_without_their_places_is_dead_lettered_with_them(bench: Bench) -> None:
    whole = entries_by_columns([FREE, HELD])
    broken = ENTRIES.encode_message(replace(whole, snapshots_before_death=(0,), barrier=BARRIER))
    found = bench.judge((0, broken))
    assert [letter.error for letter in found.of(DEAD_LETTERS)] == ["ColumnsError"]
    assert found.outcome.barriers == ()


def test_a_message_that_knows_of_more_chain_is_named_and_nothing_else_suffers(bench: Bench) -> None:
    sound = replace(FREE, sweep_id=7, sweep_page=2, sweep_txn=31, sweep_part=1)
    ahead = replace(sound, object_id=9, chain_version=2**62, sweep_part=0)
    messages = ((0, body(ahead, barrier=BARRIER)), (0, body(sound)), (1, body(FREE)))
    found = bench.judge(*messages)
    assert found.outcome.premature == (PrematureMessage(0, 0, 2**62),)
    assert (found.purged(), found.purged(1)) == ([1], [1])
    assert (found.outcome.barriers, found.outcome.dead_letters) == ((), 0)
    (result,) = found.of(SWEEP_RESULTS)
    assert (result.first_offset, result.judged_rows) == (0, 0), "nobody reads them"
    assert result.parts == SweptParts((31,), (1,), (1,)), "what waits is no part that was judged"


def test_a_message_that_may_not_wait_is_dead_lettered_as_a_whole(bench: Bench) -> None:
    ahead = body(replace(FREE, chain_version=5), replace(HELD, chain_version=5), barrier=BARRIER)
    found = bench.judge((0, ahead), (0, body(FREE)), is_patient=False)
    (letter,) = found.of(DEAD_LETTERS)
    assert (letter.offset, letter.error, letter.value) == (0, "PrematureError", ahead)
    assert "sent at chain version 5" in letter.message
    assert (found.outcome.premature, found.outcome.barriers, found.purged()) == ((), (), [1])


def test_as_many_messages_as_may_wait_are_found_at_once(bench: Bench) -> None:
    places = bench.session.range(2 * MOST_PREMATURE).selectExpr("int(id % 4) as partition", "id div 4 as offset")
    wanted = [PrematureMessage(number % 4, number // 4, 5) for number in range(0, 2 * MOST_PREMATURE, 2)]
    wanted[-1] = PrematureMessage(3, 0, 5)  # beside two shards with many, one with a single message
    found = handed_in(places.where(is_one_of(wanted))).collect()
    assert {(row["partition"], row["offset"]) for row in found} == {(one.shard, one.offset) for one in wanted}
    assert len(found) == len(wanted) == MOST_PREMATURE


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_shard_without_a_view_is_passed_over_as_a_whole(bench: Bench, partitions: int) -> None:
    messages = [
        *((0, body(FREE)), (1, body(FREE)), (1, b"garbage"), (2, body(FREE, barrier=BARRIER)), (0, body(HELD))),
        *((1, None), (1, body(replace(FREE, chain_version=5)))),
    ]
    found = bench.judge(*messages, versions=(1, None), partitions=partitions)
    assert {shard for _, shard in found.sent} == {0}
    assert found.outcome == BatchOutcome(
        entries=2,
        reclaimable=1,
        held=1,
        passed_over=(Stretch(1, 1, 7), Stretch(2, 3, 4)),
        published=(PublishedEntries(written_ms(0), 2),),
    )


def test_entries_are_as_old_as_the_oldest_judged_message_among_them(bench: Bench) -> None:
    messages = [(0, b"garbage"), (0, body(FREE)), (1, body(FREE)), (0, body(HELD))]
    messages += [(1, body(replace(FREE, chain_version=5)))]
    found = bench.judge(*messages)
    assert found.outcome.published == (PublishedEntries(written_ms(1), 2), PublishedEntries(written_ms(2), 1))


def test_what_was_found_is_of_all_groups(bench: Bench) -> None:
    """Pages of sweeps are groups of their own, and each says its part."""
    swept = [replace(FREE, object_id=number, sweep_id=7, sweep_page=number) for number in range(1, 6)]
    ahead = [replace(entry, chain_version=3) for entry in swept]
    found = bench.judge(
        *((0, body(entry, barrier=BARRIER)) for entry in swept), *((1, body(entry)) for entry in ahead), partitions=3
    )
    assert found.outcome.reclaimable == found.outcome.entries == 5
    assert [one.offset for one in found.outcome.barriers] == [0, 1, 2, 3, 4]
    assert [one.offset for one in found.outcome.premature] == [5, 6, 7, 8, 9]


def test_a_marker_changes_the_tables_of_a_kept_plan(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[DataFrame]()

    class Counted(PreparedPlan):
        def __init__(self, frame: DataFrame) -> None:
            made.append(frame)
            super().__init__(frame)

    monkeypatch.setattr(batch_plans, "PreparedPlan", Counted)
    view, table, versions, plans = ChainView(), ViewTable(bench.session), VersionTable(bench.session), BatchPlans()
    batch = bench.frame([(0, body(replace(HELD, chain_version=1)))])

    def outcome(body: ChainCapture | ChainDrop | None) -> BatchOutcome:
        changed = view.follow(SnapshotChainRecord(view.version + 1, view.version, body)) if body else ()
        joined = table.joined([view], {(0, bucket_id) for bucket_id in changed or ()})
        with plans.over(batch, joined, versions.frame([view.version])) as judged:
            return judged.outcome()

    assert outcome(None).premature == (PrematureMessage(0, 0, 1),)
    assert outcome(ChainCapture(BUCKET_ID, "s1", 1, 100)).held == 1, "a plan over no bucket at all has no table"
    planned = len(made)
    assert outcome(None).held == 1
    assert outcome(ChainCapture(BUCKET_ID + 1, "s2", 1, 200)).held == 1
    assert outcome(ChainDrop(BUCKET_ID, "s1", 100, 1)).reclaimable == 1
    assert len(made) == planned, "Spark has planned nothing again"
