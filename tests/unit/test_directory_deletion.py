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
    BucketCollection,
    ChainCapture,
    ChainDrop,
    CollectionChanged,
    CollectionState,
    DirectoriesRemoved,
    DirectoryExpanded,
    DirectoryRemoval,
    DirectoryVerdict,
    ExpandDirectory,
    ExpansionOutcome,
    JudgedDirectory,
    MetadataProgress,
    RemovalOutcome,
    RemoveDirectories,
    RowName,
    SnapshotChainRecord,
)
from schemas.topics import METADATA_COMMANDS, METADATA_PROGRESS, PURGE_DIRECTORIES, SNAPSHOT_CHAIN
from services.directory_deletion.metrics import DirectoryDeletionMetrics
from services.directory_deletion.service import DirectoryDeletionService
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.directory_deletion.tables import TREE_TABLE
from services.domain.errors import ChainBrokenError
from services.runtime.parts.ahead import ASK_AFTER_MS
from services.storage.tables import Table
from tests.unit.service_harness import Harness, Sent, bodies, only, senders

RUNNING, SHADOW, PAUSED = CollectionState.RUNNING, CollectionState.SHADOW, CollectionState.PAUSED
BUCKET = 7
DEATH = 5_000
LATE = DEATH + 1_000
ROOT, CHILD, GRANDCHILD = 10, 11, 12
SETTINGS = DirectoryDeletionSettings(
    max_page_entries=100,
    max_page_bytes=1_000,
    max_expansions_in_flight=3,
    max_removal_rows=4,
    max_removing_rows=6,
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
def harness(counted: Registry) -> Harness:
    return Harness(lambda: DirectoryDeletionService(SETTINGS, counted.metrics))


def directory(object_id: int, *, free: bool = True, birth: int = 1_000, before: int = 0) -> JudgedDirectory:
    return JudgedDirectory(BUCKET, object_id, birth, DEATH, before, free)


def judged(*directories: JudgedDirectory, version: int = 0) -> Sent:
    return PURGE_DIRECTORIES, DirectoryVerdict(version, directories)


def expanded(object_id: int, outcome: ExpansionOutcome = ExpansionOutcome.EXPANDED) -> Sent:
    return METADATA_PROGRESS, MetadataProgress(1, DirectoryExpanded(BUCKET, object_id, DEATH, outcome, 1, 2))


def removed(*outcomes: tuple[int, int, RemovalOutcome]) -> Sent:
    found = tuple(DirectoryRemoval(BUCKET, one, DEATH, parent, outcome) for one, parent, outcome in outcomes)
    return METADATA_PROGRESS, MetadataProgress(1, DirectoriesRemoved(found))


def capture(version: int, txn: int, ordinal: int) -> Sent:
    return SNAPSHOT_CHAIN, SnapshotChainRecord(version, version - 1, ChainCapture(BUCKET, f"s{ordinal}", ordinal, txn))


def drop(version: int, txn: int, ordinal: int) -> Sent:
    return SNAPSHOT_CHAIN, SnapshotChainRecord(version, version - 1, ChainDrop(BUCKET, f"s{ordinal}", txn, 1))


def barrier(work: int = 0, passed_txn: int = LATE) -> Sent:
    return PURGE_DIRECTORIES, DirectoryVerdict(0, (), Barrier("settle", 1, work, "", passed_txn=passed_txn))


def work_of(harness: Harness) -> int:
    """What a barrier that passes now counts."""
    return bodies(harness.give(barrier()), Barrier)[0].work


def removing(sent: list[Sent]) -> list[int]:
    return [name.object_id for command in bodies(sent, RemoveDirectories) for name in command.rows]


def states(harness: Harness) -> dict[int, str]:
    return {row.object_id: row.state for row in harness.rows(TREE_TABLE)}


def empty(harness: Harness, *object_ids: int) -> list[Sent]:
    """Bring directories that nobody holds to their first purge."""
    harness.give(judged(*(directory(object_id) for object_id in object_ids)))
    return harness.give(*(expanded(object_id) for object_id in object_ids))


class TestExpansion:
    def test_every_directory_is_expanded_whatever_its_verdict(self, harness: Harness) -> None:
        sent = harness.give(judged(directory(ROOT, free=False), directory(CHILD), version=9))
        assert bodies(sent, ExpandDirectory) == [
            ExpandDirectory(BUCKET, object_id, DEATH, 100, 1_000) for object_id in (ROOT, CHILD)
        ]
        assert senders(sent) == {"directory_deletion"}

    def test_page_by_page_to_the_end(self, harness: Harness, counted: Registry) -> None:
        first = only(harness.give(judged(directory(ROOT))), ExpandDirectory)
        harness.restart()
        assert only(harness.give(expanded(ROOT, ExpansionOutcome.PARTLY)), ExpandDirectory) == first
        sent = harness.give(expanded(ROOT))
        assert removing(sent) == [ROOT]
        assert not harness.give(expanded(ROOT), expanded(ROOT, ExpansionOutcome.PARTLY)), "answers that come again"
        assert (counted("expansions_total"), counted("moved_files_total")) == (1, 4)

    def test_a_held_directory_is_forgotten_once_it_is_empty(self, harness: Harness) -> None:
        harness.give(judged(directory(ROOT, free=False)))
        assert not harness.give(expanded(ROOT))
        assert not states(harness)

    def test_one_that_is_missing_is_forgotten(self, harness: Harness) -> None:
        harness.give(judged(directory(ROOT)))
        assert not harness.give(expanded(ROOT, ExpansionOutcome.MISSING))
        assert not states(harness)

    def test_a_verdict_that_comes_later_counts(self, harness: Harness) -> None:
        harness.give(judged(directory(ROOT, free=False)))
        assert not harness.give(judged(directory(ROOT)))
        assert removing(harness.give(expanded(ROOT))) == [ROOT]

    def test_so_many_at_once(self, harness: Harness) -> None:
        first = bodies(harness.give(judged(*(directory(number) for number in range(1, 6)))), ExpandDirectory)
        assert len(first) == 3
        harness.restart()
        assert len(bodies(harness.give(expanded(1), expanded(2)), ExpandDirectory)) == 2

    def test_first_come_first_served(self, harness: Harness) -> None:
        """Sweeps bring what a snapshot holds again and again: by number, those would keep others waiting for ever."""
        held = (1, 2, 3)
        harness.give(*(judged(directory(one, free=False)) for one in held))
        harness.give(judged(directory(9)))
        harness.wait(1)
        harness.restart()
        sent = [message for one in held for message in harness.give(expanded(one), judged(directory(one, free=False)))]
        assert next(command.object_id for command in bodies(sent, ExpandDirectory)) == 9

    def test_without_an_answer_the_same_is_asked_again(self, harness: Harness, counted: Registry) -> None:
        page = only(harness.give(judged(directory(ROOT))), ExpandDirectory)
        assert not harness.wait(49_999)
        assert only(harness.wait(1), ExpandDirectory) == page
        harness.give(expanded(ROOT))
        harness.restart()
        assert removing(harness.wait(50_000)) == [ROOT]
        assert counted("asked_again_total", step="removing") == 1


class TestJudging:
    def test_a_removal_waits_for_the_chain_that_judged_it(self, harness: Harness) -> None:
        harness.give(judged(directory(ROOT, birth=1_100, before=1), version=1))
        assert not harness.give(expanded(ROOT))
        harness.restart()
        command = only(harness.give(capture(1, 1_000, 1)), RemoveDirectories)
        assert (command.chain_version, command.rows[0].birth) == (1, 1_100)

    def test_one_with_a_chain_version_that_does_not_exist_is_given_up(
        self, harness: Harness, counted: Registry
    ) -> None:
        harness.give(judged(directory(ROOT, birth=1_100), version=1 << 40))
        assert not harness.give(expanded(ROOT))
        assert [work_of(harness) > 0 for _ in range(3)] == [True] * 3
        assert not harness.wait(ASK_AFTER_MS)
        assert states(harness)
        harness.has_read_all = True
        assert not harness.give(), "the pause until the next question begins"
        assert not harness.wait(ASK_AFTER_MS)
        assert counted("rows_judged_total", verdict="unjudgeable") == 1
        assert not states(harness)
        assert [work_of(harness) for _ in range(2)][1] == 0

    def test_of_two_verdicts_the_one_counts_that_the_chain_comes_to_first(self, harness: Harness) -> None:
        harness.give(judged(directory(ROOT, birth=1_100), version=1 << 40))
        assert not harness.give(expanded(ROOT))
        assert removing(harness.give(judged(directory(ROOT, birth=1_100)))) == [ROOT]

    def test_a_held_one_is_kept_and_counted(self, harness: Harness, counted: Registry) -> None:
        harness.give(capture(1, 1_000, 1))
        harness.give(judged(directory(ROOT, birth=1_000, before=1), version=1))
        assert not harness.give(expanded(ROOT))
        assert counted("rows_judged_total", verdict="exclusive_to_previous") == 1
        assert not states(harness)

    def test_one_that_cannot_be_judged_is_kept(self, harness: Harness, counted: Registry) -> None:
        harness.give(judged(directory(ROOT, before=4)))
        assert not harness.give(expanded(ROOT))
        assert counted("rows_judged_total", verdict="unjudgeable") == 1

    def test_a_missing_marker_stops_everything(self, harness: Harness) -> None:
        with pytest.raises(ChainBrokenError):
            harness.give(capture(2, 1_000, 2))


class TestPurge:
    def test_children_go_before_their_parents(self, harness: Harness) -> None:
        assert removing(empty(harness, ROOT, CHILD, GRANDCHILD)) == [GRANDCHILD, CHILD, ROOT]

    def test_so_many_in_a_command_and_in_flight(self, harness: Harness) -> None:
        numbers = range(1, 9)
        sent: list[Sent] = []
        for number in numbers:
            sent += harness.give(judged(directory(number)))
        for number in numbers:
            sent += harness.give(expanded(number))
        assert len(removing(sent)) == 6
        more = removing(harness.give(removed(*((number, 1, RemovalOutcome.REMOVED) for number in range(1, 7)))))
        assert len(more) == 2
        other = Harness(lambda: DirectoryDeletionService(replace(SETTINGS, max_expansions_in_flight=9)))
        commands = bodies(empty(other, *numbers), RemoveDirectories)
        assert [len(command.rows) for command in commands] == [4, 2]

    def test_a_parent_is_tried_again_when_its_child_is_removed(self, harness: Harness) -> None:
        empty(harness, ROOT)
        assert not harness.give(removed((ROOT, 1, RemovalOutcome.HAS_CHILDREN)))
        assert states(harness) == {ROOT: "BLOCKED"}
        empty(harness, CHILD)
        harness.restart()
        assert removing(harness.give(removed((CHILD, ROOT, RemovalOutcome.REMOVED)))) == [ROOT]
        assert not harness.give(removed((ROOT, 1, RemovalOutcome.REMOVED)))
        assert not states(harness)

    def test_a_child_removed_before_the_answer_to_its_parent_is_not_missed(self, harness: Harness) -> None:
        empty(harness, ROOT, CHILD)
        answers = removed((ROOT, 1, RemovalOutcome.HAS_CHILDREN), (CHILD, ROOT, RemovalOutcome.REMOVED))
        assert removing(harness.give(answers)) == [ROOT]

    def test_only_a_child_of_the_same_deletion_wakes_its_parent(self, harness: Harness) -> None:
        empty(harness, ROOT)
        harness.give(removed((ROOT, 1, RemovalOutcome.HAS_CHILDREN)))
        other = DirectoryRemoval(BUCKET, CHILD, DEATH + 1, ROOT, RemovalOutcome.REMOVED)
        assert not harness.give((METADATA_PROGRESS, MetadataProgress(1, DirectoriesRemoved((other,)))))

    @pytest.mark.parametrize("outcome", [RemovalOutcome.MISSING, RemovalOutcome.HELD, RemovalOutcome.REMOVED])
    def test_missing_held_and_removed_rows_are_forgotten(
        self, harness: Harness, counted: Registry, outcome: RemovalOutcome
    ) -> None:
        empty(harness, ROOT)
        assert not harness.give(removed((ROOT, 0, outcome)))
        assert not states(harness)
        assert counted("removals_refused_total") == (outcome is RemovalOutcome.HELD)

    def test_one_that_is_not_expanded_is_expanded(self, harness: Harness) -> None:
        empty(harness, ROOT)
        assert bodies(harness.give(removed((ROOT, 1, RemovalOutcome.UNEXPANDED))), ExpandDirectory)

    def test_a_net_tries_a_blocked_one_slower_and_slower(self, harness: Harness) -> None:
        empty(harness, ROOT)
        for pause_ms in (1_000, 2_000, 4_000, 4_000):
            harness.give(removed((ROOT, 1, RemovalOutcome.HAS_CHILDREN)))
            harness.restart()
            assert not harness.wait(pause_ms - 1)
            assert removing(harness.wait(1)) == [ROOT]

    def test_a_child_whose_removal_went_unheard_wakes_its_parent(self, harness: Harness) -> None:
        """On an older copy of the database it is asked for again, and gone: metadata does not know its parent then."""
        empty(harness, ROOT)
        harness.give(removed((ROOT, 1, RemovalOutcome.HAS_CHILDREN)))
        empty(harness, CHILD)
        harness.restart()
        assert removing(harness.give(removed((CHILD, 0, RemovalOutcome.MISSING)))) == [ROOT]

    def test_a_mere_try_is_work_once_the_child_is_removed(self, harness: Harness) -> None:
        empty(harness, ROOT)
        harness.give(removed((ROOT, 1, RemovalOutcome.HAS_CHILDREN)))
        empty(harness, CHILD)
        harness.give(barrier())
        harness.give(removed((CHILD, ROOT, RemovalOutcome.REMOVED)))
        assert [work_of(harness) > 0 for _ in range(3)] == [True] * 3

    def test_answers_about_unknown_rows_do_nothing(self, harness: Harness) -> None:
        assert not harness.give(
            expanded(99), removed((99, 98, RemovalOutcome.HAS_CHILDREN), (97, 96, RemovalOutcome.REMOVED))
        )


class TestBarrier:
    def test_it_goes_on_behind_what_was_sent(self, harness: Harness) -> None:
        sent = harness.give(barrier(work=4))
        assert only(sent, Barrier) == Barrier("settle", 1, 4, "directory_deletion", passed_txn=LATE)
        assert sent[0][0] is METADATA_COMMANDS
        assert senders(sent) == {"directory_deletion"}

    def test_it_counts_what_is_in_progress_and_what_was_done(self, harness: Harness) -> None:
        harness.give(judged(directory(ROOT)))
        assert work_of(harness) > 0
        assert work_of(harness) == 1, "waiting for its expansion"
        harness.give(expanded(ROOT))
        harness.restart()
        assert work_of(harness) > 1
        harness.give(removed((ROOT, 1, RemovalOutcome.REMOVED)))
        assert work_of(harness) > 0
        assert work_of(harness) == 0

    def test_a_parent_that_waits_for_a_held_child_is_no_work(self, harness: Harness) -> None:
        harness.give(capture(1, 1_000, 1))
        harness.give(judged(directory(ROOT, birth=1_001, before=1), directory(CHILD, free=False, before=1), version=1))
        harness.give(expanded(ROOT), expanded(CHILD))
        harness.give(removed((ROOT, 1, RemovalOutcome.HAS_CHILDREN)))
        assert work_of(harness) > 0
        harness.give(removed((ROOT, 1, RemovalOutcome.HAS_CHILDREN)))
        for _ in range(3):
            harness.restart()
            sent = harness.give(barrier())
            assert bodies(sent, Barrier)[0].work == 0, "there is nothing that anybody could do"
            assert removing(sent) == [ROOT], "tried all the same, in case that something went unseen"
            assert work_of(harness) == 0
            harness.give(removed((ROOT, 1, RemovalOutcome.HAS_CHILDREN)))
        # The snapshot goes; the sweep of its store brings the child again.
        harness.give(drop(2, 1_000, 1))
        harness.give(judged(directory(CHILD, before=1), version=2))
        assert work_of(harness) > 0
        assert removing(harness.give(expanded(CHILD))) == [CHILD]
        # Metadata answers in the order of its log: first the try that the barrier has caused.
        answers = removed((ROOT, 1, RemovalOutcome.HAS_CHILDREN), (CHILD, ROOT, RemovalOutcome.REMOVED))
        assert removing(harness.give(answers)) == [ROOT]
        assert work_of(harness) > 0
        harness.give(removed((ROOT, 1, RemovalOutcome.REMOVED)))
        work_of(harness)
        assert work_of(harness) == 0
        assert not states(harness)

    def test_a_blocked_one_that_a_sweep_brings_again_is_tried_at_once(self, harness: Harness) -> None:
        empty(harness, ROOT)
        harness.give(removed((ROOT, 1, RemovalOutcome.HAS_CHILDREN)))
        assert removing(harness.give(judged(directory(ROOT)))) == [ROOT]


@dataclass
class SmallTree:
    """What metadata has of some deleted directories: who is whose child, and who is expanded."""

    parents: dict[int, int]
    expanded: set[int]
    rows: set[int]
    held: set[int]

    def expand(self, command: ExpandDirectory, random: Random) -> Sent:
        if command.object_id not in self.rows:
            return expanded(command.object_id, ExpansionOutcome.MISSING)
        if command.object_id not in self.expanded and random.random() < 0.4:
            return expanded(command.object_id, ExpansionOutcome.PARTLY)
        self.expanded.add(command.object_id)
        return expanded(command.object_id)

    def remove(self, name: RowName) -> tuple[int, int, RemovalOutcome]:
        one, parent = name.object_id, self.parents[name.object_id]
        if one not in self.rows:
            return one, 0, RemovalOutcome.MISSING
        if one not in self.expanded:
            return one, parent, RemovalOutcome.UNEXPANDED
        if any(self.parents[row] == one for row in self.rows):
            return one, parent, RemovalOutcome.HAS_CHILDREN
        assert one not in self.held
        self.rows.remove(one)
        return one, parent, RemovalOutcome.REMOVED


def play(seed: int, *, is_restored: bool) -> tuple[list[Sent], SmallTree, Harness]:
    """Delete a random tree of which some directories are held; metadata answers in order, the judge in any order."""
    random = Random(seed)
    limits = replace(SETTINGS, max_expansions_in_flight=2, max_removal_rows=3, answer_timeout_ms=3_000)
    harness = Harness(lambda: DirectoryDeletionService(limits), is_restored)
    count = random.randrange(1, 12)
    parents = {one: random.randrange(one) for one in range(1, count + 1)}
    tree = SmallTree(parents, set(), set(parents), {one for one in parents if random.random() < 0.2})
    to_judge = [directory(one, free=one not in tree.held) for one in parents]
    commands: list[Sent] = []
    for _ in range(300):
        harness.now_ms += random.choice([0, 1, 1_000])
        inputs: list[Sent] = []
        if to_judge and random.random() < 0.5:
            place = random.randrange(len(to_judge))
            inputs.append(judged(to_judge[place] if random.random() < 0.2 else to_judge.pop(place)))
        if commands and random.random() < 0.8:
            body = commands.pop(0)[1].body
            if isinstance(body, ExpandDirectory):
                answer = tree.expand(body, random)
            else:
                answer = removed(*(tree.remove(name) for name in body.rows))
            inputs += [answer] * random.choice([1, 1, 1, 2])
        commands += harness.give(*inputs)
        if not to_judge and not commands and not harness.give(barrier())[0][1].body.work:
            break
    return harness.sent, tree, harness


@given(st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_a_restart_between_any_two_messages_changes_nothing(seed: int) -> None:
    assert play(seed, is_restored=True)[0] == play(seed, is_restored=False)[0]


BUCKETS = (70, 7, 8)


class PausedShard:
    """Metadata with some directories of three buckets, pauses that it has told, and answers that are on their way."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.states: dict[int, CollectionState] = {}
        self.sent_txn = 0
        self.answers: list[Sent] = []

    def something(self, txn: int) -> list[Sent]:
        """What comes next to directory_deletion."""
        match self.random.choice(["judge", "judge", "answer", "answer", "answer", "pause", "whole"]):
            case "judge":
                bucket_id, object_id = self.random.choice(BUCKETS), self.random.randrange(1, 9)
                named = JudgedDirectory(bucket_id, object_id, 1, self.random.randrange(10, 14), 0, is_reclaimable=True)
                return [(PURGE_DIRECTORIES, DirectoryVerdict(0, (named,)))]
            case "pause":
                bucket_id = self.random.choice((0, *BUCKETS))
                self.states[bucket_id] = self.random.choice((RUNNING, SHADOW, PAUSED))
                before, self.sent_txn = self.sent_txn, txn
                if self.random.random() < 0.3:  # it is lost on the way
                    return []
                change = CollectionChanged((BucketCollection(bucket_id, self.states[bucket_id]),), txn, before)
                return [(METADATA_PROGRESS, MetadataProgress(txn, change))]
            case "whole":
                held = tuple(BucketCollection(*one) for one in sorted(self.states.items()) if one[1] is not RUNNING)
                change = CollectionChanged(held, txn, self.sent_txn, is_whole=True)
                return [(METADATA_PROGRESS, MetadataProgress(txn, change))]
        return [self.answers.pop(0)] if self.answers else []

    def ask(self, sent: list[Sent], txn: int) -> None:
        """Answer what directory_deletion asks for, later."""
        for body in bodies(sent, ExpandDirectory):
            outcome = self.random.choice((ExpansionOutcome.PARTLY, ExpansionOutcome.EXPANDED))
            answer = DirectoryExpanded(body.bucket_id, body.object_id, body.death, outcome, 0, 0)
            self.answers.append((METADATA_PROGRESS, MetadataProgress(txn, answer)))
        for command in bodies(sent, RemoveDirectories):
            rows = tuple(DirectoryRemoval(n.bucket_id, n.object_id, n.death, 0, self.remove(n)) for n in command.rows)
            self.answers.append((METADATA_PROGRESS, MetadataProgress(txn, DirectoriesRemoved(rows))))

    def remove(self, name: RowName) -> RemovalOutcome:
        """What becomes of one row."""
        if {self.states.get(0, RUNNING), self.states.get(name.bucket_id, RUNNING)} != {RUNNING}:
            return RemovalOutcome.SUSPENDED
        return self.random.choice((RemovalOutcome.REMOVED, RemovalOutcome.HAS_CHILDREN, RemovalOutcome.UNEXPANDED))


def play_with_pauses(seed: int, *, is_restored: bool) -> tuple[list[Sent], list[str]]:
    """What is sent in a run with pauses, and what is reported in between."""
    counted = Registry()
    limits = replace(SETTINGS, max_expansions_in_flight=2, max_removal_rows=3, answer_timeout_ms=3_000)
    harness = Harness(lambda: DirectoryDeletionService(limits, counted.metrics), is_restored)
    shard, reported = PausedShard(seed), list[str]()
    for txn in range(100, 1_300, 10):
        harness.now_ms += shard.random.choice([0, 1, 1_000])
        batch = [one for place in range(shard.random.choice((1, 1, 4))) for one in shard.something(txn + place)]
        shard.ask(harness.give(*batch), txn + 9)
        if shard.random.random() < 0.1:
            sent = harness.give(barrier())
            reported.append(f"work {bodies(sent, Barrier)[0].work}")
            shard.ask(sent, txn)
        reported.append(str(sorted(Counter(row.state for row in harness.rows(TREE_TABLE)).items())))
    return harness.sent, reported


@given(st.integers(0, 10**9))
@settings(max_examples=100, deadline=None)
def test_a_pause_has_what_is_in_memory_as_a_restart_would_make_it(seed: int) -> None:
    assert play_with_pauses(seed, is_restored=True) == play_with_pauses(seed, is_restored=False)


def test_a_pause_of_one_bucket_reads_no_row_of_another(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [replace(directory(object_id), bucket_id=bucket) for bucket in BUCKETS for object_id in range(1, 30)]
    harness.give(judged(*rows))
    read = Counter[bytes]()
    scan = Table.scan

    def counting(self: Table[Any], start: bytes, end: bytes) -> Iterator[tuple[bytes, Any]]:
        for key, row in scan(self, start, end):
            read[key.split(b"/")[1]] += self._name == TREE_TABLE.name
            yield key, row

    monkeypatch.setattr(Table, "scan", counting)
    change = CollectionChanged((BucketCollection(BUCKET, PAUSED),), 50, 0)
    harness.give((METADATA_PROGRESS, MetadataProgress(50, change)))
    assert +read == {b"%d" % BUCKET: 29}


@given(st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_what_nobody_holds_goes_and_what_is_held_stays_with_its_parents(seed: int) -> None:
    _, tree, harness = play(seed, is_restored=False)
    kept = set(tree.held)
    for one in tree.held:
        while one := tree.parents[one]:
            kept.add(one)
    assert tree.rows == kept
    assert set(states(harness)) == kept - tree.held, "the parents wait in the table"
    assert set(states(harness).values()) <= {"BLOCKED", "REMOVING"}
