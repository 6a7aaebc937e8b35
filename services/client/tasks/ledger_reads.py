"""Read the ledger of a shard: its rows in order, each once, starting at a place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from schemas.codec import DecodeError, codec
from schemas.records import LedgerRows
from schemas.topics import LEDGER
from services.domain.ledger_rows import LedgerError, LedgerRow, ledger_rows
from services.log.port import Log
from services.log.reads import all_records


class Place(NamedTuple):
    """The place of a row in its shard's ledger: the txn of its finish, and its number within this txn, from 0."""

    finish_txn: int
    number: int

    def __str__(self) -> str:
        return f"{self.finish_txn}:{self.number}"


BEGINNING = Place(0, 0)


def place_of(text: str) -> Place:
    """Return the place printed as ``<finish txn>:<number>``. Raise ValueError if the text is not a place."""
    finish_txn, _, number = text.partition(":")
    return Place(int(finish_txn), int(number or 0))


class LedgerFilter(NamedTuple):
    """A filter of rows; 0 and None accept all. Times are log times of the finish."""

    bucket_id: int = 0
    object_id: int = 0
    block_id: int = 0
    since_ms: int = 0
    before_ms: int | None = None

    def lets_pass(self, row: LedgerRow) -> bool:
        """Return whether the filter accepts a row."""
        return (
            (not self.bucket_id or row.bucket_id == self.bucket_id)
            and (not self.object_id or row.object_id == self.object_id)
            and (not self.block_id or 0 <= self.block_id - row.first_local_id < row.block_count)
            and row.finish_time_ms >= self.since_ms
            and (self.before_ms is None or row.finish_time_ms < self.before_ms)
        )


def read_ledger(
    log: Log, shard: int, wanted: LedgerFilter, start: Place = BEGINNING
) -> Iterator[tuple[Place, LedgerRow]]:
    """Yield the rows of a shard's ledger from ``start`` on that pass the filter, in the order of their finishes.

    Duplicate messages are skipped. Messages that cannot be decoded are skipped, too; ``deepclean verify`` reports them.

    Raises:
        UnreachableError: the broker does not answer.
    """
    newest = 0
    for message in _messages(log, shard):
        if message.finish_txn <= newest:
            continue
        newest = message.finish_txn
        if newest < start.finish_txn:
            continue
        try:
            rows = list(ledger_rows(message))
        except LedgerError:
            continue
        for number, row in enumerate(rows):
            place = Place(newest, number)
            if place >= start and wanted.lets_pass(row):
                yield place, row


def _messages(log: Log, shard: int) -> Iterator[LedgerRows]:
    decode = codec(LedgerRows).decode_message
    for record in all_records(log, LEDGER.name, shard):
        with contextlib.suppress(DecodeError):
            yield decode(record.value)
