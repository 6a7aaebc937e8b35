"""When claiming has to stop until a person has looked: what may go within an hour, and how much has gone.

An hour begins with a claim and ends an hour of log time later; what the bucket has is looked at as it begins. So
within any sixty minutes no more than twice the limits can go, and each hour's sum is known, without a list of claims.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from schemas.records import BreakerLimits, PurgeHourRow
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


def most(limits: BreakerLimits, had: Amount) -> Amount:
    """What may go within an hour of a bucket that had so much as it began."""
    return Amount(
        max(limits.floor_bytes, had.size_bytes * limits.share_percent // _PERCENT),
        max(limits.floor_versions, had.versions * limits.share_percent // _PERCENT),
    )


def is_over(hour: PurgeHourRow, now_ms: int) -> bool:
    """Whether the next claim begins another hour."""
    return now_ms - hour.began_ms >= HOUR_MS


def new_hour(now_ms: int, limits: BreakerLimits, had: Amount, seen: Amount = NOTHING) -> PurgeHourRow:
    """An hour in which nothing has gone yet. What a person has seen waiting, and let go, may go beside the limits."""
    may_go = most(limits, had)
    return PurgeHourRow(now_ms, may_go.size_bytes + seen.size_bytes, may_go.versions + seen.versions, 0, 0)


def has_room(hour: PurgeHourRow, size_bytes: int) -> bool:
    """Whether one version more may go in an hour."""
    return hour.claimed_bytes + size_bytes <= hour.most_bytes and hour.claimed_versions + 1 <= hour.most_versions


def with_claimed(hour: PurgeHourRow, claimed: Amount) -> PurgeHourRow:
    """An hour in which more has gone."""
    return replace(
        hour,
        claimed_bytes=hour.claimed_bytes + claimed.size_bytes,
        claimed_versions=hour.claimed_versions + claimed.versions,
    )
