"""The plane's central rule: which snapshots hold a version that lived from its birth until its death."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum

Txn = int


class Verdict(Enum):
    """Which snapshots hold a deleted version: none, only the previous one, or several."""

    RECLAIMABLE = "reclaimable"
    EXCLUSIVE_TO_PREVIOUS = "exclusive_to_previous"
    SHARED = "shared"


class LifetimeError(ValueError):
    """A birth, death or snapshot that no real lifetime has: a defect. The row is kept."""


def is_reclaimable_after(birth: Txn, previous: Txn) -> bool:
    """Return whether no snapshot holds a version, given the newest live snapshot before its death (0: there is none).

    A snapshot captured at txn s sees a version if and only if birth <= s < death. Only the newest live snapshot before
    the death matters: a version that an older one holds is held by the newest one, too.
    """
    return birth > previous


def judge_with_previous(birth: Txn, death: Txn, previous: Txn, before_previous: Txn) -> Verdict:
    """Return the verdict about a version, given the two newest live snapshots before its death (0: there is none).

    ==========================  ===========================  =====================
    born after the previous?    born after the one before?   verdict
    ==========================  ===========================  =====================
    yes                         not asked                    RECLAIMABLE
    no                          yes                          EXCLUSIVE_TO_PREVIOUS
    no                          no                           SHARED
    ==========================  ===========================  =====================

    Raises:
        LifetimeError: the version died before its birth, or the snapshots are not in order before the death.
    """
    if not 0 < birth <= death:
        raise LifetimeError(f"a version born at {birth} cannot die at {death}; keep the row")
    if not 0 <= previous < death:
        raise LifetimeError(f"the snapshot at {previous} is not before the death at {death}; keep the row")
    if before_previous and not 0 < before_previous < previous:
        raise LifetimeError(f"the snapshot at {before_previous} is not before the one at {previous}; keep the row")
    if is_reclaimable_after(birth, previous):
        return Verdict.RECLAIMABLE
    if is_reclaimable_after(birth, before_previous):
        return Verdict.EXCLUSIVE_TO_PREVIOUS
    return Verdict.SHARED


def judge(birth: Txn, death: Txn, live_snapshots: Sequence[Txn]) -> Verdict:
    """Return the verdict about a version, given the bucket's live snapshots, ascending and complete up to its death.

    Raises:
        LifetimeError: as ``judge_with_previous``.
    """
    before_death = bisect_left(live_snapshots, death)
    previous = live_snapshots[before_death - 1] if before_death >= 1 else 0
    before_previous = live_snapshots[before_death - 2] if before_death >= 2 else 0
    return judge_with_previous(birth, death, previous, before_previous)
