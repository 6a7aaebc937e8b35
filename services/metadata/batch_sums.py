"""Sums that every command changes, added up over a batch and written once at its end.

What a refused command has added is taken off again. Nothing reads a sum in the middle of a batch but through here:
the commands that need written figures (take, drop) are alone in their batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
Amounts = tuple[int, ...]


class BatchSums(Generic[K]):
    """Per key a few integers that only ever are added to: noted as they come, and summed up when somebody asks."""

    def __init__(self) -> None:
        self._added: list[tuple[K, Amounts]] = []
        self._kept = 0
        """How many of these are of messages that were applied."""
        self._sums: dict[K, Amounts] = {}

    def clear(self) -> None:
        """Forget: the batch was written or thrown away."""
        self._added.clear()
        self._kept = 0
        self._sums.clear()

    def undo_message(self) -> None:
        """The present message was not applied: what it has added is taken off again."""
        del self._added[self._kept :]

    def add(self, key: K, amounts: Amounts) -> None:
        """Add to the sums of a key."""
        self._added.append((key, amounts))

    def message(self) -> Sequence[tuple[K, Amounts]]:
        """What the present message has added."""
        return self._added[self._kept :]

    def keep_message(self) -> Sequence[tuple[K, Amounts]]:
        """The present message was applied; says what it has added."""
        count = len(self._added)
        if count == self._kept:
            return ()
        kept = self._added[self._kept :]
        self._kept = count
        return kept

    def of(self, key: K) -> Amounts | None:
        """What the batch has added to a key, the present message with it."""
        self._sum_up()
        kept = self._sums.get(key)
        found = [amounts for one, amounts in self._added if one == key]
        return _sums([kept, *found] if kept else found) if found else kept

    def items(self) -> Iterable[tuple[K, Amounts]]:
        """Every key that the messages of the batch have changed, with its sums."""
        self._sum_up()
        return self._sums.items()

    def _sum_up(self) -> None:
        if not self._kept:
            return
        found: dict[K, list[Amounts]] = {}
        for key, amounts in self._added[: self._kept]:
            found.setdefault(key, []).append(amounts)
        del self._added[: self._kept]
        self._kept = 0
        for key, added in found.items():
            before = self._sums.get(key)
            self._sums[key] = _sums([before, *added] if before else added)


def _sums(added: list[Amounts]) -> Amounts:
    return tuple(map(sum, zip(*added, strict=True)))
