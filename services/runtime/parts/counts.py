"""Counts that survive a restart: the numbers given out, and the work done since the last barrier.

A service counts what it does in its own table, so that a restart does not make a busy round look quiet.
"""

from __future__ import annotations

from schemas.records import CountRow
from services.runtime.loop.service import Work
from services.storage.tables import TableDefinition, Tables

COUNT_TABLE = TableDefinition("countTable", CountRow, is_cached=True)
_DONE = b"done"
_NUMBERS_PER_MS = 1 << 10


def count(name: bytes, tables: Tables) -> int:
    """Return a count; 0 when it was never set."""
    row = tables.table(COUNT_TABLE).get(name)
    return row.count if row else 0


def set_count(name: bytes, value: int, work: Work) -> None:
    """Set a count."""
    work.table(COUNT_TABLE).put(name, CountRow(value))


def next_number(name: bytes, work: Work, now_ms: int = 0) -> int:
    """Return a number that was never given out.

    With ``now_ms`` the number is also above all numbers that a database gave out that was lost since: a late answer to
    an old number is then not taken for an answer to a new one.
    """
    number = max(count(name, work) + 1, now_ms * _NUMBERS_PER_MS)
    set_count(name, number, work)
    return number


def count_done(work: Work) -> None:
    """Count a piece of work that was done, for the next barrier."""
    set_count(_DONE, count(_DONE, work) + 1, work)


def pop_done(work: Work) -> int:
    """Return the work done since the last barrier, and reset the count to 0."""
    done = count(_DONE, work)
    if done:
        set_count(_DONE, 0, work)
    return done
