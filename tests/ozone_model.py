"""A small model of an Ozone Manager's tables for one bucket: what operations do to them, and who then holds what.

Only what matters for blocks is there. The tables are dictionaries of decoded rows. Holders are found here in the slow
way, by asking every store, so that the lens' search can be compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from services.lens.ozone.chain import NEVER, UNKNOWN, SeenTransactions
from services.lens.ozone.holders import Names, Places
from services.lens.ozone.key_rows import HSYNC, Block, blocks_of, is_same_version
from services.lens.ozone.messages import KeyInfo
from services.lens.ozone.tables import BucketKeys

VOLUME_ID, BUCKET_ID = -9223372036854773504, -9223372036854773248
FIRST_TRANSACTION = 100


def object_id(transaction: int, counter: int = 0) -> int:
    """The id of an object that a transaction creates, signed as in Java."""
    return ((2 << 62) | (transaction << 8) | counter) - (1 << 64)


@dataclass
class ModelStore:
    """The tables of a snapshot, or of the active namespace."""

    live: dict[bytes, Any] = field(default_factory=dict)
    deleted: list[Any] = field(default_factory=list)
    renamed: dict[int, bytes] = field(default_factory=dict)
    is_deleted: bool = False
    seen_transaction: int = 0


class OzoneModel:
    """One bucket of an Ozone Manager."""

    def __init__(self, *, is_file_system: bool = False, is_versioned: bool = False) -> None:
        self.keys = BucketKeys(b"vol", b"bucket", VOLUME_ID, BUCKET_ID, is_file_system)
        self.is_versioned = is_versioned
        self.active = ModelStore()
        self.snapshots: list[ModelStore] = []
        self._transaction = FIRST_TRANSACTION
        self._block = 0

    def _next(self) -> int:
        self._transaction += 1
        return self._transaction

    def _key(self, name: str) -> bytes:
        return self.keys.key_of(name.encode(), BUCKET_ID)

    def _row(self, name: str) -> Any:
        return self.active.live.get(self._key(name))

    def _put(self, name: str, row: Any) -> None:
        row.update_id = self._transaction
        row.name = name.encode()
        self.active.live[self._key(name)] = row

    def _add_block(self, version: Any) -> None:
        self._block += 1
        location = version.locations.add(offset=0, create_version=version.version, length=self._block)
        location.block.id.container, location.block.id.local = 1, self._block

    def put(self, name: str, blocks: int) -> None:
        """Write a key; over an existing one, the object stays and its blocks are deleted, or kept as a version."""
        self._next()
        before = self._row(name)
        row = KeyInfo(type=1, factor=1, parent_id=BUCKET_ID if self.keys.is_file_system else 0)
        row.object_id = object_id(self._transaction) if before is None else before.object_id
        if before is not None and self.is_versioned:
            row.versions.extend(before.versions)
        elif before is not None:
            self._bury(before)
        version = row.versions.add(version=len(row.versions))
        for _ in range(blocks):
            self._add_block(version)
        self._put(name, row)

    def write_on(self, name: str) -> None:
        """Write on a key by hsync: its row gets another block, and keeps those that it has."""
        before = self._row(name)
        if before is not None:
            self._next()
            row = _copy(before)
            self._add_block(row.versions[-1])
            if not any(entry.key == HSYNC for entry in row.metadata):
                row.metadata.add(key=HSYNC, value="7")
            self._put(name, row)

    def touch(self, name: str) -> None:
        """Change something of a key that is not its blocks."""
        before = self._row(name)
        if before is not None:
            self._next()
            self._put(name, _copy(before))

    def rename(self, name: str, to: str) -> None:
        """Rename a key to a name that is free."""
        before = self._row(name)
        if before is None or self._row(to) is not None:
            return
        self._next()
        del self.active.live[self._key(name)]
        if self.snapshots:
            self.active.renamed.setdefault(before.object_id, self._key(name))
        self._put(to, _copy(before))

    def delete(self, name: str) -> None:
        """Delete a key."""
        before = self._row(name)
        if before is not None:
            self._next()
            del self.active.live[self._key(name)]
            self._bury(before)

    def _bury(self, row: Any) -> None:
        info = _copy(row)
        info.update_id = self._transaction
        self.active.deleted.append(info)

    def create_snapshot(self) -> None:
        """Create a snapshot; the garbage tables go with it."""
        seen = self._transaction
        self._next()
        one = ModelStore(dict(self.active.live), self.active.deleted, self.active.renamed, seen_transaction=seen)
        self.snapshots.append(one)
        self.active.deleted, self.active.renamed = [], {}

    def delete_snapshot(self, number: int) -> None:
        """Delete a snapshot without purging it."""
        if self.snapshots:
            self._next()
            self.snapshots[number % len(self.snapshots)].is_deleted = True

    def purge(self) -> None:
        """Move the rows of the newest deleted snapshot to the store after it, and take it out of the chain."""
        number = next((n for n in reversed(range(len(self.snapshots))) if self.snapshots[n].is_deleted), None)
        if number is None:
            return
        self._next()
        gone = self.snapshots.pop(number)
        after = self.snapshots[number] if number < len(self.snapshots) else self.active
        after.deleted += gone.deleted
        after.renamed.update(gone.renamed)  # the older name wins

    def places(self, *, are_transactions_known: bool) -> Places:
        """The snapshots as the search sees them."""
        held = [one.seen_transaction for one in self.snapshots if not one.is_deleted]
        unknown = [UNKNOWN] * len(held)
        transactions = SeenTransactions(held if are_transactions_known else unknown, unknown, unknown)
        return Places(transactions, range(len(held)), len(held))

    def held_numbers(self) -> list[int]:
        """The numbers in the chain of the snapshots that hold something."""
        return [number for number, one in enumerate(self.snapshots) if not one.is_deleted]

    def names(self, key: bytes, object_id: int, number: int) -> Names:
        """The keys of an object that was found in a store."""
        stores = [*self.snapshots, self.active][: number + 1]
        renames = [(n, store.renamed[object_id]) for n, store in enumerate(stores) if object_id in store.renamed]
        return Names(key, tuple(renames))

    def garbage(self) -> Iterator[tuple[int, Any]]:
        """All deleted versions, each with the number of the store that has its row."""
        for number, store in enumerate([*self.snapshots, self.active]):
            for info in store.deleted:
                yield number, info

    def true_holders_of_block(self, block: Block) -> set[int]:
        """The places of all snapshots whose tables have a row with a block."""
        return {
            place
            for place, number in enumerate(self.held_numbers())
            if any(block in blocks_of(row.versions) for row in self.snapshots[number].live.values())
        }

    def true_holders_of_garbage(self, number: int, info: Any) -> set[int]:
        """The places of the snapshots that keep a deleted version, by Ozone's filter, one store after the other."""
        found = set[int]()
        key = self.keys.key_of(info.name, info.parent_id)
        stores = [*self.snapshots, self.active]
        held = {one: place for place, one in enumerate(self.held_numbers())}
        for previous in reversed(range(number)):
            key = stores[previous + 1].renamed.get(info.object_id, key)
            if previous in held:
                if not is_same_version(stores[previous].live.get(key), info):
                    return found
                found.add(held[previous])
        return found


def _copy(row: Any) -> Any:
    found = KeyInfo()
    found.CopyFrom(row)
    return found


__all__ = ["NEVER", "ModelStore", "OzoneModel", "object_id"]
