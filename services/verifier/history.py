"""The history of a shard's namespace: each entry and version with its lifetime, in offsets of the command log.

A version lives from the offset of the command that wrote it to the offset of the command that deleted or replaced it.
A snapshot holds the version if the snapshot's own offset lies between the two. Verdicts are checked against this
definition only.

The history is a SQLite database on disk, so that memory stays bounded for a log of any length.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from schemas.records import BlockRun
from services.domain.table_keys import version_object_id

CACHE_KIB = 65_536
_TABLES = """
    PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = FILE; PRAGMA locking_mode = EXCLUSIVE;
    CREATE TABLE entries (bucket INT, parent INT, name TEXT, object INT, birth INT, is_directory INT,
                          generation INT, length INT, since INT, until INT);
    CREATE UNIQUE INDEX entry_here ON entries (parent, name) WHERE until IS NULL;
    CREATE TABLE versions (object INT, birth INT, bucket INT, born INT, died INT, death INT, rollback TEXT,
                           container INT, first_block INT, blocks INT, block_bytes INT, bytes INT,
                           claim INT, previous INT, next INT, finish INT, held_claim INT, holder INT,
                           back INT DEFAULT 0, entered INT DEFAULT 0, length INT, whole INT, whole_birth INT,
                           position INT DEFAULT 0, key INT, versioned INT DEFAULT 0,
                           PRIMARY KEY (object, birth)) WITHOUT ROWID;
    CREATE INDEX run_of_version ON versions (whole, whole_birth) WHERE whole IS NOT NULL;
    CREATE INDEX version_of_key ON versions (key) WHERE key IS NOT NULL;
    CREATE TABLE asked_again (object INT, birth INT, txn INT, death INT, previous INT, next INT,
                              PRIMARY KEY (object, birth, txn)) WITHOUT ROWID;
    CREATE TABLE trees (object INT, death INT, bucket INT, died INT, is_empty INT, PRIMARY KEY (object, death))
        WITHOUT ROWID;
    CREATE TABLE claims (txn INTEGER PRIMARY KEY, time_ms INT, chain_version INT, task INT, first_judge INT,
                         second_judge INT);
    CREATE TABLE finishes (txn INTEGER PRIMARY KEY, time_ms INT);
"""
_BY_BUCKET = (
    "CREATE INDEX IF NOT EXISTS entry_of_bucket ON entries (bucket)",
    "CREATE INDEX IF NOT EXISTS version_of_bucket ON versions (bucket) WHERE finish IS NULL",
)
"""Indexes that only rollbacks and undeletes of directories need, made by the first of them: most logs have none."""
MAX_KNOWN_DIRECTORIES = 10_000
NAMES_PER_QUERY = 100
_LIVE = "died = NULL, death = NULL, rollback = NULL, claim = NULL, previous = NULL, next = NULL"
_RUNS = "whole = ? AND whole_birth = ? AND whole IS NOT NULL AND died = ?"
"""Finds the further runs that died with a version, with the values of ``_runs``."""
_DIRECTORIES_BELOW = """
    CREATE TEMP TABLE tree AS WITH RECURSIVE below (id) AS (
        SELECT ? UNION
        SELECT object FROM entries JOIN below ON parent = id WHERE until IS NULL AND is_directory = 1)
    SELECT id FROM below
"""
"""Each directory once: with wrong txns, which parts begin with, a directory may get the id of one above it."""


class Entry(NamedTuple):
    """A file or directory at a path."""

    object_id: int
    birth: int
    is_directory: bool
    generation: int = 0
    """txn of the last change of a file; 0 for a directory."""
    length: int = 0
    """Size of a file. Its blocks may be longer."""


class Version(NamedTuple):
    """One run of blocks of a version of a key: the first one is the version itself, under whose name it is known."""

    object_id: int
    birth: int
    bucket_id: int
    born: int
    died: int | None
    death: int | None
    rollback: str | None
    container_id: int | None
    first_local_id: int | None
    block_count: int | None
    block_size_bytes: int | None
    size_bytes: int
    claim_txn: int | None
    previous_txn: int | None
    next_txn: int | None
    finish_txn: int | None
    held_claim_txn: int | None
    holder_txn: int | None
    back_txn: int
    entered: int
    length: int
    whole_id: int | None
    whole_birth: int | None
    position: int
    key_id: int | None
    is_versioned: int

    @property
    def name(self) -> tuple[int, int]:
        """The object id and the birth, which no other version has."""
        return self.object_id, self.birth

    @property
    def is_noncurrent(self) -> bool:
        """Whether it is a version of a key that has another current one, or died as such."""
        return self.key_id is not None and self.object_id != self.key_id

    @property
    def is_further_run(self) -> bool:
        """Whether these are further blocks of another version, not a version."""
        return self.whole_id is not None


class Asked(NamedTuple):
    """A claim that named a version while no snapshot held it.

    ``death`` is the death that the claim named. ``previous_txn`` is the last snapshot before the death and
    ``next_txn`` the first snapshot after the birth, each 0 if there is none.
    """

    claim_txn: int
    death: int
    previous_txn: int
    next_txn: int


class Tree(NamedTuple):
    """A deleted directory: its bucket, the offset of the deletion, and whether it was empty."""

    bucket_id: int
    died: int
    is_empty: bool


class Claim(NamedTuple):
    """One claim command of the log."""

    txn: int
    time_ms: int
    chain_version: int
    task: int
    first_judge_version: int
    second_judge_version: int


class Moment(NamedTuple):
    """A position in the log: an offset and the txn that the shard assigned there."""

    offset: int
    txn: int


class History:
    """The namespace of one shard through time. The caller removes the file."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file, isolation_level=None, cached_statements=256)
        self._database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._database.executescript(_TABLES)
        self._database.execute("BEGIN")
        self.execute = self._database.execute
        cursor = self._database.cursor()
        self._run, self._run_all = cursor.execute, cursor.executemany
        self._has_grown = self._has_versions = self._is_indexed_by_bucket = False
        self._last_claim: Claim | None = None
        self._last_finish: tuple[int, int] | None = None
        """The last claim and the last finish that were asked for: the rows of a ledger message share them."""
        self._directories: dict[tuple[int, str], Entry] = {}
        """Some of the directories that are at their places now: a path is walked with every command in a tree."""

    def close(self) -> None:
        """Close the database file."""
        self._database.close()

    # Entries

    def find(self, parent_id: int, name: str) -> Entry | None:
        """Return the entry that is at a place now, or None."""
        place = (parent_id, name)
        if place in self._directories:
            return self._directories[place]
        found = self._run(
            "SELECT object, birth, is_directory, generation, length FROM entries "
            "WHERE parent = ? AND name = ? AND until IS NULL",
            place,
        ).fetchone()
        if found is None:
            return None
        entry = Entry(found[0], found[1], bool(found[2]), found[3], found[4])
        if entry.is_directory:
            if len(self._directories) >= MAX_KNOWN_DIRECTORIES:
                self._directories.clear()
            self._directories[place] = entry
        return entry

    def has_children(self, parent_id: int) -> bool:
        """Return whether a directory or bucket has entries now."""
        return bool(
            self._run("SELECT 1 FROM entries WHERE parent = ? AND until IS NULL LIMIT 1", (parent_id,)).fetchone()
        )

    def add(self, bucket_id: int, parent_id: int, name: str, entry: Entry, now: Moment) -> None:
        """Record an entry that is at a place from now on."""
        self._run(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (bucket_id, parent_id, name, *entry, now.offset),
        )

    def add_new(self, bucket_id: int, parent_id: int, name: str, entry: Entry, now: Moment) -> bool:
        """Record an entry as ``add`` does if nothing is at its place. Return whether it was recorded."""
        added = self._run(
            "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (bucket_id, parent_id, name, *entry, now.offset),
        )
        return added.rowcount == 1

    def take(self, parent_id: int, name: str, now: Moment) -> tuple[int, int] | None:
        """Record that the file at a place has left it. Return the name of its version; None if nothing was there."""
        left = self._run(
            "UPDATE entries SET until = ? WHERE parent = ? AND name = ? AND until IS NULL RETURNING object, birth",
            (now.offset, parent_id, name),
        ).fetchall()
        return (left[0][0], left[0][1]) if left else None

    def leave(self, parent_id: int, name: str, now: Moment) -> None:
        """Record that the entry at a place has left it."""
        self._directories.pop((parent_id, name), None)
        self._run(
            "UPDATE entries SET until = ? WHERE parent = ? AND name = ? AND until IS NULL",
            (now.offset, parent_id, name),
        )

    def leave_tree(self, bucket_id: int, directory_id: int, now: Moment) -> None:
        """Record the deletion of a directory: all entries below it leave and their versions die."""
        is_empty = not self.has_children(directory_id)
        self._run("INSERT INTO trees VALUES (?, ?, ?, ?, ?)", (directory_id, now.txn, bucket_id, now.offset, is_empty))
        if is_empty:
            return
        self._directories.clear()
        self._run("DROP TABLE IF EXISTS temp.tree")
        self._run(_DIRECTORIES_BELOW, (directory_id,))
        self._run(
            "UPDATE versions SET died = ?, death = ? WHERE (object, birth) IN (SELECT e.object, e.birth FROM tree "
            "CROSS JOIN entries AS e ON e.parent = tree.id WHERE e.until IS NULL AND e.is_directory = 0)",
            (now.offset, now.txn),
        )
        if self._has_grown:
            self._run(
                "UPDATE versions SET died = ?, death = ? WHERE died IS NULL AND whole IS NOT NULL "
                "AND (whole, whole_birth) IN (SELECT e.object, e.birth FROM tree "
                "CROSS JOIN entries AS e ON e.parent = tree.id WHERE e.until IS NULL AND e.is_directory = 0)",
                (now.offset, now.txn),
            )
        if self._has_versions:
            self._die_with_keys(
                "SELECT e.object FROM tree CROSS JOIN entries AS e ON e.parent = tree.id "
                "WHERE e.until IS NULL AND e.is_directory = 0",
                (),
                now,
            )
        self._run("UPDATE entries SET until = ? WHERE until IS NULL AND parent IN (SELECT id FROM tree)", (now.offset,))

    def tree(self, directory_id: int, death: int) -> Tree | None:
        """Return the directory that was deleted at a txn, or None if it was undeleted or is unknown."""
        found = self._run(
            "SELECT bucket, died, is_empty FROM trees WHERE object = ? AND death = ?", (directory_id, death)
        ).fetchone()
        return None if found is None else Tree(found[0], found[1], bool(found[2]))

    def bring_back_tree(self, directory_id: int, death: int, tree: Tree, now: Moment) -> None:
        """Restore the entries and versions that were deleted together with a directory, but not its own entry.

        The caller adds the directory's own entry. Entries are found by the offset of the deletion: a command that
        deletes a directory with content deletes nothing else.
        """
        self._run("DELETE FROM trees WHERE object = ? AND death = ?", (directory_id, death))
        if tree.is_empty:
            return
        self._index_by_bucket()
        place = (tree.bucket_id, tree.died)
        self._run(
            "UPDATE entries SET until = NULL WHERE bucket = ? AND until = ? AND object <> ?", (*place, directory_id)
        )
        self._run(
            "UPDATE versions SET died = NULL, death = NULL, claim = NULL, back = ? "
            "WHERE bucket = ? AND died = ? AND finish IS NULL",
            (now.txn, *place),
        )

    def roll_back(self, bucket_id: int, snapshot_offset: int, rollback_id: str, now: Moment) -> None:
        """Set a bucket back to an offset: newer entries leave, their versions die, missing entries return."""
        self._directories.clear()
        self._index_by_bucket()
        for table in ("target", "gone", "back"):
            self._run(f"DROP TABLE IF EXISTS temp.{table}")
        self._run(
            "CREATE TEMP TABLE target AS "
            "SELECT parent, name, object, birth, is_directory, generation, length FROM entries "
            "WHERE bucket = ? AND since < ? AND (until IS NULL OR until > ?)",
            (bucket_id, snapshot_offset, snapshot_offset),
        )
        self._run("CREATE INDEX temp.target_object ON target (object, birth)")
        self._run(
            "CREATE TEMP TABLE gone AS SELECT rowid AS id, object, birth, is_directory FROM entries AS e "
            "WHERE bucket = ? AND until IS NULL AND NOT EXISTS (SELECT 1 FROM target AS t WHERE t.object = e.object "
            "AND t.birth = e.birth AND t.parent = e.parent AND t.name = e.name AND t.generation = e.generation)",
            (bucket_id,),
        )
        self._run(
            "CREATE TEMP TABLE back AS SELECT * FROM target AS t WHERE NOT EXISTS (SELECT 1 FROM entries AS e "
            "WHERE e.parent = t.parent AND e.name = t.name AND e.until IS NULL AND e.object = t.object "
            "AND e.birth = t.birth AND e.generation = t.generation)"
        )
        self._run("UPDATE entries SET until = ? WHERE rowid IN (SELECT id FROM gone)", (now.offset,))
        self._run(
            "INSERT INTO entries "
            "SELECT ?, parent, name, object, birth, is_directory, generation, length, ?, NULL FROM back",
            (bucket_id, now.offset),
        )
        if self._has_versions:
            self._name_as_current(bucket_id)
        self._run(
            "UPDATE versions SET died = ?, death = ?, rollback = ? WHERE died IS NULL AND (object, birth) IN "
            "(SELECT object, birth FROM gone WHERE is_directory = 0 AND NOT EXISTS "
            "(SELECT 1 FROM target WHERE target.object = gone.object AND target.birth = gone.birth))",
            (now.offset, now.txn, rollback_id),
        )
        self._run(
            "UPDATE versions SET died = NULL, death = NULL, rollback = NULL, back = ? WHERE died IS NOT NULL "
            "AND (object, birth) IN (SELECT object, birth FROM back WHERE is_directory = 0)",
            (now.txn,),
        )
        if self._has_grown:
            self._roll_back_growth(snapshot_offset, rollback_id, now)
        if self._has_versions:
            self._roll_back_versions(bucket_id, snapshot_offset, rollback_id, now)

    def _index_by_bucket(self) -> None:
        if not self._is_indexed_by_bucket:
            for statement in _BY_BUCKET:
                self._run(statement)
            self._is_indexed_by_bucket = True

    def _name_as_current(self, bucket_id: int) -> None:
        """Name the versions that are current in the snapshot as current ones, whatever they are or died as."""
        self._rename_all(
            "SELECT object, birth, key FROM versions WHERE bucket = ? AND key IS NOT NULL AND object <> key "
            "AND (key, birth) IN (SELECT object, birth FROM target WHERE is_directory = 0)",
            bucket_id,
        )

    def _roll_back_versions(self, bucket_id: int, snapshot_offset: int, rollback_id: str, now: Moment) -> None:
        """Bring noncurrent versions of the snapshot back as such, and let those that were written since die."""
        self._run("DROP TABLE IF EXISTS temp.noncurrent")
        self._run(
            "CREATE TEMP TABLE noncurrent AS SELECT object, birth, key FROM versions WHERE bucket = ? "
            "AND key IS NOT NULL AND born < ? AND (died IS NULL OR died > ?) "
            "AND (key, birth) NOT IN (SELECT object, birth FROM target WHERE is_directory = 0)",
            (bucket_id, snapshot_offset, snapshot_offset),
        )
        back = f"UPDATE versions SET {_LIVE}, back = ? WHERE died > ? AND born < ? AND "  # noqa: S608  ours
        values = (now.txn, snapshot_offset, snapshot_offset)
        for names in ("(object, birth)", "whole IS NOT NULL AND (whole, whole_birth)"):
            self._run(f"{back} {names} IN (SELECT object, birth FROM noncurrent)", values)  # noqa: S608  ours
        die = "UPDATE versions SET died = ?, death = ?, rollback = ? WHERE died IS NULL AND born > ? AND "
        death = (now.offset, now.txn, rollback_id, snapshot_offset)
        for names in ("noncurrent", "target"):  # the standard rollback passes over versions that it finds noncurrent
            of_version = f"whole IS NOT NULL AND (whole, whole_birth) IN (SELECT object, birth FROM {names})"  # noqa: S608
            self._run(die + of_version, death)
        written = "SELECT object, birth FROM versions WHERE bucket = ? AND key IS NOT NULL AND object <> key"
        for names in ("whole IS NOT NULL AND (whole, whole_birth)", "(object, birth)"):
            self._run(
                f"{die} {names} IN ({written} AND died IS NULL AND born > ?)", (*death, bucket_id, snapshot_offset)
            )
        self._run(
            "UPDATE versions SET length = (SELECT e.length FROM entries AS e WHERE e.bucket = versions.bucket "
            "AND e.object = versions.key AND e.birth = versions.birth AND e.since < ? ORDER BY e.since DESC LIMIT 1) "
            "WHERE (object, birth) IN (SELECT object, birth FROM noncurrent WHERE object = key)",
            (snapshot_offset,),
        )
        self._rename_all("SELECT object, birth, birth << 8 FROM noncurrent WHERE object = key")

    def _rename_all(self, names: str, *values: int) -> None:
        """Give versions other objectIDs. A query yields the present name of each and the new objectID."""
        for object_id, birth, new_id in self._run(names, values).fetchall():
            self._rename(object_id, birth, new_id)

    def _rename(self, object_id: int, birth: int, new_id: int) -> None:
        """Give a version, with its further runs, another objectID."""
        self._change((object_id, birth), "object = ?", new_id)
        if self._has_grown:
            self._run(
                "UPDATE versions SET whole = ? WHERE whole = ? AND whole_birth = ? AND whole IS NOT NULL",
                (new_id, object_id, birth),
            )

    def _roll_back_growth(self, snapshot_offset: int, rollback_id: str, now: Moment) -> None:
        """Take from the versions of the snapshot what they have got since, and from the others all of their blocks."""
        self._run(
            "UPDATE versions SET died = ?, death = ?, rollback = ? WHERE died IS NULL AND whole IS NOT NULL "
            "AND (whole, whole_birth) IN (SELECT object, birth FROM gone WHERE is_directory = 0) AND (born > ? OR "
            "NOT EXISTS (SELECT 1 FROM target WHERE target.object = whole AND target.birth = whole_birth))",
            (now.offset, now.txn, rollback_id, snapshot_offset),
        )
        self._run(
            "UPDATE versions SET died = NULL, death = NULL, rollback = NULL, back = ? WHERE born < ? AND died > ? "
            "AND whole IS NOT NULL AND (whole, whole_birth) IN (SELECT object, birth FROM back WHERE is_directory = 0)",
            (now.txn, snapshot_offset, snapshot_offset),
        )
        self._run(
            "UPDATE versions SET length = (SELECT length FROM back WHERE back.object = versions.object "
            "AND back.birth = versions.birth) WHERE (object, birth) IN "
            "(SELECT object, birth FROM back WHERE is_directory = 0)"
        )

    # Versions

    def write(
        self, bucket_id: int, object_id: int, birth: int, size_bytes: int, blocks: BlockRun | None, now: Moment
    ) -> None:
        """Record a committed version."""
        run: tuple[int | None, ...] = (None,) * 4
        if blocks is not None:
            run = (blocks.container_id, blocks.first_local_id, blocks.block_count, blocks.block_size_bytes)
        self._run(
            "INSERT INTO versions (object, birth, bucket, born, container, first_block, blocks, block_bytes, bytes, "
            "length) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                object_id,
                birth,
                bucket_id,
                now.offset,
                *run,
                size_bytes if blocks is None else blocks.size_bytes,
                size_bytes,
            ),
        )

    def add_run(self, name: tuple[int, int], bucket_id: int, object_id: int, blocks: BlockRun, now: Moment) -> None:
        """Record further blocks that a live version gets now."""
        self._has_grown = True
        self.write(bucket_id, object_id, now.txn, blocks.size_bytes, blocks, now)
        last = self.last_run(*name)
        position = 1 if last is None else last.position + 1
        self._change((object_id, now.txn), "whole = ?, whole_birth = ?, position = ?", *name, position)

    def last_run(self, object_id: int, birth: int) -> Version | None:
        """Return the last run of blocks of a live version: the version itself if it has no further ones."""
        if self._has_grown:
            found = self._run(
                "SELECT * FROM versions WHERE whole = ? AND whole_birth = ? AND whole IS NOT NULL AND died IS NULL "
                "ORDER BY position DESC LIMIT 1",
                (object_id, birth),
            ).fetchone()
            if found is not None:
                return _version(found)
        return self.version(object_id, birth)

    def stored_bytes(self, object_id: int, birth: int) -> int:
        """Return the bytes of all blocks of a live version: more than its length after some rollbacks."""
        first = self.version(object_id, birth)
        stored_bytes = 0 if first is None else first.size_bytes
        if self._has_grown:
            (further,) = self._run(
                "SELECT COALESCE(SUM(bytes), 0) FROM versions "
                "WHERE whole = ? AND whole_birth = ? AND whole IS NOT NULL AND died IS NULL",
                (object_id, birth),
            ).fetchone()
            stored_bytes += further
        return stored_bytes

    def lengthen(self, name: tuple[int, int], length: int, last_run: Version | None, added_bytes: int) -> None:
        """Record the new length of a live version, and bytes that were added to its last block."""
        self._has_grown = True
        self._change(name, "length = ?", length)
        if last_run is not None and added_bytes:
            self._change(last_run.name, "bytes = bytes + ?", added_bytes)

    def are_finished(self, version: Version) -> bool:
        """Return whether blocks of a dead version are deleted already: its own, or further ones that died with it."""
        return version.finish_txn is not None or (
            self._has_grown
            and self._run(f"SELECT 1 FROM versions WHERE {_RUNS} AND finish IS NOT NULL", _runs(version)).fetchone()  # noqa: S608  ours
            is not None
        )

    def die(self, object_id: int, birth: int, now: Moment) -> None:
        """Record the death of a version and of all its blocks."""
        self._change((object_id, birth), "died = ?, death = ?", now.offset, now.txn)
        if self._has_grown:
            self._run(
                "UPDATE versions SET died = ?, death = ? "
                "WHERE whole = ? AND whole_birth = ? AND whole IS NOT NULL AND died IS NULL",
                (now.offset, now.txn, object_id, birth),
            )

    # Versions of a key

    def mark_versioned(self, object_id: int, birth: int) -> None:
        """Note that a version was written while its bucket kept versions."""
        self._change((object_id, birth), "versioned = 1")

    def keep(self, object_id: int, birth: int) -> None:
        """Make the current version of a key a noncurrent one, which has a name of its own."""
        self._has_versions = True
        self._change((object_id, birth), "key = ?", object_id)
        self._rename(object_id, birth, version_object_id(birth))

    def make_current(self, version: Version) -> None:
        """Make a noncurrent version the current one of its key."""
        self._rename(*version.name, version.key_id or version.object_id)

    def noncurrent(self, key_id: int) -> list[Version]:
        """Return the live noncurrent versions of a key, oldest first."""
        if not self._has_versions:
            return []
        found = self._run(
            "SELECT * FROM versions WHERE key = ? AND object <> key AND died IS NULL ORDER BY birth", (key_id,)
        )
        return [_version(row) for row in found]

    def rows_of_version(self, object_id: int, birth: int) -> int:
        """Return the number of runs of a live version, at least 1."""
        if not self._has_grown:
            return 1
        found = self._run(
            "SELECT COUNT(*) FROM versions WHERE whole = ? AND whole_birth = ? AND whole IS NOT NULL AND died IS NULL",
            (object_id, birth),
        )
        return 1 + int(found.fetchone()[0])

    def die_with_key(self, key_id: int, now: Moment) -> None:
        """Record the death of all noncurrent versions of a key."""
        if self._has_versions:
            self._die_with_keys("SELECT ?", (key_id,), now)

    def _die_with_keys(self, keys: str, values: tuple[int, ...], now: Moment) -> None:
        names = f"SELECT object, birth FROM versions WHERE key IN ({keys}) AND object <> key AND died IS NULL"  # noqa: S608
        for which in ("whole IS NOT NULL AND (whole, whole_birth)", "(object, birth)"):
            self._run(
                f"UPDATE versions SET died = ?, death = ? WHERE died IS NULL AND {which} IN ({names})",  # noqa: S608
                (now.offset, now.txn, *values),
            )

    def _change(self, name: tuple[int, int], changes: str, *values: int) -> None:
        """Set some columns of a version."""
        self._run(f"UPDATE versions SET {changes} WHERE object = ? AND birth = ?", (*values, *name))  # noqa: S608  ours

    def bring_back(self, version: Version, now: Moment) -> None:
        """Make a dead version live again, with all that died with it, and drop all earlier claims of it."""
        self._forget_claims(version)
        back = f"UPDATE versions SET {_LIVE}, back = ? WHERE "  # noqa: S608  ours
        if self._has_grown:
            self._run(back + _RUNS, (now.txn, *_runs(version)))
        self._run(f"{back} object = ? AND birth = ?", (now.txn, *version.name))

    def hand_over(self, version: Version, object_id: int, now: Moment) -> None:
        """Make a dead version, with all that died with it, a new version that is born now. The old one is no more."""
        self._forget_claims(version)
        fresh = f"UPDATE versions SET {_LIVE}, held_claim = NULL, holder = NULL, back = 0, entered = 0"  # noqa: S608
        if self._has_grown:
            changes = "birth = ?, born = ?, whole = ?, whole_birth = ?"
            values = (now.txn, now.offset, object_id, now.txn)
            self._run(f"{fresh}, {changes} WHERE {_RUNS}", (*values, *_runs(version)))
        changes = "object = ?, birth = ?, born = ?, key = NULL"
        self._run(f"{fresh}, {changes} WHERE object = ? AND birth = ?", (object_id, now.txn, now.offset, *version.name))

    def _forget_claims(self, version: Version) -> None:
        self._run("DELETE FROM asked_again WHERE object = ? AND birth = ?", version.name)
        if self._has_grown:
            self._run(
                f"DELETE FROM asked_again WHERE (object, birth) IN (SELECT object, birth FROM versions WHERE {_RUNS})",  # noqa: S608
                _runs(version),
            )

    def version(self, object_id: int, birth: int) -> Version | None:
        """Return a version, live or dead, or None."""
        found = self._run("SELECT * FROM versions WHERE object = ? AND birth = ?", (object_id, birth)).fetchone()
        return None if found is None else _version(found)

    def versions(self, names: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Version]:
        """Return the versions among these that there are, live or dead, by their names."""
        found = dict[tuple[int, int], Version]()
        for first in range(0, len(names), NAMES_PER_QUERY):
            some = names[first : first + NAMES_PER_QUERY]
            rows = self._run(
                f"WITH named (object, birth) AS (VALUES {', '.join(['(?, ?)'] * len(some))}) "  # noqa: S608  ours
                "SELECT versions.* FROM named CROSS JOIN versions USING (object, birth)",
                [number for name in some for number in name],
            )
            found |= {(row[0], row[1]): _version(row) for row in rows}
        return found

    def kept(self) -> Iterator[tuple[int, int]]:
        """Return the first block and the number of blocks of each run that is not deleted."""
        return self.execute("SELECT first_block, blocks FROM versions WHERE finish IS NULL AND first_block IS NOT NULL")

    # Claims

    def note_claim(self, claim: Claim) -> None:
        """Record a claim command."""
        self._run("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?)", claim)

    def ask_all(self, asked: Mapping[tuple[int, int], Asked]) -> None:
        """Record that a claim names dead versions which no snapshot holds and no claim has named before.

        Whether metadata granted the claim is not known here: the ledger row names the claim.
        """
        self._run_all(
            "UPDATE versions SET claim = ?, death = ?, previous = ?, next = ? WHERE object = ? AND birth = ?",
            [(*facts, *name) for name, facts in asked.items()],
        )

    def ask_again(self, version: Version, asked: Asked) -> None:
        """Record that a further claim names such a version."""
        self._run("INSERT OR IGNORE INTO asked_again VALUES (?, ?, ?, ?, ?, ?)", (*version.name, *asked))

    def asked(self, version: Version, claim_txn: int) -> Asked | None:
        """Return how a claim named a version, or None if it did not name it or a snapshot held the version."""
        if version.claim_txn == claim_txn:
            return Asked(claim_txn, version.death or 0, version.previous_txn or 0, version.next_txn or 0)
        found = self._run(
            "SELECT txn, death, previous, next FROM asked_again WHERE object = ? AND birth = ? AND txn = ?",
            (*version.name, claim_txn),
        ).fetchone()
        return None if found is None else Asked(*found)

    def note_held(self, version: Version, claim_txn: int, holder_txn: int) -> None:
        """Record the first claim that names a version while a snapshot holds it."""
        if version.held_claim_txn is None:
            self._change(version.name, "held_claim = ?, holder = ?", claim_txn, holder_txn)

    def note_finish(self, txn: int, time_ms: int) -> None:
        """Record a finish command."""
        self._run("INSERT INTO finishes VALUES (?, ?)", (txn, time_ms))

    def finish_all(self, names: Iterable[tuple[int, int]], finish_txn: int) -> None:
        """Record that the blocks of claimed versions are deleted."""
        self._run_all(
            "UPDATE versions SET finish = ? WHERE object = ? AND birth = ?", [(finish_txn, *name) for name in names]
        )

    def claim_of(self, txn: int) -> Claim | None:
        """Return the claim with this txn, or None."""
        if self._last_claim is None or self._last_claim.txn != txn:
            found = self._run("SELECT * FROM claims WHERE txn = ?", (txn,)).fetchone()
            self._last_claim = None if found is None else Claim(*found)
        return self._last_claim

    def finish_time_ms(self, txn: int) -> int | None:
        """Return the log time of the finish with this txn, or None."""
        if self._last_finish is None or self._last_finish[0] != txn:
            found = self._run("SELECT txn, time_ms FROM finishes WHERE txn = ?", (txn,)).fetchone()
            self._last_finish = None if found is None else (found[0], found[1])
        return None if self._last_finish is None else self._last_finish[1]

    # Ledger rows

    def enter_all(self, names: Iterable[tuple[int, int]]) -> None:
        """Count a ledger row of each version."""
        self._run_all("UPDATE versions SET entered = entered + 1 WHERE object = ? AND birth = ?", names)

    def not_entered(self) -> Iterator[Version]:
        """Return the claimed versions without a ledger row, finished or not."""
        return map(_version, self.execute("SELECT * FROM versions WHERE claim IS NOT NULL AND entered = 0"))


def _version(row: tuple[object, ...]) -> Version:
    return Version(*row)  # type: ignore[arg-type]


def _runs(version: Version) -> tuple[int, int, int | None]:
    return version.object_id, version.birth, version.died
