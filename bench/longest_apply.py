"""Measures how long metadata does not read its log, under writers, drops and sweeps."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from random import Random

import httpx

from bench.alone import parse_metrics
from bench.bulk import KEY_BYTES, VOLUME, flat_name
from bench.conditions import Conditions
from bench.figures import Figure, Target
from bench.held_versions import ALONE, plane_with_held_versions, snapshot_name
from bench.offered import writing
from bench.shared_plane import HeldVersions, SharedPlane
from schemas.records import DeleteSnapshot, PutKey
from services.client.plane import NamespaceCommand
from services.plane.machine.errors import StackError
from services.runtime.process.metrics import AWAY_METRIC

NAME = "longest-apply"
DROPS_PER_SECOND, LEAST_DROPS = 2, 3
DROPPED_SHARE = 4
"""At most one in this many snapshots is dropped: a longer run has longer pauses between drops."""
ANSWER_SECONDS = 10.0
QUARTER = Target(250, is_upper=True)
_UP_TO = re.compile(r'le="([^"]+)"')
Counts = Mapping[float, float]
"""The number of times that metadata was away from its log, by the upper bound in seconds."""


def measure_longest_apply(conditions: Conditions) -> Sequence[Figure]:
    """Milliseconds that metadata is away from its log, all but one time in a thousand, amid writers, drops and sweeps.

    The whole plane runs, and 1,000 snapshots of its bucket hold 10 million versions. Keys of that bucket are
    overwritten, 2,000 a second, while its snapshots are dropped, at most two a second: first the snapshot that alone
    holds a million versions, if it exists, then others in the order of creation. Each drop frees some versions, so that
    sweeps, claims and finishes run at the same time. metadata has a histogram of the times between two polls of its
    log; it is read before the drops and after all versions are freed. Quantiles are interpolated between two bounds of
    the histogram; the longest time is the bound above it.
    """
    plane, held = plane_with_held_versions(conditions)
    drops = min(conditions.count(DROPS_PER_SECOND, at_least=LEAST_DROPS), held.snapshots // DROPPED_SHARE)
    names = [ALONE, *(snapshot_name(number) for number in range(drops))]
    before, swept = away_counts(_metrics(plane, "metadata")), _swept(plane)
    bodies, pause = plane.maker.encoded(_overwrites(held)), threading.Event()
    started, pace_seconds = time.perf_counter(), max(1 / DROPS_PER_SECOND, conditions.seconds / len(names))
    with writing(plane.stack.address.bootstrap_servers, bodies, conditions.sizes.offered_per_second) as offered:
        for number, name in enumerate(names):
            conditions.say(f"{NAME}: {number} of {len(names)} snapshots dropped")
            pause.wait(max(0.0, started + number * pace_seconds - time.perf_counter()))
            _drop(plane, held.bucket, name)
    plane.settle(NAME)
    away = away_counts(_metrics(plane, "metadata"))
    counts = {bound: count - before.get(bound, 0.0) for bound, count in away.items()}
    details = {
        "p50_ms": 1_000 * quantile(counts, 0.5),
        "p99_ms": 1_000 * quantile(counts, 0.99),
        "max_ms_at_most": 1_000 * quantile(counts, 1.0),
        "times": max(counts.values()),
        "versions": float(held.versions),
        "snapshots": float(held.snapshots),
        "drops": float(len(names)),
        "sweeps": _swept(plane) - swept,
        "overwrites": float(offered.count),
        "seconds": time.perf_counter() - started,
    }
    return [Figure(NAME, 1_000 * quantile(counts, 0.999), "ms", QUARTER, None, details)]


def _overwrites(held: HeldVersions) -> Iterator[NamespaceCommand]:
    random = Random(held.keys)  # noqa: S311  the same at each run
    while True:
        yield PutKey(VOLUME, held.bucket, flat_name(random.randrange(held.keys)), KEY_BYTES)


def _drop(plane: SharedPlane, bucket: str, name: str) -> None:
    """Drop a snapshot, unless another row has dropped it already."""
    reply = plane.client.request(0, DeleteSnapshot(VOLUME, bucket, name))
    if reply.error and name != ALONE:
        raise StackError(f"A snapshot could not be dropped ({reply.error}: {reply.message}).")


def _metrics(plane: SharedPlane, service: str) -> str:
    return httpx.get(f"{plane.stack.url(service)}/metrics", timeout=ANSWER_SECONDS, trust_env=False).text


def _swept(plane: SharedPlane) -> float:
    """Return the number of sweeps that have ended so far."""
    lines = _metrics(plane, "key_deletion").splitlines()
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if line.startswith("deepclean_key_deletion_sweeps_total")
    )


def away_counts(page: str) -> Counts:
    """Return the histogram of a page of metrics, summed over all shards."""
    counts: dict[float, float] = {}
    for name, value in parse_metrics(page).items():
        bound = _UP_TO.search(name)
        if name.startswith(f"{AWAY_METRIC}_bucket{{") and bound is not None:
            counts[float(bound[1])] = counts.get(float(bound[1]), 0.0) + value
    return counts


def quantile(counts: Counts, share: float) -> float:
    """Return the time that this share of all does not exceed, interpolated between two bounds, or infinity."""
    bounds = sorted(counts)
    wanted = share * counts[bounds[-1]] if bounds else 0.0
    below, until = 0.0, 0.0
    for bound in bounds:
        here = counts[bound]
        if here >= wanted and here > until:
            part = (wanted - until) / (here - until)
            return bound if bound == float("inf") else below + part * (bound - below)
        below, until = bound, here
    return 0.0
