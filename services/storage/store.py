"""What a service needs of a database: sorted families of bytes, atomic synced batches, checkpoints.

Two implementations meet this contract and one test suite: ``rocks`` on disk and ``memory`` for the simulator and
for runs within one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from services.domain.errors import InvariantError

BEYOND = b"\xff" * 9
"""Behind every key: those that begin with a number have eight bytes of it."""
GapFound = Callable[[bytes, bytes], None]
"""Told of keys without a row: the first one, and the one behind the last."""
Batch = Mapping[str, Mapping[bytes, bytes | None]]
"""Per family what each key becomes; None removes it."""


class StoreError(InvariantError):
    """The database cannot be read or written: the service stops until an operator has repaired the disk."""


class Reader(Protocol):
    """A view of committed rows."""

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        ...

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every row with start <= key < end, in the order of the keys' bytes."""
        ...

    def close(self) -> None:
        """Let go of the view."""
        ...


class Store(Reader, Protocol):
    """One database: one writer, any number of readers beside it."""

    def get_many(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """The values of some keys, in their order: cheaper than one by one."""
        ...

    def get_in_parts(self, family: str, keys: list[bytes]) -> Iterator[list[bytes | None]]:
        """As ``get_many``, a part of the values after the other: later ones may be read while the first are used.

        They are as they were when the first part was asked for, if nobody writes to these keys until the last is there.
        """
        ...

    def scan_reporting_gaps(
        self, family: str, start: bytes, end: bytes, found: GapFound
    ) -> Iterator[tuple[bytes, bytes]]:
        """As ``scan``; ``found`` hears of each stretch without a row that it took long to step over."""
        ...

    def write(self, batch: Batch) -> None:
        """Write all of a batch or nothing of it, durable when this returns."""
        ...

    def reading(self) -> Reader:
        """A view that does not move while the writer goes on."""
        ...

    def checkpoint(self, name: str) -> None:
        """Keep all committed rows under a name; one that is there complete is left as it is."""
        ...

    def open_checkpoint(self, name: str) -> Reader:
        """A view of a checkpoint. Raises KeyError when there is none of that name."""
        ...

    def remove_checkpoint(self, name: str) -> None:
        """Remove a checkpoint; nothing happens when there is none."""
        ...

    def checkpoints(self) -> list[str]:
        """Names of the complete checkpoints."""
        ...


def prefix_end(prefix: bytes) -> bytes:
    """The first key behind all keys that begin with a prefix (which ends in a byte below 0xff)."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
