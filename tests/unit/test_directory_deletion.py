"""directory_deletion: expansion whatever the verdict, purge from the leaves up, and barriers that end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from schemas.records import (
    Barrier,
    BucketCollector,
    ChainDrop,
    ChainTake,
    CollectorChanged,
    CollectorState,
    DirectoriesPurged,
    DirectoryExpanded,
    ExpandDirectory,
    ExpansionOutcome,
    JudgedDirectory,
    MetadataProgress,
    PurgedDirectory,
    PurgeDirectories,
    PurgeDirectory,
    PurgeOutcome,
    RowName,
    SnapshotChainRecord,
)
from schemas.topics import METADATA_COMMANDS, METADATA_PROGRESS, PURGE_DIRECTORIES, SNAPSHOT_CHAIN
from services.directory_deletion.metrics import DirectoryDeletionMetrics
from services.directory_deletion.service import DirectoryDeletionService
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.directory_deletion.tables import TREE_TABLE
from services.domain.errors import ChainBrokenError
from services.storage.tables import Table
from tests.unit.service_desk import Desk, Sent, bodies, only, senders

RUNNING, SHADOW, PAUSED = CollectorState.RUNNING, CollectorState.SHADOW, CollectorState.PAUSED
BUCKET = 7
DEATH = 5_000
LATE = DEATH + 1_000
ROOT, CHILD, GRANDCHILD = 10, 11, 12
SETTINGS = DirectoryDeletionSettings(
    max_page_entries=100,
    max_page_bytes=1_000,
    max_expansions_in_flight=3,
    max_purge_rows=4,
    max_purging_rows=6,
    first_blocked_ms=1_000,
    longest_blocked_ms=4_000,
    answer_timeout_ms=50_000,
)


class Registry:
    """The service's counters, read by name."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = DirectoryDeletionMetrics(self.registry)

    def __call__(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(f"deepclean_directory_deletion_{name}", labels)
        assert value is not None, name
        return value


@pytest.fixture
def counted() -> Registry:
    return Registry()


@pytest.fixture
def desk(counted: Registry) -> Desk:
    return Desk(lambda: DirectoryDeletionService(SETTINGS, counted.metrics))


def directory(object_id: int, *, free: bool = True, birth: int = 1_000, before: int = 0) -> JudgedDirectory:
    return JudgedDirectory(BUCKET, object_id, birth, DEATH, before, free)


def judged(*directories: JudgedDirectory, version: int = 0) -> Sent:
    return PURGE_DIRECTORIES, PurgeDirectory(version, directories)


def expanded(object_id: int, outcome: ExpansionOutcome = ExpansionOutcome.EXPANDED) -> Sent:
    return METADATA_PROGRESS, MetadataProgress(1, DirectoryExpanded(BUCKET, object_id, DEATH, outcome, 1, 2))


def purged(*outcomes: tuple[int, int, PurgeOutcome]) -> Sent:
    found = tuple(PurgedDirectory(BUCKET, one, DEATH, parent, outcome) for one, parent, outcome in outcomes)
    return METADATA_PROGRESS, MetadataProgress(1, DirectoriesPurged(found))


def take(version: int, txn: int, ordinal: int) -> Sent:
    return SNAPSHOT_CHAIN, SnapshotChainRecord(version, version - 1, ChainTake(BUCKET, f"s{ordinal}", ordinal, txn))


def drop(version: int, txn: int, ordinal: int) -> Sent:
    return SNAPSHOT_CHAIN, SnapshotChainRecord(version, version - 1, ChainDrop(BUCKET, f"s{ordinal}", txn, 1))


def barrier(work: int = 0, passed_txn: int = LATE) -> Sent:
    return PURGE_DIRECTORIES, PurgeDirectory(0, (), Barrier("settle", 1, work, "", passed_txn=passed_txn))


def work_of(desk: Desk) -> int:
    """What a barrier that passes now counts."""
    return bodies(desk.give(barrier()), Barrier)[0].work


def purging(sent: list[Sent]) -> list[int]:
    return [name.object_id for command in bodies(sent, PurgeDirectories) for name in command.rows]


def states(desk: Desk) -> dict[int, str]:
    return {row.object_id: row.state for row in desk.rows(TREE_TABLE)}


def empty(desk: Desk, *object_ids: int) -> list[Sent]:
    """Bring directories that nobody holds to their first purge."""
    desk.give(judged(*(directory(object_id) for object_id in object_ids)))
    return desk.give(*(expanded(object_id) for object_id in object_ids))


class TestExpansion:
    def test_every_directory_is_expanded_whatever_its_verdict(self, desk: Desk) -> None:
        sent = desk.give(judged(directory(ROOT, free=False), directory(CHILD), version=9))
        assert bodies(sent, ExpandDirectory) == [
            ExpandDirectory(BUCKET, object_id, DEATH, 100, 1_000) for object_id in (ROOT, CHILD)
        ]
        assert senders(sent) == {"directory_deletion"}

    def test_page_by_page_to_the_end(self, desk: Desk, counted: Registry) -> None:
        first = only(desk.give(judged(directory(ROOT))), ExpandDirectory)
        desk.restart()
        assert only(desk.give(expanded(ROOT, ExpansionOutcome.PARTLY)), ExpandDirectory) == first
        sent = desk.give(expanded(ROOT))
        assert purging(sent) == [ROOT]
        assert not desk.give(expanded(ROOT), expanded(ROOT, ExpansionOutcome.PARTLY)), "answers that come again"
        assert (counted("expansions_total"), counted("moved_files_total")) == (1, 4)

    def test_a_held_directory_is_forgotten_once_it_is_empty(self, desk: Desk) -> None:
        desk.give(judged(directory(ROOT, free=False)))
        assert not desk.give(expanded(ROOT))
        assert not states(desk)

    def test_one_that_is_gone_is_forgotten(self, desk: Desk) -> None:
        desk.give(judged(directory(ROOT)))
        assert not desk.give(expanded(ROOT, ExpansionOutcome.GONE))
        assert not states(desk)

    def test_a_verdict_that_comes_later_counts(self, desk: Desk) -> None:
        desk.give(judged(directory(ROOT, free=False)))
        assert not desk.give(judged(directory(ROOT)))
        assert purging(desk.give(expanded(ROOT))) == [ROOT]

    def test_so_many_at_once(self, desk: Desk) -> None:
        first = bodies(desk.give(judged(*(directory(number) for number in range(1, 6)))), ExpandDirectory)
        assert len(first) == 3
        desk.restart()
        assert len(bodies(desk.give(expanded(1), expanded(2)), ExpandDirectory)) == 2

    def test_first_come_first_served(self, desk: Desk) -> None:
        """Sweeps bring what a snapshot holds again and again: by number, those would keep others waiting for ever."""
        held = (1, 2, 3)
        desk.give(*(judged(directory(one, free=False)) for one in held))
        desk.give(judged(directory(9)))
        desk.wait(1)
        desk.restart()
        sent = [message for one in held for message in desk.give(expanded(one), judged(directory(one, free=False)))]
        assert next(command.object_id for command in bodies(sent, ExpandDirectory)) == 9

    def test_without_an_answer_the_same_is_asked_again(self, desk: Desk, counted: Registry) -> None:
        page = only(desk.give(judged(directory(ROOT))), ExpandDirectory)
        assert not desk.wait(49_999)
        assert only(desk.wait(1), ExpandDirectory) == page
        desk.give(expanded(ROOT))
        desk.restart()
        assert purging(desk.wait(50_000)) == [ROOT]
        assert counted("asked_again_total", step="purging") == 1


class TestJudging:
    def test_the_purge_waits_for_the_chain_that_judged_it(self, desk: Desk) -> None:
        desk.give(judged(directory(ROOT, birth=1_100, before=1), version=1))
        assert not desk.give(expanded(ROOT))
        desk.restart()
        command = only(desk.give(take(1, 1_000, 1)), PurgeDirectories)
        assert (command.chain_version, command.rows[0].birth) == (1, 1_100)

    def test_a_held_one_is_kept_and_counted(self, desk: Desk, counted: Registry) -> None:
        desk.give(take(1, 1_000, 1))
        desk.give(judged(directory(ROOT, birth=1_000, before=1), version=1))
        assert not desk.give(expanded(ROOT))
        assert counted("rows_judged_total", verdict="exclusive_to_previous") == 1
        assert not states(desk)

    def test_one_that_cannot_be_judged_is_kept(self, desk: Desk, counted: Registry) -> None:
        desk.give(judged(directory(ROOT, before=4)))
        assert not desk.give(expanded(ROOT))
        assert counted("rows_judged_total", verdict="unjudgeable") == 1

    def test_a_missing_marker_stops_everything(self, desk: Desk) -> None:
        with pytest.raises(ChainBrokenError):
            desk.give(take(2, 1_000, 2))


class TestPurge:
    def test_children_go_before_their_parents(self, desk: Desk) -> None:
        assert purging(empty(desk, ROOT, CHILD, GRANDCHILD)) == [GRANDCHILD, CHILD, ROOT]

    def test_so_many_in_a_command_and_in_flight(self, desk: Desk) -> None:
        numbers = range(1, 9)
        sent: list[Sent] = []
        for number in numbers:
            sent += desk.give(judged(directory(number)))
        for number in numbers:
            sent += desk.give(expanded(number))
        assert len(purging(sent)) == 6
        more = purging(desk.give(purged(*((number, 1, PurgeOutcome.PURGED) for number in range(1, 7)))))
        assert len(more) == 2
        other = Desk(lambda: DirectoryDeletionService(replace(SETTINGS, max_expansions_in_flight=9)))
        commands = bodies(empty(other, *numbers), PurgeDirectories)
        assert [len(command.rows) for command in commands] == [4, 2]

    def test_a_parent_is_tried_again_when_its_child_is_purged(self, desk: Desk) -> None:
        empty(desk, ROOT)
        assert not desk.give(purged((ROOT, 1, PurgeOutcome.HAS_CHILDREN)))
        assert states(desk) == {ROOT: "BLOCKED"}
        empty(desk, CHILD)
        desk.restart()
        assert purging(desk.give(purged((CHILD, ROOT, PurgeOutcome.PURGED)))) == [ROOT]
        assert not desk.give(purged((ROOT, 1, PurgeOutcome.PURGED)))
        assert not states(desk)

    def test_a_child_purged_before_the_answer_to_its_parent_is_not_missed(self, desk: Desk) -> None:
        empty(desk, ROOT, CHILD)
        answers = purged((ROOT, 1, PurgeOutcome.HAS_CHILDREN), (CHILD, ROOT, PurgeOutcome.PURGED))
        assert purging(desk.give(answers)) == [ROOT]

    def test_only_a_child_of_the_same_deletion_wakes_its_parent(self, desk: Desk) -> None:
        empty(desk, ROOT)
        desk.give(purged((ROOT, 1, PurgeOutcome.HAS_CHILDREN)))
        other = PurgedDirectory(BUCKET, CHILD, DEATH + 1, ROOT, PurgeOutcome.PURGED)
        assert not desk.give((METADATA_PROGRESS, MetadataProgress(1, DirectoriesPurged((other,)))))

    @pytest.mark.parametrize("outcome", [PurgeOutcome.GONE, PurgeOutcome.HELD, PurgeOutcome.PURGED])
    def test_what_is_gone_or_held_is_forgotten(self, desk: Desk, counted: Registry, outcome: PurgeOutcome) -> None:
        empty(desk, ROOT)
        assert not desk.give(purged((ROOT, 0, outcome)))
        assert not states(desk)
        assert counted("purges_refused_total") == (outcome is PurgeOutcome.HELD)

    def test_one_that_is_not_expanded_is_expanded(self, desk: Desk) -> None:
        empty(desk, ROOT)
        assert bodies(desk.give(purged((ROOT, 1, PurgeOutcome.UNEXPANDED))), ExpandDirectory)

    def test_a_net_tries_a_blocked_one_slower_and_slower(self, desk: Desk) -> None:
        empty(desk, ROOT)
        for pause_ms in (1_000, 2_000, 4_000, 4_000):
            desk.give(purged((ROOT, 1, PurgeOutcome.HAS_CHILDREN)))
            desk.restart()
            assert not desk.wait(pause_ms - 1)
            assert purging(desk.wait(1)) == [ROOT]

    def test_a_child_whose_purge_went_unheard_wakes_its_parent(self, desk: Desk) -> None:
        """On an older copy of the database it is asked for again, and gone: metadata does not know its parent then."""
        empty(desk, ROOT)
        desk.give(purged((ROOT, 1, PurgeOutcome.HAS_CHILDREN)))
        empty(desk, CHILD)
        desk.restart()
        assert purging(desk.give(purged((CHILD, 0, PurgeOutcome.GONE)))) == [ROOT]

    def test_a_mere_try_is_work_once_the_child_is_gone(self, desk: Desk) -> None:
        empty(desk, ROOT)
        desk.give(purged((ROOT, 1, PurgeOutcome.HAS_CHILDREN)))
        empty(desk, CHILD)
        desk.give(barrier())
        desk.give(purged((CHILD, ROOT, PurgeOutcome.PURGED)))
        assert [work_of(desk) > 0 for _ in range(3)] == [True] * 3

    def test_answers_about_strangers_do_nothing(self, desk: Desk) -> None:
        assert not desk.give(expanded(99), purged((99, 98, PurgeOutcome.HAS_CHILDREN), (97, 96, PurgeOutcome.PURGED)))


class TestBarrier:
    def test_it_goes_on_behind_what_was_sent(self, desk: Desk) -> None:
        sent = desk.give(barrier(work=4))
        assert only(sent, Barrier) == Barrier("settle", 1, 4, "directory_deletion", passed_txn=LATE)
        assert sent[0][0] is METADATA_COMMANDS
        assert senders(sent) == {"directory_deletion"}

    def test_it_counts_what_is_on_its_way_and_what_was_done(self, desk: Desk) -> None:
        desk.give(judged(directory(ROOT)))
        assert work_of(desk) > 0
        assert work_of(desk) == 1, "waiting for its expansion"
        desk.give(expanded(ROOT))
        desk.restart()
        assert work_of(desk) > 1
        desk.give(purged((ROOT, 1, PurgeOutcome.PURGED)))
        assert work_of(desk) > 0
        assert work_of(desk) == 0

    def test_a_parent_that_waits_for_a_held_child_is_no_work(self, desk: Desk) -> None:
        desk.give(take(1, 1_000, 1))
        desk.give(judged(directory(ROOT, birth=1_001, before=1), directory(CHILD, free=False, before=1), version=1))
        desk.give(expanded(ROOT), expanded(CHILD))
        desk.give(purged((ROOT, 1, PurgeOutcome.HAS_CHILDREN)))
        assert work_of(desk) > 0
        desk.give(purged((ROOT, 1, PurgeOutcome.HAS_CHILDREN)))
        for _ in range(3):
            desk.restart()
            sent = desk.give(barrier())
            assert bodies(sent, Barrier)[0].work == 0, "there is nothing that anybody could do"
            assert purging(sent) == [ROOT], "tried all the same, in case that something went unseen"
            assert work_of(desk) == 0
            desk.give(purged((ROOT, 1, PurgeOutcome.HAS_CHILDREN)))
        # The snapshot goes; the sweep of its store brings the child again.
        desk.give(drop(2, 1_000, 1))
        desk.give(judged(directory(CHILD, before=1), version=2))
        assert work_of(desk) > 0
        assert purging(desk.give(expanded(CHILD))) == [CHILD]
        # Metadata answers in the order of its log: first the try that the barrier has caused.
        answers = purged((ROOT, 1, PurgeOutcome.HAS_CHILDREN), (CHILD, ROOT, PurgeOutcome.PURGED))
        assert purging(desk.give(answers)) == [ROOT]
        assert work_of(desk) > 0
        desk.give(purged((ROOT, 1, PurgeOutcome.PURGED)))
        work_of(desk)
        assert work_of(desk) == 0
        assert not states(desk)

    def test_a_blocked_one_that_a_sweep_brings_again_is_tried_at_once(self, desk: Desk) -> None:
        empty(desk, ROOT)
        desk.give(purged((ROOT, 1, PurgeOutcome.HAS_CHILDREN)))
        assert purging(desk.give(judged(directory(ROOT)))) == [ROOT]


@dataclass
class SmallTree:
    """What metadata has of some deleted directories: who is whose child, and who is expanded."""

    parents: dict[int, int]
    expanded: set[int]
    rows: set[int]
    held: set[int]

    def expand(self, command: ExpandDirectory, random: Random) -> Sent:
        if command.object_id not in self.rows:
            return expanded(command.object_id, ExpansionOutcome.GONE)
        if command.object_id not in self.expanded and random.random() < 0.4:
            return expanded(command.object_id, ExpansionOutcome.PARTLY)
        self.expanded.add(command.object_id)
        return expanded(command.object_id)

    def purge(self, name: RowName) -> tuple[int, int, PurgeOutcome]:
        one, parent = name.object_id, self.parents[name.object_id]
        if one not in self.rows:
            return one, 0, PurgeOutcome.GONE
        if one not in self.expanded:
            return one, parent, PurgeOutcome.UNEXPANDED
        if any(self.parents[row] == one for row in self.rows):
            return one, parent, PurgeOutcome.HAS_CHILDREN
        assert one not in self.held
        self.rows.remove(one)
        return one, parent, PurgeOutcome.PURGED


def play(seed: int, *, is_restored: bool) -> tuple[list[Sent], SmallTree, Desk]:
    """Delete a random tree of which some directories are held; metadata answers in order, the judge in any order."""
    random = Random(seed)
    limits = replace(SETTINGS, max_expansions_in_flight=2, max_purge_rows=3, answer_timeout_ms=3_000)
    desk = Desk(lambda: DirectoryDeletionService(limits), is_restored)
    count = random.randrange(1, 12)
    parents = {one: random.randrange(one) for one in range(1, count + 1)}
    tree = SmallTree(parents, set(), set(parents), {one for one in parents if random.random() < 0.2})
    to_judge = [directory(one, free=one not in tree.held) for one in parents]
    commands: list[Sent] = []
    for _ in range(300):
        desk.now_ms += random.choice([0, 1, 1_000])
        inputs: list[Sent] = []
        if to_judge and random.random() < 0.5:
            place = random.randrange(len(to_judge))
            inputs.append(judged(to_judge[place] if random.random() < 0.2 else to_judge.pop(place)))
        if commands and random.random() < 0.8:
            body = commands.pop(0)[1].body
            if isinstance(body, ExpandDirectory):
                answer = tree.expand(body, random)
            else:
                answer = purged(*(tree.purge(name) for name in body.rows))
            inputs += [answer] * random.choice([1, 1, 1, 2])
        commands += desk.give(*inputs)
        if not to_judge and not commands and not desk.give(barrier())[0][1].body.work:
            break
    return desk.sent, tree, desk


@given(st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_a_restart_between_any_two_messages_changes_nothing(seed: int) -> None:
    assert play(seed, is_restored=True)[0] == play(seed, is_restored=False)[0]


BUCKETS = (70, 7, 8)


class PausedShard:
    """Metadata with some directories of three buckets, pauses that it has told, and answers that are on their way."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.states: dict[int, CollectorState] = {}
        self.told_txn = 0
        self.answers: list[Sent] = []

    def something(self, txn: int) -> list[Sent]:
        """What comes next to directory_deletion."""
        match self.random.choice(["judge", "judge", "answer", "answer", "answer", "pause", "whole"]):
            case "judge":
                bucket_id, object_id = self.random.choice(BUCKETS), self.random.randrange(1, 9)
                named = JudgedDirectory(bucket_id, object_id, 1, self.random.randrange(10, 14), 0, is_reclaimable=True)
                return [(PURGE_DIRECTORIES, PurgeDirectory(0, (named,)))]
            case "pause":
                bucket_id = self.random.choice((0, *BUCKETS))
                self.states[bucket_id] = self.random.choice((RUNNING, SHADOW, PAUSED))
                before, self.told_txn = self.told_txn, txn
                if self.random.random() < 0.3:  # it is lost on the way
                    return []
                change = CollectorChanged((BucketCollector(bucket_id, self.states[bucket_id]),), txn, before)
                return [(METADATA_PROGRESS, MetadataProgress(txn, change))]
            case "whole":
                held = tuple(BucketCollector(*one) for one in sorted(self.states.items()) if one[1] is not RUNNING)
                change = CollectorChanged(held, txn, self.told_txn, is_whole=True)
                return [(METADATA_PROGRESS, MetadataProgress(txn, change))]
        return [self.answers.pop(0)] if self.answers else []

    def ask(self, sent: list[Sent], txn: int) -> None:
        """Answer what directory_deletion asks for, later."""
        for body in bodies(sent, ExpandDirectory):
            outcome = self.random.choice((ExpansionOutcome.PARTLY, ExpansionOutcome.EXPANDED))
            answer = DirectoryExpanded(body.bucket_id, body.object_id, body.death, outcome, 0, 0)
            self.answers.append((METADATA_PROGRESS, MetadataProgress(txn, answer)))
        for command in bodies(sent, PurgeDirectories):
            rows = tuple(PurgedDirectory(n.bucket_id, n.object_id, n.death, 0, self.purge(n)) for n in command.rows)
            self.answers.append((METADATA_PROGRESS, MetadataProgress(txn, DirectoriesPurged(rows))))

    def purge(self, name: RowName) -> PurgeOutcome:
        """What becomes of one row."""
        if {self.states.get(0, RUNNING), self.states.get(name.bucket_id, RUNNING)} != {RUNNING}:
            return PurgeOutcome.HELD_BACK
        return self.random.choice((PurgeOutcome.PURGED, PurgeOutcome.HAS_CHILDREN, PurgeOutcome.UNEXPANDED))


def play_with_pauses(seed: int, *, is_restored: bool) -> tuple[list[Sent], list[str]]:
    """What is sent in a run with pauses, and what is reported in between."""
    counted = Registry()
    limits = replace(SETTINGS, max_expansions_in_flight=2, max_purge_rows=3, answer_timeout_ms=3_000)
    desk = Desk(lambda: DirectoryDeletionService(limits, counted.metrics), is_restored)
    shard, reported = PausedShard(seed), list[str]()
    for txn in range(100, 1_300, 10):
        desk.now_ms += shard.random.choice([0, 1, 1_000])
        batch = [one for place in range(shard.random.choice((1, 1, 4))) for one in shard.something(txn + place)]
        shard.ask(desk.give(*batch), txn + 9)
        if shard.random.random() < 0.1:
            sent = desk.give(barrier())
            reported.append(f"work {bodies(sent, Barrier)[0].work}")
            shard.ask(sent, txn)
        reported.append(str(sorted(Counter(row.state for row in desk.rows(TREE_TABLE)).items())))
    return desk.sent, reported


@given(st.integers(0, 10**9))
@settings(max_examples=100, deadline=None)
def test_a_pause_has_what_is_in_memory_as_a_restart_would_make_it(seed: int) -> None:
    assert play_with_pauses(seed, is_restored=True) == play_with_pauses(seed, is_restored=False)


def test_a_pause_of_one_bucket_reads_no_row_of_another(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [replace(directory(object_id), bucket_id=bucket) for bucket in BUCKETS for object_id in range(1, 30)]
    desk.give(judged(*rows))
    read = Counter[bytes]()
    scan = Table.scan

    def counting(self: Table[Any], start: bytes, end: bytes) -> Iterator[tuple[bytes, Any]]:
        for key, row in scan(self, start, end):
            read[key.split(b"/")[1]] += self._name == TREE_TABLE.name
            yield key, row

    monkeypatch.setattr(Table, "scan", counting)
    change = CollectorChanged((BucketCollector(BUCKET, PAUSED),), 50, 0)
    desk.give((METADATA_PROGRESS, MetadataProgress(50, change)))
    assert +read == {b"%d" % BUCKET: 29}


@given(st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_what_nobody_holds_goes_and_what_is_held_stays_with_its_parents(seed: int) -> None:
    _, tree, desk = play(seed, is_restored=False)
    kept = set(tree.held)
    for one in tree.held:
        while one := tree.parents[one]:
            kept.add(one)
    assert tree.rows == kept
    assert set(states(desk)) == kept - tree.held, "the parents wait in the table"
    assert set(states(desk).values()) <= {"BLOCKED", "PURGING"}
