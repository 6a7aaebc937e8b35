"""The work done since the last barrier: kept in a table, so that a restart does not make a busy round look quiet."""

from __future__ import annotations

from schemas.records import UnexpandedRow
from services.directory_deletion.tables import COUNT_TABLE
from services.runtime.service import Work

_DONE = b"done"


def count_done(work: Work) -> None:
    """Remember that something was done."""
    row = work.table(COUNT_TABLE).get(_DONE)
    work.table(COUNT_TABLE).put(_DONE, UnexpandedRow(row.count + 1 if row else 1))


def take_done(work: Work) -> int:
    """What was done since the last barrier; starts again from 0."""
    row = work.table(COUNT_TABLE).get(_DONE)
    if row is None or row.count == 0:
        return 0
    work.table(COUNT_TABLE).put(_DONE, UnexpandedRow(0))
    return row.count
