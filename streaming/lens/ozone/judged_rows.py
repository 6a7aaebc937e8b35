"""Turns the rows of one bucket in one store into things with their holders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from services.lens.ozone.directories import DirectoryPlace, place_of
from services.lens.ozone.holders import HeldBlocks, HeldGarbage, Names, holders_of_garbage, holders_of_live_row
from services.lens.ozone.key_rows import COMMITTED, Block, blocks_of, metadata_keys, replicated_bytes, sizes_of
from streaming.lens.ozone.index import Index
from streaming.lens.ozone.plan import BucketPlan
from streaming.lens.ozone.searches import Searches
from streaming.lens.ozone.things import ThingRows

Row = Any
MAX_KNOWN_DIRECTORIES = 50_000


class JudgedRows:
    """The rows of a bucket, while a worker goes through a part of them."""

    def __init__(self, bucket: BucketPlan, searches: Searches, index: Index, things: ThingRows) -> None:
        self._bucket = bucket
        self.keys = bucket.keys
        self._name = bucket.keys.name
        self._places = bucket.places
        self._searches = searches
        self._index = index
        self._things = things
        self._directories: dict[int, DirectoryPlace] = {}
        self._sums: dict[tuple[str, str], list[int]] = {}

    def add_live(self, key: bytes, row: Row) -> None:
        """Add a row of ``keyTable`` or ``fileTable`` of the active store."""
        self._sum("used", row.data_bytes, replicated_bytes(row.data_bytes, row))
        kind = "key"
        if self.keys.is_file_system:
            directory = self._directory(row.parent_id)
            leaf = key.rpartition(b"/")[2].decode(errors="replace")
            path = f"{directory.path}/{leaf}" if directory.path else leaf
            if directory.deleted_in is not None:
                self._add_unreachable(row, path, directory.deleted_in)
                return
            if directory.is_orphaned:
                kind = "orphaned-key"
                self._add_orphan(row, path)
        else:
            path = row.name.decode(errors="replace")
        blocks = blocks_of(row.versions)
        if not blocks:
            return
        known = min(self._places.active, self._places.transactions.first_with(row.update_id))
        if self._places.is_oldest(known, row.object_id):
            self._emit(row, path, kind, blocks.items(), known, self._places.active)
            return

        def then(found: list[HeldBlocks]) -> None:
            for held in found:
                self._emit(row, path, kind, [(block, blocks[block]) for block in held.blocks], held.first, held.last)

        names = self._names(key, row.object_id, self._bucket.active_number)
        self._searches.add(self._bucket, holders_of_live_row(self._places, row), names, then)

    def add_directory(self, row: Row) -> None:
        """Count a row of ``directoryTable`` of the active store, which costs no bytes."""
        self._sum("directories", 0, 0)
        place = self._directory(row.object_id)
        if place.is_orphaned:
            self._things.add_fact("orphaned-directory", self._name, 0, 0, place.path, str(row.object_id))

    def add_garbage(self, info: Row, bucket_id: int, number: int) -> None:
        """Add an info of a row in ``deletedTable`` of a store; ``bucket_id`` is the row's, 0 in rows before 2.1."""
        if number < 0:
            number = self._bucket.active_number
        blocks = blocks_of(info.versions)
        is_former = bucket_id not in (0, self.keys.bucket_id)
        if COMMITTED in metadata_keys(info) and not is_former:
            self._sum("snapshot-used", *sizes_of(blocks.values(), info))
        if not blocks:
            return
        path = self._path_of_garbage(info)
        if is_former:  # the bucket was deleted and created again: snapshots of the new one do not have it
            self._emit(info, path, "key", blocks.items(), 0, -1)
            return
        self._add_garbage(info, path, blocks, number)

    def _add_unreachable(self, row: Row, path: str, number: int) -> None:
        """Add a file below a deleted directory that waits to be expanded: garbage of the directory's store."""
        blocks = blocks_of(row.versions)
        self._sum("unreachable", *sizes_of(blocks.values(), row), str(number))
        if blocks:
            self._add_garbage(row, path, blocks, number)

    def _add_garbage(self, info: Row, path: str, blocks: dict[Block, int], number: int) -> None:
        last = self._bucket.last_place_before(number)

        def then(found: HeldGarbage) -> None:
            self._emit(info, path, "key", blocks.items(), found.first, found.last)
            if found.lost:
                lengths = [blocks[block] for block in found.lost]
                self._things.add_fact(
                    "read-but-freed",
                    self._name,
                    *sizes_of(lengths, info),
                    path,
                    str(info.object_id),
                    found.lost_place,
                    found.lost_place,
                )

        if last < 0 or info.object_id == 0:
            then(HeldGarbage(0, -1))
            return
        key = self.keys.key_of(info.name, info.parent_id)
        names = self._names(key, info.object_id, number)
        self._searches.add(self._bucket, holders_of_garbage(self._places, info, last), names, then)

    def add_open(self, info: Row, kind: str, path: str) -> None:
        """Add a key that is being written, or a part of an upload: the active namespace alone has it."""
        blocks = blocks_of(info.versions)
        if blocks:
            self._emit(info, path, kind, blocks.items(), self._places.active, self._places.active)
            self._sum(kind, *sizes_of(blocks.values(), info))

    def add_part(self, info: Row, path: str) -> None:
        """Add a committed part of an upload: ``usedBytes`` has it, too."""
        self.add_open(info, "upload-part", path)
        self._sum("used-parts", info.data_bytes, replicated_bytes(info.data_bytes, info))

    def _add_orphan(self, row: Row, path: str) -> None:
        blocks = blocks_of(row.versions)
        self._things.add_fact(
            "orphaned-file",
            self._name,
            *sizes_of(blocks.values(), row),
            path,
            str(row.object_id),
        )

    def _emit(self, row: Row, path: str, kind: str, blocks: Iterable[tuple[Block, int]], first: int, last: int) -> None:
        sized = [(block, length, replicated_bytes(length, row)) for block, length in blocks]
        self._things.add_thing(self._name, path, row.object_id, kind, sized, first, last)

    def _sum(self, fact: str, size_bytes: int, replicated: int, fact_id: str = "") -> None:
        found = self._sums.setdefault((fact, fact_id), [0, 0, 0])
        found[0] += size_bytes
        found[1] += replicated
        found[2] += 1

    def _directory(self, directory_id: int) -> DirectoryPlace:
        found = self._directories.get(directory_id)
        if found is None:
            if len(self._directories) >= MAX_KNOWN_DIRECTORIES:
                self._directories.clear()
            bucket_id = self.keys.bucket_id
            found = place_of(directory_id, bucket_id, lambda one: self._index.directory(bucket_id, one))
            self._directories[directory_id] = found
        return found

    def _path_of_garbage(self, info: Row) -> str:
        """Return the path of a deleted key. After an overwrite, FSO rows have the last part of it only."""
        name: str = info.name.decode(errors="replace")
        if not self.keys.is_file_system or "/" in name or info.parent_id == self.keys.bucket_id:
            return name
        directory = self._directory(info.parent_id)
        return f"{directory.path}/{name}" if directory.path else name

    def _names(self, key: bytes, object_id: int, number: int) -> Names:
        if not self._bucket.has_renames:
            return Names(key)
        renames = self._index.renames(self.keys.bucket_id, object_id)
        return Names(key, tuple(rename for rename in renames if rename[0] <= number))

    def add_sums(self) -> None:
        """Add the sums. Searches add none, so that they may still wait."""
        for (fact, fact_id), (size_bytes, replicated, rows) in self._sums.items():
            self._things.add_fact(fact, self._name, size_bytes, replicated, fact_id=fact_id)
            self._things.add_fact(f"{fact}-rows", self._name, rows, 0, fact_id=fact_id)
        self._sums.clear()
