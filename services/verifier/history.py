"""What was where in a shard's namespace, and from when to when, told in offsets of the command log.

A version lives from the offset of the command that wrote it to the offset of the one that took it away; a snapshot
shows it if its own offset lies between. This is what the words mean, and all that a verdict is checked against.

Everything is in a database of SQLite on disk, so that memory stays bounded however long the log is.
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
    """A file or directory at its present place."""

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


class Asked(NamedTuple):
    """A claim of the log asked for a version when nobody held it: by which death it named it, and between what."""

    claim_txn: int
    death: int
    previous_txn: int
    next_txn: int


class Tree(NamedTuple):
    """A directory that was deleted: of which bucket, at which offset, and whether anything was in it."""

    bucket_id: int
    died: int
    is_empty: bool


class Claim(NamedTuple):
    """One claim of the log."""

    txn: int
    time_ms: int
    chain_version: int
    task: int
    first_judge_version: int
    second_judge_version: int


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in the log something happened: an offset, and the txn that the shard gave it."""

    offset: int
    txn: int


class History:
    """The namespace of one shard through time. Its file is the caller's to remove."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file, isolation_level=None, cached_statements=256)
        self._database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._database.executescript(_TABLES)
        self._database.execute("BEGIN")
        self._run = self._database.execute

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    # What is where

    def find(self, parent_id: int, name: str) -> Entry | None:
        """What is at a place now."""
        found = self._run(
            "SELECT object, birth, is_directory FROM entries WHERE parent = ? AND name = ? AND until IS NULL",
            (parent_id, name),
        ).fetchone()
        return None if found is None else Entry(found[0], found[1], bool(found[2]))

    def has_children(self, parent_id: int) -> bool:
        """Whether anything is in a directory or bucket now."""
        return bool(
            self._run("SELECT 1 FROM entries WHERE parent = ? AND until IS NULL LIMIT 1", (parent_id,)).fetchone()
        )

    def add(self, bucket_id: int, parent_id: int, name: str, entry: Entry, now: Moment) -> None:
        """Something is at a place from now on."""
        self._run(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
            (bucket_id, parent_id, name, entry.object_id, entry.birth, entry.is_directory, now.offset),
        )

    def leave(self, parent_id: int, name: str, now: Moment) -> None:
        """Whatever is at a place is not there any more."""
        self._run(
            "UPDATE entries SET until = ? WHERE parent = ? AND name = ? AND until IS NULL",
            (now.offset, parent_id, name),
        )

    def leave_tree(self, bucket_id: int, directory_id: int, now: Moment) -> None:
        """A directory is deleted: whatever is below it is not there any more, and dies."""
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
        """A directory that was deleted at a txn, unless it has come back."""
        found = self._run(
            "SELECT bucket, died, is_empty FROM trees WHERE object = ? AND death = ?", (directory_id, death)
        ).fetchone()
        return None if found is None else Tree(found[0], found[1], bool(found[2]))

    def bring_back_tree(self, directory_id: int, death: int, tree: Tree, now: Moment) -> None:
        """What died below a directory with it lives on; the directory itself gets its place apart.

        A command that deletes a directory with something in it deletes nothing else: whatever left at its offset was
        below.
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
        """A bucket is again what it was at an offset: what came since dies, what went since is back."""
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
        """A version is committed."""
        run = (None,) * 4
        if blocks is not None:
            run = (blocks.container_id, blocks.first_local_id, blocks.block_count, blocks.block_size_bytes)  # type: ignore[assignment]
        self._run(
            "INSERT INTO versions (object, birth, bucket, born, container, first_block, blocks, block_bytes, bytes) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (object_id, birth, bucket_id, now.offset, *run, size_bytes),
        )

    def die(self, object_id: int, birth: int, now: Moment) -> None:
        """A version is taken away."""
        self._run(
            "UPDATE versions SET died = ?, death = ? WHERE object = ? AND birth = ?",
            (now.offset, now.txn, object_id, birth),
        )

    def bring_back(self, version: Version, now: Moment) -> None:
        """A dead version lives on, and whoever asked for it before has asked in vain."""
        name = (version.object_id, version.birth)
        self._run(
            "UPDATE versions SET died = NULL, death = NULL, rollback = NULL, claim = NULL, previous = NULL, "
            "next = NULL, back = ? WHERE object = ? AND birth = ?",
            (now.txn, *name),
        )
        self._run("DELETE FROM asked_again WHERE object = ? AND birth = ?", name)

    def hand_over(self, version: Version, object_id: int, now: Moment) -> None:
        """A dead version's blocks are those of a new one from now on, and the old one is no more."""
        self._run(
            "INSERT INTO versions (object, birth, bucket, born, container, first_block, blocks, block_bytes, bytes) "
            "SELECT ?, ?, bucket, ?, container, first_block, blocks, block_bytes, bytes FROM versions "
            "WHERE object = ? AND birth = ?",
            (object_id, now.txn, now.offset, version.object_id, version.birth),
        )
        for table in ("versions", "asked_again"):
            self._run(f"DELETE FROM {table} WHERE object = ? AND birth = ?", (version.object_id, version.birth))  # noqa: S608  names of ours

    def version(self, object_id: int, birth: int) -> Version | None:
        """A version, whatever has become of it."""
        found = self._run("SELECT * FROM versions WHERE object = ? AND birth = ?", (object_id, birth)).fetchone()
        return None if found is None else _version(found)

    def kept(self) -> Iterator[tuple[int | None]]:
        """First blocks of all versions that have a row: those that live, and dead ones with blocks."""
        return self._run(
            "SELECT first_block FROM versions WHERE finish IS NULL AND (died IS NULL OR first_block IS NOT NULL)"
        )

    # Claims

    def note_claim(self, claim: Claim) -> None:
        """The log has a claim."""
        self._run("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?)", claim)

    def ask(self, version: Version, asked: Asked) -> None:
        """A claim asks for a dead version that nobody holds. Whether it got it, its ledger record says."""
        if version.claim_txn is None:
            self._run(
                "UPDATE versions SET claim = ?, death = ?, previous = ?, next = ? WHERE object = ? AND birth = ?",
                (*asked, version.object_id, version.birth),
            )
        else:
            name = (version.object_id, version.birth)
            self._run("INSERT OR IGNORE INTO asked_again VALUES (?, ?, ?, ?, ?, ?)", (*name, *asked))

    def asked(self, version: Version, claim_txn: int) -> Asked | None:
        """What a claim asked for that could have got a version; None when it could not, or did not ask."""
        if version.claim_txn == claim_txn:
            return Asked(claim_txn, version.death or 0, version.previous_txn or 0, version.next_txn or 0)
        found = self._run(
            "SELECT txn, death, previous, next FROM asked_again WHERE object = ? AND birth = ? AND txn = ?",
            (version.object_id, version.birth, claim_txn),
        ).fetchone()
        return None if found is None else Asked(*found)

    def note_held(self, version: Version, claim_txn: int, holder_txn: int) -> None:
        """Somebody asks for a version that a snapshot holds."""
        self._run(
            "UPDATE versions SET held_claim = ?, holder = ? WHERE object = ? AND birth = ? AND held_claim IS NULL",
            (claim_txn, holder_txn, version.object_id, version.birth),
        )

    def note_finish(self, txn: int, time_ms: int) -> None:
        """The log has a finish."""
        self._run("INSERT INTO finishes VALUES (?, ?)", (txn, time_ms))

    def finish(self, version: Version, finish_txn: int) -> None:
        """A claimed version's blocks are gone."""
        self._run(
            "UPDATE versions SET finish = ? WHERE object = ? AND birth = ?",
            (finish_txn, version.object_id, version.birth),
        )

    def claim_of(self, txn: int) -> Claim | None:
        """The claim of a txn."""
        found = self._run("SELECT * FROM claims WHERE txn = ?", (txn,)).fetchone()
        return None if found is None else Claim(*found)

    def finish_time_ms(self, txn: int) -> int | None:
        """Log time of the finish of a txn."""
        found = self._run("SELECT time_ms FROM finishes WHERE txn = ?", (txn,)).fetchone()
        return None if found is None else int(found[0])

    # What the ledger has of it

    def enter(self, version: Version) -> None:
        """The ledger has a row of a version."""
        self._run(
            "UPDATE versions SET entered = entered + 1 WHERE object = ? AND birth = ?",
            (version.object_id, version.birth),
        )

    def not_entered(self) -> Iterator[Version]:
        """Claimed versions that the ledger has no row of, finished or not."""
        return map(_version, self._run("SELECT * FROM versions WHERE claim IS NOT NULL AND entered = 0"))


def _version(row: tuple[object, ...]) -> Version:
    return Version(*row)  # type: ignore[arg-type]
