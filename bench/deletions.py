"""Measures how fast the whole plane frees deleted keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.bulk import flat_bulk_deletes, flat_deletes, flat_puts
from bench.ceilings import slowest
from bench.conditions import Conditions
from bench.figures import Ceiling, Figure, Target
from bench.shared_plane import Burst, DeletesOf, SharedPlane, shared_plane

NAME = "deletions"
KEYS_PER_SECOND = 8_000
LIVE_SNAPSHOTS = 20
HELD_SHARE = 10
"""In the variant with snapshots, they hold one further key for every ``HELD_SHARE`` keys."""
TARGET = Target(20_000)
FREE, HELD = "free", "held"


@dataclass(frozen=True, slots=True)
class Variant:
    """The command that deletes keys, and the number of live snapshots."""

    name: str
    live_snapshots: int
    deletes_of: DeletesOf


VARIANTS = (
    Variant(NAME, 0, flat_deletes),
    Variant(f"{NAME}/{LIVE_SNAPSHOTS}-snapshots", LIVE_SNAPSHOTS, flat_deletes),
    Variant(f"{NAME}/bulk", 0, flat_bulk_deletes),
    Variant(f"{NAME}/bulk-{LIVE_SNAPSHOTS}-snapshots", LIVE_SNAPSHOTS, flat_bulk_deletes),
)


def measure_deletions(conditions: Conditions) -> Sequence[Figure]:
    """Deletions a second from command to freed, with the whole plane running, without and with 20 live snapshots.

    Once with a command for each key (DeleteKey), once in bulk, a hundred keys to a command (DeleteKeys).
    Keys are put and the plane settles. Then the deletes of all keys, encoded before, are sent; the clock runs from the
    first delete until the block store reports the last block as deleted. In the variant with snapshots, the snapshots
    hold a further tenth of the keys, which must stay: after the measurement the plane settles again, and exactly the
    other keys must be freed. A first round is not counted: until the JVM has compiled its hot code, Spark takes several
    times as long.
    """
    ceiling = slowest(conditions)
    plane = shared_plane(conditions)
    plane.warm()
    return [measure_burst(conditions, plane, variant, ceiling) for variant in VARIANTS]


def measure_burst(conditions: Conditions, plane: SharedPlane, variant: Variant, ceiling: Ceiling) -> Figure:
    """Measure one variant."""
    name, snapshots = variant.name, variant.live_snapshots
    count = conditions.count(KEYS_PER_SECOND)
    bucket = plane.make_bucket(HELD if snapshots else FREE)
    conditions.say(f"{name}: putting {count:,} keys")
    held = _hold_some(plane, bucket, count, snapshots)
    plane.send(flat_puts(bucket, count, held))
    plane.settle(name)
    burst = plane.burst(name, bucket, count, held, variant.deletes_of)
    details = {"keys": count, "live_snapshots": snapshots, "held_keys": held, "seconds": burst.seconds}
    return Figure(name, count / burst.seconds, "deletions/s", TARGET, ceiling, {**details, **cpu_details(burst)})


def _hold_some(plane: SharedPlane, bucket: str, count: int, snapshots: int) -> int:
    """Put some keys in turns with the snapshots that hold them; return the number of keys."""
    each = max(1, count // HELD_SHARE // snapshots) if snapshots else 0
    for number in range(snapshots):
        plane.send(flat_puts(bucket, each, number * each))
        plane.snapshot(bucket, f"snapshot-{number:02}")
    return each * snapshots


def cpu_details(burst: Burst) -> dict[str, float]:
    """Return the processor time of each process in a burst, as details of a figure."""
    return {f"{process}_cpu_seconds": used for process, used in burst.cpu_seconds.items()}
