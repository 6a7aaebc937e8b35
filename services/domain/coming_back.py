"""Whether something deleted can come back, and as what: the rule behind undelete.

A version lives for one interval, from its birth until its death, and a snapshot in that interval sees it. So a dead
version can simply lose its death, unless a live snapshot was taken since: that one would suddenly see what it never
listed. Then it can only come back as a new object, born now; and only if no snapshot holds it, since blocks are never
shared by two versions whose lifetimes differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from services.domain.reclaimability import Txn, Verdict, judge


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
