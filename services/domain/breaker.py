"""The circuit breaker of claims: how much of a bucket may be claimed within an hour, and how much was claimed.

An hour begins with a claim and ends one hour of log time later. The size of the bucket is read at the beginning. So
at most twice the limits are claimed within any sixty minutes, and each hour's sum is known without a list of claims.

A reset by an operator adds an allowance beside the limits. It equals the amount that waited at the reset, and it
covers only versions that had died by then. Files below a deleted tree that was not expanded yet are added to the
allowance when the expansion finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schemas.records import BreakerLimits, ClaimHourRow
from services.domain.durations import HOUR_MS

MAX_SHARE_PERCENT = 100
_PERCENT = 100


class LimitsError(ValueError):
    """Limits out of range."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes and versions."""

    size_bytes: int
    versions: int


NOTHING = Amount(0, 0)


def check_limits(limits: BreakerLimits) -> None:
    """Refuse limits that are out of range.

    Raises:
        LimitsError: the share is not 0 to 100 percent, or a floor is below 0.
    """
    if not 0 <= limits.share_percent <= MAX_SHARE_PERCENT:
        raise LimitsError(
            f"the share is {limits.share_percent} percent: use 1 to {MAX_SHARE_PERCENT}, or 0 for no limit"
        )
    if limits.floor_bytes < 0 or limits.floor_versions < 0:
        raise LimitsError("a floor is negative: use 0 or more")


def most(limits: Sequence[BreakerLimits], had: Amount) -> Amount:
    """Return the maximum that may be claimed within an hour, given the bucket's size at the hour's beginning.

    The lowest of the limits applies.
    """
    return Amount(
        min(max(one.floor_bytes, had.size_bytes * one.share_percent // _PERCENT) for one in limits),
        min(max(one.floor_versions, had.versions * one.share_percent // _PERCENT) for one in limits),
    )


def is_over(hour: ClaimHourRow, now_ms: int) -> bool:
    """Return whether the hour has ended, so that the next claim begins another one."""
    return now_ms - hour.began_ms >= HOUR_MS


def new_hour(
    now_ms: int, limits: Sequence[BreakerLimits], had: Amount, before: ClaimHourRow | None = None
) -> ClaimHourRow:
    """Return an hour without claims. It takes over the rest of the allowance of the hour before."""
    may_go = most(limits, had)
    rest = (before.released_txn, before.released_bytes, before.released_versions) if before else (0, 0, 0)
    return ClaimHourRow(now_ms, may_go.size_bytes, may_go.versions, 0, 0, *rest)


def release(hour: ClaimHourRow, txn: int, seen: Amount) -> ClaimHourRow:
    """Return the hour with an allowance beside the limits for versions that died up to a txn."""
    return replace(hour, released_txn=txn, released_bytes=seen.size_bytes, released_versions=seen.versions)


def release_more(hour: ClaimHourRow, found: Amount) -> ClaimHourRow:
    """Return the hour with a larger allowance: an expansion has found more versions that the reset covers."""
    return replace(
        hour,
        released_bytes=hour.released_bytes + found.size_bytes,
        released_versions=hour.released_versions + found.versions,
    )


class HourCount:
    """Counts the versions that are claimed in one hour."""

    __slots__ = ("_hour", "_left_bytes", "_left_versions", "_released_bytes", "_released_versions")

    def __init__(self, hour: ClaimHourRow) -> None:
        self._hour = hour
        self._left_bytes = hour.most_bytes - hour.claimed_bytes
        self._left_versions = hour.most_versions - hour.claimed_versions
        self._released_bytes, self._released_versions = hour.released_bytes, hour.released_versions

    def admit(self, size_bytes: int, death: int) -> bool:
        """Return whether one more version may be claimed, and count it if so."""
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
        """Return the hour with all counted versions."""
        return replace(
            self._hour,
            claimed_bytes=self._hour.most_bytes - self._left_bytes,
            claimed_versions=self._hour.most_versions - self._left_versions,
            released_bytes=self._released_bytes,
            released_versions=self._released_versions,
        )
