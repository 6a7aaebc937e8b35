"""The database interface of the services: sorted families of bytes, atomic synced batches, checkpoints.

Two implementations meet this contract and one test suite: ``rocks`` on disk and ``memory`` for the simulator and
for runs within one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from services.domain.errors import InvariantError

BEYOND = b"\xff" * 9
"""Greater than every key: keys that begin with a number have eight bytes of it."""
GapFound = Callable[[bytes, bytes], None]
"""Receives a key range without rows: its first key and its end (exclusive)."""
Batch = Mapping[str, Mapping[bytes, bytes | None]]
"""Per family the new value of each key; None removes the row."""


class StoreError(InvariantError):
    """The database cannot be read or written: the service stops until an operator has repaired the disk."""


class Reader(Protocol):
    """A view of committed rows."""

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield every row with start <= key < end, in the order of the keys' bytes."""

    def close(self) -> None:
        """Close the view."""


class Store(Reader, Protocol):
    """One database: one writer and any number of readers."""

    def get_many(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of some keys, in their order: cheaper than single gets."""

    def get_in_parts(self, family: str, keys: list[bytes]) -> Iterator[list[bytes | None]]:
        """As ``get_many``, but yield the values in parts: later parts may be read while the caller uses the first.

        The values are those of the time of the call if the writer does not change these keys before the last part.
        """

    def scan_reporting_gaps(
        self, family: str, start: bytes, end: bytes, found: GapFound
    ) -> Iterator[tuple[bytes, bytes]]:
        """As ``scan``; call ``found`` with each range without rows that was slow to step over."""

    def write(self, batch: Batch) -> None:
        """Write a batch atomically; it is durable when this returns. Who reads in other threads may see it earlier."""

    def reading(self) -> Reader:
        """Return a view that later writes do not change."""

    def checkpoint(self, name: str) -> None:
        """Make a checkpoint of all committed rows; a complete one of that name is left as it is."""

    def open_checkpoint(self, name: str) -> Reader:
        """Return a view of a checkpoint. Raise KeyError when none has that name."""

    def remove_checkpoint(self, name: str) -> None:
        """Remove a checkpoint; do nothing when none has that name."""

    def checkpoints(self) -> list[str]:
        """Return the names of the complete checkpoints."""


def prefix_end(prefix: bytes) -> bytes:
    """Return the first key behind all keys with a prefix. The prefix must end in a byte below 0xff."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
