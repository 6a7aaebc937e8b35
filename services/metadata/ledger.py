"""The ledger: of every version that was freed, why that was safe.

What is known at a claim is written behind the claimed row, once for all rows that lie between the same two snapshots;
when the block store has confirmed a version, its row goes and the ledger gets it, in the same write.
"""

from __future__ import annotations

from schemas.codec import codec
from schemas.records import BlockGroups, ClaimedRow, ClaimFacts, ClaimRows, LedgerRows
from schemas.topics import LEDGER
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
        self._claims: dict[bytes, int] = {}
        self._places: list[int] = []
        self._groups: list[tuple[int, ...]] = []

    def enter(self, claimed_row: bytes, group: tuple[int, ...]) -> None:
        """Enter one version: its encoded claimed row, and its fields in ``BlockGroups``."""
        claims = self._claims
        self._places.append(claims.setdefault(encoded_facts(claimed_row), len(claims)))
        self._groups.append(group)

    def send(self, transaction: Transaction) -> None:
        """Write what was entered."""
        if self._groups:
            entered = LedgerRows(
                finish_txn=transaction.txn,
                finish_time_ms=transaction.log_time_ms,
                claims=tuple([_FACTS.decode(facts) for facts in self._claims]),
                claim_places=tuple(self._places),
                groups=BlockGroups(*zip(*self._groups, strict=True)),
            )
            transaction.work.send(LEDGER, entered)
