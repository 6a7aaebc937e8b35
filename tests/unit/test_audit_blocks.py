"""The audit's rule, one situation at a time: each kind of finding, and what must not be one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from schemas.audit_report import Amount, FindingKind, UsedFigures, Verdicts
from schemas.records import SnapshotListRow
from streaming.audit.blocks import Tally, look_up
from streaming.audit.facts import AFTER, BEFORE, Fact, FactKind, Facts
from streaming.audit.reach import ACTIVE, FIRST_SNAPSHOT, PRESENT, UNEXPANDED, DirectoryFact, path_in, reach_of
from streaming.audit.shard import AuditedBucket, AuditedCopies, AuditedShard
from streaming.rocksdb.checkpoint_rows import CheckpointRows
from tests.audited_plane import judge_all
from tests.example_records import example

BUCKET = 7
SNAPSHOTS = (10, 20, 30)
NOW = 40
MARK = 35 << 16
LIVE = ACTIVE | PRESENT
BOTH = BEFORE | AFTER


def held(*places: int) -> int:
    return sum(1 << (FIRST_SNAPSHOT + place) for place in places)


def fact(kind: FactKind, seen: int, birth: int = 5, size: int = 100, bucket: int = BUCKET, object_id: int = 1) -> Fact:
    owner = (0, 0) if kind is FactKind.INVENTORY else (object_id, birth)
    return (int(kind), 3, birth << 16, 1, 1_024, size, bucket, *owner, seen, b"/1/7/7/key")


def shard(*, is_rolling_back: bool = False, reported_local_id: int = 0) -> AuditedShard:
    """A shard with one bucket; nothing reads its copies, names and figures."""
    snapshots = tuple(replace(example(SnapshotListRow), txn=txn) for txn in SNAPSHOTS)
    bucket = AuditedBucket(
        "vol", "bucket", 1, BUCKET, False, False, is_rolling_back, UsedFigures(), 0, 0, 0, snapshots, ()
    )
    return AuditedShard(
        AuditedCopies(0, "", "", {}, ""), CheckpointRows, NOW, 0, MARK, reported_local_id, 0, 0, {BUCKET: bucket}
    )


def columns(facts: Iterable[Fact]) -> Iterator[Facts]:
    """Facts as tasks read them."""
    for one in facts:
        kind, *run, bucket_id, object_id, birth, seen, key = one
        numbers = ([bucket_id], [object_id], [birth])
        yield Facts(FactKind(kind), None, [[number] for number in run], *numbers, [seen], [key])


def judged(*facts: Fact, is_rolling_back: bool = False) -> Tally:
    return judge_all(columns(facts), shard(is_rolling_back=is_rolling_back))


def kinds(*facts: Fact, is_rolling_back: bool = False) -> set[FindingKind]:
    return set(judged(*facts, is_rolling_back=is_rolling_back).findings)


THERE = fact(FactKind.INVENTORY, BOTH)


@pytest.mark.parametrize(
    "facts",
    [
        (fact(FactKind.NAMESPACE, LIVE | held(0, 1, 2)), THERE),
        (fact(FactKind.NAMESPACE, PRESENT | UNEXPANDED | held(0, 1)), THERE),
        (fact(FactKind.NAMESPACE, held(0)), fact(FactKind.DELETED, 15), THERE),
        (fact(FactKind.DELETED, 9), THERE),
        (fact(FactKind.CLAIMED, 9), THERE),
        (fact(FactKind.CLAIMED, 9),),
        (fact(FactKind.CLAIMED, 9), fact(FactKind.INVENTORY, BEFORE)),
        (fact(FactKind.INVENTORY, BEFORE),),
        (fact(FactKind.INVENTORY, AFTER),),
        (fact(FactKind.INVENTORY, BOTH, birth=NOW + 1),),
        (fact(FactKind.NAMESPACE, LIVE, birth=36),),
        (fact(FactKind.NAMESPACE, LIVE), fact(FactKind.INVENTORY, BEFORE)),
        (fact(FactKind.NAMESPACE, LIVE, birth=36), fact(FactKind.INVENTORY, AFTER, birth=36)),
    ],
    ids=[
        "live and held", "below a deleted directory", "deleted and held", "deleted", "claimed", "claimed and gone",
        "claimed and going", "going", "coming", "written later", "not reported yet", "went after metadata", "came",
    ],
)  # fmt: skip
def test_what_a_plane_at_work_looks_like_is_no_finding(facts: tuple[Fact, ...]) -> None:
    assert kinds(*facts) == set()


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (FindingKind.DANGLING, (fact(FactKind.NAMESPACE, LIVE | held(0, 1, 2)),)),
        (FindingKind.DANGLING, (fact(FactKind.NAMESPACE, held(1)), fact(FactKind.DELETED, 25))),
        (FindingKind.DANGLING, (fact(FactKind.DELETED, 9),)),
        (FindingKind.DANGLING, (fact(FactKind.NAMESPACE, PRESENT | UNEXPANDED),)),
        (FindingKind.DANGLING, (fact(FactKind.NAMESPACE, LIVE, birth=35),)),
        (FindingKind.DAMAGED, (fact(FactKind.NAMESPACE, LIVE), fact(FactKind.INVENTORY, BOTH, size=99))),
        (FindingKind.DAMAGED, (fact(FactKind.NAMESPACE, LIVE), fact(FactKind.INVENTORY, BOTH, bucket=8))),
        (FindingKind.CLAIMED_TOO_EARLY, (fact(FactKind.NAMESPACE, held(0)), fact(FactKind.CLAIMED, 15), THERE)),
        (FindingKind.FORGOTTEN, (fact(FactKind.NAMESPACE, held(0)), THERE)),
        (FindingKind.STRAY, (fact(FactKind.NAMESPACE, PRESENT), THERE)),
        (FindingKind.ORPHANED, (THERE,)),
        (FindingKind.ORPHANED, (fact(FactKind.INVENTORY, BOTH, birth=NOW),)),
        (FindingKind.CONTRADICTION, (fact(FactKind.NAMESPACE, LIVE), fact(FactKind.DELETED, 15), THERE)),
        (FindingKind.CONTRADICTION, (fact(FactKind.DELETED, 15), fact(FactKind.CLAIMED, 15), THERE)),
        (FindingKind.CONTRADICTION, (fact(FactKind.NAMESPACE, LIVE | held(0, 2)), THERE)),
        (FindingKind.CONTRADICTION, (fact(FactKind.NAMESPACE, LIVE | held(0, 1)), THERE)),
        (FindingKind.CONTRADICTION, (fact(FactKind.NAMESPACE, held(0)), fact(FactKind.DELETED, 25), THERE)),
        (FindingKind.CONTRADICTION, (fact(FactKind.NAMESPACE, held(1)), fact(FactKind.DELETED, 15), THERE)),
        (FindingKind.CONTRADICTION, (fact(FactKind.NAMESPACE, LIVE), fact(FactKind.DELETED, 9, object_id=2), THERE)),
    ],
)  # fmt: skip
def test_each_kind_of_finding(kind: FindingKind, facts: tuple[Fact, ...]) -> None:
    assert kinds(*facts) == {kind}


def test_during_a_rollback_nothing_is_said_of_where_rows_are() -> None:
    assert kinds(fact(FactKind.NAMESPACE, LIVE | held(0)), THERE, is_rolling_back=True) == set()
    assert kinds(fact(FactKind.NAMESPACE, held(0)), THERE, is_rolling_back=True) == set()
    assert kinds(fact(FactKind.NAMESPACE, LIVE | held(0)), is_rolling_back=True) == {FindingKind.DANGLING}


def test_two_rows_that_name_different_blocks_contradict_each_other() -> None:
    one = fact(FactKind.NAMESPACE, LIVE)
    other = (*fact(FactKind.NAMESPACE, held(2))[:5], 50, *one[6:9], held(2), b"k")
    assert FindingKind.CONTRADICTION in kinds(one, other, THERE)


def test_bytes_are_counted_where_they_are() -> None:
    tally = judged(
        fact(FactKind.NAMESPACE, LIVE, birth=31, size=1),
        fact(FactKind.INVENTORY, BOTH, birth=31, size=1),
        fact(FactKind.NAMESPACE, held(0, 1), birth=6, size=10),
        fact(FactKind.DELETED, 25, birth=6, size=10),
        fact(FactKind.INVENTORY, BOTH, birth=6, size=10),
        fact(FactKind.DELETED, 9, birth=8, size=100),
        fact(FactKind.INVENTORY, AFTER, birth=8, size=100),
        fact(FactKind.CLAIMED, 9, birth=7, size=1_000),
        fact(FactKind.INVENTORY, BOTH, birth=4, size=10_000),
    )
    sums = tally.buckets[BUCKET]
    assert (sums.live, sums.held, sums.pending, sums.claimed) == tuple(Amount(1, size) for size in (1, 10, 100, 1_000))
    assert sums.cells == {(10, 20): Amount(1, 10), (0, 0): Amount(1, 100)}
    assert sums.keys == Verdicts(reclaimable=1, shared=1)
    assert tally.inventory == Amount(3, 10_011)
    assert tally.inventory_after == Amount(4, 10_111)
    assert tally.findings == {FindingKind.ORPHANED: Amount(1, 10_000)}


def written_in_steps(kind: FactKind, seen: int, birth: int = 5, size: int = 100) -> Fact:
    """A fact of blocks that were allocated before the txn at which they became visible."""
    one = fact(kind, seen, birth=birth, size=size)
    return (*one[:2], 4 << 16, *one[3:])


WRITTEN = written_in_steps(FactKind.INVENTORY, BOTH)
GROWN = (
    written_in_steps(FactKind.NAMESPACE, LIVE | held(1, 2), size=100),
    written_in_steps(FactKind.NAMESPACE, held(0), size=60),
)


def test_a_snapshot_may_show_less_of_the_last_block_than_there_is_by_now() -> None:
    tally = judged(*GROWN, WRITTEN)
    assert not tally.findings
    sums = tally.buckets[BUCKET]
    assert sums.live == Amount(1, 100)
    shown = {held(1, 2) >> FIRST_SNAPSHOT: Amount(1, 100), held(0) >> FIRST_SNAPSHOT: Amount(1, 60)}
    assert sums.shown == shown
    assert [one for one in sums.grown.items() if one[1].bytes] == [(held(0) >> FIRST_SNAPSHOT, Amount(0, 40))]


def test_a_snapshot_that_shows_more_of_a_block_than_there_is_contradicts_it() -> None:
    live, old = GROWN
    assert FindingKind.CONTRADICTION in kinds((*live[:5], 60, *live[6:]), (*old[:5], 100, *old[6:]), WRITTEN)


@pytest.mark.parametrize(
    ("reported_local_id", "expected"), [(MARK, {FindingKind.DANGLING}), (MARK + 1, set())], ids=["yes", "not yet"]
)
def test_blocks_of_an_earlier_command_are_missing_once_all_late_reports_have_arrived(
    reported_local_id: int, expected: set[FindingKind]
) -> None:
    facts = [written_in_steps(FactKind.NAMESPACE, LIVE, birth=31)]
    assert set(judge_all(columns(facts), shard(reported_local_id=reported_local_id)).findings) == expected


@pytest.mark.parametrize(
    ("reported_local_id", "expected"), [(MARK, {FindingKind.DAMAGED}), (MARK + 1, set())], ids=["yes", "not yet"]
)
def test_a_block_that_has_grown_is_damaged_once_all_late_reports_have_arrived(
    reported_local_id: int, expected: set[FindingKind]
) -> None:
    facts = [*GROWN, written_in_steps(FactKind.INVENTORY, BOTH, size=60)]
    assert set(judge_all(columns(facts), shard(reported_local_id=reported_local_id)).findings) == expected


def test_blocks_of_an_undeleted_version_may_not_have_been_reported_yet() -> None:
    undeleted = (*fact(FactKind.NAMESPACE, LIVE, birth=36)[:8], 38, *fact(FactKind.NAMESPACE, LIVE)[9:])
    assert kinds(undeleted) == set()


def test_blocks_that_nobody_used_have_died_at_their_birth() -> None:
    tally = judged(written_in_steps(FactKind.DELETED, 31, birth=31), WRITTEN)
    assert not tally.findings
    assert tally.buckets[BUCKET].pending == Amount(1, 100)


def test_a_part_of_an_upload_is_live_and_no_snapshot_shows_it() -> None:
    part, there = (
        written_in_steps(kind, seen, birth=0) for kind, seen in ((FactKind.NAMESPACE, LIVE), (FactKind.INVENTORY, BOTH))
    )
    tally = judged(part, there)
    assert not tally.findings
    assert tally.buckets[BUCKET].live == Amount(1, 100)
    assert kinds(part) == {FindingKind.DANGLING}


def test_parts_add_up() -> None:
    facts = [fact(FactKind.INVENTORY, BOTH, birth=birth, size=birth) for birth in range(1, 9)]
    facts += [fact(FactKind.DELETED, 33, birth=birth) for birth in range(20, 24)]
    whole, parts = judged(*facts), Tally()
    for start in range(4):
        parts.merge(judged(*facts[start::4]))
    assert (parts.findings, parts.inventory) == (whole.findings, whole.inventory)
    assert parts.buckets[BUCKET].cells == whole.buckets[BUCKET].cells


@pytest.mark.parametrize(
    ("holders", "death", "verdict"),
    [
        ((), 9, Verdicts(reclaimable=1)),
        ((0,), 10, Verdicts(reclaimable=1)),
        ((), 25, Verdicts(reclaimable=1)),
        ((0,), 11, Verdicts(exclusive_to_previous=1)),
        ((1,), 25, Verdicts(exclusive_to_previous=1)),
        ((0, 1), 25, Verdicts(shared=1)),
    ],
)
def test_the_look_up_goes_two_snapshots_back(holders: tuple[int, ...], death: int, verdict: Verdicts) -> None:
    assert look_up(sum(1 << place for place in holders), death, SNAPSHOTS) == verdict


def test_what_is_reached_in_each_state() -> None:
    """Directory 2 was moved from the root below 3 after the first snapshot; 5 is dead and not expanded, 6 below it."""
    first, active = held(0), ACTIVE
    facts = [
        DirectoryFact(BUCKET, 2, BUCKET, "two", first),
        DirectoryFact(BUCKET, 2, 3, "two", active),
        DirectoryFact(BUCKET, 3, BUCKET, "three", first | active),
        DirectoryFact(BUCKET, 4, 2, "four", first | active),
        DirectoryFact(BUCKET, 6, 5, "six", first | active),
        DirectoryFact(BUCKET, 8, 9, "stray", active),
    ]
    reach = reach_of(BUCKET, facts, [5])
    assert [reach.get(one, 0) for one in (2, 3, 4, 5, 6, 8)] == [
        first | active, first | active, first | active, UNEXPANDED, UNEXPANDED, 0,
    ]  # fmt: skip
    edges: dict[int, list[DirectoryFact]] = {}
    for one in facts:
        edges.setdefault(one.object_id, []).append(one)
    assert path_in(active, BUCKET, 4, "key", edges) == "three/two/four/key"
    assert path_in(first, BUCKET, 4, "key", edges) == "two/four/key"
    assert path_in(active, BUCKET, 8, "key", edges) == "…/stray/key"
