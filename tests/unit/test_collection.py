"""What the collector may do: the stricter word counts, claims behind a pause wait, and a resume has them swept."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from schemas.answers import ShadowHour
from schemas.records import (
    AcceptLostTail,
    Barrier,
    BucketCollection,
    BucketLayout,
    ClaimRows,
    CollectionChanged,
    CollectionState,
    CreateBucket,
    DeleteBucket,
    DeletedKind,
    DeleteKey,
    DirectoriesRemoved,
    DirectoryExpanded,
    DirectoryRemoval,
    DirectoryVerdict,
    ExpandDirectory,
    ExpansionOutcome,
    JudgedDirectory,
    MetadataCommand,
    MetadataProgress,
    PutKey,
    RemovalOutcome,
    RemoveDirectories,
    RowName,
    ScmReply,
    SetCollection,
    StopClaims,
    SweepPage,
    Undelete,
)
from schemas.topics import METADATA_COMMANDS, METADATA_PROGRESS, PURGE_DIRECTORIES, SCM_REPLIES
from services.directory_deletion.service import DirectoryDeletionService
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.domain.collection import is_looser, stricter
from services.domain.durations import HOUR_MS
from services.domain.row_columns import row_names
from services.key_deletion.service import KeyDeletionService
from services.key_deletion.sweeps import EVERY_BUCKET
from services.key_deletion.tables import TASK_TABLE
from services.metadata.collecting.shadow import KEPT_HOURS
from services.metadata.reads.collection_queries import collection_status
from services.metadata.reads.queries import shard_backlog, shard_state
from services.metadata.state.tables import TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.runtime.parts.collection_follower import COLLECTION_TABLE
from services.storage.tables import TablesReader
from tests.unit.service_harness import Harness, Sent, bodies
from tests.unit.test_key_deletion import barrier, claimed, named, purge, row
from tests.unit.test_metadata import Shard

RUNNING, PAUSED, STOPPED = CollectionState.RUNNING, CollectionState.PAUSED, CollectionState.STOPPED
BUCKET = row(1).bucket_id


def changed(state: CollectionState, txn: int, bucket_id: int = BUCKET, previous_txn: int = 0) -> Sent:
    change = CollectionChanged((BucketCollection(bucket_id, state),), txn, previous_txn)
    return METADATA_PROGRESS, MetadataProgress(txn, change)


def whole(txn: int, previous_txn: int, **paused: CollectionState) -> Sent:
    states = tuple(BucketCollection(BUCKET + int(one[1:]), state) for one, state in paused.items())
    return METADATA_PROGRESS, MetadataProgress(txn, CollectionChanged(states, txn, previous_txn, is_whole=True))


@pytest.mark.parametrize(("one", "other"), list(product(CollectionState, repeat=2)))
def test_of_two_words_the_stricter_one_counts(one: CollectionState, other: CollectionState) -> None:
    assert stricter(one, other) is stricter(other, one) in (one, other)
    assert not is_looser(stricter(one, other), one)
    assert is_looser(one, other) is (one is not other and stricter(one, other) is other)


def accept_lost_tail(shard: Shard, epoch: int) -> AcceptLostTail:
    """Go on behind a loss, in a new epoch."""
    state = TablesReader(shard.store).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
    assert state is not None
    offset, chain_version = shard.log.end_offset(METADATA_COMMANDS.name, 0), state.chain_version + 1
    body = AcceptLostTail(offset, state.txn, state.log_time_ms, epoch, state.txn + 1_000, chain_version, "")
    shard.send(MetadataCommand(0, "", 0, body, wants_reply=False))
    shard.runner.step()
    return body


class TestKeyDeletion:
    def test_leaves_rows_of_a_paused_bucket_alone_and_has_them_swept_when_it_is_resumed(self) -> None:
        harness = Harness(KeyDeletionService)
        harness.give(changed(PAUSED, 5))
        assert not bodies(harness.give(purge(row(1))), ClaimRows)
        harness.restart()
        assert not bodies(harness.give(purge(row(2))), ClaimRows)
        (sweep,) = bodies(harness.give(changed(RUNNING, 9)), SweepPage)
        assert (sweep.bucket_id, sweep.after_death, sweep.until_death) == (BUCKET, 0, 0)
        assert sweep.with_claimed, "a purge of a claimed row may have been left alone, too"
        assert bodies(harness.give(purge(row(1))), ClaimRows)

    def test_claims_other_buckets_meanwhile(self) -> None:
        harness = Harness(KeyDeletionService)
        harness.give(changed(PAUSED, 5, BUCKET + 1))
        (claim,) = bodies(harness.give(purge(row(1))), ClaimRows)
        assert named(claim) == (row(1),)

    def test_forgets_what_is_answered_as_suspended(self) -> None:
        harness = Harness(KeyDeletionService)
        (claim,) = bodies(harness.give(purge(row(1))), ClaimRows)
        harness.give(changed(PAUSED, 5))
        assert not harness.give(claimed(claim, suspended=(row(1),)))
        assert harness.rows(TASK_TABLE) == []

    def test_ignores_a_change_that_it_reads_once_more(self) -> None:
        harness = Harness(KeyDeletionService)
        harness.give(changed(PAUSED, 5))
        harness.give(changed(RUNNING, 9))
        harness.give(changed(PAUSED, 5))
        assert bodies(harness.give(purge(row(1))), ClaimRows)

    def test_has_work_until_it_has_heard_of_the_change_before_a_barrier(self) -> None:
        harness = Harness(KeyDeletionService)

        def work(round_number: int) -> int:
            counterparts = (barrier("purges", 0, round_number), barrier("sweeps", 0, round_number))
            reported = (
                (topic, replace(record, barrier=replace(record.barrier, collection_txn=5)))
                for topic, record in counterparts
            )
            return bodies(harness.give(*reported), Barrier)[0].work

        assert (work(1), work(2)) == (1, 1)
        harness.give(changed(PAUSED, 5))
        assert (work(3), work(4)) == (1, 0), "a change that was taken in counts once"


class TestMetadata:
    @pytest.fixture
    def shard(self) -> Shard:
        shard = Shard()
        shard.do(PutKey("vol", "flat", "k", 10))
        shard.do(DeleteKey("vol", "flat", "k"))
        return shard

    def test_holds_back_what_comes_behind_a_pause_and_lets_go_of_it_afterwards(self, shard: Shard) -> None:
        name = shard.row()
        shard.do(SetCollection("vol", "flat", PAUSED, "why"))
        for _ in range(2):
            claim = shard.claim(name, task=1, chain_version=0)
            assert (row_names(claim.suspended), claim.refused, claim.missing) == ([name], (), ())
            shard.start()
        shard.do(SetCollection("vol", "flat", RUNNING, ""))
        assert len(shard.claim(name, task=1, chain_version=0).groups.object_ids) == 1

    def test_counts_in_the_shadow_by_the_hour_and_keeps_two_weeks(self, shard: Shard) -> None:
        shard.do(SetCollection("vol", "flat", CollectionState.SHADOW, "why"))
        for _ in range(3):
            assert shard.claim(shard.row(), task=1, chain_version=0).suspended
        for number in range(3):
            shard.clock.advance(HOUR_MS)
            shard.do(PutKey("vol", "flat", "k", 100 + number))
            shard.do(DeleteKey("vol", "flat", "k"))
            shard.claim(shard.row(), task=1, chain_version=0)
        assert [(hour.versions, hour.bytes) for hour in self.shadow(shard)] == [(1, 10), (1, 100), (1, 101), (1, 102)]
        shard.clock.advance((KEPT_HOURS - 2) * HOUR_MS)
        shard.do(PutKey("vol", "flat", "k", 7))
        shard.do(DeleteKey("vol", "flat", "k"))
        shard.claim(shard.row(), task=1, chain_version=0)
        assert self.shadow(shard)[0].began_ms == 0, "what was before is summed up"
        assert [hour.bytes for hour in self.shadow(shard)] == [110, 101, 102, 7]
        shard.clock.advance(HOUR_MS)
        shard.do(PutKey("vol", "flat", "k", 9))
        shard.do(DeleteKey("vol", "flat", "k"))
        shard.claim(shard.row(), task=1, chain_version=0)
        (_, line) = collection_status(TablesReader(shard.store), "vol", "flat")
        assert [hour.bytes for hour in line.shadow] == [211, 102, 7, 9]
        assert sum(hour.bytes for hour in line.shadow) == line.pending_bytes
        assert (line.shadow[0].versions, line.pending_versions) == (3, 6)

    def test_what_is_counted_in_the_shadow_is_what_waits_however_often_it_is_begun(self, shard: Shard) -> None:
        def shadow_and_waiting() -> tuple[list[int], int, int, int]:
            (_, line) = collection_status(TablesReader(shard.store), "vol", "flat")
            versions = sum(hour.versions for hour in line.shadow)
            return [hour.bytes for hour in line.shadow], versions, line.pending_bytes, line.pending_versions

        def delete(size_bytes: int) -> RowName:
            shard.clock.advance(HOUR_MS)
            shard.do(PutKey("vol", "flat", f"of {size_bytes}", size_bytes))
            shard.do(DeleteKey("vol", "flat", f"of {size_bytes}"))
            name = shard.row()
            shard.claim(name, task=1, chain_version=0)
            return name

        first = shard.row()
        shard.do(SetCollection("vol", "flat", CollectionState.SHADOW, "a look"))
        shard.claim(first, task=1, chain_version=0)
        second, third = delete(100), delete(101)
        assert shadow_and_waiting() == ([10, 100, 101], 3, 211, 3)
        shard.do(SetCollection("vol", "flat", RUNNING, ""))
        shard.claim(second, task=1, chain_version=0)
        shard.do(SetCollection("vol", "flat", CollectionState.SHADOW, "another look"))
        assert shadow_and_waiting() == ([10, 101], 2, 111, 2), "what has gone is no part of it"
        shard.claim(first, task=1, chain_version=0)
        delete(7)
        assert shadow_and_waiting() == ([10, 101, 7], 3, 118, 3), "what has waited since the first one is counted once"
        shard.do(Undelete("vol", "flat", "of 101", DeletedKind.KEY, third.object_id, third.birth, third.death))
        assert shadow_and_waiting() == ([10, 7], 2, 17, 2)
        shard.clock.advance(KEPT_HOURS * HOUR_MS)
        last = delete(9)
        assert shadow_and_waiting() == ([17, 9], 3, 26, 3), "the old ones are one sum"
        shard.do(SetCollection("vol", "flat", RUNNING, ""))
        shard.claim(first, task=1, chain_version=0)
        assert shadow_and_waiting() == ([7, 9], 2, 16, 2)
        shard.claim(last, task=1, chain_version=0)
        assert shadow_and_waiting() == ([7], 1, 7, 1)

    def shadow(self, shard: Shard) -> tuple[ShadowHour, ...]:
        return collection_status(TablesReader(shard.store), "vol", "flat")[1].shadow

    def test_answers_again_for_what_was_claimed_before_the_pause(self, shard: Shard) -> None:
        name = shard.row()
        first = shard.claim(name, task=1, chain_version=0)
        shard.do(SetCollection("", "", PAUSED, "why"))
        assert shard.claim(name, task=1, chain_version=0) == first

    def test_sends_each_change_with_its_txn(self, shard: Shard) -> None:
        reply = shard.do(SetCollection("vol", "flat", PAUSED, "why"))
        bucket_id = shard.bucket("flat").object_id
        assert shard.sent(METADATA_PROGRESS)[-1].body == CollectionChanged(
            (BucketCollection(bucket_id, PAUSED),), reply.txn, 0
        )
        shard.send(MetadataCommand(0, "", 0, StopClaims("no chain"), "snapshots"))
        shard.runner.step()
        assert shard.sent(METADATA_PROGRESS)[-1].body == CollectionChanged(
            (BucketCollection(0, STOPPED),), reply.txn + 1, reply.txn
        )

    def test_sends_all_again_after_a_start_and_in_each_hour_of_the_log(self, shard: Shard) -> None:
        paused = BucketCollection(shard.bucket("flat").object_id, PAUSED)
        set_txn = shard.do(SetCollection("vol", "flat", PAUSED, "why")).txn
        shard.start()
        shard.runner.step()
        assert self.reported(shard) == CollectionChanged((paused,), set_txn, set_txn, is_whole=True)
        shard.clock.advance(HOUR_MS)
        put_txn = shard.do(PutKey("vol", "flat", "k", 1)).txn
        assert self.reported(shard) == CollectionChanged((paused,), put_txn, set_txn, is_whole=True)
        shard.do(SetCollection("vol", "flat", RUNNING, "why"))
        shard.start()
        shard.runner.step()
        assert self.reported(shard).states == (), "it ends what is not in it"

    def test_sends_nothing_where_nothing_was_ever_set(self, shard: Shard) -> None:
        shard.start()
        shard.runner.step()
        shard.clock.advance(HOUR_MS)
        shard.do(PutKey("vol", "flat", "k", 1))
        self.barrier(shard, 0)
        assert not [one for one in shard.sent(METADATA_PROGRESS) if isinstance(one.body, CollectionChanged)]

    @pytest.mark.parametrize("origin", ["", "key_deletion", "directory_deletion"])
    def test_sends_all_again_before_a_barrier_of_a_service_that_missed_a_change(
        self, shard: Shard, origin: str
    ) -> None:
        set_txn = shard.do(SetCollection("", "", PAUSED, "why")).txn
        self.barrier(shard, set_txn, origin)
        assert not self.reported(shard).is_whole
        self.barrier(shard, set_txn - 1, origin)
        assert self.reported(shard).is_whole
        if origin:
            reported, passed = [one.body for one in shard.sent(METADATA_PROGRESS)][-2:]
            assert (type(reported), passed.collection_txn) == (CollectionChanged, set_txn)

    def test_sends_in_one_message_what_one_command_has_changed(self, shard: Shard) -> None:
        for _ in range(2):
            shard.do(SetCollection("vol", "flat", PAUSED, "why"))
            shard.do(DeleteBucket("vol", "flat"))
            shard.do(CreateBucket("vol", "flat", BucketLayout.OBJECT_STORE))
        reply = shard.do(SetCollection("vol", "flat", RUNNING, ""))
        assert (len(self.reported(shard).states), self.reported(shard).txn) == (3, reply.txn)

    def test_sends_all_when_a_lost_tail_is_accepted_though_it_knows_of_no_change(self, shard: Shard) -> None:
        accepted = accept_lost_tail(shard, epoch=1)
        assert self.reported(shard) == CollectionChanged((), accepted.txn, 0, is_whole=True)

    def test_buckets_whose_ids_are_below_zero_are_listed_as_well(self, shard: Shard) -> None:
        """Those of the second epoch and later."""
        shard.do(SetCollection("vol", "flat", PAUSED, "why"))
        accept_lost_tail(shard, epoch=1)
        accept_lost_tail(shard, epoch=2)
        shard.do(CreateBucket("vol", "late", BucketLayout.OBJECT_STORE))
        shard.do(SetCollection("vol", "late", PAUSED, "why"))
        tables = TablesReader(shard.store)
        _, late, flat = collection_status(tables)
        assert (late.bucket, late.bucket_id < 0, flat.bucket) == ("late", True, "flat")
        assert [line.bucket for line in collection_status(tables, start_after=late.bucket_id)] == ["", "flat"]
        assert [line.bucket for line in collection_status(tables, "vol", "late")] == ["", "late"]

    def test_what_waits_in_the_shard_is_what_all_cells_and_accounts_say(self, shard: Shard) -> None:
        """The line is made from few rows; the backlog is summed over all."""
        tables = TablesReader(shard.store)
        shard.do(CreateBucket("vol", "other", BucketLayout.OBJECT_STORE))
        for size_bytes in (700, 800, 900):
            shard.do(PutKey("vol", "other", "k", size_bytes))
        shard.claim(shard.row(), task=1, chain_version=0)
        line, backlog = collection_status(tables)[0], shard_backlog(tables)
        assert (line.pending_bytes, line.pending_versions) == (backlog.pending_bytes, backlog.pending_versions)
        assert (line.claimed_bytes, line.claimed_versions) == (backlog.claimed_bytes, backlog.claimed_versions)
        assert line.pending_bytes > 700, "of two buckets"
        assert line.claimed_bytes

    def reported(self, shard: Shard) -> CollectionChanged:
        return [one.body for one in shard.sent(METADATA_PROGRESS) if isinstance(one.body, CollectionChanged)][-1]

    def barrier(self, shard: Shard, collection_txn: int, origin: str = "") -> None:
        body = Barrier("b", 1, 0, origin, collection_txn)
        shard.send(MetadataCommand(0, "", 0, body, origin or "snapshots", wants_reply=False))
        shard.runner.step()

    def test_keeps_a_pause_of_everything_behind_a_stop(self, shard: Shard) -> None:
        shard.do(SetCollection("", "", PAUSED, "why"))
        shard.send(MetadataCommand(0, "", 0, StopClaims("no chain"), "snapshots"))
        shard.do(SetCollection("", "flat", RUNNING, "half a name", ends_stop=True))
        assert shard_state(TablesReader(shard.store)).claims_stopped, "what is refused changes nothing"
        shard.do(SetCollection("", "", PAUSED, "mended", ends_stop=True))
        assert row_names(shard.claim(shard.row(), task=1, chain_version=0).suspended) == [shard.row()]

    def test_knows_since_when_claims_are_stopped(self, shard: Shard) -> None:
        def stop(reason: str) -> int:
            shard.clock.advance(HOUR_MS)
            shard.send(MetadataCommand(0, "", 0, StopClaims(reason), "snapshots"))
            shard.runner.step()
            shard.start()
            assert shard_state(TablesReader(shard.store)).claims_stopped == reason
            shown = collection_status(TablesReader(shard.store), "vol", "flat")
            assert {line.since_ms(STOPPED) for line in shown} == {shown[0].stopped_ms}
            return shown[0].stopped_ms

        shard.do(SetCollection("", "", PAUSED, "why"))
        first = stop("no chain")
        assert first == shard_state(TablesReader(shard.store)).log_time_ms
        assert stop("no chain, and said again at a start") == first
        shard.do(SetCollection("", "", RUNNING, "mended", ends_stop=True))
        assert collection_status(TablesReader(shard.store))[0].stopped_ms == -1
        assert stop("again") > first + HOUR_MS

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (SetCollection("vol", "none", PAUSED, ""), "BUCKET_NOT_FOUND"),
            (SetCollection("none", "flat", PAUSED, ""), "VOLUME_NOT_FOUND"),
            (SetCollection("vol", "", PAUSED, ""), "INVALID_REQUEST"),
            (SetCollection("", "", STOPPED, ""), "INVALID_REQUEST"),
            (SetCollection("vol", "flat", RUNNING, "", ends_stop=True), "INVALID_REQUEST"),
            (SetCollection("", "", PAUSED, "x" * 1_025), "INVALID_REQUEST"),
        ],
    )
    def test_refuses_what_nobody_can_mean(self, shard: Shard, body: SetCollection, code: str) -> None:
        assert shard.refusal(body) == code


class TestFollower:
    """Only what was heard without a gap counts as known; what was missed is made good when all is told again."""

    @pytest.fixture
    def harness(self) -> Harness:
        return Harness(KeyDeletionService)

    def known_txn(self, harness: Harness) -> int:
        (row,) = harness.rows(COLLECTION_TABLE)
        return row.complete_txn

    def test_notices_a_change_that_went_missing_behind_others(self, harness: Harness) -> None:
        harness.give(changed(PAUSED, 5))
        harness.give(changed(PAUSED, 9, BUCKET + 1, previous_txn=7))
        harness.give(changed(RUNNING, 11, BUCKET + 1, previous_txn=9))
        harness.restart()
        assert self.known_txn(harness) == 5
        assert not bodies(harness.give(purge(row(1))), ClaimRows), "what was heard is believed meanwhile"

    def test_learns_of_a_resume_that_was_lost_and_looks_at_everything_again(self, harness: Harness) -> None:
        harness.give(changed(PAUSED, 5))
        (sweep,) = bodies(harness.give(whole(12, 9)), SweepPage)
        assert sweep.bucket_id == EVERY_BUCKET
        assert self.known_txn(harness) == 12
        assert bodies(harness.give(purge(row(1))), ClaimRows)

    def test_looks_at_everything_again_when_a_pause_went_by_unheard(self, harness: Harness) -> None:
        assert bodies(harness.give(whole(12, 9)), SweepPage), "rows may have been held back"

    def test_learns_of_a_pause_that_was_lost(self, harness: Harness) -> None:
        harness.give(whole(12, 9, b0=PAUSED))
        assert not bodies(harness.give(purge(row(1))), ClaimRows)

    def test_sweeps_nothing_when_it_receives_states_that_it_knows(self, harness: Harness) -> None:
        harness.give(changed(PAUSED, 5))
        assert not harness.give(whole(12, 5, b0=PAUSED))
        assert not harness.give(whole(8, 5)), "older than what is known"
        assert not bodies(harness.give(purge(row(1))), ClaimRows)

    def test_forgets_what_metadata_has_lost_itself(self, harness: Harness) -> None:
        harness.give(changed(PAUSED, 5))
        (sweep,) = bodies(harness.give(whole(1_000_000, 0)), SweepPage)
        assert sweep.bucket_id == BUCKET
        assert bodies(harness.give(purge(row(1))), ClaimRows)

    def test_returns_a_barrier_with_what_it_knows(self, harness: Harness) -> None:
        harness.give(changed(PAUSED, 5))
        body = Barrier("b", 1, 0, "", 9)
        (returned,) = bodies(harness.give((SCM_REPLIES, ScmReply(body))), Barrier)
        assert returned.collection_txn == 5


def removing_a_directory() -> Harness:
    """directory_deletion, which has asked for the removal of a row."""
    harness = Harness(DirectoryDeletionService)
    judged = JudgedDirectory(BUCKET, 1 << 8, 1, 4, 0, is_reclaimable=True)
    harness.give((PURGE_DIRECTORIES, DirectoryVerdict(0, (judged,))))
    expanded = DirectoryExpanded(BUCKET, 1 << 8, 4, ExpansionOutcome.EXPANDED, 0, 0)
    assert bodies(harness.give((METADATA_PROGRESS, MetadataProgress(6, expanded))), RemoveDirectories)
    return harness


class TestDirectoryDeletion:
    def test_asks_less_and_less_often_when_it_is_suspended_for_no_reason_known_here(self) -> None:
        harness, settings = removing_a_directory(), DirectoryDeletionSettings()
        suspended = DirectoryRemoval(BUCKET, 1 << 8, 4, 0, RemovalOutcome.SUSPENDED)
        for pause_ms in (settings.first_blocked_ms, 2 * settings.first_blocked_ms, 4 * settings.first_blocked_ms):
            assert not harness.give((METADATA_PROGRESS, MetadataProgress(7, DirectoriesRemoved((suspended,)))))
            harness.restart()
            passed = harness.give((PURGE_DIRECTORIES, DirectoryVerdict(0, (), Barrier("b", 1, 0, "", 5))))
            assert not bodies(passed, RemoveDirectories)
            assert not bodies(harness.wait(pause_ms - 1), RemoveDirectories)
            assert bodies(harness.wait(1), RemoveDirectories)
        harness.give((METADATA_PROGRESS, MetadataProgress(8, DirectoriesRemoved((suspended,)))))
        harness.give(whole(12, 5, b0=PAUSED))
        assert not bodies(harness.wait(2 * settings.longest_blocked_ms), RemoveDirectories)
        assert bodies(harness.give(changed(RUNNING, 14, previous_txn=5)), RemoveDirectories)

    def test_expands_no_tree_of_a_paused_bucket_until_it_is_resumed(self) -> None:
        harness = Harness(DirectoryDeletionService)
        harness.give(changed(PAUSED, 5))
        judged = JudgedDirectory(BUCKET, 1 << 8, 1, 4, 0, is_reclaimable=True)
        assert not harness.give((PURGE_DIRECTORIES, DirectoryVerdict(0, (judged,))))
        harness.restart()
        passed = harness.give((PURGE_DIRECTORIES, DirectoryVerdict(0, (), Barrier("b", 1, 0, ""))))
        assert [body.work for body in bodies(passed, Barrier)] == [2], "two things were taken in"
        passed = harness.give((PURGE_DIRECTORIES, DirectoryVerdict(0, (), Barrier("b", 2, 0, ""))))
        assert [body.work for body in bodies(passed, Barrier)] == [0], "and nothing is left to do"
        assert bodies(harness.give(changed(RUNNING, 9)), ExpandDirectory)

    def test_a_suspension_that_is_told_twice_is_no_answer_to_the_next_request(self) -> None:
        """A settle does not wait for what is suspended, so it ended before the row was removed."""
        harness = removing_a_directory()
        harness.give(changed(PAUSED, 5))
        removal = DirectoryRemoval(BUCKET, 1 << 8, 4, 0, RemovalOutcome.SUSPENDED)
        suspended = (METADATA_PROGRESS, MetadataProgress(7, DirectoriesRemoved((removal,))))
        assert not harness.give(suspended)
        asked = harness.give(changed(RUNNING, 9, previous_txn=5), suspended)
        assert bodies(asked, RemoveDirectories)
        harness.give((PURGE_DIRECTORIES, DirectoryVerdict(0, (), Barrier("b", 1, 0, ""))))
        passed = harness.give((PURGE_DIRECTORIES, DirectoryVerdict(0, (), Barrier("b", 2, 0, ""))))
        assert [body.work for body in bodies(passed, Barrier)] == [1], "the row is on its way"

    def test_asks_at_once_when_more_is_known(self) -> None:
        harness = removing_a_directory()
        suspended = DirectoryRemoval(BUCKET, 1 << 8, 4, 0, RemovalOutcome.SUSPENDED)
        assert not harness.give((METADATA_PROGRESS, MetadataProgress(7, DirectoriesRemoved((suspended,)))))
        assert bodies(harness.give(whole(12, 9)), RemoveDirectories), "a pause and its end went by unheard"
