"""Since when a version may be claimed: from the moment when nobody holds it any more and nothing holds it back.

It measures how long versions take until they are freed. Nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from schemas.records import ReclaimClockRow

MAX_DROPS = 256
"""Drops of a bucket whose times are kept. What an older one has let go, and is still there, counts from the newest of
those: it has waited for so many drops, and for longer than is said."""
DEATHS_APART_MS = 1_000
"""Deaths between two that are closer than this count as the older one of them."""
NEVER = ReclaimClockRow((), (), 0, 0, 0)


def with_drop(row: ReclaimClockRow, snapshot_txn: int, time_ms: int) -> ReclaimClockRow:
    """A snapshot of the bucket, taken at a txn, is dropped."""
    txns, times = (*row.drop_txns, snapshot_txn), (*row.drop_times_ms, time_ms)
    if len(txns) <= MAX_DROPS:
        return replace(row, drop_txns=txns, drop_times_ms=times)
    forgotten = max(row.forgotten_txn, txns[0])
    return replace(
        row, drop_txns=txns[1:], drop_times_ms=times[1:], forgotten_txn=forgotten, forgotten_time_ms=times[0]
    )


class Held:
    """When the last snapshot that had held a version was dropped; one bucket's, for many versions."""

    def __init__(self, row: ReclaimClockRow) -> None:
        self._newest_first = list(zip(reversed(row.drop_txns), reversed(row.drop_times_ms), strict=True))
        self._forgotten = row.forgotten_txn, row.forgotten_time_ms
        self._highest_txn = max((*row.drop_txns, row.forgotten_txn))

    def until_ms(self, birth: int, death: int) -> int:
        """The log time of that drop; 0 when no snapshot ever held it."""
        if birth > self._highest_txn:
            return 0
        for txn, time_ms in self._newest_first:
            if birth <= txn < death:
                return time_ms
        forgotten_txn, forgotten_ms = self._forgotten
        return forgotten_ms if birth <= forgotten_txn else 0


def death_times(deaths: Iterable[int], time_of: Callable[[int], int]) -> Mapping[int, int]:
    """The log times of some deaths, of which only few are looked up: they rise together."""
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
