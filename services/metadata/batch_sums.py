"""Sums that every command changes, added up over a batch and written once at its end.

What a refused command has added is taken off again. Nothing reads a sum in the middle of a batch but through here:
the commands that need written figures (take, drop) are alone in their batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
Amounts = tuple[int, ...]


class BatchSums(Generic[K]):
    """Per key a few integers that only ever are added to."""

    def __init__(self) -> None:
        self._message: list[tuple[K, Amounts]] = []
        self._new: list[K] = []
        self._batch: dict[K, list[int]] = {}

    def clear(self) -> None:
        """Forget: the batch was written or thrown away."""
        self.keep_message()
        self._batch.clear()

    def undo_message(self) -> None:
        """The present message was not applied: what it has added is taken off again."""
        for key, amounts in self._message:
            sums = self._batch[key]
            for index, amount in enumerate(amounts):
                sums[index] -= amount
        for key in self._new:
            del self._batch[key]
        self.keep_message()

    def add(self, key: K, amounts: Amounts) -> None:
        """Add to the sums of a key."""
        self._message.append((key, amounts))
        sums = self._batch.get(key)
        if sums is None:
            self._batch[key] = list(amounts)
            self._new.append(key)
            return
        for index, amount in enumerate(amounts):
            if amount:
                sums[index] += amount

    def message(self) -> Iterator[tuple[K, Amounts]]:
        """What the present message has added."""
        return iter(self._message)

    def keep_message(self) -> None:
        """The present message was applied."""
        if self._message:
            self._message.clear()
            self._new.clear()

    def of(self, key: K) -> list[int] | None:
        """What the batch has added to a key."""
        return self._batch.get(key)

    def items(self) -> Iterator[tuple[K, list[int]]]:
        """Every key that the batch has changed, with its sums."""
        return iter(self._batch.items())
