"""The commands by which a bucket of a plane comes from one state to the next: those of the stores of a chain.

A state is a set of files, or keys, and of directories, each with the id of its object. What has the same id and the
same blocks under another name was renamed; what has other blocks was overwritten; what is gone was deleted. The rows
that differ, and all directories, are in a scratch database: neither has to fit into memory.

Names may have changed places, and directories may have moved out of deleted ones. So the commands of a step come in
this order, in which each path exists when it is named and each target is free:

1. An object that leaves a place which another one takes, or a directory which is deleted, is renamed to a place of its
   own below ``PARKED``.
2. What is gone is deleted; of a deleted tree only its root.
3. Directories are made and renamed, those nearest to the bucket first.
4. Files are renamed.
5. Files are put.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Any

from schemas.records import (
    BlockRun,
    DeleteDirectory,
    DeleteKeys,
    MakeDirectory,
    PutKey,
    RenameKey,
    Replication,
    SetBucketReplication,
)
from services.domain.replication import container_of, replicated_bytes_of
from services.domain.table_keys import MAX_BLOCKS_PER_COMMAND
from services.lens.ozone.differences import Row
from services.lens.ozone.figures import NOTHING, Amount
from services.lens.ozone.key_rows import blocks_of, replication_here, sizes_of
from services.lens.ozone.layout import OzoneLocationError
from services.lens.ozone.messages import DirectoryInfo, KeyInfo
from services.lens.ozone.tables import BucketKeys

Command = DeleteDirectory | DeleteKeys | MakeDirectory | PutKey | RenameKey | SetBucketReplication
PARKED = ".deepclean-import"
"""Where objects are while names change places; no state has it."""
PARKED_ID = 0
"""Stands for the directory of this name: no object has the id 0."""
KEYS_PER_DELETION = 200
MAX_KNOWN_PATHS = 50_000
CACHE_KIBIBYTES = 64 << 10

_START = f"""
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA temp_store = FILE;
PRAGMA cache_size = -{CACHE_KIBIBYTES};
CREATE TABLE was (id INTEGER PRIMARY KEY, parent INTEGER, name BLOB, depth INTEGER);
CREATE TABLE left_out (container INTEGER, local INTEGER, PRIMARY KEY (container, local)) WITHOUT ROWID;
"""
"""A scratch database: whoever dies makes it anew. ``was`` has the directories that can be reached, by their ids;
``left_out`` the blocks of deleted versions that are left out, since rows of one hsynced key share blocks."""
_LOAD = """
CREATE TABLE loaded (id INTEGER PRIMARY KEY, parent INTEGER, name BLOB);
CREATE TABLE now (id INTEGER PRIMARY KEY, parent INTEGER, name BLOB, depth INTEGER);
CREATE TABLE old (id INTEGER, parent INTEGER, name BLOB, blocks BLOB);
CREATE TABLE new (id INTEGER, parent INTEGER, name BLOB, blocks BLOB, bytes INTEGER, replicated_bytes INTEGER,
    said_bytes INTEGER, block_bytes INTEGER, replication TEXT);
"""
_REACHABLE = """
CREATE INDEX loaded_parent ON loaded (parent);
INSERT INTO now WITH RECURSIVE reached (id, parent, name, depth) AS (
    SELECT id, parent, name, 0 FROM loaded WHERE parent IS NULL
    UNION ALL
    SELECT loaded.id, loaded.parent, loaded.name, depth + 1 FROM reached JOIN loaded ON loaded.parent = reached.id
) SELECT * FROM reached;
DROP TABLE loaded;
CREATE UNIQUE INDEX old_id ON old (id);
CREATE UNIQUE INDEX new_id ON new (id);
"""
_UNREACHABLE = """
SELECT ifnull(sum(new.bytes), 0), ifnull(sum(new.replicated_bytes), 0), count(*) FROM new LEFT JOIN old USING (id)
WHERE new.parent NOT IN (SELECT id FROM now) AND new.blocks IS NOT old.blocks
"""
"""Nobody can read these, and the state before does not show them: a directory above was deleted, or is missing."""
_CLASSIFY = """
DELETE FROM new WHERE parent NOT IN (SELECT id FROM now);
DELETE FROM old WHERE parent NOT IN (SELECT id FROM was);
CREATE TABLE moved AS SELECT id, 1 AS is_directory, was.parent AS from_parent, was.name AS from_name,
        now.parent AS to_parent, now.name AS to_name
    FROM was JOIN now USING (id) WHERE was.parent <> now.parent OR was.name <> now.name
UNION ALL SELECT id, 0, old.parent, old.name, new.parent, new.name
    FROM old JOIN new USING (id) WHERE old.parent <> new.parent OR old.name <> new.name;
CREATE INDEX new_place ON new (parent, name);
CREATE INDEX now_place ON now (parent, name);
CREATE TABLE parked AS SELECT * FROM moved WHERE from_parent NOT IN (SELECT id FROM now)
    OR EXISTS (SELECT 1 FROM new WHERE parent = from_parent AND name = from_name)
    OR EXISTS (SELECT 1 FROM now WHERE parent = from_parent AND name = from_name);
CREATE TABLE placed AS SELECT now.*, was.id IS NULL AS is_new FROM now LEFT JOIN was USING (id)
    WHERE was.id IS NULL OR id IN (SELECT id FROM moved WHERE is_directory);
"""
_GONE_FILES = "SELECT parent, name FROM old WHERE id NOT IN (SELECT id FROM new) AND parent IN (SELECT id FROM now)"
_GONE_DIRECTORIES = """
SELECT parent, name FROM was WHERE id NOT IN (SELECT id FROM now) AND parent IN (SELECT id FROM now) AND id <> 0
"""
"""Roots of deleted trees; 0 is ``PARKED_ID``."""
_PARENTS = {
    "was": "SELECT parent, name FROM was WHERE id = ?",
    "now": "SELECT parent, name FROM now WHERE id = ?",
}
_PUT = """
SELECT new.*, old.blocks FROM new LEFT JOIN old USING (id) WHERE new.blocks IS NOT old.blocks AND replication = ?
"""
_FINISH = """
DROP TABLE was; DROP TABLE old; DROP TABLE new; DROP TABLE moved; DROP TABLE parked; DROP TABLE placed;
DROP INDEX now_place;
ALTER TABLE now RENAME TO was;
"""


class BucketStates:
    """The states of one bucket, from the oldest to the newest."""

    def __init__(self, keys: BucketKeys, target: tuple[str, str], file: Path) -> None:
        """``target`` is the volume and the bucket of the plane; ``file`` is where the scratch database is made."""
        self.sums: dict[str, Amount] = {}
        """What has been put, and what the plane has otherwise than Ozone."""
        self._keys = keys
        self._target = target
        self._replication: str | None = None
        self._paths: dict[str, dict[int, bytes]] = {"was": {}, "now": {}}
        self._database = sqlite3.connect(file, isolation_level=None)
        self._database.executescript(_START)
        self._run("INSERT INTO was VALUES (?, NULL, x'', 0)", self._keys.bucket_id)

    def commands_to(
        self, directories: Iterable[Row], changes: Iterable[tuple[list[Row], list[Row]]], garbage: Iterable[Any]
    ) -> Iterator[Command]:
        """Yield the commands that lead to the next state; all of them must be taken.

        ``directories`` are all rows of its ``directoryTable``, ``changes`` the rows of its live keys that differ from
        those of the state before. ``garbage`` are the deleted versions of the stores behind that state: those that it
        does not show are summed up as left out.

        Raises:
            OzoneLocationError: two rows have the same object id.
        """
        self._load(directories, changes)
        self._run("BEGIN")
        for info in garbage:
            self._note_garbage(info)
        self._add("unreachable", Amount(*self._run(_UNREACHABLE).fetchone()))
        self._database.executescript(_CLASSIFY)
        self._run("BEGIN")
        yield from self._parked()
        yield from self._deleted()
        yield from self._directories()
        yield from self._renamed()
        yield from self._put()
        if self._keys.is_file_system and self._run("SELECT 1 FROM parked").fetchone():
            yield DeleteDirectory(*self._target, PARKED, is_recursive=False)
        self._database.executescript(_FINISH)
        for known in self._paths.values():
            known.clear()

    def close(self) -> None:
        """Close the scratch database."""
        self._database.close()

    def _run(self, sql: str, *values: object) -> sqlite3.Cursor:
        return self._database.execute(sql, values)

    def _add(self, what: str, amount: Amount) -> None:
        self.sums[what] = self.sums.get(what, NOTHING) + amount

    def _add_if(self, what: str, differing_bytes: int) -> None:
        if differing_bytes:
            self._add(what, Amount(differing_bytes, rows=1))

    # ---- reading

    def _load(self, directories: Iterable[Row], changes: Iterable[tuple[list[Row], list[Row]]]) -> None:
        self._database.executescript(_LOAD)
        self._run("BEGIN")
        self._run("INSERT INTO loaded VALUES (?, NULL, x'')", self._keys.bucket_id)
        insert = self._database.executemany
        try:
            insert("INSERT INTO loaded VALUES (?, ?, ?)", map(self._directory_row, directories))
            for gone, come in changes:
                insert("INSERT INTO old VALUES (?, ?, ?, ?)", (self._row(*row)[:4] for row in gone))
                insert("INSERT INTO new VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (self._row(*row) for row in come))
            self._database.executescript(_REACHABLE)
        except sqlite3.IntegrityError:
            raise OzoneLocationError(
                f"Two rows of {self._keys.name} in one store have the same object id, so it is not known which one "
                f"was renamed: import another bucket (--bucket)."
            ) from None

    def _place(self, key: bytes) -> tuple[int, bytes]:
        """Return the id of the parent and the name; the keys of a flat bucket are all below the bucket."""
        name = key[len(self._keys.live_prefix) :]
        if not self._keys.is_file_system:
            return self._keys.bucket_id, name
        parent, _, name = name.partition(b"/")
        return int(parent), name

    def _directory_row(self, row: Row) -> tuple[int, int, bytes]:
        return DirectoryInfo.FromString(row[1]).object_id, *self._place(row[0])

    def _row(self, key: bytes, value: bytes) -> tuple[Any, ...]:
        row = KeyInfo.FromString(value)
        lengths = blocks_of(row.versions)
        size_bytes, replicated_bytes = sizes_of(lengths.values(), row)
        block_bytes = max(max(lengths.values(), default=1), -(-size_bytes // MAX_BLOCKS_PER_COMMAND), 1)
        identity = row.object_id or int.from_bytes(blake2b(key, digest_size=8).digest(), signed=True)  # very old rows
        sizes = (size_bytes, replicated_bytes, row.data_bytes, block_bytes)
        return identity, *self._place(key), _packed(lengths), *sizes, replication_here(row)

    def _note_garbage(self, info: Any) -> None:
        lengths = blocks_of(info.versions)
        if not lengths:
            return
        (before,) = self._run("SELECT blocks FROM old WHERE id = ?", info.object_id).fetchone() or (b"",)
        blocks = _packed(lengths)
        if blocks == before:
            return
        shared = _shared_bytes(before, blocks)
        self._add_if("partly-shown", shared)
        if not shared:
            insert = "INSERT OR IGNORE INTO left_out VALUES (?, ?)"
            first = [length for block, length in lengths.items() if self._run(insert, *block).rowcount]
            self._add("garbage", Amount(*sizes_of(first, info), rows=1))

    # ---- commands

    def _path(self, state: str, parent: int, name: bytes) -> str:
        """Return the path of what a directory of a state has under a name."""
        known = self._paths[state]
        if parent not in known:
            if len(known) >= MAX_KNOWN_PATHS:
                known.clear()
            names, directory = [], parent
            while directory != self._keys.bucket_id:
                directory, one = self._run(_PARENTS[state], directory).fetchone()
                names.append(one + b"/")
            known[parent] = b"".join(reversed(names))
        return (known[parent] + name).decode(errors="replace")

    def _move(self, directory: int, parent: int, name: bytes) -> None:
        """Note in ``was`` where a directory of the plane is now."""
        self._run("INSERT OR REPLACE INTO was VALUES (?, ?, ?, 0)", directory, parent, name)
        self._paths["was"].clear()

    def _parked(self) -> Iterator[Command]:
        is_first = self._keys.is_file_system
        for one, is_directory, parent, name, *_ in self._run("SELECT * FROM parked"):
            if is_first:
                yield MakeDirectory(*self._target, PARKED)
                self._move(PARKED_ID, self._keys.bucket_id, PARKED.encode())
                is_first = False
            yield RenameKey(*self._target, self._path("was", parent, name), f"{PARKED}/{one}")
            if is_directory:
                self._move(one, PARKED_ID, b"%d" % one)

    def _deleted(self) -> Iterator[Command]:
        gone = (self._path("was", parent, name) for parent, name in self._run(_GONE_FILES))
        while some := tuple(islice(gone, KEYS_PER_DELETION)):
            yield DeleteKeys(*self._target, some)
        for parent, name in self._run(_GONE_DIRECTORIES):
            yield DeleteDirectory(*self._target, self._path("was", parent, name))

    def _directories(self) -> Iterator[Command]:
        for one, parent, name, _, is_new in self._run("SELECT * FROM placed ORDER BY depth"):
            path = self._path("now", parent, name)
            if is_new:
                yield MakeDirectory(*self._target, path)
            else:
                before = self._run(_PARENTS["was"], one).fetchone()
                yield RenameKey(*self._target, self._path("was", *before), path)
            self._move(one, parent, name)

    def _renamed(self) -> Iterator[Command]:
        files = "SELECT moved.*, id IN (SELECT id FROM parked) FROM moved WHERE NOT is_directory"
        for one, _, from_parent, from_name, to_parent, to_name, is_parked in self._run(files):
            source = f"{PARKED}/{one}" if is_parked else self._path("now", from_parent, from_name)
            yield RenameKey(*self._target, source, self._path("now", to_parent, to_name))

    def _put(self) -> Iterator[Command]:
        for (replication,) in self._run("SELECT DISTINCT replication FROM new").fetchall():
            for one, parent, name, blocks, *sizes, _, before in self._run(_PUT, replication):
                if replication != self._replication:
                    yield SetBucketReplication(*self._target, Replication(replication))
                    self._replication = replication
                size_bytes, on_disks, said_bytes, block_bytes = sizes
                yield PutKey(*self._target, self._path("now", parent, name), size_bytes, str(one), block_bytes)
                self._add("put", Amount(size_bytes, on_disks, 1))
                run = BlockRun(
                    container_of(Replication(replication), 1),
                    0,
                    -(-size_bytes // block_bytes),
                    block_bytes,
                    size_bytes,
                )
                self._add_if("size", size_bytes - said_bytes)
                self._add_if("shared", _shared_bytes(before, blocks) if before else 0)
                self._add_if("replication", replicated_bytes_of(run) - on_disks if size_bytes else 0)


def _packed(lengths: dict[tuple[int, int], int]) -> bytes:
    """Return blocks and their lengths as bytes that are equal if these are."""
    return array("q", chain.from_iterable((*block, length) for block, length in lengths.items())).tobytes()


def _shared_bytes(before: bytes, blocks: bytes) -> int:
    """Return how many bytes of blocks two versions of a key have in common."""
    earlier, later = _unpacked(before), _unpacked(blocks)
    return sum(min(length, later[block]) for block, length in earlier.items() if block in later)


def _unpacked(blocks: bytes) -> dict[tuple[int, int], int]:
    numbers = iter(array("q", blocks))
    return {(container, local): length for container, local, length in zip(numbers, numbers, numbers, strict=True)}
