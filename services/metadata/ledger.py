"""The ledger: of every version that was freed, why that was safe.

What is known at a claim is written behind the claimed row, encoded once for all rows that lie between the same two
snapshots; when the block store has confirmed a version, its row goes and the ledger gets it, in the same write. All
that this needs of the version stands at the end of the row, in places of its own: it is not decoded a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from schemas.codec import codec
from schemas.records import BlockGroups, ClaimedRow, ClaimFacts, ClaimRows, LedgerRows
from schemas.topics import LEDGER
from services.domain.row_columns import Row
from services.metadata.transaction import Transaction

_CLAIMED_ROW = codec(ClaimedRow)
_FACTS = codec(ClaimFacts)
_NUMBERS = Struct(">7q")
_NUMBERS_LENGTH = bytes([2 * _NUMBERS.size])
"""As Avro writes the length of bytes below 64: twice the number."""
_EMPTY = b"\0"
_BEHIND_FACTS = 1 + len(_NUMBERS_LENGTH) + _NUMBERS.size
"""From the byte that is the length of the facts to the end of the row."""


class ClaimEnds:
    """How the claimed rows of one command end: most share their neighbours, and so all of it."""

    def __init__(self, transaction: Transaction, command: ClaimRows) -> None:
        self._transaction = transaction
        self._command = command
        self._ends: dict[tuple[int, int], bytes] = {}

    def between(self, previous_txn: int, next_txn: int) -> bytes:
        """What follows the version in its claimed row, up to the numbers of its own.

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
        rest = {"claim_txn": transaction.txn, "facts": with_length(facts), "numbers": b""}
        return _CLAIMED_ROW.encode_around(b"", rest)[: -len(_EMPTY)] + _NUMBERS_LENGTH


def with_length(facts: ClaimFacts) -> bytes:
    """Encoded facts, and their length behind them: eight numbers take 80 bytes at most."""
    encoded = _FACTS.encode(facts)
    return encoded + bytes([len(encoded)])


def claimed_end(shared: bytes, birth: int, size_bytes: int, blocks: tuple[int, ...]) -> bytes:
    """What follows the version in its claimed row: what it shares with others, and its own numbers."""
    return shared + _NUMBERS.pack(birth, size_bytes, *blocks)


def claimed_numbers(claimed_row: bytes) -> tuple[int, ...]:
    """Birth and size of a claimed version, then the fields of its blocks, as a ``BlockRun`` has them."""
    return _NUMBERS.unpack_from(claimed_row, len(claimed_row) - _NUMBERS.size)


def encoded_facts(claimed_row: bytes) -> bytes:
    """The encoded facts of an encoded claimed row."""
    end = len(claimed_row) - _BEHIND_FACTS
    return claimed_row[end - claimed_row[end] : end]


class Ledger:
    """What one command has finished."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._facts: list[bytes] = []

    def enter(self, row: Row, blocks: Sequence[int], claimed_row: bytes) -> None:
        """Enter one version: its name, the fields of its blocks, and its encoded claimed row."""
        self._rows.append((*row, *blocks))
        self._facts.append(encoded_facts(claimed_row))

    def send(self, transaction: Transaction) -> None:
        """Write what was entered."""
        if not self._rows:
            return
        claims: dict[bytes, int] = {}
        places = [claims.setdefault(facts, len(claims)) for facts in self._facts]
        entered = LedgerRows(
            finish_txn=transaction.txn,
            finish_time_ms=transaction.log_time_ms,
            claims=tuple([_FACTS.decode(facts) for facts in claims]),
            claim_places=tuple(places),
            groups=BlockGroups(*zip(*self._rows, strict=True)),
        )
        transaction.work.send(LEDGER, entered)
