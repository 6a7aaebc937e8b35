"""A database in memory: what the simulator crashes and a run within one process uses."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from services.storage.store import Batch, GapFound


class MemoryFamily:
    """One sorted family of rows."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a row, or remove it."""
        if value is None:
            if key in self.rows:
                del self.rows[key]
                del self._keys[bisect_left(self._keys, key)]
            return
        if key not in self.rows:
            if self._keys and key < self._keys[-1]:
                insort(self._keys, key)
            else:
                self._keys.append(key)
        self.rows[key] = value

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows of a range. The range is copied: the caller may write while it reads."""
        for key in self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]:
            if key in self.rows:
                yield key, self.rows[key]

    def copy(self) -> MemoryFamily:
        """Another family with the same rows."""
        copied = MemoryFamily()
        copied.rows = dict(self.rows)
        copied._keys = list(self._keys)
        return copied


class MemoryReader:
    """Committed rows of one moment."""

    def __init__(self, families: dict[str, MemoryFamily]) -> None:
        self._families = families

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        rows = self._families.get(family)
        return None if rows is None else rows.rows.get(key)

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every row with start <= key < end."""
        rows = self._families.get(family)
        return iter(()) if rows is None else rows.scan(start, end)

    def close(self) -> None:
        """Nothing is held."""


class MemoryStore(MemoryReader):
    """One database; it outlives the service that a simulated crash throws away."""

    def __init__(self, checkpointed: frozenset[str] | None = None) -> None:
        self._families: dict[str, MemoryFamily] = {}
        super().__init__(self._families)
        self._checkpoints: dict[str, dict[str, MemoryFamily]] = {}
        self._checkpointed = checkpointed

    def scan_reporting_gaps(
        self, family: str, start: bytes, end: bytes, found: GapFound
    ) -> Iterator[tuple[bytes, bytes]]:
        """As ``scan``. Nothing takes long here; told of what lies in front of the first row, as on disk it may be."""
        rows = self.scan(family, start, end)
        first = next(rows, None)
        found(start, end if first is None else first[0])
        if first is not None:
            yield first
            yield from rows

    def get_many(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """The values of some keys, in their order."""
        return [self.get(family, key) for key in keys]

    def get_in_parts(self, family: str, keys: list[bytes]) -> Iterator[list[bytes | None]]:
        """As ``get_many``, all in one part."""
        yield self.get_many(family, keys)

    def write(self, batch: Batch) -> None:
        """Write a batch."""
        for family, rows in batch.items():
            table = self._families.get(family)
            if table is None:
                table = self._families[family] = MemoryFamily()
            for key, value in rows.items():
                table.put(key, value)

    def reading(self) -> MemoryReader:
        """A view; it moves along, which is enough where one thread does everything."""
        return MemoryReader(self._families)

    def checkpoint(self, name: str) -> None:
        """Copy the families that checkpoints keep."""
        if name not in self._checkpoints:
            self._checkpoints[name] = {
                family: table.copy()
                for family, table in self._families.items()
                if self._checkpointed is None or family in self._checkpointed
            }

    def open_checkpoint(self, name: str) -> MemoryReader:
        """A view of a checkpoint."""
        return MemoryReader(self._checkpoints[name])

    def remove_checkpoint(self, name: str) -> None:
        """Forget a checkpoint."""
        self._checkpoints.pop(name, None)

    def checkpoints(self) -> list[str]:
        """Names of all checkpoints."""
        return sorted(self._checkpoints)

    def clone(self) -> MemoryStore:
        """An older copy, to be put back later: a restored backup."""
        copied = MemoryStore(self._checkpointed)
        copied._families.update({name: table.copy() for name, table in self._families.items()})
        copied._checkpoints.update(self._checkpoints)
        return copied
