"""The rule behind undelete: whether a deleted key or directory can be restored, and as which object.

A version lives from its birth until its death, and every snapshot in that interval sees it. A restore can remove the
death, unless a live snapshot was captured after it: that snapshot would then show a version that it never listed. In
this case the version is restored as a new object that is born now. This requires that no snapshot holds the version,
since two versions with different lifetimes never share blocks.

A directory is restored as a whole, with the one row that its delete has moved, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from schemas.records import DeletedDirectoryRow, DeletedKeyRow
from services.domain.reclaimability import Txn, Verdict, judge
from services.domain.table_keys import object_txn


class Return(Enum):
    """How a deleted key or directory can be restored, or why it cannot."""

    ITSELF = "itself"
    """Its death is removed: same object, same birth."""
    NEW_OBJECT = "new_object"
    """It keeps its blocks, gets a new objectID and is born now."""
    SNAPSHOT_IN_BETWEEN = "snapshot_in_between"
    """Not restorable: a snapshot holds it, and another one was captured after its death."""
    HELD = "held"
    """Not restorable: a snapshot holds it, and its object may be live as another version."""
    EXPANDED = "expanded"
    """A directory that cannot be restored as a whole: its children have begun to move to the garbage tables, and are
    restored one by one."""


def return_of(birth: Txn, death: Txn, live_snapshots: Sequence[Txn], *, may_object_be_live: bool) -> Return:
    """Return how a version that lived from ``birth`` until ``death`` can be restored.

    ``live_snapshots`` are all of the bucket's, ascending. ``may_object_be_live`` is true when another version of the
    same object may be in the namespace, which contains each objectID at most once.
    """
    is_snapshot_in_between = bool(live_snapshots) and live_snapshots[-1] >= death
    if not is_snapshot_in_between and not may_object_be_live:
        return Return.ITSELF
    if judge(birth, death, live_snapshots) is Verdict.RECLAIMABLE:
        return Return.NEW_OBJECT
    return Return.SNAPSHOT_IN_BETWEEN if is_snapshot_in_between else Return.HELD


def return_of_key(row: DeletedKeyRow, rolled_back_txn: Txn, live_snapshots: Sequence[Txn]) -> Return:
    """Return how a deleted version can be restored to its bucket.

    The object of an overwritten version is live in its successor, and a noncurrent version is no object of its own. If
    the row died before the bucket's last rollback, the rollback may have restored another version of the object, of
    which the row has no note. ``rolled_back_txn`` is the txn of that rollback, 0 for none.
    """
    may_object_be_live = row.is_overwritten or row.version_of != 0 or row.death <= rolled_back_txn
    return return_of(row.key.birth, row.death, live_snapshots, may_object_be_live=may_object_be_live)


def is_itself_as_version(row: DeletedKeyRow, live_snapshots: Sequence[Txn]) -> bool:
    """Return whether a noncurrent version can be restored to its key, which is live: it keeps its birth."""
    outcome = return_of(row.key.birth, row.death, live_snapshots, may_object_be_live=False)
    return outcome is Return.ITSELF


def return_of_directory(
    row: DeletedDirectoryRow, live_snapshots: Sequence[Txn], *, has_parent_in_garbage: bool
) -> Return:
    """Return how a deleted directory can be restored: ITSELF, or a reason why not as a whole.

    A directory whose parent is in the garbage table was found by the expansion of that parent. A new object would
    require new objects for everything below it, so a snapshot in between prevents the restore, held or not.
    """
    if row.is_expansion_begun or has_parent_in_garbage:
        return Return.EXPANDED
    birth = object_txn(row.directory.object_id)
    outcome = return_of(birth, row.death, live_snapshots, may_object_be_live=False)
    return outcome if outcome is Return.ITSELF else Return.SNAPSHOT_IN_BETWEEN
