"""Defects of claimed rows, put back by hand."""

from __future__ import annotations

from struct import Struct

import pytest

from services.metadata.collecting import claims
from tests.faults.fault import Fault

_NUMBERS = Struct(">7q")


def numbers_are_found_from_the_end(patch: pytest.MonkeyPatch) -> None:
    """A claimed row ended with the numbers of its version: with a field behind them a finish took it for another."""
    write = claims.claimed_row

    def claimed_row(front: bytes, birth: int, size_bytes: int, blocks: tuple[int, ...], version: bytes) -> bytes:
        return write(front, birth, size_bytes, blocks, version) + _NUMBERS.pack(birth, size_bytes, *blocks)

    def facts_and_front(row: bytes) -> tuple[bytes, bytes]:
        return claims.facts_and_numbers(row)[0], row[: -_NUMBERS.size]

    patch.setattr(claims, "claimed_row", claimed_row)
    patch.setattr(claims, "facts_and_front", facts_and_front)


FAULTS = (
    Fault(
        numbers_are_found_from_the_end,
        caught_by="tests/unit/test_ledger_rows.py::test_a_claimed_row_with_a_field_more_is_finished",
        message=r"== \[\]",
    ),
)
