"""Remembers the ids of dropped snapshots for a while, so that a repeated capture makes no second snapshot.

A capture command has the time of its request. It is refused if it is applied more than a day before or after that time.
So a repeat can be accepted for at most two days after the first application. The id of a dropped snapshot, and of one
that was dropped before its capture, is remembered for two days of log time: as long as a repeat can be accepted.
Each capture and each drop forgets a few expired ids, so the tables contain only the drops of about two days.

This requires clocks that differ by less than a day. A capture command of an older build has no time and is never
refused. If it were repeated after two days, it would capture a snapshot that no user requested. That snapshot would
hold more than necessary, and would be listed as ``unknown_here``.
"""

from __future__ import annotations

from itertools import islice

from schemas.records import CaptureSnapshot, CountRow
from services.domain.table_keys import snapshot_id_key
from services.metadata.state.tables import DROPPED_ID_TABLE, SNAPSHOT_LIST_TABLE, UNCAPTURED_TABLE
from services.metadata.state.transaction import Transaction

DAY_MS = 24 * 3_600_000
CAPTURE_EXPIRES_MS = DAY_MS
"""Maximum time between the request and the application of a capture."""
KEPT_MS = 2 * CAPTURE_EXPIRES_MS
"""How long an id is remembered after its drop."""
FORGOTTEN_AT_ONCE = 4
"""Maximum expired ids that a capture or drop forgets. Each adds at most one id, so expired ids do not pile up."""
_TIME_DIGITS = 16


def is_too_late(transaction: Transaction, command: CaptureSnapshot) -> bool:
    """Return whether a capture is applied so far from its request time that its id may have been forgotten."""
    return bool(command.requested_ms) and abs(transaction.log_time_ms - command.requested_ms) > CAPTURE_EXPIRES_MS


def is_uncaptured(transaction: Transaction, snapshot_id: str) -> bool:
    """Return whether a snapshot was dropped before its capture."""
    return transaction.work.table(UNCAPTURED_TABLE).get(snapshot_id.encode()) is not None


def note_uncaptured(transaction: Transaction, snapshot_id: str) -> None:
    """Remember the drop of a snapshot of which no capture is known."""
    if not is_uncaptured(transaction, snapshot_id):
        transaction.work.table(UNCAPTURED_TABLE).put(snapshot_id.encode(), CountRow(transaction.txn))
        note_dropped(transaction, snapshot_id)


def note_dropped(transaction: Transaction, snapshot_id: str) -> None:
    """Remember the id of a snapshot that was dropped now."""
    key = b"%016x/%s" % (transaction.log_time_ms, snapshot_id.encode())
    transaction.work.table(DROPPED_ID_TABLE).put(key, CountRow(transaction.txn))


def forget_some(transaction: Transaction) -> None:
    """Forget at most ``FORGOTTEN_AT_ONCE`` ids whose time has expired, the oldest first."""
    work = transaction.work
    end = b"%016x" % max(transaction.log_time_ms - KEPT_MS, 0)
    over = [key for key, _ in islice(work.table(DROPPED_ID_TABLE).scan(b"", end), FORGOTTEN_AT_ONCE)]
    for key in over:
        snapshot_id = key[_TIME_DIGITS + 1 :].decode()
        work.table(DROPPED_ID_TABLE).delete(key)
        work.table(UNCAPTURED_TABLE).delete(snapshot_id.encode())
        captured = work.table(SNAPSHOT_LIST_TABLE).get(snapshot_id_key(snapshot_id))
        if captured is not None and not captured.is_live:
            work.table(SNAPSHOT_LIST_TABLE).delete(snapshot_id_key(snapshot_id))
