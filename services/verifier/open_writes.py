"""What clients are writing: open keys, uploads and their parts, with blocks that belong to no version.

They are in the database of the history, in the order in which their expiry goes through them: that of metadata's keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

from schemas.records import BlockRun
from services.verifier.history import History

_TABLES = """
    CREATE TABLE open_keys (in_table INT, key BLOB, session INT, bucket INT, parent INT, name TEXT, path TEXT,
                            block_bytes INT, expected INT, upload TEXT, part INT, synced_object INT, synced_birth INT,
                            synced_length INT, synced_block INT, room INT, is_recovered INT, updated_ms INT,
                            PRIMARY KEY (in_table, key))
        WITHOUT ROWID;
    CREATE INDEX open_key_at ON open_keys (parent, name);
    CREATE TABLE uploads (key BLOB PRIMARY KEY, upload TEXT, bucket INT, path TEXT, parent INT, initiated_ms INT)
        WITHOUT ROWID;
    CREATE INDEX upload_of_id ON uploads (upload);
    CREATE TABLE parts (upload TEXT, number INT, bytes INT, PRIMARY KEY (upload, number)) WITHOUT ROWID;
    CREATE TABLE runs (owner TEXT, place INT, object INT, container INT, first_block INT, blocks INT, block_bytes INT,
                       bytes INT, PRIMARY KEY (owner, place)) WITHOUT ROWID;
"""


class Run(NamedTuple):
    """Consecutive blocks, and the objectID that they get when they die on their own."""

    object_id: int
    blocks: BlockRun


class Known(NamedTuple):
    """By what a client recognizes the version that it has written."""

    object_id: int
    birth: int
    length: int
    last_block: int
    """First block of the last run; 0 without blocks. Rolled back, a version can get as long again with other blocks."""


class Synced(NamedTuple):
    """A version as the client that writes it knows it, and the bytes that fit into its last block."""

    known_as: Known
    room_bytes: int


@dataclass(frozen=True, slots=True)
class OpenKey:
    """A key, or a part of an upload, that a client writes."""

    table: int
    key: bytes
    session: int
    bucket_id: int
    parent_id: int
    name: str
    path: str
    block_size_bytes: int
    expected_generation: int
    upload_id: str
    part_number: int
    synced: Synced | None
    is_recovered: bool
    updated_ms: int
    runs: tuple[Run, ...]
    """Blocks without content."""


class Upload(NamedTuple):
    """An upload in parts."""

    key: bytes
    upload_id: str
    bucket_id: int
    path: str
    parent_id: int
    initiated_ms: int


class Part(NamedTuple):
    """A part of an upload."""

    number: int
    size_bytes: int
    runs: tuple[Run, ...]


class OpenWrites:
    """All open keys, uploads and parts of a shard."""

    def __init__(self, history: History) -> None:
        self._run = history.execute
        for statement in _TABLES.split(";"):
            self._run(statement)

    def owned(self) -> Iterator[tuple[int, int]]:
        """Return the first block and the number of blocks of each run."""
        return self._run("SELECT first_block, blocks FROM runs")

    def _runs_of(self, owner: str) -> tuple[Run, ...]:
        found = self._run(
            "SELECT object, container, first_block, blocks, block_bytes, bytes FROM runs "
            "WHERE owner = ? ORDER BY place",
            (owner,),
        )
        return tuple([Run(object_id, BlockRun(*numbers)) for object_id, *numbers in found])

    def _set_runs(self, owner: str, runs: Sequence[Run]) -> None:
        self._run("DELETE FROM runs WHERE owner = ?", (owner,))
        for place, run in enumerate(runs):
            self._run("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (owner, place, run[0], *astuple(run.blocks)))

    # Open keys

    def put_key(self, row: OpenKey) -> None:
        """Record an open key as it is now."""
        before = (row.table, row.key, row.session, row.bucket_id, row.parent_id, row.name, row.path)
        facts = (row.block_size_bytes, row.expected_generation, row.upload_id, row.part_number)
        synced = (*row.synced.known_as, row.synced.room_bytes) if row.synced else (None,) * 5
        values = (*before, *facts, *synced, row.is_recovered, row.updated_ms)
        self._run(f"INSERT OR REPLACE INTO open_keys VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608
        self._set_runs(_of_key(row.session), row.runs)

    def close_key(self, row: OpenKey) -> None:
        """Forget an open key."""
        self._run("DELETE FROM open_keys WHERE in_table = ? AND key = ?", (row.table, row.key))
        self._set_runs(_of_key(row.session), ())

    def key_at(self, parent_id: int, name: str, session: int) -> OpenKey | None:
        """Return the open key of an id at a place, or None."""
        there = self._keys("parent = ? AND name = ? AND session = ?", parent_id, name, session)
        return next(there, None)

    def writer_of(self, parent_id: int, name: str, version: Known) -> OpenKey | None:
        """Return the open key that adds to a version; None if none does."""
        known_as = "(synced_object, synced_birth, synced_length, synced_block) = (?, ?, ?, ?)"
        return next(
            self._keys(f"parent = ? AND name = ? AND {known_as} ORDER BY key", parent_id, name, *version),
            None,
        )

    def keys_from(self, table: int, start: bytes) -> Iterator[OpenKey]:
        """Return the open keys of a table from a key on."""
        return self._keys("in_table = ? AND key >= ? ORDER BY key", table, start)

    def _keys(self, condition: str, *values: int | str | bytes) -> Iterator[OpenKey]:
        for found in self._run(f"SELECT * FROM open_keys WHERE {condition}", values):  # noqa: S608  ours
            synced = None if found[11] is None else Synced(Known(*found[11:15]), found[15])
            runs = self._runs_of(_of_key(found[2]))
            table, key, session, bucket_id, parent_id, name, path, block_bytes, expected, upload_id, part = found[:11]
            place = (table, key, session, bucket_id, parent_id, name, path)
            yield OpenKey(*place, block_bytes, expected, upload_id, part, synced, bool(found[16]), found[17], runs)

    # Uploads

    def put_upload(self, upload: Upload) -> None:
        """Record a new upload."""
        self._run("INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?)", upload)

    def upload(self, upload_id: str) -> Upload | None:
        """Return the upload of an id, or None."""
        found = self._run("SELECT * FROM uploads WHERE upload = ?", (upload_id,)).fetchone()
        return None if found is None else Upload(*found)

    def uploads_from(self, start: bytes) -> Iterator[Upload]:
        """Return the uploads from a key on."""
        return (Upload(*found) for found in self._run("SELECT * FROM uploads WHERE key >= ? ORDER BY key", (start,)))

    def end_upload(self, upload: Upload) -> list[Part]:
        """Forget an upload. Return its parts."""
        found = self._run("SELECT number, bytes FROM parts WHERE upload = ? ORDER BY number", (upload.upload_id,))
        parts = [
            Part(number, size_bytes, self._runs_of(_of_part(upload.upload_id, number)))
            for number, size_bytes in found.fetchall()
        ]
        for part in parts:
            self._set_runs(_of_part(upload.upload_id, part.number), ())
        self._run("DELETE FROM parts WHERE upload = ?", (upload.upload_id,))
        self._run("DELETE FROM uploads WHERE key = ?", (upload.key,))
        return parts

    def part_numbers(self, upload: Upload) -> set[int]:
        """Return the numbers of the parts that an upload has."""
        return {number for (number,) in self._run("SELECT number FROM parts WHERE upload = ?", (upload.upload_id,))}

    def run_count(self, upload: Upload, number: int | None = None) -> int:
        """Return the number of runs of a part, or of all parts."""
        first = _of_part(upload.upload_id, "" if number is None else number)
        end = first + (":" if number is None else "\0")  # behind all digits, or behind this number alone
        found: int = self._run("SELECT count(*) FROM runs WHERE owner >= ? AND owner < ?", (first, end)).fetchone()[0]
        return found

    def put_part(self, upload: Upload, part: Part) -> tuple[Run, ...]:
        """Record a part as it is now. Return the runs of the part that it replaces."""
        owner = _of_part(upload.upload_id, part.number)
        replaced = self._runs_of(owner)
        self._run("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", (upload.upload_id, part.number, part.size_bytes))
        self._set_runs(owner, part.runs)
        return replaced


def _of_key(session: int) -> str:
    return f"key {session}"


def _of_part(upload_id: str, number: int | str) -> str:
    return f"part {upload_id} {number}"
