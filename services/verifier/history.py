"""The history of a shard's namespace: each entry and version with its lifetime, in offsets of the command log.

A version lives from the offset of the command that wrote it to the offset of the command that deleted or replaced it.
A snapshot holds the version if the snapshot's own offset lies between the two. Verdicts are checked against this
definition only.

The history is a SQLite database on disk, so that memory stays bounded for a log of any length.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from schemas.records import BlockRun

CACHE_KIB = 65_536
_TABLES = """
    PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = FILE; PRAGMA locking_mode = EXCLUSIVE;
    CREATE TABLE entries (bucket INT, parent INT, name TEXT, object INT, birth INT, is_directory INT,
                          since INT, until INT);
    CREATE UNIQUE INDEX entry_here ON entries (parent, name) WHERE until IS NULL;
    CREATE INDEX entry_of_bucket ON entries (bucket);
    CREATE TABLE versions (object INT, birth INT, bucket INT, born INT, died INT, death INT, rollback TEXT,
                           container INT, first_block INT, blocks INT, block_bytes INT, bytes INT,
                           claim INT, previous INT, next INT, finish INT, held_claim INT, holder INT,
                           back INT DEFAULT 0, entered INT DEFAULT 0, PRIMARY KEY (object, birth)) WITHOUT ROWID;
    CREATE INDEX version_of_bucket ON versions (bucket) WHERE finish IS NULL;
    CREATE TABLE asked_again (object INT, birth INT, txn INT, death INT, previous INT, next INT,
                              PRIMARY KEY (object, birth, txn)) WITHOUT ROWID;
    CREATE TABLE trees (object INT, death INT, bucket INT, died INT, is_empty INT, PRIMARY KEY (object, death))
        WITHOUT ROWID;
    CREATE TABLE claims (txn INTEGER PRIMARY KEY, time_ms INT, chain_version INT, task INT, first_judge INT,
                         second_judge INT);
    CREATE TABLE finishes (txn INTEGER PRIMARY KEY, time_ms INT);
"""
_DIRECTORIES_BELOW = """
    CREATE TEMP TABLE tree AS WITH RECURSIVE below (id) AS (
        SELECT ? UNION ALL
        SELECT object FROM entries JOIN below ON parent = id WHERE until IS NULL AND is_directory = 1)
    SELECT id FROM below
"""


class Entry(NamedTuple):
    """A file or directory at a path."""

    object_id: int
    birth: int
    is_directory: bool


class Version(NamedTuple):
    """One committed version of a key."""

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

    @property
    def name(self) -> tuple[int, int]:
        """The object id and the birth, which no other version has."""
        return self.object_id, self.birth


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


@dataclass(frozen=True, slots=True)
class Moment:
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
        self._run = self._database.execute

    def close(self) -> None:
        """Close the database file."""
        self._database.close()

    # Entries

    def find(self, parent_id: int, name: str) -> Entry | None:
        """Return the entry that is at a place now, or None."""
        found = self._run(
            "SELECT object, birth, is_directory FROM entries WHERE parent = ? AND name = ? AND until IS NULL",
            (parent_id, name),
        ).fetchone()
        return None if found is None else Entry(found[0], found[1], bool(found[2]))

    def has_children(self, parent_id: int) -> bool:
        """Return whether a directory or bucket has entries now."""
        return bool(
            self._run("SELECT 1 FROM entries WHERE parent = ? AND until IS NULL LIMIT 1", (parent_id,)).fetchone()
        )

    def add(self, bucket_id: int, parent_id: int, name: str, entry: Entry, now: Moment) -> None:
        """Record an entry that is at a place from now on."""
        self._run(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
            (bucket_id, parent_id, name, entry.object_id, entry.birth, entry.is_directory, now.offset),
        )

    def leave(self, parent_id: int, name: str, now: Moment) -> None:
        """Record that the entry at a place has left it."""
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
        self._run("DROP TABLE IF EXISTS temp.tree")
        self._run(_DIRECTORIES_BELOW, (directory_id,))
        self._run(
            "UPDATE versions SET died = ?, death = ? WHERE (object, birth) IN (SELECT e.object, e.birth FROM tree "
            "CROSS JOIN entries AS e ON e.parent = tree.id WHERE e.until IS NULL AND e.is_directory = 0)",
            (now.offset, now.txn),
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
        for table in ("target", "gone", "back"):
            self._run(f"DROP TABLE IF EXISTS temp.{table}")
        self._run(
            "CREATE TEMP TABLE target AS SELECT parent, name, object, birth, is_directory FROM entries "
            "WHERE bucket = ? AND since < ? AND (until IS NULL OR until > ?)",
            (bucket_id, snapshot_offset, snapshot_offset),
        )
        self._run("CREATE INDEX temp.target_object ON target (object, birth)")
        self._run(
            "CREATE TEMP TABLE gone AS SELECT rowid AS id, object, birth, is_directory FROM entries AS e "
            "WHERE bucket = ? AND until IS NULL AND NOT EXISTS (SELECT 1 FROM target AS t WHERE t.object = e.object "
            "AND t.birth = e.birth AND t.parent = e.parent AND t.name = e.name)",
            (bucket_id,),
        )
        self._run(
            "CREATE TEMP TABLE back AS SELECT * FROM target AS t WHERE NOT EXISTS (SELECT 1 FROM entries AS e "
            "WHERE e.parent = t.parent AND e.name = t.name AND e.until IS NULL AND e.object = t.object "
            "AND e.birth = t.birth)"
        )
        self._run("UPDATE entries SET until = ? WHERE rowid IN (SELECT id FROM gone)", (now.offset,))
        self._run(
            "INSERT INTO entries SELECT ?, parent, name, object, birth, is_directory, ?, NULL FROM back",
            (bucket_id, now.offset),
        )
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

    # Versions

    def write(
        self, bucket_id: int, object_id: int, birth: int, size_bytes: int, blocks: BlockRun | None, now: Moment
    ) -> None:
        """Record a committed version."""
        run: tuple[int | None, ...] = (None,) * 4
        if blocks is not None:
            run = (blocks.container_id, blocks.first_local_id, blocks.block_count, blocks.block_size_bytes)
        self._run(
            "INSERT INTO versions (object, birth, bucket, born, container, first_block, blocks, block_bytes, bytes) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (object_id, birth, bucket_id, now.offset, *run, size_bytes),
        )

    def die(self, object_id: int, birth: int, now: Moment) -> None:
        """Record the death of a version."""
        self._change((object_id, birth), "died = ?, death = ?", now.offset, now.txn)

    def _change(self, name: tuple[int, int], changes: str, *values: int) -> None:
        """Set some columns of a version."""
        self._run(f"UPDATE versions SET {changes} WHERE object = ? AND birth = ?", (*values, *name))  # noqa: S608  ours

    def bring_back(self, version: Version, now: Moment) -> None:
        """Make a dead version live again and drop all earlier claims of it."""
        no_claim = "rollback = NULL, claim = NULL, previous = NULL, next = NULL"
        self._change(version.name, f"died = NULL, death = NULL, {no_claim}, back = ?", now.txn)
        self._run("DELETE FROM asked_again WHERE object = ? AND birth = ?", version.name)

    def hand_over(self, version: Version, object_id: int, now: Moment) -> None:
        """Move a dead version's blocks to a new version born now, and remove the old version."""
        self._run(
            "INSERT INTO versions (object, birth, bucket, born, container, first_block, blocks, block_bytes, bytes) "
            "SELECT ?, ?, bucket, ?, container, first_block, blocks, block_bytes, bytes FROM versions "
            "WHERE object = ? AND birth = ?",
            (object_id, now.txn, now.offset, *version.name),
        )
        for table in ("versions", "asked_again"):
            self._run(f"DELETE FROM {table} WHERE object = ? AND birth = ?", version.name)  # noqa: S608  names of ours

    def version(self, object_id: int, birth: int) -> Version | None:
        """Return a version, live or dead, or None."""
        found = self._run("SELECT * FROM versions WHERE object = ? AND birth = ?", (object_id, birth)).fetchone()
        return None if found is None else _version(found)

    def kept(self) -> Iterator[tuple[int | None]]:
        """Return the first block of each live version and of each dead version with blocks left."""
        return self._run(
            "SELECT first_block FROM versions WHERE finish IS NULL AND (died IS NULL OR first_block IS NOT NULL)"
        )

    # Claims

    def note_claim(self, claim: Claim) -> None:
        """Record a claim command."""
        self._run("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?)", claim)

    def ask(self, version: Version, asked: Asked) -> None:
        """Record that a claim names a dead version which no snapshot holds.

        Whether metadata granted the claim is not known here: the ledger row names the claim.
        """
        if version.claim_txn is None:
            self._change(version.name, "claim = ?, death = ?, previous = ?, next = ?", *asked)
        else:
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

    def finish(self, version: Version, finish_txn: int) -> None:
        """Record that the blocks of a claimed version are deleted."""
        self._change(version.name, "finish = ?", finish_txn)

    def claim_of(self, txn: int) -> Claim | None:
        """Return the claim with this txn, or None."""
        found = self._run("SELECT * FROM claims WHERE txn = ?", (txn,)).fetchone()
        return None if found is None else Claim(*found)

    def finish_time_ms(self, txn: int) -> int | None:
        """Return the log time of the finish with this txn, or None."""
        found = self._run("SELECT time_ms FROM finishes WHERE txn = ?", (txn,)).fetchone()
        return None if found is None else int(found[0])

    # Ledger rows

    def enter(self, version: Version) -> None:
        """Count a ledger row of a version."""
        self._change(version.name, "entered = entered + 1")

    def not_entered(self) -> Iterator[Version]:
        """Return the claimed versions without a ledger row, finished or not."""
        return map(_version, self._run("SELECT * FROM versions WHERE claim IS NOT NULL AND entered = 0"))


def _version(row: tuple[object, ...]) -> Version:
    return Version(*row)  # type: ignore[arg-type]
