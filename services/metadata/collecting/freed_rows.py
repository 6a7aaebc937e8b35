"""The ledger: for every freed version the facts that show why freeing it was safe.

The facts of a claim are written in front of the claimed version, encoded once for all rows between the same two
snapshots. When the block store has confirmed a version, one write removes its row and enters it in the ledger. All
fields of the version that this needs are in front of it, too, so it is not decoded a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from schemas.codec import DecodeError, codec
from schemas.records import BlockGroups, ClaimedHead, ClaimedRow, ClaimFacts, ClaimRows, LedgerRows
from schemas.stored_rows import row_codec
from schemas.topics import LEDGER
from services.domain.row_columns import Row
from services.metadata.state.transaction import Transaction

_CLAIMED_ROW = codec(ClaimedRow)
_CLAIMED_HEAD = codec(ClaimedHead)
_FACTS = row_codec(ClaimFacts)
_NUMBERS = Struct(">7q")
_NO_NUMBERS = bytes(_NUMBERS.size)


class ClaimFronts:
    """The common beginnings of the claimed rows of one command: most rows have the same neighbours."""

    def __init__(self, transaction: Transaction, command: ClaimRows) -> None:
        self._transaction = transaction
        self._command = command
        self._fronts: dict[tuple[int, int], bytes] = {}

    def between(self, previous_txn: int, next_txn: int) -> bytes:
        """Return the beginning of a claimed row, up to the version's own numbers.

        ``previous_txn`` is the newest live snapshot before the death, ``next_txn`` the oldest one after the birth; 0
        for none.
        """
        front = self._fronts.get((previous_txn, next_txn))
        if front is None:
            front = self._fronts[previous_txn, next_txn] = self._front(previous_txn, next_txn)
        return front

    def _front(self, previous_txn: int, next_txn: int) -> bytes:
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
        front = _CLAIMED_ROW.encode_before_last(
            {"facts": _FACTS.oldest_form(_FACTS.encode(facts)), "numbers": _NO_NUMBERS}
        )
        return front.removesuffix(_NO_NUMBERS)


def claimed_row(front: bytes, birth: int, size_bytes: int, blocks: tuple[int, ...], version: bytes) -> bytes:
    """Return an encoded claimed row: the shared beginning, its own numbers, and the encoded version."""
    return front + _NUMBERS.pack(birth, size_bytes, *blocks) + version


def facts_and_numbers(row: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Return from an encoded claimed row its encoded facts, and the version's birth, size and ``BlockRun`` fields.

    Raises:
        DecodeError: the bytes are not a claimed row.
    """
    head = _CLAIMED_HEAD.decode_head(row)
    if len(head.numbers) != _NUMBERS.size:
        raise DecodeError(f"a claimed row has {len(head.numbers)} bytes of numbers, not {_NUMBERS.size}")
    return head.facts, _NUMBERS.unpack(head.numbers)


def claim_txn(claimed: ClaimedRow) -> int:
    """Return the txn of a row's claim."""
    return _FACTS.decode(claimed.facts).claim_txn


class Ledger:
    """The versions that one command has finished."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._facts: list[bytes] = []

    def enter(self, row: Row, blocks: Sequence[int], facts: bytes) -> None:
        """Enter one version: its name, the fields of its blocks, and the encoded facts of its claim."""
        self._rows.append((*row, *blocks))
        self._facts.append(facts)

    def send(self, transaction: Transaction) -> None:
        """Send the entered versions to the ledger."""
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
