"""Plays many runs: ``python -m tests.simulation.run_seeds --count 2000``, or one of them again: ``--seed N``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass

import structlog

from tests.simulation.simulator import RunReport, simulate

PROGRESS_SECONDS = 10.0
CHUNK = 10


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that broke a promise."""

    seed: int
    error: str
    trace: str


def silence() -> None:
    """Faults make services warn; nobody reads that here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def play(seed: int) -> RunReport | Failure:
    """Play one run; a failure is told, not raised."""
    try:
        return simulate(seed)
    except Exception as error:  # whatever breaks a run is a finding
        return Failure(seed, f"{type(error).__name__}: {error}", traceback.format_exc())


def play_all(seeds: Sequence[int], processes: int) -> Iterator[RunReport | Failure]:
    """Play runs beside one another, and tell of each as it ends."""
    if processes == 1:
        yield from map(play, seeds)
        return
    with ProcessPoolExecutor(processes, initializer=silence) as pool:
        yield from pool.map(play, seeds, chunksize=CHUNK)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, tell how it goes, and fail when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run_seeds", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one run, with all that it has to say")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--show", type=int, default=5, help="how many failures are shown in full")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        report = simulate(options.seed)
        print(json.dumps(asdict(report), indent=2))
        return 0
    silence()
    started = reported = time.monotonic()
    steps = crashes = restores = deleted = takeovers = refused = with_instances = added = 0
    failures: list[Failure] = []
    seeds = range(options.first_seed, options.first_seed + options.count)
    for runs, outcome in enumerate(play_all(seeds, options.processes), start=1):
        if isinstance(outcome, Failure):
            failures.append(outcome)
            print(f"seed {outcome.seed}: {outcome.error[:600]}", flush=True)
            if len(failures) <= options.show:
                print(outcome.trace, file=sys.stderr, flush=True)
        else:
            steps += outcome.steps
            crashes += outcome.crashes
            restores += outcome.restores
            deleted += outcome.deleted_groups
            with_instances += bool(outcome.mix.takeover)
            takeovers += outcome.takeovers
            refused += outcome.refused
            added += outcome.added_shards
        if time.monotonic() - reported > PROGRESS_SECONDS or runs == options.count:
            reported = time.monotonic()
            rate = runs / (reported - started) * 60
            print(
                f"{runs} runs, {len(failures)} failed, {rate:.0f} runs/minute, {steps} steps, {crashes} crashes, "
                f"{restores} restores, {deleted} groups deleted, {with_instances} runs with instances, "
                f"{takeovers} takeovers, {refused} messages of former owners refused, "
                f"{added} shards added",
                flush=True,
            )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
