"""Measures the drop of a snapshot that holds nothing alone, and of one that alone holds many versions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from statistics import median

import httpx

from bench.alone import parse_metrics
from bench.bulk import VOLUME, flat_puts
from bench.ceilings import slowest
from bench.conditions import Conditions
from bench.figures import Ceiling, Figure, Target
from bench.held_versions import ALONE, plane_with_held_versions
from bench.shared_plane import SharedPlane, timed_ms
from schemas.records import DeleteSnapshot
from services.plane.machine.errors import StackError

NAME = "drop"
DROPS_PER_SECOND, LEAST_DROPS = 1, 3
FEW_KEYS = 100
ANSWER_SECONDS = 10.0
FLAT = Target(1.5, is_of_ratio=True, is_upper=True)
NONE = Target(0, is_upper=True)
FREED = Target(20_000)


def measure_drops(conditions: Conditions) -> Sequence[Figure]:
    """Dropping snapshots that hold nothing alone, and one of 1,000 that alone holds 1 million versions.

    The whole plane runs, and the snapshots of its bucket hold 10 million versions. First, snapshots of the same state
    are created, and all but the oldest are dropped. Figures: milliseconds from request to reply, as a median beside
    that in a bucket of 100 keys, and the number of sweeps that the drops cause. Last, the snapshot that holds many
    versions is dropped. Figure: versions a second, from the request until the block store has deleted the last block.
    """
    ceiling = slowest(conditions)
    plane, held = plane_with_held_versions(conditions)
    small = plane.make_bucket("small")
    plane.send(flat_puts(small, FEW_KEYS))
    count = conditions.count(DROPS_PER_SECOND, at_least=LEAST_DROPS)
    in_small, _ = _drop_same(plane, small, count)
    in_large, sweeps = _drop_same(plane, held.bucket, count)
    details = {"drops": float(len(in_large)), "versions": float(held.versions), "slowest_ms": max(in_large)}
    in_few = Ceiling(median(in_small), f"in a bucket of {FEW_KEYS} keys")
    conditions.say(f"{NAME}: freeing {held.alone_versions:,} versions")
    before = plane.deleted_blocks()
    started = time.perf_counter()
    answered_ms = timed_ms(lambda: _drop(plane, held.bucket, ALONE))
    plane.await_deleted(before + held.alone_versions, NAME)
    seconds = time.perf_counter() - started
    plane.settle(NAME)
    freed = {"versions": held.alone_versions, "seconds": seconds, "answered_ms": answered_ms}
    return [
        Figure(f"{NAME}/nothing-alone", median(in_large), "ms", FLAT, in_few, details),
        Figure(f"{NAME}/sweeps-for-nothing", sweeps, "sweeps", NONE, None, {"drops": float(len(in_large))}),
        Figure(f"{NAME}/much-alone", held.alone_versions / seconds, "versions/s", FREED, ceiling, freed),
    ]


def _drop_same(plane: SharedPlane, bucket: str, count: int) -> tuple[list[float], float]:
    """Return the milliseconds of each drop, and the number of sweeps that the drops caused."""
    names = [f"same-{number:02}" for number in range(count + 1)]
    for name in names:
        plane.snapshot(bucket, name)
    plane.settle(NAME)
    before = _sweeps(plane)
    milliseconds = [timed_ms(partial(_drop, plane, bucket, name)) for name in names[1:]]
    plane.settle(NAME)
    return milliseconds, _sweeps(plane) - before


def _drop(plane: SharedPlane, bucket: str, name: str) -> None:
    reply = plane.client.request(0, DeleteSnapshot(VOLUME, bucket, name))
    if reply.error:
        raise StackError(f"A snapshot could not be dropped ({reply.error}: {reply.message}).")


def _sweeps(plane: SharedPlane) -> float:
    """Return the number of sweeps that have ended so far."""
    page = httpx.get(f"{plane.stack.url('key_deletion')}/metrics", timeout=ANSWER_SECONDS, trust_env=False).text
    name = "deepclean_key_deletion_sweeps_total"
    return sum(value for metric, value in parse_metrics(page).items() if metric.startswith(name))
