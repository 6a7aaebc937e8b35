"""Measures requests about space in a bucket with many held versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from statistics import median

from bench.bulk import VOLUME, flat_name
from bench.conditions import Conditions
from bench.figures import Figure, Target
from bench.held_versions import plane_with_held_versions
from bench.shared_plane import HeldVersions, timed_ms
from schemas.space_answers import WhatIf
from services.client.plane import SpaceReads
from services.plane.machine.errors import StackError

WHAT_IF, EXPLAIN = "what-if", "explain"
REPEATS = 5
SECOND = Target(1_000, is_upper=True)
FIFTY = Target(50, is_upper=True)


def measure_what_if(conditions: Conditions) -> Sequence[Figure]:
    """Milliseconds of a what-if over 1,000 snapshots that hold 10 million versions, for sets of four kinds.

    Requests over HTTP to the running plane: all snapshots, every second one, an adjacent tenth, and a random half. The
    median of five requests counts for each kind; the figure is the slowest kind. Dropping all snapshots must free all
    held versions.
    """
    plane, held = plane_with_held_versions(conditions)
    reads = plane.client.space(0)
    live = [one.snapshot_id for one in plane.client.snapshots(0).snapshots(VOLUME, held.bucket)]
    kinds = {
        "all": live,
        "every_second": live[::2],
        "tenth": live[len(live) // 3 : len(live) // 3 + max(1, len(live) // 10)],
        "random_half": sorted(Random(1).sample(live, max(1, len(live) // 2))),  # noqa: S311  the same at each run
    }
    details = {"snapshots": float(len(live)), "versions": float(held.versions)}
    for kind, chosen in kinds.items():
        conditions.say(f"{WHAT_IF}: {kind}")
        question = WhatIf(tuple(chosen))
        details[f"{kind}_ms"] = _median_ms(partial(reads.what_if, VOLUME, held.bucket, question))
    _check_all_is_freed(reads, held, live)
    return [Figure(WHAT_IF, max(details[f"{kind}_ms"] for kind in kinds), "ms", SECOND, None, details)]


def measure_explain(conditions: Conditions) -> Sequence[Figure]:
    """Milliseconds of an explanation of a path in a bucket of 10 million held versions and 1,000 snapshots.

    Requests over HTTP to the running plane: for keys that were overwritten from time to time, and one that never was.
    The median of five paths counts. The first request opens files that later requests reuse, and does not count.
    """
    plane, held = plane_with_held_versions(conditions)
    reads = plane.client.space(0)
    paths = [flat_name(number * held.keys // REPEATS) for number in range(REPEATS)]
    conditions.say(f"{EXPLAIN}: {len(paths)} paths")
    first_ms = timed_ms(lambda: reads.explain_path(VOLUME, held.bucket, paths[0]))
    measured = [timed_ms(partial(reads.explain_path, VOLUME, held.bucket, path)) for path in paths]
    details = {"versions": float(held.versions), "first_ms": first_ms, "slowest_ms": max(measured)}
    return [Figure(EXPLAIN, median(measured), "ms", FIFTY, None, details)]


def _check_all_is_freed(reads: SpaceReads, held: HeldVersions, live: Sequence[str]) -> None:
    freed = reads.what_if(VOLUME, held.bucket, WhatIf(tuple(live))).freed_versions
    if freed != held.versions:
        raise StackError(f"Dropping all would free {freed:,}, not {held.versions:,}: this is a defect, report it.")


def _median_ms(ask: Callable[[], object]) -> float:
    return median(timed_ms(ask) for _ in range(REPEATS))
