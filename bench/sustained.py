"""Measures whether the plane keeps up with deletions during the whole run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from bench.bulk import KEYS_AT_ONCE, flat_bulk_deletes, flat_deletes, flat_puts
from bench.ceilings import slowest
from bench.conditions import Conditions
from bench.deletions import KEYS_PER_SECOND
from bench.figures import Ceiling, Figure, Target
from bench.offered import Offered
from bench.shared_plane import DeletesOf, SharedPlane, shared_plane

NAME = "sustained"
BULK_NAME = "sustained-bulk"
LOAD = 0.9
"""Offered rate as a share of the burst rate, if the burst rate is well below the target."""
NEAR = 0.95
"""A burst rate from this share of the target on counts as near it: a burst of seconds begins and ends with a wait for
Spark's next batch, a long run does not."""
BEYOND = 1.01
"""Offered rate as a share of the target, if the burst rate is near it: the last keys are freed after the last send."""
PUT_AT_ONCE = 200_000
RATE = Target(20_000)
BOUNDED = Target(1.2, is_of_ratio=True, is_upper=True)
"""Bound of the ratio of medians. A backlog that grows linearly has a ratio of 1.67."""
_THIRDS = ("first", "middle", "last")
Backlog = list[tuple[float, int]]
"""Seconds since the start, and deletions sent but not yet freed at that moment."""


def measure_sustained(conditions: Conditions) -> Sequence[Figure]:
    """Deletions a second freed for the whole run (``--seconds 300`` for five minutes), and whether a backlog grows.

    The whole plane runs. First, a burst measures how fast it frees. Then deletes of keys put before are offered by a
    fixed schedule (open loop): just above the target if the burst was nearly as fast, else at nine tenths of the burst
    rate, because a burst does not show a backlog that grows over minutes. The backlog is the number of deletions sent
    and not freed. It is bounded if its median over the last third of the run is at most 1.2 times that over the middle
    third; the first third is warm-up. A backlog that grows too late to move a median lowers the rate, which counts
    until the last deletion is freed: for five minutes the target leaves three seconds. One command deletes one key
    (DeleteKey).
    """
    return _sustain(conditions, NAME, flat_deletes, 1)


def measure_sustained_bulk(conditions: Conditions) -> Sequence[Figure]:
    """As ``sustained``, with a hundred keys to a command (DeleteKeys), as clients that delete much send them."""
    return _sustain(conditions, BULK_NAME, flat_bulk_deletes, KEYS_AT_ONCE)


def _sustain(conditions: Conditions, name: str, deletes_of: DeletesOf, keys_at_once: int) -> Sequence[Figure]:
    ceiling = slowest(conditions)
    plane = shared_plane(conditions)
    plane.warm()
    burst_rate = _burst_rate(conditions, plane, name, deletes_of)
    per_second = offered_rate(burst_rate)
    count = conditions.count(int(per_second))
    bucket = plane.make_bucket(name)
    for start in range(0, count, PUT_AT_ONCE):
        conditions.say(f"{name}: {start:,} of {count:,} keys put")
        plane.send(flat_puts(bucket, min(PUT_AT_ONCE, count - start), start))
    plane.settle(name)
    before = plane.deleted_blocks()
    deletes = list(plane.maker.encoded(deletes_of(bucket, count)))
    backlog: Backlog = []
    started = time.perf_counter()
    with Offered(plane.producer, deletes, per_second / keys_at_once) as offered:

        def note(deleted: int) -> None:
            if not offered.is_done:
                backlog.append((time.perf_counter() - started, offered.count * keys_at_once - (deleted - before)))

        plane.await_deleted(before + count, name, on_poll=note)
    seconds = time.perf_counter() - started
    details = {"deletes": count, "offered_per_second": per_second, "burst_per_second": burst_rate, "seconds": seconds}
    return [
        Figure(name, count / seconds, "deletions/s", RATE, ceiling, details),
        backlog_figure(name, backlog, count / per_second),
    ]


def offered_rate(burst_rate: float) -> float:
    """Return the deletions a second to offer to a plane with this burst rate."""
    return BEYOND * RATE.bound if burst_rate >= NEAR * RATE.bound else LOAD * burst_rate


def _burst_rate(conditions: Conditions, plane: SharedPlane, name: str, deletes_of: DeletesOf) -> float:
    count = min(conditions.count(KEYS_PER_SECOND), PUT_AT_ONCE)
    bucket = plane.make_bucket(f"{name}-burst")
    plane.send(flat_puts(bucket, count))
    plane.settle(name)
    return count / plane.burst(name, bucket, count, deletes_of=deletes_of).seconds


def backlog_figure(name: str, backlog: Backlog, seconds: float) -> Figure:
    """Return the median of the backlog over the last third of the run, with that over the middle third as ceiling.

    The peak of each third is reported without a bound: it is one sample of two hundred, and a short stall of the
    machine causes it. In four runs with ratios of medians from 0.95 to 1.02, those of the peaks were 1.07 to 1.24.
    """
    thirds = [
        [left for at, left in backlog if third <= at * 3 / seconds < third + 1] or [0] for third in range(len(_THIRDS))
    ]
    first, middle, last = (float(median(lefts)) for lefts in thirds)
    ceiling = Ceiling(max(1.0, middle), "median of the middle third")
    peaks = {f"{third}_third_peak": float(max(lefts)) for third, lefts in zip(_THIRDS, thirds, strict=True)}
    details = {"first_third_median": first, **peaks}
    return Figure(f"{name}/backlog", max(1.0, last), "deletions", BOUNDED, ceiling, details)
