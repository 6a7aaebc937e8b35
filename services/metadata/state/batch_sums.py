"""What every command of a batch adds to, noted as it comes and written once at the batch's end.

What a refused command has noted is taken off again: each note has the txn of its command, and those of commands that
were applied are lower. So nothing is to be done for a command that was applied, which most are. A command that takes no
txn must note nothing: the next one has the txn that it would note.

Nothing reads a sum in the middle of a batch but through here: the commands that need written figures (take, drop) are
alone in their batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
Amounts = tuple[int, ...]


@dataclass(slots=True)
class PresentTxn:
    """The txn of the command that is being applied: one object for all who note what commands do."""

    txn: int = 0


def first_of(notes: Sequence[Any], txn: int) -> int:
    """Where the notes of the newest command begin, if it is that of a txn. The txn of a note is its first field."""
    first = len(notes)
    while first and notes[first - 1][0] == txn:
        first -= 1
    return first


def undo_notes(notes: list[Any], txn: int) -> None:
    """Take off the notes of a command that was not applied."""
    del notes[first_of(notes, txn) :]


class BatchSums(Generic[K]):
    """Per key a few integers that only ever are added to: noted as they come, and summed up when somebody asks."""

    def __init__(self, present: PresentTxn) -> None:
        self._present = present
        self._added: list[tuple[int, K, Amounts]] = []
        self._sums: dict[K, Amounts] = {}
        self._last_txns: dict[K, int] = {}

    def clear(self) -> None:
        """Forget: the batch was written or thrown away."""
        self._added.clear()
        self._sums.clear()
        self._last_txns.clear()

    def undo_message(self) -> None:
        """The present message was not applied: what it has added is taken off again."""
        undo_notes(self._added, self._present.txn)

    def add(self, key: K, amounts: Amounts) -> None:
        """Add to the sums of a key."""
        self._added.append((self._present.txn, key, amounts))

    def message(self) -> Sequence[tuple[K, Amounts]]:
        """What the present message has added."""
        return [(key, amounts) for _, key, amounts in self._added[first_of(self._added, self._present.txn) :]]

    def of(self, key: K) -> Amounts | None:
        """What the batch has added to a key, the present message with it."""
        self._sum_up(first_of(self._added, self._present.txn))
        summed = self._sums.get(key)
        found = [amounts for _, one, amounts in self._added if one == key]
        return _sums([summed, *found] if summed else found) if found else summed

    def items(self) -> Iterable[tuple[K, Amounts]]:
        """At the end of a batch: every key that it has changed, with its sums."""
        self._sum_up(len(self._added))
        return self._sums.items()

    def last_txn(self, key: K) -> int:
        """At the end of a batch: the txn of the last command that has changed a key that is among its items."""
        return self._last_txns[key]

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
