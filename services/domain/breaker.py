"""When claiming has to stop until a person has looked: what may go within an hour, and how much has gone.

An hour begins with a claim and ends an hour of log time later; what the bucket has is looked at as it begins. So
within any sixty minutes no more than twice the limits can go, and each hour's sum is known, without a list of claims.

What a person has let go by a reset goes beside the limits: so much as waited then, of what had died by then. What was
below a deleted tree that was not taken apart yet is added as it comes out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schemas.records import BreakerLimits, ClaimHourRow
from services.domain.durations import HOUR_MS

MAX_SHARE_PERCENT = 100
_PERCENT = 100


class LimitsError(ValueError):
    """Limits that nobody can mean."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes and versions."""

    size_bytes: int
    versions: int


NOTHING = Amount(0, 0)


def check_limits(limits: BreakerLimits) -> None:
    """Refuse limits that nobody can mean.

    Raises:
        LimitsError: a share beyond 0 to 100 percent, or a floor below 0.
    """
    if not 0 <= limits.share_percent <= MAX_SHARE_PERCENT:
        raise LimitsError(f"{limits.share_percent} percent is no share: 1 to {MAX_SHARE_PERCENT}, or 0 for no limit")
    if limits.floor_bytes < 0 or limits.floor_versions < 0:
        raise LimitsError("a floor is at least 0")


def most(limits: Sequence[BreakerLimits], had: Amount) -> Amount:
    """What may go within an hour of a bucket that had so much as it began: the least that any of the limits allows."""
    return Amount(
        min(max(one.floor_bytes, had.size_bytes * one.share_percent // _PERCENT) for one in limits),
        min(max(one.floor_versions, had.versions * one.share_percent // _PERCENT) for one in limits),
    )


def is_over(hour: ClaimHourRow, now_ms: int) -> bool:
    """Whether the next claim begins another hour."""
    return now_ms - hour.began_ms >= HOUR_MS


def new_hour(
    now_ms: int, limits: Sequence[BreakerLimits], had: Amount, before: ClaimHourRow | None = None
) -> ClaimHourRow:
    """An hour in which nothing has gone yet; what is left of what a person has let go is taken over."""
    may_go = most(limits, had)
    hour = ClaimHourRow(now_ms, may_go.size_bytes, may_go.versions, 0, 0)
    if before is None:
        return hour
    return replace(
        hour,
        released_txn=before.released_txn,
        released_bytes=before.released_bytes,
        released_versions=before.released_versions,
    )


def release(hour: ClaimHourRow, txn: int, seen: Amount) -> ClaimHourRow:
    """An hour in which what had died up to a txn, and waited, may go beside the limits."""
    return replace(hour, released_txn=txn, released_bytes=seen.size_bytes, released_versions=seen.versions)


def release_more(hour: ClaimHourRow, found: Amount) -> ClaimHourRow:
    """An hour in which more of what was let go has come to light."""
    return replace(
        hour,
        released_bytes=hour.released_bytes + found.size_bytes,
        released_versions=hour.released_versions + found.versions,
    )


class HourCount:
    """An hour, while versions are claimed in it."""

    __slots__ = ("_hour", "_left_bytes", "_left_versions", "_released_bytes", "_released_versions")

    def __init__(self, hour: ClaimHourRow) -> None:
        self._hour = hour
        self._left_bytes = hour.most_bytes - hour.claimed_bytes
        self._left_versions = hour.most_versions - hour.claimed_versions
        self._released_bytes, self._released_versions = hour.released_bytes, hour.released_versions

    def admit(self, size_bytes: int, death: int) -> bool:
        """Count one version more, and say whether it may go; if not, nothing is counted."""
        if death <= self._hour.released_txn and size_bytes <= self._released_bytes and self._released_versions:
            self._released_bytes -= size_bytes
            self._released_versions -= 1
            return True
        if size_bytes > self._left_bytes or self._left_versions < 1:
            return False
        self._left_bytes -= size_bytes
        self._left_versions -= 1
        return True

    def hour(self) -> ClaimHourRow:
        """The hour with all that was counted."""
        return replace(
            self._hour,
            claimed_bytes=self._hour.most_bytes - self._left_bytes,
            claimed_versions=self._hour.most_versions - self._left_versions,
            released_bytes=self._released_bytes,
            released_versions=self._released_versions,
        )
