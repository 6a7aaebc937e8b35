"""A database in memory, for the simulator and for runs within one process."""

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
        """Set a row, or remove it (None)."""
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
        """Yield the rows of a range. The keys are copied first: the caller may write while it reads."""
        for key in self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]:
            if key in self.rows:
                yield key, self.rows[key]

    def copy(self) -> MemoryFamily:
        """Return another family with the same rows."""
        copied = MemoryFamily()
        copied.rows = dict(self.rows)
        copied._keys = list(self._keys)
        return copied


class MemoryReader:
    """A view of committed rows."""

    def __init__(self, families: dict[str, MemoryFamily]) -> None:
        self._families = families

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        rows = self._families.get(family)
        return None if rows is None else rows.rows.get(key)

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield every row with start <= key < end."""
        rows = self._families.get(family)
        return iter(()) if rows is None else rows.scan(start, end)

    def close(self) -> None:
        """Do nothing: the view holds no resources."""


class MemoryStore(MemoryReader):
    """One database. It survives a simulated crash, which discards the service."""

    def __init__(self, checkpointed: frozenset[str] | None = None) -> None:
        super().__init__({})
        self._checkpoints: dict[str, dict[str, MemoryFamily]] = {}
        self._checkpointed = checkpointed

    def scan_reporting_gaps(
        self, family: str, start: bytes, end: bytes, found: GapFound
    ) -> Iterator[tuple[bytes, bytes]]:
        """As ``scan``. Report the gap before the first row, as a store on disk may do, though no gap is slow here."""
        rows = self.scan(family, start, end)
        first = next(rows, None)
        found(start, end if first is None else first[0])
        if first is not None:
            yield first
            yield from rows

    def get_many(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of some keys, in their order."""
        return [self.get(family, key) for key in keys]

    def get_in_parts(self, family: str, keys: list[bytes]) -> Iterator[list[bytes | None]]:
        """As ``get_many``; yield all values in one part."""
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
        """Return a view. It sees later writes, which is enough in a single thread."""
        return MemoryReader(self._families)

    def checkpoint(self, name: str) -> None:
        """Copy the families that checkpoints keep; a checkpoint of that name is left as it is."""
        if name not in self._checkpoints:
            self._checkpoints[name] = {
                family: table.copy()
                for family, table in self._families.items()
                if self._checkpointed is None or family in self._checkpointed
            }

    def open_checkpoint(self, name: str) -> MemoryReader:
        """Return a view of a checkpoint."""
        return MemoryReader(self._checkpoints[name])

    def remove_checkpoint(self, name: str) -> None:
        """Remove a checkpoint; do nothing when none has that name."""
        self._checkpoints.pop(name, None)

    def checkpoints(self) -> list[str]:
        """Return the names of all checkpoints."""
        return sorted(self._checkpoints)

    def clone(self) -> MemoryStore:
        """Return a copy that a test can put back later, as a restored backup."""
        copied = MemoryStore(self._checkpointed)
        copied._families.update({name: table.copy() for name, table in self._families.items()})
        copied._checkpoints.update(self._checkpoints)
        return copied
