"""The moment from which a version can be claimed: no snapshot holds it and its claims are not suspended.

It serves to measure how long freeing takes. No decision depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from schemas.records import ReclaimClockRow

MAX_DROPS = 256
"""Maximum drops of a bucket whose times are kept. Versions that an older drop released count from the newest forgotten
drop, so their reported wait is too short."""
DEATHS_APART_MS = 1_000
"""Deaths between two that are closer than this get the time of the older one."""
NEVER = ReclaimClockRow((), (), 0, 0, 0)


def with_drop(row: ReclaimClockRow, snapshot_txn: int, time_ms: int) -> ReclaimClockRow:
    """Return the row after the drop of the snapshot that was captured at a txn."""
    txns, times = (*row.drop_txns, snapshot_txn), (*row.drop_times_ms, time_ms)
    if len(txns) <= MAX_DROPS:
        return replace(row, drop_txns=txns, drop_times_ms=times)
    forgotten = max(row.forgotten_txn, txns[0])
    return replace(
        row, drop_txns=txns[1:], drop_times_ms=times[1:], forgotten_txn=forgotten, forgotten_time_ms=times[0]
    )


class Held:
    """Finds when the last snapshot that held a version was dropped, for many versions of one bucket."""

    def __init__(self, row: ReclaimClockRow) -> None:
        self._newest_first = list(zip(reversed(row.drop_txns), reversed(row.drop_times_ms), strict=True))
        self._forgotten = row.forgotten_txn, row.forgotten_time_ms
        self._highest_txn = max((*row.drop_txns, row.forgotten_txn))

    def has_held(self, oldest_birth: int) -> bool:
        """Return whether a snapshot that was dropped may have held a version of this birth or a later one."""
        return oldest_birth <= self._highest_txn

    def until_ms(self, birth: int, death: int) -> int:
        """Return the log time of the drop that released a version; 0 when no snapshot ever held it."""
        if birth > self._highest_txn:
            return 0
        for txn, time_ms in self._newest_first:
            if birth <= txn < death:
                return time_ms
        forgotten_txn, forgotten_ms = self._forgotten
        return forgotten_ms if birth <= forgotten_txn else 0


def death_times(deaths: Iterable[int], time_of: Callable[[int], int]) -> Mapping[int, int]:
    """Return the log times of some deaths. Times rise with txns, so only a few are looked up."""
    ordered = sorted(set(deaths))
    times: dict[int, int] = {}
    spans = [(0, len(ordered) - 1)] if ordered else []
    while spans:
        first, last = spans.pop()
        for end in (first, last):
            if ordered[end] not in times:
                times[ordered[end]] = time_of(ordered[end])
        older_ms, newer_ms = times[ordered[first]], times[ordered[last]]
        if newer_ms - older_ms < DEATHS_APART_MS:
            times.update(dict.fromkeys(ordered[first + 1 : last], older_ms))
        elif last - first > 1:
            middle = (first + last) // 2
            spans += [(first, middle), (middle, last)]
    return times
