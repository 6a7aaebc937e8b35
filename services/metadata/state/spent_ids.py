"""How long the ids of dropped snapshots are known, so that a take that comes again makes no second snapshot.

A take says when it was asked for. One that is applied more than a day before or after that is refused, so that it can
come again for two days at most after it was applied for the first time. A dropped snapshot's id, and that of one that
was dropped before it was taken, is known for two days of log time: no longer than anybody can name it, and no shorter.
A few that are over are forgotten with each take and each drop: the tables hold what was dropped in two days, whatever
was dropped ever.

It rests on clocks that differ by less than a day. A take of an older build says no time and is never refused; if it
came again after two days, it would make a snapshot that nobody asked for, which holds more than is needed and shows as
one that is ``unknown_here``.
"""

from __future__ import annotations

from schemas.records import CaptureSnapshot, CountRow
from services.metadata.state.tables import DROPPED_ID_TABLE, SNAPSHOT_ID_TABLE, UNCAPTURED_TABLE
from services.metadata.state.transaction import Transaction

DAY_MS = 24 * 3_600_000
CAPTURE_EXPIRES_MS = DAY_MS
"""How far apart the request and the application of a take may be."""
KEPT_MS = 2 * CAPTURE_EXPIRES_MS
"""How long an id is known after its drop."""
FORGOTTEN_AT_ONCE = 4
"""Ids that a take or a drop forgets at most. Each adds one at most, so that what is over does not pile up."""
_TIME_DIGITS = 16


def is_too_late(transaction: Transaction, command: CaptureSnapshot) -> bool:
    """Whether a take comes so long after its request that its id may have been forgotten."""
    return bool(command.requested_ms) and abs(transaction.log_time_ms - command.requested_ms) > CAPTURE_EXPIRES_MS


def is_uncaptured(transaction: Transaction, snapshot_id: str) -> bool:
    """Whether a snapshot was dropped before it was taken."""
    return transaction.work.table(UNCAPTURED_TABLE).get(snapshot_id.encode()) is not None


def note_uncaptured(transaction: Transaction, snapshot_id: str) -> None:
    """Remember that a snapshot was dropped that was never taken, as far as is known."""
    if not is_uncaptured(transaction, snapshot_id):
        transaction.work.table(UNCAPTURED_TABLE).put(snapshot_id.encode(), CountRow(transaction.txn))
        note_dropped(transaction, snapshot_id)


def note_dropped(transaction: Transaction, snapshot_id: str) -> None:
    """An id was dropped now: it is known for a while."""
    key = b"%016x/%s" % (transaction.log_time_ms, snapshot_id.encode())
    transaction.work.table(DROPPED_ID_TABLE).put(key, CountRow(transaction.txn))


def forget_some(transaction: Transaction) -> None:
    """Forget the ids of what was dropped longest ago, as far as nobody can name it any more."""
    work = transaction.work
    end = b"%016x" % max(transaction.log_time_ms - KEPT_MS, 0)
    over: list[bytes] = []
    for key, _ in work.table(DROPPED_ID_TABLE).scan(b"", end):
        over.append(key)
        if len(over) == FORGOTTEN_AT_ONCE:
            break
    for key in over:
        snapshot_id = key[_TIME_DIGITS + 1 :]
        work.table(DROPPED_ID_TABLE).delete(key)
        work.table(UNCAPTURED_TABLE).delete(snapshot_id)
        captured = work.table(SNAPSHOT_ID_TABLE).get(snapshot_id)
        if captured is not None and not captured.is_live:
            work.table(SNAPSHOT_ID_TABLE).delete(snapshot_id)
