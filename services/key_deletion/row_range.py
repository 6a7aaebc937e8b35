"""The garbage rows that a sweep covers: a range of deaths and a range of births."""

from __future__ import annotations

from typing import NamedTuple

from schemas.records import SweepRow


class RowRange(NamedTuple):
    """Garbage rows with after < death <= until, and the same for the birth; an ``until`` of 0 means no upper bound."""

    after_death: int
    until_death: int
    after_birth: int = 0
    until_birth: int = 0

    def __or__(self, other: RowRange) -> RowRange:
        """Return the smallest range that contains both."""
        return RowRange(
            min(self.after_death, other.after_death),
            _later(self.until_death, other.until_death),
            min(self.after_birth, other.after_birth),
            _later(self.until_birth, other.until_birth),
        )

    @classmethod
    def of(cls, row: SweepRow) -> RowRange:
        """Return the range of a sweep."""
        return cls(row.after_death, row.until_death, row.after_birth, row.until_birth)


EVERY_ROW = RowRange(0, 0)


def _later(one: int, other: int) -> int:
    return max(one, other) if one and other else 0
