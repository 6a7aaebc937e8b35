"""key_deletion: the second judge, the way of a row to its freed blocks, sweeps, flags and barriers."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from schemas.records import (
    Barrier,
    BlockRun,
    BlocksDeleted,
    ChainCapture,
    ChainDrop,
    ChainedBucket,
    ChainedSnapshot,
    ClaimRows,
    DeleteBlocks,
    DeletedKind,
    FinishRows,
    FullChain,
    MetadataProgress,
    OpenSweepPage,
    PurgeKeys,
    RowName,
    RowsClaimed,
    RowsFinished,
    ScmReply,
    SetDeepClean,
    SnapshotChainRecord,
    SweepPage,
    SweepPageSent,
    SweepResult,
    SweptParts,
)
from schemas.topics import METADATA_PROGRESS, PURGE_KEYS, SCM_COMMANDS, SCM_REPLIES, SNAPSHOT_CHAIN, SWEEP_RESULTS
from services.domain.errors import ChainBrokenError
from services.domain.row_columns import (
    NO_GROUPS,
    NO_ROWS,
    BlockGroup,
    block_groups,
    by_columns,
    row_names,
)
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.service import KeyDeletionService
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.tables import BARRIER_TABLE, GARBAGE_RANGE_TABLE, SWEEP_TABLE, TASK_TABLE, WAITING_TABLE
from services.runtime.parts.ahead import ASK_AFTER_MS
from tests.block_groups import groups_by_columns
from tests.unit.service_harness import Harness, Sent, bodies, only, senders

BUCKET = 7
BUCKET_WITHOUT_SNAPSHOTS = 8
LATE = 1 << 40
"""A txn after all deaths here."""
SETTINGS = KeyDeletionSettings(
    max_task_rows=10,
    max_tasks_in_flight=4,
    max_retries_in_flight=2,
    first_retry_ms=100,
    longest_retry_ms=400,
    answer_timeout_ms=10_000,
    max_sweeps_in_flight=2,
    max_sweep_pages_in_flight=3,
    first_sweep_again_ms=1_000,
    safety_sweep_interval_ms=3_600_000,
)


class Registry:
    """The service's counters, read by name."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = KeyDeletionMetrics(self.registry)

    def __call__(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(f"deepclean_key_deletion_{name}", labels)
        assert value is not None, name
        return value


@pytest.fixture
def counted() -> Registry:
    return Registry()


@pytest.fixture
def harness(counted: Registry) -> Harness:
    return Harness(lambda: KeyDeletionService(SETTINGS, counted.metrics))


def row(number: int, birth: int = 0, death: int = 0, kind: DeletedKind = DeletedKind.KEY) -> RowName:
    return RowName(kind, BUCKET, number, birth or 1_000 + number, death or 5_000 + number)


def rows(*numbers: int) -> tuple[RowName, ...]:
    return tuple(row(number) for number in numbers)


def purge(*names: RowName, version: int = 0, before: int = 0, is_sweep: bool = False) -> Sent:
    (columns,) = by_columns(names)
    return PURGE_KEYS, PurgeKeys(version, columns, (before,) * len(names), is_sweep=is_sweep)


def named(body: ClaimRows | FinishRows) -> tuple[RowName, ...]:
    return tuple(row_names(body.rows))


def groups_in(body: DeleteBlocks | RowsClaimed) -> tuple[BlockGroup, ...]:
    return tuple(block_groups(body.groups))


def group(name: RowName) -> BlockGroup:
    return BlockGroup(
        name.bucket_id, name.object_id, name.birth, name.death, BlockRun(0, name.birth << 16, 1, 100, 100)
    )


def progress(body: RowsClaimed | RowsFinished | SweepPageSent) -> Sent:
    return METADATA_PROGRESS, MetadataProgress(1, body)


def claimed(claim: ClaimRows, **others: tuple[RowName, ...]) -> Sent:
    """Metadata lets all rows of a claim go but those that are said to be removed, gone or refused."""
    apart = {name for names in others.values() for name in names}
    groups = groups_by_columns(group(name) for name in named(claim) if name not in apart)
    rest = (by_columns(others.get(key, ())) for key in ("removed", "missing", "refused", "suspended"))
    return progress(RowsClaimed(claim.task, groups, next(rest), next(rest), next(rest), next(rest)))


def deleted(command: DeleteBlocks, *failed: int) -> Sent:
    return SCM_REPLIES, ScmReply(BlocksDeleted(command.task, command.attempt, failed))


def finished(command: FinishRows) -> Sent:
    return progress(RowsFinished(command.task))


def capture(version: int, txn: int, ordinal: int, snapshot_id: str = "") -> Sent:
    marker = ChainCapture(BUCKET, snapshot_id or f"s{ordinal}", ordinal, txn)
    return SNAPSHOT_CHAIN, SnapshotChainRecord(version, version - 1, marker)


def drop(version: int, snapshot_id: str, txn: int, rows_held_alone: int) -> Sent:
    marker = ChainDrop(BUCKET, snapshot_id, txn, rows_held_alone)
    return SNAPSHOT_CHAIN, SnapshotChainRecord(version, version - 1, marker)


def barrier(topic: str, work: int = 0, round_number: int = 1, name: str = "settle", passed_txn: int = LATE) -> Sent:
    mark = Barrier(name, round_number, work, "", passed_txn=passed_txn)
    if topic == "purges":
        return PURGE_KEYS, PurgeKeys(0, NO_ROWS, (), mark)
    return SWEEP_RESULTS, SweepResult(0, 0, 0, 0, 0, 0, 0, mark)


def pass_barrier(harness: Harness, round_number: int = 1) -> tuple[Barrier, list[Sent]]:
    """Bring a barrier through; says it as it returns to metadata, and all that was sent meanwhile."""
    sent = harness.give(barrier("purges", 0, round_number), barrier("sweeps", 0, round_number))
    (to_scm,) = bodies(sent, Barrier)
    back = harness.give((SCM_REPLIES, ScmReply(to_scm)))
    return bodies(back, Barrier)[0], sent + back


def sent_page(page: SweepPage, sent_rows: int, next_table: int = 4, unexpanded: int = 0) -> Sent:
    next_key = b"" if next_table == 4 else b"key"
    return progress(SweepPageSent(page.sweep_id, page.page, sent_rows, unexpanded, next_table, next_key))


def result(page: SweepPage, rows: int, part: int = 0, found: int = 0, directories: int = 0, txn: int = 1) -> Sent:
    parts = SweptParts((txn,), (part,), (rows,))
    return SWEEP_RESULTS, SweepResult(page.sweep_id, page.page, 0, rows, found, directories, 1, None, parts)


def clean(harness: Harness, page: SweepPage) -> list[Sent]:
    """End a sweep that finds nothing."""
    return harness.give(sent_page(page, 0))


def pages(sent: list[Sent]) -> list[SweepPage]:
    return bodies(sent, SweepPage)


def flags(sent: list[Sent]) -> list[tuple[str, int]]:
    return [(flag.snapshot_id, flag.chain_version) for flag in bodies(sent, SetDeepClean)]


def chain_of_clean_ranges(harness: Harness, *txns: int) -> None:
    """Snapshots s1, s2, … whose stores are flagged."""
    for ordinal, txn in enumerate(txns, start=1):
        (page,) = pages(harness.give(capture(ordinal, txn, ordinal)))
        assert flags(clean(harness, page)) == [(f"s{ordinal}", ordinal)]


class TestJudging:
    def test_a_purge_waits_for_the_chain_that_judged_it(self, harness: Harness) -> None:
        name = row(1, birth=510, death=550)
        assert not harness.give(purge(name, version=2, before=1))
        assert not bodies(harness.give(capture(1, 500, 1)), ClaimRows)
        harness.restart()
        sent = harness.give(capture(2, 600, 2))
        (claim,) = bodies(sent, ClaimRows)
        assert (named(claim), claim.chain_version) == ((name,), 2)
        assert senders(sent) == {"key_deletion"}

    def test_a_purge_with_a_chain_version_that_does_not_exist_is_given_up_and_its_rows_are_kept(
        self, harness: Harness, counted: Registry
    ) -> None:
        harness.has_read_all = True
        harness.give(capture(1, 500, 1))
        false = purge(row(1, birth=510), row(2, birth=510), version=1 << 40, before=1)
        assert not harness.give(false, purge(row(3, birth=510), version=1, before=1), false)
        assert not harness.wait(ASK_AFTER_MS - 1), "what is behind it is as new"
        (claim,) = bodies(harness.wait(1), ClaimRows)
        assert named(claim) == (row(3, birth=510),)
        assert counted("rows_judged_total", verdict="unjudgeable") == 4
        assert not harness.rows(WAITING_TABLE)

    def test_a_purge_waits_while_the_chain_is_not_read_to_its_end(self, harness: Harness) -> None:
        harness.give(capture(1, 500, 1), purge(row(1, 510, 550), version=2, before=1))
        for _ in range(3):
            assert not bodies(harness.wait(ASK_AFTER_MS), ClaimRows)
        assert bodies(harness.give(capture(2, 6_000, 2)), ClaimRows)

    def test_a_purge_waits_while_the_chain_has_come_in_part(self, harness: Harness) -> None:
        first, last = (
            (SNAPSHOT_CHAIN, SnapshotChainRecord(5, 5, FullChain((ChainedBucket(bucket_id, ()),), part, 2)))
            for part, bucket_id in ((1, BUCKET), (2, BUCKET + 1))
        )
        harness.has_read_all = True
        harness.give(first, purge(row(1, birth=510), version=5))
        for _ in range(3):
            assert not bodies(harness.wait(ASK_AFTER_MS), ClaimRows)
        (claim,) = bodies(harness.give(last), ClaimRows)
        assert named(claim) == (row(1, birth=510),)

    def test_a_held_row_is_kept_and_counted(self, harness: Harness, counted: Registry) -> None:
        harness.give(capture(1, 500, 1))
        held = row(1, birth=500, death=600)
        free = row(2, birth=501, death=600)
        sent = harness.give(purge(held, free, version=1, before=1))
        assert named(bodies(sent, ClaimRows)[0]) == (free,)
        assert counted("rows_judged_total", verdict="exclusive_to_previous") == 1
        assert counted("rows_judged_total", verdict="reclaimable") == 1

    @pytest.mark.parametrize(
        ("name", "before"),
        [(row(1), 3), (row(1, birth=10, death=9), 0), (row(1, birth=600, death=700), 0)],
        ids=["beyond the chain", "dead before its birth", "a snapshot too few"],
    )
    def test_a_row_that_cannot_be_judged_is_kept(
        self, harness: Harness, counted: Registry, name: RowName, before: int
    ) -> None:
        harness.give(capture(1, 500, 1))
        assert not bodies(harness.give(purge(name, version=1, before=before)), ClaimRows)
        assert counted("rows_judged_total", verdict="unjudgeable") == 1
        assert not harness.rows(WAITING_TABLE)

    def test_a_purge_without_places_in_the_chain_is_refused_alone(self, harness: Harness) -> None:
        (columns,) = by_columns(rows(1, 2))
        broken = PURGE_KEYS, PurgeKeys(0, columns, (0,))
        (claim,) = bodies(harness.give(purge(row(3)), broken, purge(row(4))), ClaimRows)
        assert named(claim) == rows(3, 4)
        assert harness.refused == [broken[1]]

    def test_a_missing_marker_stops_everything(self, harness: Harness) -> None:
        with pytest.raises(ChainBrokenError):
            harness.give(capture(2, 500, 1))
        with pytest.raises(ChainBrokenError):
            harness.give(drop(1, "never", 3, 0))


class TestLimits:
    def test_a_task_holds_so_many_rows(self, harness: Harness) -> None:
        claims = bodies(harness.give(purge(*rows(*range(25)))), ClaimRows)
        assert [len(named(claim)) for claim in claims] == [10, 10, 5]
        assert tuple(name for claim in claims for name in named(claim)) == rows(*range(25))
        assert len({claim.task for claim in claims}) == 3

    def test_a_task_holds_so_many_bytes(self) -> None:
        harness = Harness(lambda: KeyDeletionService(replace(SETTINGS, max_task_bytes=200)))
        claims = bodies(harness.give(purge(*rows(*range(4)))), ClaimRows)
        assert [len(named(claim)) for claim in claims] == [2, 2]

    def test_small_purges_make_one_task_and_a_row_is_in_it_once(self, harness: Harness) -> None:
        claim = only(harness.give(purge(row(1)), purge(row(2), row(1)), purge(row(3))), ClaimRows)
        assert named(claim) == rows(1, 2, 3)

    @pytest.mark.parametrize("is_claimed", [False, True])
    def test_a_purge_that_comes_again_ends_at_metadata(self, harness: Harness, *, is_claimed: bool) -> None:
        """The row is claimed twice; metadata answers the second claim with what is left of the row."""
        first = only(harness.give(purge(row(1))), ClaimRows)
        command = only(harness.give(claimed(first)), DeleteBlocks)
        second = only(harness.give(purge(row(1))), ClaimRows)
        assert (named(second), second.task != first.task) == (rows(1), True)
        if is_claimed:  # the row is in reclaimTable still: its blocks are deleted again, which frees nothing
            again = only(harness.give(claimed(second)), DeleteBlocks)
            assert groups_in(again) == groups_in(command)
            sent = harness.give(deleted(command), deleted(again))
            for finish in bodies(sent, FinishRows):
                harness.give(finished(finish))
        else:
            harness.give(finished(only(harness.give(deleted(command)), FinishRows)))
            assert not harness.give(claimed(second, missing=rows(1)))
        assert not harness.rows(TASK_TABLE)
        assert not harness.rows(WAITING_TABLE)

    def test_what_has_no_room_waits_over_a_restart(self, harness: Harness) -> None:
        claims = bodies(harness.give(purge(*rows(*range(45)))), ClaimRows)
        assert len(claims) == 4
        assert [len(waiting.rows.object_ids) for waiting in harness.rows(WAITING_TABLE)] == [5]
        assert not harness.give(purge(row(50)))
        harness.restart()
        sent = harness.give(claimed(claims[0], missing=named(claims[0])))
        assert named(only(sent, ClaimRows)) == rows(40, 41, 42, 43, 44, 50)
        assert not harness.rows(WAITING_TABLE)

    def test_failed_groups_leave_room_for_new_rows(self, harness: Harness) -> None:
        for number in range(1, 5):
            claim = only(harness.give(purge(row(number))), ClaimRows)
            harness.give(deleted(only(harness.give(claimed(claim)), DeleteBlocks), 0))
        assert len(bodies(harness.wait(100), DeleteBlocks)) == 2, "so many retries at once"
        assert len(bodies(harness.give(purge(*rows(*range(10, 40)))), ClaimRows)) == 2


class TestTasks:
    def test_a_row_is_claimed_then_deleted_then_finished(self, harness: Harness, counted: Registry) -> None:
        claim = only(harness.give(purge(*rows(1, 2))), ClaimRows)
        command = only(harness.give(claimed(claim)), DeleteBlocks)
        assert groups_in(command) == (group(row(1)), group(row(2)))
        assert (command.attempt, counted("unconfirmed_bytes", shard="0")) == (1, 200)
        finish = only(harness.give(deleted(command)), FinishRows)
        assert named(finish) == rows(1, 2)
        assert counted("unconfirmed_bytes", shard="0") == 0
        assert not harness.give(finished(finish))
        assert not harness.rows(TASK_TABLE)

    def test_scm_hears_only_of_what_was_claimed(self, harness: Harness, counted: Registry) -> None:
        rename = row(4, kind=DeletedKind.RENAME_ENTRY)
        claim = only(harness.give(purge(*rows(1, 2, 3)), purge(rename)), ClaimRows)
        sent = harness.give(claimed(claim, missing=rows(2), refused=rows(3), removed=(rename,)))
        assert groups_in(only(sent, DeleteBlocks)) == (group(row(1)),)
        assert counted("claims_refused_total") == 1
        assert counted("claim_rows_total", outcome="missing") == 1

    def test_a_claim_that_lets_nothing_go_ends_its_task(self, harness: Harness) -> None:
        claim = only(harness.give(purge(row(1))), ClaimRows)
        assert not harness.give(claimed(claim, missing=rows(1)))
        assert not harness.rows(TASK_TABLE)

    def test_one_failed_group_leaves_that_one_and_no_other(self, harness: Harness) -> None:
        claim = only(harness.give(purge(*rows(1, 2, 3))), ClaimRows)
        command = only(harness.give(claimed(claim)), DeleteBlocks)
        finish = only(harness.give(deleted(command, 1)), FinishRows)
        assert named(finish) == rows(1, 3)
        harness.give(finished(finish))
        retry = only(harness.wait(100), DeleteBlocks)
        assert (groups_in(retry), retry.attempt) == ((group(row(2)),), 2)
        assert retry.task != command.task
        assert named(only(harness.give(deleted(retry)), FinishRows)) == rows(2)

    def test_the_back_off_doubles_up_to_its_cap(self, harness: Harness) -> None:
        claim = only(harness.give(purge(row(1))), ClaimRows)
        command = only(harness.give(claimed(claim)), DeleteBlocks)
        for pause_ms in (100, 200, 400, 400):
            harness.give(deleted(command, 0))
            harness.restart()
            assert not harness.wait(pause_ms - 1)
            retry = only(harness.wait(1), DeleteBlocks)
            assert retry == replace(command, attempt=command.attempt + 1)
            command = retry

    def test_an_answer_that_comes_again_does_nothing(self, harness: Harness) -> None:
        claim = only(harness.give(purge(*rows(1, 2))), ClaimRows)
        command = only(harness.give(claimed(claim)), DeleteBlocks)
        assert not harness.give(claimed(claim))
        finish = only(harness.give(deleted(command, 1)), FinishRows)
        assert not harness.give(deleted(command, 1), claimed(claim))
        retry = only(harness.wait(100), DeleteBlocks)
        assert not harness.give(deleted(replace(retry, attempt=1))), "of an older attempt"
        harness.give(finished(finish), finished(finish))
        assert [state.state for state in harness.rows(TASK_TABLE)] == ["DELETING"]

    def test_answers_to_nobody_do_nothing(self, harness: Harness) -> None:
        unauthorized = ClaimRows(4711, 0, by_columns(rows(1)))
        assert not harness.give(
            claimed(unauthorized), deleted(DeleteBlocks(4711, 1, NO_GROUPS)), finished(FinishRows(4711, ()))
        )

    def test_an_answer_for_other_rows_is_not_for_this_claim(self, harness: Harness) -> None:
        claim = only(harness.give(purge(*rows(1, 2))), ClaimRows)
        assert not harness.give(
            claimed(replace(claim, rows=by_columns(rows(1, 3)))), claimed(replace(claim, rows=by_columns(rows(1))))
        )
        assert groups_in(only(harness.give(claimed(claim)), DeleteBlocks)) == (group(row(1)), group(row(2)))

    def test_without_an_answer_the_same_is_asked_again(self, harness: Harness, counted: Registry) -> None:
        claim = only(harness.give(purge(row(1))), ClaimRows)
        assert not harness.wait(9_999)
        assert only(harness.wait(1), ClaimRows) == claim
        command = only(harness.give(claimed(claim)), DeleteBlocks)
        harness.restart()
        assert only(harness.wait(10_000), DeleteBlocks) == command
        finish = only(harness.give(deleted(command)), FinishRows)
        assert only(harness.wait(10_000), FinishRows) == finish
        assert counted("asked_again_total", step="deleting") == 1
        assert not harness.give(deleted(command)), "the late answer to the first question"

    def test_numbers_are_not_used_again_on_a_new_database(self, harness: Harness) -> None:
        first = only(harness.give(purge(row(1))), ClaimRows)
        other = Harness(lambda: KeyDeletionService(SETTINGS), now_ms=harness.now_ms + 1)
        assert only(other.give(purge(row(2))), ClaimRows).task > first.task


class TestBarrier:
    def test_it_needs_both_topics(self, harness: Harness) -> None:
        assert not harness.give(barrier("purges", work=2))
        harness.restart()
        sent = harness.give(barrier("sweeps", work=3))
        assert only(sent, Barrier).work == 3
        assert sent[0][0] is SCM_COMMANDS
        assert not harness.rows(BARRIER_TABLE)

    def test_it_needs_the_same_round(self, harness: Harness) -> None:
        assert not harness.give(barrier("purges", round_number=1), barrier("sweeps", round_number=2))
        assert only(harness.give(barrier("purges", round_number=2)), Barrier).round == 2
        assert not harness.give(barrier("sweeps", round_number=1, name="other"))

    def test_two_requests_do_not_mix(self, harness: Harness) -> None:
        harness.give(barrier("purges", name="one"), barrier("purges", name="two"))
        assert only(harness.give(barrier("sweeps", name="one")), Barrier).barrier_id == "one"
        assert only(harness.give(barrier("sweeps", name="two")), Barrier).barrier_id == "two"

    def test_it_returns_to_metadata_with_the_work_of_both_passes(self, harness: Harness) -> None:
        returned, _ = pass_barrier(harness)
        assert returned == Barrier("settle", 1, 0, "key_deletion", passed_txn=LATE)
        claim = only(harness.give(purge(row(1))), ClaimRows)
        assert pass_barrier(harness, 2)[0].work > 0
        assert pass_barrier(harness, 3)[0].work > 0, "the task is still on its way"
        harness.give(claimed(claim, missing=rows(1)))
        harness.restart()
        assert pass_barrier(harness, 4)[0].work > 0, "something was done since"
        assert pass_barrier(harness, 5)[0].work == 0

    def test_it_counts_what_waits_for_the_chain(self, harness: Harness) -> None:
        harness.give(purge(row(1), version=1))
        pass_barrier(harness)
        assert pass_barrier(harness, 2)[0].work > 0

    def test_it_counts_what_is_ahead_of_the_chain_until_that_is_given_up(self, harness: Harness) -> None:
        harness.has_read_all = True
        harness.give(purge(row(1), version=1 << 40), purge(row(2), version=1 << 41))
        pass_barrier(harness)
        assert pass_barrier(harness, 2)[0].work > 0
        harness.wait(ASK_AFTER_MS)
        pass_barrier(harness, 3)
        assert pass_barrier(harness, 4)[0].work == 0

    def test_it_ends_back_offs(self, harness: Harness) -> None:
        claim = only(harness.give(purge(row(1))), ClaimRows)
        harness.give(deleted(only(harness.give(claimed(claim)), DeleteBlocks), 0))
        _, sent = pass_barrier(harness)
        (retry,) = bodies(sent, DeleteBlocks)
        assert retry.attempt == 2
        _, sent = pass_barrier(harness, 2)
        assert not bodies(sent, DeleteBlocks), "one that is on its way is not asked again"

    def test_it_counts_garbage_ranges_until_they_are_flagged(self, harness: Harness) -> None:
        (page,) = pages(harness.give(capture(1, 500, 1)))
        harness.give(sent_page(page, 1), result(page, 1, found=1))
        _, sent = pass_barrier(harness)
        (again,) = pages(sent)
        assert pass_barrier(harness, 2)[0].work > 0
        assert flags(clean(harness, again)) == [("s1", 1)]
        assert pass_barrier(harness, 3)[0].work > 0
        assert pass_barrier(harness, 4)[0].work == 0


class TestSweeps:
    def test_a_new_garbage_range_is_swept_once(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500)
        (page,) = pages(harness.give(capture(2, 800, 2)))
        assert (page.after_death, page.until_death, page.after_birth, page.until_birth) == (500, 800, 0, 0)
        assert (page.page, page.start_table, page.start_key) == (1, 0, b"")
        assert flags(clean(harness, page)) == [("s2", 2)]
        assert not harness.rows(SWEEP_TABLE)

    def test_pages_follow_one_another_once_all_parts_are_judged(self) -> None:
        harness = Harness(lambda: KeyDeletionService(replace(SETTINGS, max_sweep_pages_in_flight=1)))
        (page,) = pages(harness.give(capture(1, 500, 1)))
        assert not harness.give(result(page, 2, part=10)), "the judge was faster than the answer"
        assert not harness.give(sent_page(page, 5, next_table=1))
        assert not harness.give(result(page, 2, part=10)), "the same part again"
        harness.restart()
        assert not harness.give(result(page, 2, part=12))
        second = only(harness.give(result(page, 1, part=14)), SweepPage)
        assert (second.page, second.start_table, second.start_key) == (2, 1, b"key")
        assert second.sweep_id == page.sweep_id
        assert not harness.give(result(page, 5, part=99), sent_page(page, 0)), "of the page before"
        assert not harness.give(sent_page(second, 1), sent_page(second, 0))
        assert flags(harness.give(result(second, 1, part=20))) == [("s1", 1)]
        assert not harness.give(result(second, 1, part=20))

    def test_pages_are_asked_for_ahead_and_judged_in_any_order(self, harness: Harness) -> None:
        (first,) = pages(harness.give(capture(1, 500, 1)))
        second = only(harness.give(sent_page(first, 2, next_table=1)), SweepPage)
        assert (second.page, second.start_table, second.start_key) == (2, 1, b"key")
        harness.restart()
        third = only(harness.give(sent_page(second, 1, next_table=2)), SweepPage)
        assert (third.sweep_id, third.page, third.start_table) == (first.sweep_id, 3, 2)
        assert not harness.give(sent_page(third, 1, next_table=3)), "three are not judged, and no more may be"
        fourth = only(harness.give(result(second, 1, part=12, found=1)), SweepPage)
        assert not harness.give(result(second, 1, part=12), sent_page(second, 1)), "of a page that is judged"
        assert not harness.give(sent_page(fourth, 0), result(third, 1, part=13), result(first, 1, part=10))
        harness.restart()
        assert not harness.give(result(first, 1, part=10)), "the same part again"
        assert harness.rows(SWEEP_TABLE)[0].open_pages == (
            OpenSweepPage(1, 0, b"", 1, 2, SweptParts((1,), (10,), (1,))),
        )
        assert not harness.give(result(first, 1, part=11))
        assert only(harness.wait(1_000), SweepPage).page == 1, "something was found: swept again"

    def test_no_page_is_asked_for_ahead_while_rows_wait_to_be_claimed(self, harness: Harness) -> None:
        """Whatever is deleted meanwhile is judged behind what sweeps send."""
        (first,) = pages(harness.give(capture(1, 500, 1)))
        claims = bodies(harness.give(purge(*rows(*range(45)), version=1, before=1)), ClaimRows)
        assert not harness.give(sent_page(first, 1, next_table=1))
        sent = harness.give(*(claimed(claim, missing=named(claim)) for claim in claims))
        assert [page.page for page in pages(sent)] == [2]

    def test_a_range_is_swept_until_nothing_is_found(self, harness: Harness) -> None:
        (page,) = pages(harness.give(capture(1, 500, 1)))
        assert not harness.give(sent_page(page, 3), result(page, 3, found=1))
        for pause_ms, unexpanded in ((1_000, 1), (2_000, 0)):
            assert not harness.wait(pause_ms - 1)
            harness.restart()
            again = only(harness.wait(1), SweepPage)
            assert again.sweep_id != page.sweep_id
            assert (again.after_death, again.until_death) == (page.after_death, page.until_death)
            sent = harness.give(sent_page(again, 0, unexpanded=unexpanded))
            assert flags(sent) == ([] if unexpanded else [("s1", 1)])
            page = again

    def test_something_found_on_the_first_page_counts_at_the_end(self, harness: Harness) -> None:
        (page,) = pages(harness.give(capture(1, 500, 1)))
        parts = result(page, 1, part=4, found=1), result(page, 1, part=5)
        second = only(harness.give(sent_page(page, 2, next_table=1), *parts), SweepPage)
        assert not harness.give(sent_page(second, 1), result(second, 1, part=6))
        assert only(harness.wait(1_000), SweepPage).page == 1

    def test_a_directory_that_waits_for_a_held_child_does_not_keep_a_range_dirty(self, harness: Harness) -> None:
        (page,) = pages(harness.give(capture(1, 500, 1)))
        assert flags(harness.give(sent_page(page, 1), result(page, 1, directories=1))) == [("s1", 1)]

    def test_so_many_at_once(self, harness: Harness) -> None:
        sent = harness.give(capture(1, 500, 1), capture(2, 600, 2), capture(3, 700, 3))
        first, second = pages(sent)
        third = pages(clean(harness, first))
        assert len(third) == 1
        assert {page.until_death for page in (first, second, *third)} == {500, 600, 700}

    def test_a_page_without_an_answer_is_asked_for_again_under_another_number(self, harness: Harness) -> None:
        (first,) = pages(harness.give(capture(1, 500, 1)))
        second = only(harness.give(sent_page(first, 0, next_table=2)), SweepPage)
        harness.restart()
        again = only(harness.wait(10_000), SweepPage)
        assert (again.sweep_id, again.page, again.start_table, again.start_key) == (first.sweep_id, 3, 2, b"key")
        assert not harness.give(sent_page(second, 0)), "an answer to the one before"
        assert flags(clean(harness, again)) == [("s1", 1)]

    def test_a_sweep_goes_back_to_the_oldest_page_that_is_not_judged(self, harness: Harness) -> None:
        """A page that is read again ends elsewhere: those behind it might begin too late."""
        (first,) = pages(harness.give(capture(1, 500, 1)))
        second = only(harness.give(sent_page(first, 2, next_table=1)), SweepPage)
        third = only(harness.give(sent_page(second, 1, next_table=2)), SweepPage)
        harness.give(result(third, 1), sent_page(third, 1))
        harness.give(result(first, 2))
        again = only(harness.wait(10_000), SweepPage)
        assert (again.page, again.start_table) == (4, 1)
        assert not harness.give(result(second, 1)), "nobody waits for it any more"
        assert flags(clean(harness, again)) == [("s1", 1)]

    def test_now_and_then_every_bucket_is_swept_as_a_whole(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500)
        harness.give(drop(2, "s1", 500, 0))
        page = only(harness.wait(SETTINGS.safety_sweep_interval_ms), SweepPage)
        assert (page.after_death, page.until_death, page.until_birth) == (0, 0, 0)
        assert not harness.give(sent_page(page, 1), result(page, 1, found=1)), "what it found goes the usual way"
        assert not harness.rows(SWEEP_TABLE)
        harness.restart()
        assert not harness.wait(SETTINGS.safety_sweep_interval_ms - 1)
        assert pages(harness.wait(1))

    def test_claimed_rows_are_left_alone_as_long_as_the_block_store_fails(self, harness: Harness) -> None:
        """Their task is there, and would get a twin with every sweep."""
        harness.give()
        page = only(harness.wait(SETTINGS.safety_sweep_interval_ms), SweepPage)
        assert page.with_claimed
        harness.give(sent_page(page, 0))
        command = only(harness.give(claimed(only(harness.give(purge(row(1))), ClaimRows))), DeleteBlocks)
        harness.give(deleted(command, 0))
        sent = harness.wait(SETTINGS.safety_sweep_interval_ms)
        (during,), (retry,) = pages(sent), bodies(sent, DeleteBlocks)
        assert not during.with_claimed
        finish = only(harness.give(deleted(retry)), FinishRows)
        harness.give(finished(finish), sent_page(during, 0))
        assert only(harness.wait(SETTINGS.safety_sweep_interval_ms), SweepPage).with_claimed


class TestDrops:
    def test_rows_held_alone_are_swept_in_the_next_range(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500, 600, 700, 800)
        sent = harness.give(drop(5, "s2", 600, rows_held_alone=3))
        (page,) = pages(sent)
        assert (page.after_death, page.until_death, page.after_birth, page.until_birth) == (600, 700, 500, 600)
        assert flags(sent) == [("s4", 5)], "the store after the next one is clean still, by the new chain"
        assert flags(clean(harness, page)) == [("s3", 5)]

    def test_without_rows_held_alone_nothing_is_read(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500, 600, 700)
        sent = harness.give(drop(4, "s1", 500, rows_held_alone=0))
        assert not pages(sent)
        assert flags(sent) == [("s2", 4), ("s3", 4)]
        assert {store.snapshot_id for store in harness.rows(GARBAGE_RANGE_TABLE)} == {"s2", "s3"}

    def test_a_range_that_is_not_clean_is_not_flagged_by_a_drop(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500)
        (page,) = pages(harness.give(capture(2, 600, 2)))
        assert not flags(harness.give(drop(3, "s1", 500, rows_held_alone=0)))
        assert flags(clean(harness, page)) == [("s2", 3)], "the sweep that was on its way answers for the new chain"

    def test_a_sweep_from_before_a_drop_does_not_flag(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500)
        (before,) = pages(harness.give(capture(2, 600, 2)))
        assert not pages(harness.give(drop(3, "s1", 500, rows_held_alone=1))), "the store is being swept"
        after = only(clean(harness, before), SweepPage)
        assert (after.after_death, after.until_death, after.after_birth, after.until_birth) == (500, 600, 0, 500)
        assert flags(clean(harness, after)) == [("s2", 3)]

    def test_an_unfinished_sweep_continues_in_the_next_range(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500)
        (unfinished,) = pages(harness.give(capture(2, 600, 2)))
        (third,) = pages(harness.give(capture(3, 700, 3)))
        clean(harness, third)
        assert not flags(harness.give(drop(4, "s2", 600, rows_held_alone=0)))
        harness.restart()
        assert flags(clean(harness, unfinished)) == [("s3", 4)]

    def test_the_newest_snapshots_rows_are_swept_in_the_active_range(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500, 600)
        page = only(harness.give(drop(3, "s2", 600, rows_held_alone=2)), SweepPage)
        assert (page.after_death, page.until_death, page.after_birth, page.until_birth) == (600, 0, 500, 600)
        assert not harness.give(sent_page(page, 2), result(page, 2, found=2))
        assert not harness.rows(SWEEP_TABLE)

    def test_a_marker_that_comes_again_changes_nothing(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500, 600)
        harness.give(drop(3, "s1", 500, rows_held_alone=0))
        assert not harness.give(drop(3, "s1", 500, rows_held_alone=0), capture(2, 600, 2))

    def test_a_full_chain_record_starts_over(self, harness: Harness) -> None:
        chain_of_clean_ranges(harness, 500)
        snapshots = tuple(ChainedSnapshot(f"s{n}", n, 100 * (n + 4), n != 2) for n in range(1, 4))
        record = SnapshotChainRecord(9, 9, FullChain((ChainedBucket(BUCKET, snapshots),)))
        found = pages(harness.give((SNAPSHOT_CHAIN, record)))
        harness.restart()
        for page in found:
            found += pages(clean(harness, page))
        assert {(page.after_death, page.until_death) for page in found} == {(0, 0), (0, 500), (500, 700)}
        assert not pages(harness.give((SNAPSHOT_CHAIN, record)))


class World:
    """The services around key_deletion, played at random from a seed: late, twice, and failing."""

    def __init__(self, seed: int, *, is_restored: bool) -> None:
        self.random = Random(seed)
        settings = replace(SETTINGS, max_task_rows=3, max_tasks_in_flight=3, answer_timeout_ms=2_000)
        self.harness = Harness(lambda: KeyDeletionService(settings), is_restored)
        self.answers: list[Sent] = []
        self.live: list[tuple[str, int]] = []
        self.version = self.ever = self.txn = self.rows = self.rounds = 0

    def play(self, steps: int) -> list[Sent]:
        for _ in range(steps):
            self.harness.now_ms += self.random.choice([0, 1, 60, 1_500])
            inputs = [self.message() for _ in range(self.random.randrange(3))]
            for topic, record in self.harness.give(*inputs):
                self.hear(topic, record)
        return self.harness.sent

    def message(self) -> Sent:
        if self.answers and self.random.random() < 0.7:
            place = self.random.randrange(len(self.answers))
            return self.answers[place] if self.random.random() < 0.2 else self.answers.pop(place)
        choice = self.random.randrange(8)
        if choice < 4:
            self.rows += 7
            numbers = range(self.rows, self.rows + self.random.randrange(1, 6))
            names = (replace(row(number), bucket_id=BUCKET_WITHOUT_SNAPSHOTS) for number in numbers)
            version = self.version + self.random.choice([0, 0, 1])
            return purge(*names, version=version, is_sweep=self.random.random() < 0.5)
        if choice == 4:
            self.rounds += 1
            self.answers.append(barrier("sweeps", round_number=self.rounds))
            return barrier("purges", round_number=self.rounds)
        self.version += 1
        self.txn += 10
        if choice == 5 or not self.live:
            self.ever += 1
            self.live.append((f"s{self.ever}", self.txn))
            return capture(self.version, self.txn, self.ever)
        missing = self.live.pop(self.random.randrange(len(self.live)))
        return drop(self.version, *missing, rows_held_alone=self.random.randrange(2))

    def hear(self, _: object, record: object) -> None:
        body = getattr(record, "body", None)
        if isinstance(body, ClaimRows):
            some = named(body)[: self.random.randrange(2)]
            self.answers.append(claimed(body, missing=some))
        elif isinstance(body, DeleteBlocks):
            self.answers.append(deleted(body, *(n for n in range(len(groups_in(body))) if self.random.random() < 0.3)))
        elif isinstance(body, FinishRows):
            self.answers.append(finished(body))
        elif isinstance(body, SweepPage):
            sent_rows = self.random.randrange(3)
            self.answers.append(sent_page(body, sent_rows, self.random.choice([3, 3, 1]), self.random.randrange(2)))
            self.answers += [result(body, 1, part=part, found=part % 2) for part in range(sent_rows)]
        elif isinstance(body, Barrier):
            self.answers.append((SCM_REPLIES, ScmReply(body)))


def _identity(one: RowName | BlockGroup) -> tuple[int, int]:
    return one.object_id, one.death


@given(st.integers(0, 10**9))
@settings(max_examples=50, deadline=None)
def test_a_restart_between_any_two_messages_changes_nothing(seed: int) -> None:
    straight = World(seed, is_restored=False).play(60)
    assert World(seed, is_restored=True).play(60) == straight


@given(st.integers(0, 10**9))
@settings(max_examples=50, deadline=None)
def test_scm_gets_what_was_claimed_and_metadata_what_was_confirmed(seed: int) -> None:
    world = World(seed, is_restored=False)
    let_go: set[BlockGroup] = set()
    confirmed: set[tuple[int, int]] = set()
    finished_rows = 0
    open_commands: dict[tuple[int, int], DeleteBlocks] = {}
    for _ in range(60):
        world.harness.now_ms += 60
        topic, record = world.message()
        body = getattr(record, "body", None)
        if isinstance(body, RowsClaimed):
            let_go |= set(groups_in(body))
        if isinstance(body, BlocksDeleted) and (command := open_commands.get((body.task, body.attempt))):
            confirmed |= {_identity(g) for n, g in enumerate(groups_in(command)) if n not in body.failed}
        for sent in world.harness.give((topic, record)):
            world.hear(*sent)
            body = getattr(sent[1], "body", None)
            if isinstance(body, DeleteBlocks):
                open_commands[body.task, body.attempt] = body
                assert set(groups_in(body)) <= let_go
            if isinstance(body, FinishRows):
                assert {_identity(name) for name in named(body)} <= confirmed
                finished_rows += len(named(body))
    event("rows were finished" if finished_rows else "nothing was finished")
