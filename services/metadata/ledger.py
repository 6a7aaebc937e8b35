"""The ledger: of every version that was freed, why that was safe.

What is known at a claim is written behind the claimed row, once for all rows that lie between the same two snapshots;
when the block store has confirmed a version, its row goes and the ledger gets it, in the same write.
"""

from __future__ import annotations

from schemas.codec import codec
from schemas.records import BlockGroups, BlockRun, ClaimedRow, ClaimFacts, ClaimRows, LedgerRows
from schemas.topics import LEDGER
from services.domain.row_columns import Row
from services.metadata.transaction import Transaction

_CLAIMED_ROW = codec(ClaimedRow)
_FACTS = codec(ClaimFacts)


class ClaimEnds:
    """How the claimed rows of one command end: most share their neighbours, and so all of it."""

    def __init__(self, transaction: Transaction, command: ClaimRows) -> None:
        self._transaction = transaction
        self._command = command
        self._ends: dict[tuple[int, int], bytes] = {}

    def between(self, previous_txn: int, next_txn: int) -> bytes:
        """What follows the version in its claimed row.

        ``previous_txn`` is the newest live snapshot before the death, ``next_txn`` the oldest one after the birth; 0
        for none.
        """
        end = self._ends.get((previous_txn, next_txn))
        if end is None:
            end = self._ends[previous_txn, next_txn] = self._end(previous_txn, next_txn)
        return end

    def _end(self, previous_txn: int, next_txn: int) -> bytes:
        transaction, command = self._transaction, self._command
        facts = ClaimFacts(
            claim_txn=transaction.txn,
            claim_time_ms=transaction.log_time_ms,
            chain_version=transaction.counters.chain_version,
            previous_txn=previous_txn,
            next_txn=next_txn,
            task=command.task,
            first_judge_version=command.first_judge_version,
            second_judge_version=command.chain_version,
        )
        return _CLAIMED_ROW.encode_around(b"", {"claim_txn": transaction.txn, "facts": with_length(facts)})


def with_length(facts: ClaimFacts) -> bytes:
    """Encoded facts, and their length behind them: eight numbers take 80 bytes at most."""
    encoded = _FACTS.encode(facts)
    return encoded + bytes([len(encoded)])


def encoded_facts(claimed_row: bytes) -> bytes:
    """The encoded facts at the end of an encoded claimed row."""
    return claimed_row[-1 - claimed_row[-1] : -1]


class Ledger:
    """What one command has finished."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._blocks: list[BlockRun] = []
        self._facts: list[bytes] = []

    def enter(self, row: Row, blocks: BlockRun, claimed_row: bytes) -> None:
        """Enter one version: its name, its blocks, and its encoded claimed row."""
        self._rows.append(row)
        self._blocks.append(blocks)
        self._facts.append(encoded_facts(claimed_row))

    def send(self, transaction: Transaction) -> None:
        """Write what was entered."""
        if not self._rows:
            return
        claims: dict[bytes, int] = {}
        places = [claims.setdefault(facts, len(claims)) for facts in self._facts]
        blocks = self._blocks
        bucket_ids, object_ids, births, deaths = zip(*self._rows, strict=True)
        groups = BlockGroups(
            *(bucket_ids, object_ids, births, deaths),
            tuple([run.container_id for run in blocks]),
            tuple([run.first_local_id for run in blocks]),
            tuple([run.block_count for run in blocks]),
            tuple([run.block_size_bytes for run in blocks]),
            tuple([run.size_bytes for run in blocks]),
        )
        entered = LedgerRows(
            finish_txn=transaction.txn,
            finish_time_ms=transaction.log_time_ms,
            claims=tuple([_FACTS.decode(facts) for facts in claims]),
            claim_places=tuple(places),
            groups=groups,
        )
        transaction.work.send(LEDGER, entered)
