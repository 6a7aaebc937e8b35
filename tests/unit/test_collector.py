"""What the collector may do: the stricter word counts, claims behind a pause wait, and a resume has them swept."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from schemas.answers import ShadowHour
from schemas.records import (
    Barrier,
    ClaimRows,
    CollectorChanged,
    CollectorState,
    DeleteKey,
    ExpandDirectory,
    JudgedDirectory,
    MetadataCommand,
    MetadataProgress,
    PurgeDirectory,
    PutKey,
    SetCollector,
    StopClaims,
    SweepPage,
)
from schemas.topics import METADATA_PROGRESS, PURGE_DIRECTORIES
from services.directory_deletion.service import DirectoryDeletionService
from services.domain.collector import is_looser, stricter
from services.domain.durations import HOUR_MS
from services.domain.row_columns import row_names
from services.key_deletion.service import KeyDeletionService
from services.key_deletion.tables import TASK_TABLE
from services.metadata.collector_queries import collector_status
from services.metadata.queries import shard_state
from services.metadata.shadow import KEPT_HOURS
from services.storage.tables import TablesReader
from tests.unit.service_desk import Desk, Sent, bodies
from tests.unit.test_key_deletion import barrier, claimed, named, purge, row
from tests.unit.test_metadata import Shard

RUNNING, PAUSED, STOPPED = CollectorState.RUNNING, CollectorState.PAUSED, CollectorState.STOPPED
BUCKET = row(1).bucket_id


def changed(state: CollectorState, txn: int, bucket_id: int = BUCKET) -> Sent:
    return METADATA_PROGRESS, MetadataProgress(txn, CollectorChanged(bucket_id, state, txn))


@pytest.mark.parametrize(("one", "other"), list(product(CollectorState, repeat=2)))
def test_of_two_words_the_stricter_one_counts(one: CollectorState, other: CollectorState) -> None:
    assert stricter(one, other) is stricter(other, one) in (one, other)
    assert not is_looser(stricter(one, other), one)
    assert is_looser(one, other) is (one is not other and stricter(one, other) is other)


class TestKeyDeletion:
    def test_leaves_rows_of_a_paused_bucket_alone_and_has_them_swept_when_it_is_resumed(self) -> None:
        desk = Desk(KeyDeletionService)
        desk.give(changed(PAUSED, 5))
        assert not bodies(desk.give(purge(row(1))), ClaimRows)
        desk.restart()
        assert not bodies(desk.give(purge(row(2))), ClaimRows)
        (sweep,) = bodies(desk.give(changed(RUNNING, 9)), SweepPage)
        assert (sweep.bucket_id, sweep.after_death, sweep.until_death) == (BUCKET, 0, 0)
        assert bodies(desk.give(purge(row(1))), ClaimRows)

    def test_claims_other_buckets_meanwhile(self) -> None:
        desk = Desk(KeyDeletionService)
        desk.give(changed(PAUSED, 5, BUCKET + 1))
        (claim,) = bodies(desk.give(purge(row(1))), ClaimRows)
        assert named(claim) == (row(1),)

    def test_forgets_what_is_answered_as_held_back(self) -> None:
        desk = Desk(KeyDeletionService)
        (claim,) = bodies(desk.give(purge(row(1))), ClaimRows)
        desk.give(changed(PAUSED, 5))
        assert not desk.give(claimed(claim, held_back=(row(1),)))
        assert desk.rows(TASK_TABLE) == []

    def test_ignores_a_change_that_it_reads_once_more(self) -> None:
        desk = Desk(KeyDeletionService)
        desk.give(changed(PAUSED, 5))
        desk.give(changed(RUNNING, 9))
        desk.give(changed(PAUSED, 5))
        assert bodies(desk.give(purge(row(1))), ClaimRows)

    def test_has_work_until_it_has_heard_of_the_change_before_a_barrier(self) -> None:
        desk = Desk(KeyDeletionService)

        def work(round_number: int) -> int:
            twins = (barrier("purges", 0, round_number), barrier("sweeps", 0, round_number))
            told = (
                (topic, replace(record, barrier=replace(record.barrier, collector_txn=5))) for topic, record in twins
            )
            return bodies(desk.give(*told), Barrier)[0].work

        assert (work(1), work(2)) == (1, 1)
        desk.give(changed(PAUSED, 5))
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
        shard.do(SetCollector("vol", "flat", PAUSED, "why"))
        for _ in range(2):
            claim = shard.claim(name, task=1, chain_version=0)
            assert (row_names(claim.held_back), claim.refused, claim.gone) == ([name], (), ())
            shard.start()
        shard.do(SetCollector("vol", "flat", RUNNING, ""))
        assert len(shard.claim(name, task=1, chain_version=0).groups.object_ids) == 1

    def test_counts_in_the_shadow_by_the_hour_and_keeps_two_weeks(self, shard: Shard) -> None:
        shard.do(SetCollector("vol", "flat", CollectorState.SHADOW, "why"))
        for _ in range(3):
            assert shard.claim(shard.row(), task=1, chain_version=0).held_back
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
        assert [hour.bytes for hour in self.shadow(shard)] == [101, 102, 7]

    def shadow(self, shard: Shard) -> tuple[ShadowHour, ...]:
        return collector_status(TablesReader(shard.store), "vol", "flat")[1].shadow

    def test_answers_again_for_what_was_claimed_before_the_pause(self, shard: Shard) -> None:
        name = shard.row()
        first = shard.claim(name, task=1, chain_version=0)
        shard.do(SetCollector("", "", PAUSED, "why"))
        assert shard.claim(name, task=1, chain_version=0) == first

    def test_tells_each_change_with_its_txn(self, shard: Shard) -> None:
        reply = shard.do(SetCollector("vol", "flat", PAUSED, "why"))
        bucket_id = shard.bucket("flat").object_id
        assert shard.sent(METADATA_PROGRESS)[-1].body == CollectorChanged(bucket_id, PAUSED, reply.txn)
        shard.send(MetadataCommand(0, "", 0, StopClaims("no chain"), "snapshots"))
        shard.runner.step()
        assert shard.sent(METADATA_PROGRESS)[-1].body == CollectorChanged(0, STOPPED, reply.txn + 1)

    def test_keeps_a_pause_of_everything_behind_a_stop(self, shard: Shard) -> None:
        shard.do(SetCollector("", "", PAUSED, "why"))
        shard.send(MetadataCommand(0, "", 0, StopClaims("no chain"), "snapshots"))
        shard.do(SetCollector("", "flat", RUNNING, "half a name", ends_stop=True))
        assert shard_state(TablesReader(shard.store)).claims_stopped, "what is refused changes nothing"
        shard.do(SetCollector("", "", PAUSED, "mended", ends_stop=True))
        assert row_names(shard.claim(shard.row(), task=1, chain_version=0).held_back) == [shard.row()]

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (SetCollector("vol", "none", PAUSED, ""), "BUCKET_NOT_FOUND"),
            (SetCollector("none", "flat", PAUSED, ""), "VOLUME_NOT_FOUND"),
            (SetCollector("vol", "", PAUSED, ""), "INVALID_REQUEST"),
            (SetCollector("", "", STOPPED, ""), "INVALID_REQUEST"),
            (SetCollector("vol", "flat", RUNNING, "", ends_stop=True), "INVALID_REQUEST"),
            (SetCollector("", "", PAUSED, "x" * 1_025), "INVALID_REQUEST"),
        ],
    )
    def test_refuses_what_nobody_can_mean(self, shard: Shard, body: SetCollector, code: str) -> None:
        assert shard.refusal(body) == code


class TestDirectoryDeletion:
    def test_expands_no_tree_of_a_paused_bucket_until_it_is_resumed(self) -> None:
        desk = Desk(DirectoryDeletionService)
        desk.give(changed(PAUSED, 5))
        judged = JudgedDirectory(BUCKET, 1 << 8, 1, 4, 0, is_reclaimable=True)
        assert not desk.give((PURGE_DIRECTORIES, PurgeDirectory(0, (judged,))))
        desk.restart()
        passed = desk.give((PURGE_DIRECTORIES, PurgeDirectory(0, (), Barrier("b", 1, 0, ""))))
        assert [body.work for body in bodies(passed, Barrier)] == [2], "two things were taken in"
        passed = desk.give((PURGE_DIRECTORIES, PurgeDirectory(0, (), Barrier("b", 2, 0, ""))))
        assert [body.work for body in bodies(passed, Barrier)] == [0], "and nothing is left to do"
        assert bodies(desk.give(changed(RUNNING, 9)), ExpandDirectory)
