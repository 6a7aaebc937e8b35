"""Numbers that outlive a restart: those given out, and the work done since the last barrier.

A service counts what it does in its own table, so that a restart does not make a busy round look quiet.
"""

from __future__ import annotations

from schemas.records import CountRow
from services.runtime.loop.service import Work
from services.storage.tables import TableDefinition, TablesReader

COUNT_TABLE = TableDefinition("countTable", CountRow, is_cached=True)
_DONE = b"done"
_NUMBERS_PER_MS = 1 << 10


def count(name: bytes, tables: Work | TablesReader) -> int:
    """A count; 0 when it was never set."""
    row = tables.table(COUNT_TABLE).get(name)
    return row.count if row else 0


def set_count(name: bytes, value: int, work: Work) -> None:
    """Set a count."""
    work.table(COUNT_TABLE).put(name, CountRow(value))


def next_number(name: bytes, work: Work, now_ms: int = 0) -> int:
    """A number that was never given out.

    With the time it is above all that were given out before on a database that was lost since, so that no late
    answer to that one is taken for an answer to this one.
    """
    number = max(count(name, work) + 1, now_ms * _NUMBERS_PER_MS)
    set_count(name, number, work)
    return number


def count_done(work: Work, things: int = 1) -> None:
    """Remember that something was done, for the next barrier."""
    set_count(_DONE, count(_DONE, work) + things, work)


def pop_done(work: Work) -> int:
    """What was done since the last barrier; starts again from 0."""
    done = count(_DONE, work)
    if done:
        set_count(_DONE, 0, work)
    return done
