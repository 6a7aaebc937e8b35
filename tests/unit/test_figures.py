"""A bucket whose rows and figures disagree is held back, and nothing else is: neither its clients nor other buckets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.records import (
    BreakerCause,
    CaptureSnapshot,
    CollectionState,
    CountRow,
    DeletedKeyRow,
    DeletedKind,
    DeleteKey,
    DropSnapshot,
    PutKey,
    ResetBreaker,
    RollbackOutcome,
    RollbackPage,
    RowName,
    SpaceCellValue,
    Undelete,
)
from schemas.stored_rows import row_codec
from schemas.topics import METADATA_PROGRESS, SNAPSHOT_CHAIN
from services.domain.row_columns import row_names
from services.domain.space_matrix import NOBODY
from services.domain.table_keys import ascending_death_key, cell_key, descending_death_key, garbage_key
from services.metadata.namespace import garbage
from services.metadata.reads.collection_queries import collection_status
from services.metadata.reads.queries import shard_backlog
from services.metadata.recovery.digest import digest_shard
from services.metadata.state.tables import DELETED_TABLE, SPACE_TABLE, UNEXPANDED_TABLE
from services.storage.tables import TablesReader
from services.wording.collection import trip_words
from tests.shard_copies import rebuilt_digest
from tests.unit.test_metadata import SENDERS, Shard

SENDERS[RollbackPage] = "snapshots"


def delete(shard: Shard, key: str, bucket: str = "flat") -> RowName:
    shard.do(PutKey("vol", bucket, key, 100))
    shard.do(DeleteKey("vol", bucket, key))
    return shard.row()


def undelete(shard: Shard, row: RowName, key: str, bucket: str = "flat") -> str:
    return shard.refusal(Undelete("vol", bucket, key, DeletedKind.KEY, row.object_id, row.birth, row.death))


def damage(shard: Shard, table: str, key: bytes, value: Any) -> None:
    """Change a row behind the service's back, and start it on what is there."""
    shard.store.write({table: {key: None if value is None else row_codec(type(value)).encode(value)}})
    shard.start()


def line_of(shard: Shard, bucket: str = "flat") -> Any:
    return collection_status(TablesReader(shard.store), "vol", bucket)[1]


def is_suspended_for_its_figures(shard: Shard, bucket: str = "flat") -> bool:
    trip = line_of(shard, bucket).trip
    return trip is not None and trip.cause is BreakerCause.FIGURES


@pytest.fixture
def shard() -> Shard:
    return Shard()


def nobodys_cell(shard: Shard, bucket: str = "flat") -> bytes:
    return cell_key(shard.bucket(bucket).object_id, *NOBODY)


class TestCells:
    def test_a_bucket_is_suspended_and_the_shard_goes_on(self, shard: Shard) -> None:
        back, waiting, elsewhere = delete(shard, "a"), delete(shard, "b"), delete(shard, "c", "tree")
        damage(shard, SPACE_TABLE.name, nobodys_cell(shard), None)
        assert undelete(shard, back, "a") == ""
        assert is_suspended_for_its_figures(shard)
        answer = shard.claim(waiting, elsewhere)
        assert row_names(answer.suspended) == [waiting]
        assert list(answer.groups.object_ids) == [elsewhere.object_id]
        assert shard.refusal(PutKey("vol", "flat", "d", 100)) == ""
        assert set(shard.names("flat")) == {"a", "d"}
        shard.start()
        assert row_names(shard.claim(waiting).suspended) == [waiting]
        assert is_suspended_for_its_figures(shard)

    def test_suspensions_are_sent_to_the_services_and_shown_to_operators(self, shard: Shard) -> None:
        back = delete(shard, "a")
        damage(shard, SPACE_TABLE.name, nobodys_cell(shard), None)
        undelete(shard, back, "a")
        (reported,) = shard.sent(METADATA_PROGRESS)[-1].body.states
        assert (reported.bucket_id, reported.state) == (shard.bucket("flat").object_id, CollectionState.TRIPPED)
        backlog = shard_backlog(TablesReader(shard.store))
        assert backlog.trips == {BreakerCause.LIMITS: 0, BreakerCause.FORECAST: 0, BreakerCause.FIGURES: 1}
        assert backlog.collection_states[CollectionState.TRIPPED] == 1
        words = trip_words(line_of(shard).trip)
        assert words == "its rows and its space figures disagree: one space figure is -100 B in -1 versions"

    def test_it_is_lifted_when_the_figures_are_right_and_not_before(self, shard: Shard) -> None:
        back, waiting = delete(shard, "a"), delete(shard, "b")
        damage(shard, SPACE_TABLE.name, nobodys_cell(shard), None)
        undelete(shard, back, "a")
        shard.do(ResetBreaker("vol", "flat", "too early"))
        assert line_of(shard).trip is None
        assert row_names(shard.claim(waiting).suspended) == [waiting]
        assert line_of(shard).trip is not None
        damage(shard, SPACE_TABLE.name, nobodys_cell(shard), SpaceCellValue(0, 0, 100, 1, 1, 0, 0))
        shard.do(ResetBreaker("vol", "flat", "repaired"))
        answer = shard.claim(waiting)
        assert list(answer.groups.object_ids) == [waiting.object_id]
        assert line_of(shard).trip is None

    def test_what_disagrees_first_is_what_is_kept(self, shard: Shard) -> None:
        first, second = delete(shard, "a"), delete(shard, "b")
        damage(shard, SPACE_TABLE.name, nobodys_cell(shard), None)
        undelete(shard, first, "a")
        before = line_of(shard).trip
        undelete(shard, second, "b")
        assert line_of(shard).trip == before

    def test_a_command_that_is_refused_trips_nothing(self, shard: Shard) -> None:
        back = delete(shard, "a")
        shard.do(PutKey("vol", "flat", "a", 1))
        damage(shard, SPACE_TABLE.name, nobodys_cell(shard), None)
        assert undelete(shard, back, "a") == "KEY_ALREADY_EXISTS"
        assert line_of(shard).trip is None

    def test_batches_do_not_decide(self, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a defect that counts too little, the same log gives the same trips, however it is cut."""
        monkeypatch.setattr(garbage, "key_cell", lambda *_: (0, 0, 0, 0, 0, 0))
        rows = [delete(shard, f"k{number}") for number in range(6)]
        for number, row in enumerate(rows):
            undelete(shard, row, f"k{number}")
            delete(shard, f"more{number}", "tree")
        assert is_suspended_for_its_figures(shard)
        lost = digest_shard(shard.store)
        for batch in (1, 2, 5, 2_000):
            assert rebuilt_digest(shard.log, batch).differences(lost) == []


class TestOtherFigures:
    def test_a_rollback_ends_though_directories_are_counted_that_are_not_there(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "tree", "a", 1))
        shard.internal(CaptureSnapshot("vol", "tree", "s1"))
        bucket_id = shard.bucket("tree").object_id
        damage(shard, UNEXPANDED_TABLE.name, ascending_death_key(bucket_id, 1), CountRow(1))
        damage(shard, UNEXPANDED_TABLE.name, descending_death_key(bucket_id, 1), CountRow(0))
        done = shard.internal(RollbackPage("rollback", bucket_id, "s1", 1, 1_000))
        assert done.outcome is RollbackOutcome.DONE
        assert is_suspended_for_its_figures(shard, "tree")

    def test_a_snapshot_is_dropped_though_a_cell_names_one_that_never_was(self, shard: Shard) -> None:
        captured = shard.internal(CaptureSnapshot("vol", "flat", "s1"))
        bucket_id = shard.bucket("flat").object_id
        cell = SpaceCellValue(captured.snapshot_txn, 7_000, 1, 1, 1, 0, 0)
        damage(shard, SPACE_TABLE.name, cell_key(bucket_id, captured.snapshot_txn, 7_000), cell)
        dropped = shard.internal(DropSnapshot("s1"))
        assert dropped.chain_version == 2
        assert shard.sent(SNAPSHOT_CHAIN)[-1].body.rows_held_alone >= 1
        assert is_suspended_for_its_figures(shard)

    def test_a_version_without_blocks_stays_where_it_is(self, shard: Shard) -> None:
        row = delete(shard, "a")
        key = garbage_key(shard.bucket("flat").volume_id, row.bucket_id, row.death, row.object_id)
        deleted = TablesReader(shard.store).table(DELETED_TABLE).get(key)
        assert isinstance(deleted, DeletedKeyRow)
        damage(shard, DELETED_TABLE.name, key, replace(deleted, key=replace(deleted.key, blocks=None)))
        assert row_names(shard.claim(row).suspended) == [row]
        assert is_suspended_for_its_figures(shard)
        assert shard.store.get(DELETED_TABLE.name, key) is not None
