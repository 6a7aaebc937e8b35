"""Defects of claimed rows, put back by hand."""

from __future__ import annotations

from struct import Struct

import pytest

from services.metadata.collecting import claims
from tests.faults.fault import Fault

_NUMBERS = Struct(">7q")


def numbers_are_found_from_the_end(patch: pytest.MonkeyPatch) -> None:
    """A claimed row ended with the numbers of its version: with a field behind them a finish took it for another."""
    write, read = claims.claimed_row, claims.facts_and_numbers

    def claimed_row(front: bytes, birth: int, size_bytes: int, blocks: tuple[int, ...], version: bytes) -> bytes:
        return write(front, birth, size_bytes, blocks, version) + _NUMBERS.pack(birth, size_bytes, *blocks)

    def facts_and_numbers(row: bytes) -> tuple[bytes, tuple[int, ...]]:
        return read(row)[0], _NUMBERS.unpack_from(row, len(row) - _NUMBERS.size)

    patch.setattr(claims, "claimed_row", claimed_row)
    patch.setattr(claims, "facts_and_numbers", facts_and_numbers)


FAULTS = (
    Fault(
        numbers_are_found_from_the_end,
        caught_by="tests/unit/test_ledger_rows.py::test_a_claimed_row_with_a_field_more_is_finished",
        message=r"== \[\]",
    ),
)
