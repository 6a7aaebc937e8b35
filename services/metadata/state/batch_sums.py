"""Sums that every command of a batch adds to, noted during the batch and written once at its end.

The notes of a refused command are rolled back: each note has the txn of its command, and notes of applied commands have
lower txns. So an applied command, the usual case, costs no extra work. A command that uses no txn must note nothing,
because the next command gets the same txn.

Within a batch, sums are read through this module only. Commands that need written figures (capture, drop) are alone in
their batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
Amounts = tuple[int, ...]


@dataclass(slots=True)
class PresentTxn:
    """The txn of the command that is being applied, shared by all objects that take notes."""

    txn: int = 0


def first_of(notes: Sequence[Any], txn: int) -> int:
    """Return the index of the first note with this txn among the last notes. The first field of a note is its txn."""
    first = len(notes)
    while first and notes[first - 1][0] == txn:
        first -= 1
    return first


def undo_notes(notes: list[Any], txn: int) -> None:
    """Roll back the notes of a command that was not applied."""
    del notes[first_of(notes, txn) :]


class BatchSums(Generic[K]):
    """A few integers for each key: additions are noted, and summed up when they are read."""

    def __init__(self, present: PresentTxn) -> None:
        self._present = present
        self._added: list[tuple[int, K, Amounts]] = []
        self._sums: dict[K, Amounts] = {}
        self._last_txns: dict[K, int] = {}

    def clear(self) -> None:
        """Discard all notes: the batch was written or aborted."""
        self._added.clear()
        self._sums.clear()
        self._last_txns.clear()

    def undo_message(self) -> None:
        """Roll back the additions of the present message, which was not applied."""
        undo_notes(self._added, self._present.txn)

    def add(self, key: K, amounts: Amounts) -> None:
        """Add to the sums of a key."""
        self._added.append((self._present.txn, key, amounts))

    def message(self) -> Sequence[tuple[K, Amounts]]:
        """Return the additions of the present message."""
        return [(key, amounts) for _, key, amounts in self._added[first_of(self._added, self._present.txn) :]]

    def of(self, key: K) -> Amounts | None:
        """Return the batch's sums of a key, the present message included."""
        self._sum_up(first_of(self._added, self._present.txn))
        summed = self._sums.get(key)
        found = [amounts for _, one, amounts in self._added if one == key]
        return _sums([summed, *found] if summed else found) if found else summed

    def items(self) -> Iterable[tuple[K, Amounts]]:
        """Return every changed key with its sums. Call it at the end of a batch."""
        self._sum_up(len(self._added))
        return self._sums.items()

    def last_txn(self, key: K) -> int:
        """Return the txn of the last command that changed a key, or 0. Call it after ``items``, at a batch's end."""
        return self._last_txns.get(key, 0)

    def _sum_up(self, until: int) -> None:
        if not until:
            return
        found: dict[K, list[Amounts]] = {}
        for txn, key, amounts in self._added[:until]:
            found.setdefault(key, []).append(amounts)
            self._last_txns[key] = txn
        del self._added[:until]
        for key, added in found.items():
            before = self._sums.get(key)
            self._sums[key] = _sums([before, *added] if before else added)


def _sums(added: list[Amounts]) -> Amounts:
    return tuple(map(sum, zip(*added, strict=True)))
