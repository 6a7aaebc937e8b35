"""Whether something deleted can come back, and as what: the rule behind undelete.

A version lives for one interval, from its birth until its death, and a snapshot in that interval sees it. So a dead
version can simply lose its death, unless a live snapshot was taken since: that one would suddenly see what it never
listed. Then it can only come back as a new object, born now; and only if no snapshot holds it, since blocks are never
shared by two versions whose lifetimes differ.

A directory comes back as a whole, with the one row that its delete has moved, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from schemas.records import DeletedDirectoryRow, DeletedKeyRow
from services.domain.reclaimability import Txn, Verdict, judge
from services.domain.table_keys import object_txn


class Return(Enum):
    """As what a deleted thing can come back."""

    ITSELF = "itself"
    """It loses its death: same object, same birth."""
    NEW_OBJECT = "new_object"
    """With the same blocks, but a new objectID and born now."""
    SNAPSHOT_IN_BETWEEN = "snapshot_in_between"
    """Not at all: a snapshot holds it, and a later one was taken since it died."""
    HELD = "held"
    """Not at all: a snapshot holds it, and its object may be live as another version."""
    EXPANDED = "expanded"
    """Of a directory, not as a whole: what was in it has begun to move to the garbage tables, and comes back by itself.
    """


def return_of(birth: Txn, death: Txn, live_snapshots: Sequence[Txn], *, may_object_be_live: bool) -> Return:
    """Say as what a version that lived from ``birth`` until ``death`` can come back.

    ``live_snapshots`` are the bucket's, ascending and all of them; ``may_object_be_live`` says that another version
    of the same object may be in the namespace, where an objectID is at most once.
    """
    is_snapshot_in_between = bool(live_snapshots) and live_snapshots[-1] >= death
    if not is_snapshot_in_between and not may_object_be_live:
        return Return.ITSELF
    if judge(birth, death, live_snapshots) is Verdict.RECLAIMABLE:
        return Return.NEW_OBJECT
    return Return.SNAPSHOT_IN_BETWEEN if is_snapshot_in_between else Return.HELD


def return_of_key(row: DeletedKeyRow, rolled_back_txn: Txn, live_snapshots: Sequence[Txn]) -> Return:
    """Say as what a deleted version can come back to its bucket.

    The object of an overwritten version lives on in its successor. And a rollback may have brought another version of
    the object back to life that the row does not know of, if the row died before it: ``rolled_back_txn`` is the
    bucket's last one, 0 for none.
    """
    may_object_be_live = row.is_overwritten or row.death <= rolled_back_txn
    return return_of(row.key.birth, row.death, live_snapshots, may_object_be_live=may_object_be_live)


def return_of_directory(
    row: DeletedDirectoryRow, live_snapshots: Sequence[Txn], *, has_parent_in_garbage: bool
) -> Return:
    """Say as what a deleted directory can come back: itself, or not as a whole.

    One whose parent died with it was found by its parent's expansion. A new object would need all below it to be new
    as well, so a snapshot in between is in its way whether it is held or not.
    """
    if row.is_expansion_begun or has_parent_in_garbage:
        return Return.EXPANDED
    birth = object_txn(row.directory.object_id)
    outcome = return_of(birth, row.death, live_snapshots, may_object_be_live=False)
    return outcome if outcome is Return.ITSELF else Return.SNAPSHOT_IN_BETWEEN
