"""Which garbage rows a sweep is over: a range of deaths, and one of births."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.records import SweepRow


@dataclass(frozen=True, slots=True)
class RowRange:
    """Garbage rows by death and birth: after the first number, up to the second one; 0 as the second is no end."""

    after_death: int
    until_death: int
    after_birth: int = 0
    until_birth: int = 0

    def __or__(self, other: RowRange) -> RowRange:
        """The smallest range over both."""
        return RowRange(
            min(self.after_death, other.after_death),
            _later(self.until_death, other.until_death),
            min(self.after_birth, other.after_birth),
            _later(self.until_birth, other.until_birth),
        )

    @classmethod
    def of(cls, row: SweepRow) -> RowRange:
        """The range of a sweep."""
        return cls(row.after_death, row.until_death, row.after_birth, row.until_birth)


EVERY_ROW = RowRange(0, 0)


def _later(one: int, other: int) -> int:
    return max(one, other) if one and other else 0
