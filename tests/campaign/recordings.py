"""What a real Ozone answered, on planes that differ: in batches, shards, and services that start anew at any moment.

``python -m tests.campaign.recordings --first-seed 1 --count 200``; a seed says which case, on which plane.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Sequence
from random import Random
from typing import Any

from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import SERVICES, InMemoryPlane
from services.workloads.replay import Replay
from tests.recorded_cases import CASES, expected_lines, operations_of
from tests.simulation.run_seeds import silence

_BATCHES = (1, 2, 3, 10, 2_000)
_MOST_STARTS = 0.5
"""Starts of a service an operation, at most."""
PROGRESS_SECONDS = 10.0


class RecordingError(AssertionError):
    """A plane has not answered as Ozone did."""


def play(seed: int) -> None:
    """Play one case.

    Raises:
        RecordingError: with the first line that differs.
    """
    random = Random(seed)
    case = CASES[seed % len(CASES)]
    plane = InMemoryPlane(random.randint(1, 3), max_batch_messages=random.choice(_BATCHES))
    operations = operations_of(case)
    replay = Replay(InMemoryClient(plane), first_shard=random.randrange(plane.shards))
    replay.prepare(operations)
    starts = random.uniform(0, _MOST_STARTS)
    found = list[dict[str, Any]]()
    for number, operation in operations:
        found += replay.execute(number, operation)
        for _ in range(random.randint(0, 3)):
            plane.step()
        if random.random() < starts:
            plane.start(random.choice(SERVICES), random.randrange(plane.shards))
    found += replay.collect()
    expected, _ = expected_lines(case)
    lines = [json.loads(json.dumps(line)) for line in found]
    for line, wanted in zip(lines, expected, strict=True):
        if line != wanted:
            raise RecordingError(f"{case}: {json.dumps(line)[:300]} instead of {json.dumps(wanted)[:300]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, say how it goes, and fail when a case did."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.recordings", description=__doc__)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=len(CASES))
    options = parser.parse_args(arguments)
    silence()
    failed, said = 0, time.monotonic()
    for runs, seed in enumerate(range(options.first_seed, options.first_seed + options.count), start=1):
        try:
            play(seed)
        except Exception as error:  # whatever breaks a run is a finding
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
            traceback.print_exc()
        if runs == options.count or time.monotonic() - said > PROGRESS_SECONDS:
            said = time.monotonic()
            print(f"{runs} runs, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
