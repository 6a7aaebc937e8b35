"""What was held at the txn of each claim and each purge: at the end of a step more may have happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Thing = tuple[str, int]
"""A file or directory, whatever its name: its kind and a number that it keeps."""


@dataclass(frozen=True, slots=True)
class ClaimMoment:
    """What could be held then, as far as the model knows."""

    versions: frozenset[int]
    """Numbers of the versions that the active namespace or a live snapshot listed."""
    undecided: Mapping[int, frozenset[int]]
    """Of versions whose bucket was being rolled back, and which no snapshot held: the txns of the pages that may have
    buried them. They are held unless one of those was their death."""
    things: Mapping[Thing, int]
    """Of all that live snapshots listed, the txn of the oldest one that did."""
    live_things: frozenset[Thing]
    """What the active namespace listed, of buckets that were not being rolled back."""

    def is_held(self, number: int, death: int) -> bool:
        """Whether somebody held a version that is said to have died at a txn."""
        if number in self.versions:
            return True
        return number in self.undecided and death not in self.undecided[number]

    def holds(self, thing: Thing, death: int) -> bool:
        """Whether a snapshot before a txn held a file or directory."""
        return thing in self.things and self.things[thing] < death
