"""Plays schedules on one real plane: ``python -m tests.chaos --seconds 200``, or one of them again: ``--seed N``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import count, islice
from pathlib import Path

from services.plane.machine.signals import stopping_on_signals
from tests.chaos.counts import Counts
from tests.chaos.hosts_stack import HostsStack
from tests.chaos.keeper import Keeper
from tests.chaos.linked_stack import LinkedStack
from tests.chaos.plane import ChaosPlane
from tests.chaos.run import audit, run_schedules
from tests.chaos.schedule import draw_schedule

SHARDS = 2


def chaos_stack(home: Path, *, is_shared: bool = False) -> AbstractContextManager[ChaosPlane]:
    """The plane that schedules are played on; ``is_shared``: on two hosts that share its shards."""
    return HostsStack(home) if is_shared else LinkedStack(home, SHARDS, is_rename_allowed=True)


def play(
    seeds: Iterator[int], seconds: float, home: Path, counts: Counts, *, is_shared: bool = False, beside: int = 1
) -> int:
    """Play schedules, so many beside one another, until they are over or time is; the exit status."""
    with ExitStack() as closing:
        stack = closing.enter_context(chaos_stack(home, is_shared=is_shared))
        keeper = closing.enter_context(Keeper(stack, counts))
        deadline = time.monotonic() + seconds
        while group := list(islice(seeds, beside)):
            started = time.monotonic()
            try:
                run_schedules(stack, keeper, [draw_schedule(seed, is_shared=is_shared) for seed in group])
            except Exception:
                traceback.print_exc()
                print(
                    f"failed: {_again(group, is_shared=is_shared)} replays it; its plane is in {home}",
                    flush=True,
                )
                return 1
            names = ", ".join(map(str, group))
            print(f"schedule {names}: as without faults, {time.monotonic() - started:.1f} s", flush=True)
            if time.monotonic() > deadline:
                break
        audit(stack)
        print("the audit of every shard is clean, and its ledger agrees with its log", flush=True)
    return 0


def _again(group: Sequence[int], *, is_shared: bool) -> str:
    """The command that plays a group again."""
    on = " HOSTS=1" if is_shared else ""
    beside = f" BESIDE={len(group)}" if len(group) > 1 else ""
    return f"make chaos SEED={group[0]}{beside}{on}"


def _print(counts: Counts, kept: Path | None) -> None:
    print("\n".join([*counts.lines(), *counts.table()]), flush=True)
    if kept is not None:
        kept.write_text(json.dumps(counts.to_json()) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, and fail when a schedule did."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on with new schedules")
    parser.add_argument("--seed", type=int, help="play this one schedule, and those beside it")
    parser.add_argument("--first-seed", type=int, default=int(time.time()), help="the first of the schedules")
    parser.add_argument("--count", type=int, default=10_000, help="how many schedules at most")
    parser.add_argument("--home", type=Path, help="where the plane keeps everything; a new directory by default")
    parser.add_argument(
        "--hosts", action="store_true", help="two hosts share the shards, over three brokers, with Spark on a cluster"
    )
    parser.add_argument("--beside", type=int, default=1, help="how many schedules at a time, on volumes of their own")
    parser.add_argument("--counts", type=Path, help="keep what has happened in this file, as JSON")
    parser.add_argument("--every-point", action="store_true", help="fail when a named point was never struck")
    options = parser.parse_args(arguments)
    seeds = islice(count(options.first_seed), options.count)
    if options.seed is not None:
        seeds = islice(count(options.seed), options.beside)
    home = options.home or Path(tempfile.mkdtemp(prefix="deepclean-chaos-"))
    counts = Counts()
    try:
        with stopping_on_signals():
            status = play(seeds, options.seconds, home, counts, is_shared=options.hosts, beside=options.beside)
    finally:
        _print(counts, options.counts)
    if options.every_point and (missing := counts.never_struck()):
        print(f"never struck: {', '.join(missing)}; play on with other seeds", flush=True)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
