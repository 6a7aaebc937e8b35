"""The pure judge: what it says of a list of entries, and how its service waits for the chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from schemas.codec import codec
from schemas.records import (
    Barrier,
    ChainCapture,
    ChainDrop,
    ChainedBucket,
    ChainedSnapshot,
    DeadLetter,
    DeletedEntries,
    DeletedKind,
    DirectoryVerdict,
    FullChain,
    JudgedDirectory,
    PurgeKeys,
    RowName,
    SnapshotChainRecord,
    SweepResult,
    SweptParts,
)
from schemas.topics import (
    DEAD_LETTERS,
    DELETED_ENTRIES,
    PURGE_DIRECTORIES,
    PURGE_KEYS,
    SNAPSHOT_CHAIN,
    SWEEP_RESULTS,
    Topic,
)
from services.domain.chain_view import ChainView
from services.domain.errors import ChainBrokenError, PrematureError
from services.domain.judging import ROWS_PER_MESSAGE, LoggedEntry, judge_batch
from services.domain.row_columns import (
    NO_ROWS,
    DeletedEntry,
    by_columns,
    deleted_entries,
    entries_by_columns,
    row_names,
)
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.plane.in_memory.judge import PureJudge
from services.runtime.loop.runner import Runner
from services.storage.memory import MemoryStore

BUCKET = 256
BARRIER = Barrier("settle-1", 1, 7, "")
FREE = DeletedEntry(BUCKET, 1, DeletedKind.KEY, birth=30, death=40, snapshots_before_death=1, chain_version=1)
HELD = DeletedEntry(BUCKET, 2, DeletedKind.KEY, birth=10, death=40, snapshots_before_death=1, chain_version=1)
CAPTURE_1 = SnapshotChainRecord(1, 0, ChainCapture(BUCKET, "s1", 1, 20))
CAPTURE_2 = SnapshotChainRecord(2, 1, ChainCapture(BUCKET, "s2", 2, 50))
DROP_1 = SnapshotChainRecord(3, 2, ChainDrop(BUCKET, "s1", 20, 1))


def viewed(*markers: SnapshotChainRecord) -> ChainView:
    view = ChainView()
    for marker in markers:
        view.follow(marker)
    return view


def logged(*entries: DeletedEntry, first_offset: int = 0) -> list[LoggedEntry]:
    return [LoggedEntry(offset, entry) for offset, entry in enumerate(entries, start=first_offset)]


def named(entry: DeletedEntry) -> RowName:
    return RowName(entry.kind, entry.bucket_id, entry.object_id, entry.birth, entry.death)


def purged(*messages: object) -> list[RowName]:
    return [row for message in messages if isinstance(message, PurgeKeys) for row in row_names([message.rows])]


def purge(version: int, entry: DeletedEntry) -> PurgeKeys:
    (columns,) = by_columns([named(entry)])
    return PurgeKeys(version, columns, (entry.snapshots_before_death,))


def test_only_what_nobody_holds_is_in_a_purge_request() -> None:
    rename = replace(FREE, object_id=3, kind=DeletedKind.RENAME_ENTRY)
    judged = judge_batch(logged(FREE, HELD, rename), viewed(CAPTURE_1))
    assert judged.purge_keys == [purge(1, FREE), purge(1, rename)]
    assert judged.directory_verdicts == []
    assert judged.sweep_results == []


def test_every_directory_goes_on_with_its_verdict() -> None:
    free, held = (replace(entry, kind=DeletedKind.DIRECTORY) for entry in (FREE, HELD))
    judged = judge_batch(logged(free, held), viewed(CAPTURE_1))
    assert judged.purge_keys == []
    assert judged.directory_verdicts == [
        DirectoryVerdict(
            1,
            (
                JudgedDirectory(BUCKET, 1, 30, 40, 1, is_reclaimable=True),
                JudgedDirectory(BUCKET, 2, 10, 40, 1, is_reclaimable=False),
            ),
        )
    ]


def test_a_message_carries_no_more_rows_than_allowed() -> None:
    entries = [replace(FREE, object_id=number) for number in range(2 * ROWS_PER_MESSAGE + 1)]
    judged = judge_batch(logged(*entries), viewed(CAPTURE_1))
    assert [len(message.rows.object_ids) for message in judged.purge_keys] == [ROWS_PER_MESSAGE, ROWS_PER_MESSAGE, 1]
    assert purged(*judged.purge_keys) == [named(entry) for entry in entries]


def test_the_parts_of_sweeps_are_counted_with_those_that_cannot_be_judged() -> None:
    swept = [replace(entry, sweep_id=9, sweep_page=2, sweep_txn=77) for entry in (FREE, HELD)]
    directory = replace(swept[0], kind=DeletedKind.DIRECTORY, sweep_part=1)
    impossible = replace(swept[0], birth=41)
    other_page = replace(swept[0], sweep_page=3)
    entries = [
        *logged(FREE, first_offset=100),
        *(LoggedEntry(101, one) for one in (*swept, impossible)),
        *logged(directory, other_page, first_offset=102),
    ]
    judged = judge_batch(entries, viewed(CAPTURE_1))
    assert judged.sweep_results == [
        SweepResult(9, 2, 0, 0, 1, 1, 1, None, SweptParts((77, 77), (0, 1), (3, 1))),
        SweepResult(9, 3, 0, 0, 1, 0, 1, None, SweptParts((77,), (0,), (1,))),
    ]
    assert [(refused.logged.offset, refused.error) for refused in judged.refused] == [(101, "LifetimeError")]


def test_a_part_of_a_sweep_that_comes_twice_has_as_many_rows_as_once() -> None:
    swept = [replace(entry, sweep_id=9, sweep_page=2, sweep_txn=77) for entry in (FREE, HELD)]
    twice = [LoggedEntry(offset, one) for offset in (5, 8) for one in swept]
    (result,) = judge_batch(twice, viewed(CAPTURE_1)).sweep_results
    assert result.parts == SweptParts((77,), (0,), (2,))


def test_what_a_sweep_has_found_is_not_mixed_with_what_was_deleted() -> None:
    swept = replace(FREE, object_id=5, sweep_id=9, sweep_page=2, sweep_txn=77)
    judged = judge_batch(logged(FREE, swept), viewed(CAPTURE_1))
    assert judged.purge_keys == [purge(1, FREE), replace(purge(1, swept), is_sweep=True)]


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (replace(FREE, birth=41), "LifetimeError"),
        (replace(FREE, death=20, birth=5), "LifetimeError"),
        (replace(FREE, snapshots_before_death=2), "UnknownDeathError"),
        (replace(FREE, snapshots_before_death=-1), "UnknownDeathError"),
        (replace(FREE, bucket_id=BUCKET + 1), "UnknownDeathError"),
    ],
)
def test_a_row_that_cannot_be_judged_is_kept(entry: DeletedEntry, error: str) -> None:
    judged = judge_batch(logged(entry), viewed(CAPTURE_1))
    assert [refused.error for refused in judged.refused] == [error]
    assert judged.purge_keys == []


def test_no_snapshot_before_the_death_needs_no_bucket_in_the_view() -> None:
    entry = replace(FREE, bucket_id=BUCKET + 1, snapshots_before_death=0)
    judged = judge_batch(logged(entry), viewed(CAPTURE_1))
    assert judged.purge_keys == [purge(1, entry)]


def test_a_judge_that_knows_less_than_the_entry_does_not_judge() -> None:
    with pytest.raises(PrematureError):
        judge_batch(logged(replace(FREE, chain_version=2)), viewed(CAPTURE_1))


def test_the_view_may_start_at_a_full_chain() -> None:
    snapshots = (ChainedSnapshot("s1", 1, 20, is_live=False), ChainedSnapshot("s2", 2, 50, is_live=True))
    view = viewed(SnapshotChainRecord(17, 17, FullChain((ChainedBucket(BUCKET, snapshots),))))
    late = replace(HELD, chain_version=17)
    assert judge_batch(logged(late), view).purge_keys == [purge(17, late)]


class Judge:
    """A pure judge on a log in memory."""

    def __init__(self, max_batch_messages: int = 100) -> None:
        self.clock = VirtualClock()
        self.log = MemoryLog(self.clock)
        self.store = MemoryStore()
        self._max_batch_messages = max_batch_messages
        self.restart()

    def restart(self) -> None:
        self.service = PureJudge()
        self.runner = Runner(
            self.service, 0, self.store, self.log, self.clock, max_batch_messages=self._max_batch_messages
        )

    def send(self, topic: Topic, *sent: DeletedEntry | DeletedEntries | SnapshotChainRecord) -> None:
        encoder = codec(topic.record)
        for one in sent:
            record = entries_by_columns([one]) if isinstance(one, DeletedEntry) else one
            self.log.append(topic.name, 0, encoder.encode_message(record))

    def judge(self) -> None:
        while self.runner.step():
            pass

    def received(self, topic: Topic) -> Iterator[object]:
        for record in self.log.records(topic.name, 0):
            yield codec(topic.record).decode_message(record.value)


def barrier_message(barrier: Barrier) -> DeletedEntries:
    return DeletedEntries(0, NO_ROWS, (), barrier=barrier)


@pytest.mark.parametrize("max_batch_messages", [1, 2, 100])
def test_what_waits_for_the_chain_holds_back_all_behind_it(max_batch_messages: int) -> None:
    judge = Judge(max_batch_messages)
    newer = replace(FREE, chain_version=2)
    behind = replace(FREE, object_id=5, snapshots_before_death=0, birth=1, death=2, chain_version=0)
    judge.send(DELETED_ENTRIES, newer, behind, barrier_message(BARRIER))
    judge.send(SNAPSHOT_CHAIN, CAPTURE_1)
    judge.judge()
    assert list(judge.received(PURGE_KEYS)) == []
    judge.restart()
    judge.send(SNAPSHOT_CHAIN, CAPTURE_2)
    judge.judge()
    *purges, last = judge.received(PURGE_KEYS)
    assert purged(*purges) == [named(newer), named(behind)]
    assert last == PurgeKeys(2, NO_ROWS, (), BARRIER)
    assert list(judge.received(PURGE_DIRECTORIES)) == [DirectoryVerdict(2, (), BARRIER)]
    assert list(judge.received(SWEEP_RESULTS)) == [SweepResult(0, 0, 0, 0, 0, 0, 2, BARRIER)]
    judge.restart()
    judge.judge()  # what was sent last may be sent again, and nothing else is
    assert set(judge.received(PURGE_KEYS)) == {*purges, last}


def test_rows_beside_a_barrier_are_judged_and_the_barrier_comes_once() -> None:
    judge = Judge()
    judge.send(SNAPSHOT_CHAIN, CAPTURE_1)
    judge.judge()
    together = replace(entries_by_columns([replace(FREE, object_id=5), FREE]), barrier=BARRIER)
    judge.send(DELETED_ENTRIES, together, replace(together, snapshots_before_death=()))
    judge.judge()
    *purges, last = judge.received(PURGE_KEYS)
    assert purged(*purges) == [named(replace(FREE, object_id=5)), named(FREE)]
    assert last == PurgeKeys(1, NO_ROWS, (), BARRIER)
    (letter,) = judge.received(DEAD_LETTERS)
    assert isinstance(letter, DeadLetter)
    assert (letter.offset, letter.error) == (1, "ColumnsError"), "put aside as a whole, with its barrier"


def test_the_view_outlives_a_restart() -> None:
    judge = Judge()
    judge.send(SNAPSHOT_CHAIN, CAPTURE_1, CAPTURE_2, CAPTURE_1, CAPTURE_2)
    judge.judge()
    judge.restart()
    assert judge.service._chain.view.version == 2
    judge.send(SNAPSHOT_CHAIN, DROP_1)
    judge.send(DELETED_ENTRIES, replace(HELD, chain_version=3))
    judge.judge()
    assert list(judge.received(PURGE_KEYS)) == [purge(3, HELD)]


def test_a_dead_letter_carries_the_entry() -> None:
    judge = Judge()
    impossible = replace(FREE, birth=99, chain_version=0)
    judge.send(DELETED_ENTRIES, FREE, impossible)
    judge.send(SNAPSHOT_CHAIN, CAPTURE_1)
    judge.judge()
    (letter,) = judge.received(DEAD_LETTERS)
    assert isinstance(letter, DeadLetter)
    assert (letter.service, letter.topic, letter.partition, letter.offset) == ("streaming", DELETED_ENTRIES.name, 0, 1)
    assert letter.error == "LifetimeError"
    assert deleted_entries(codec(DeletedEntries).decode_message(letter.value)) == [impossible]
    assert list(judge.received(PURGE_KEYS)) == [purge(1, FREE)]


def test_a_gap_in_the_chain_stops_the_judge() -> None:
    judge = Judge()
    judge.send(SNAPSHOT_CHAIN, CAPTURE_1, DROP_1)
    judge.send(DELETED_ENTRIES, FREE)
    with pytest.raises(ChainBrokenError, match=r"gc\.snapshot-chain"):
        judge.judge()
    assert list(judge.received(PURGE_KEYS)) == []
