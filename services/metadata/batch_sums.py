"""Sums that every command changes, added up over a batch and written once at its end.

What a refused command has added is dropped with it. Nothing reads a sum in the middle of a batch but through here:
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
        self._batch: dict[K, list[int]] = {}

    def clear(self) -> None:
        """Forget: the batch was written or thrown away."""
        self._message.clear()
        self._batch.clear()

    def begin_message(self) -> None:
        """Whatever follows belongs to the next message; what was not kept is dropped."""
        self._message.clear()

    def add(self, key: K, amounts: Amounts) -> None:
        """Add to the sums of a key."""
        self._message.append((key, amounts))

    def message(self) -> Iterator[tuple[K, Amounts]]:
        """What the present message has added."""
        return iter(self._message)

    def keep_message(self) -> None:
        """The present message was applied."""
        for key, amounts in self._message:
            sums = self._batch.get(key)
            if sums is None:
                self._batch[key] = list(amounts)
            else:
                for index, amount in enumerate(amounts):
                    sums[index] += amount
        self._message.clear()

    def of(self, key: K) -> list[int] | None:
        """What the messages kept so far have added to a key."""
        return self._batch.get(key)

    def items(self) -> Iterator[tuple[K, list[int]]]:
        """Every key with its sums."""
        return iter(self._batch.items())
