"""Rows of the ledger one by one: a freed version, and the facts of its claim that show why freeing it was safe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.records import ClaimFacts, LedgerRows


class LedgerError(ValueError):
    """A message of the ledger whose lists differ in length, or that names a missing claim."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One freed version. Times are log times in milliseconds, sizes are bytes."""

    finish_txn: int
    finish_time_ms: int
    claim: ClaimFacts
    bucket_id: int
    object_id: int
    birth: int
    death: int
    container_id: int
    first_local_id: int
    block_count: int
    block_size_bytes: int
    size_bytes: int


def ledger_rows(message: LedgerRows) -> Iterator[LedgerRow]:
    """Yield the rows of a message.

    Raises:
        LedgerError: the lists differ in length, or a claim is missing.
    """
    groups, claims = message.groups, message.claims
    columns = (
        *(groups.bucket_ids, groups.object_ids, groups.births, groups.deaths, groups.container_ids),
        *(groups.first_local_ids, groups.block_counts, groups.block_sizes_bytes, groups.sizes_bytes),
    )
    if {len(column) for column in columns} != {len(message.claim_places)}:
        raise LedgerError(f"finish {message.finish_txn}: the lists of the message differ in length")
    if not all(0 <= place < len(claims) for place in message.claim_places):
        raise LedgerError(f"finish {message.finish_txn}: a row names a claim that is missing")
    for place, *fields in zip(message.claim_places, *columns, strict=True):
        yield LedgerRow(message.finish_txn, message.finish_time_ms, claims[place], *fields)
