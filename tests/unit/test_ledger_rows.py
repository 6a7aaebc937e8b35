"""What metadata enters in the ledger: why each freed version could go, who asked, and when it was confirmed."""

from __future__ import annotations

import pytest

from schemas.codec import DecodeError, codec
from schemas.records import (
    BlockRun,
    CaptureSnapshot,
    ClaimedRow,
    ClaimFacts,
    ClaimRows,
    DeleteKey,
    DropSnapshot,
    FinishRows,
    LedgerRows,
    PutKey,
)
from schemas.topics import LEDGER
from services.domain.row_columns import by_columns
from services.metadata.collecting.claims import facts_and_front, facts_and_numbers
from services.metadata.state.tables import RECLAIM_TABLE
from services.storage.tables import TablesReader
from tests.unit.test_metadata import Shard


def _ledger(shard: Shard) -> list[LedgerRows]:
    return shard.sent(LEDGER)


def test_a_freed_version_is_entered_with_its_neighbours_and_who_asked() -> None:
    shard = Shard()
    shard.internal(CaptureSnapshot("vol", "flat", "before"))
    birth = shard.do(PutKey("vol", "flat", "k", 10)).txn
    shard.internal(CaptureSnapshot("vol", "flat", "holder"))
    shard.do(DeleteKey("vol", "flat", "k"))
    shard.internal(CaptureSnapshot("vol", "flat", "after"))
    shard.internal(DropSnapshot("holder"))
    row = shard.row()
    shard.clock.advance(1_000)
    shard.internal(ClaimRows(7, 4, by_columns([row]), first_judge_version=3))
    claimed_ms = shard.clock.now_ms()
    assert _ledger(shard) == []
    shard.clock.advance(1_000)
    shard.internal(FinishRows(7, by_columns([row])))
    (entered,) = _ledger(shard)
    assert (entered.finish_time_ms, entered.finish_txn) == (shard.clock.now_ms(), birth + 6)
    assert entered.claims == (ClaimFacts(birth + 5, claimed_ms, 4, birth - 1, birth + 3, 7, 3, 4),)
    assert entered.claim_places == (0,)
    (run,) = zip(
        entered.groups.container_ids,
        entered.groups.first_local_ids,
        entered.groups.block_counts,
        entered.groups.block_sizes_bytes,
        entered.groups.sizes_bytes,
        strict=True,
    )
    assert BlockRun(*run).size_bytes == 10
    assert (entered.groups.births, entered.groups.deaths) == ((birth,), (row.death,))


def test_rows_between_the_same_snapshots_share_their_claim_and_a_repeat_enters_nothing() -> None:
    shard = Shard()
    rows = []
    for number in range(5):
        shard.do(PutKey("vol", "flat", f"k{number}", 10))
        if number == 2:
            shard.internal(CaptureSnapshot("vol", "flat", "s"))
            shard.internal(DropSnapshot("s"))
            shard.internal(CaptureSnapshot("vol", "tree", "elsewhere"))
        shard.do(DeleteKey("vol", "flat", f"k{number}"))
        rows.append(shard.row())
    shard.claim(*rows[:3])
    shard.claim(*rows)  # the first three are answered again: their claim stays the first one
    shard.internal(FinishRows(1, by_columns(rows)))
    shard.internal(FinishRows(1, by_columns(rows)))
    (entered,) = _ledger(shard)
    assert [claim.claim_txn for claim in entered.claims] == [entered.finish_txn - 2, entered.finish_txn - 1]
    assert entered.claim_places == (0, 0, 0, 1, 1)
    assert sum(entered.groups.sizes_bytes) == 50


def test_a_claimed_row_with_a_field_more_is_finished() -> None:
    """A row is read by its fields, from its beginning: what a later schema appends is behind all that is looked at."""
    shard = Shard()
    shard.do(PutKey("vol", "flat", "k", 10))
    shard.do(DeleteKey("vol", "flat", "k"))
    row = shard.row()
    shard.claim(row)
    ((key, claimed),) = shard.store.scan(RECLAIM_TABLE.name, b"/", b"0")
    shard.store.write({RECLAIM_TABLE.name: {key: claimed + b"a field more"}})
    shard.internal(FinishRows(1, by_columns([row])))
    assert list(shard.store.scan(RECLAIM_TABLE.name, b"/", b"0")) == []
    (entered,) = _ledger(shard)
    assert entered.groups.sizes_bytes == (10,)


def test_other_rows_are_never_read_as_finished_claims() -> None:
    shard = Shard()
    shard.do(PutKey("vol", "flat", "k", 10))
    shard.do(DeleteKey("vol", "flat", "k"))
    shard.claim(shard.row())
    ((_, encoded),) = TablesReader(shard.store).table(RECLAIM_TABLE).scan_encoded(b"/", b"0")
    row = codec(ClaimedRow).decode(encoded)
    assert facts_and_numbers(encoded)[1][1] == 10
    for numbers in (b"", row.numbers[:-1], row.numbers + b"7"):
        wrong = codec(ClaimedRow).encode(ClaimedRow(row.facts, numbers, row.version))
        for read in (facts_and_numbers, facts_and_front):
            with pytest.raises(DecodeError, match="bytes of numbers"):
                read(wrong)
