"""Who plays in a campaign: each with a command, a share of the time, and what to make of its output.

Another one is one more line of ``PLAYERS``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.counts import POINTS
from tests.fuzz.__main__ import MISSING, is_installed
from tests.fuzz.targets import TARGETS

CHAOS = "chaos"
BESIDE = 4
"""Schedules of chaos at a time."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a player is asked for: seeds from one on, as many at most, for about so long."""

    first_seed: int
    most_seeds: int
    seconds: float
    directory: Path
    """Its own; left behind only when something was found."""


@dataclass(frozen=True, slots=True)
class Find:
    """Something that went wrong, and how to see it again."""

    seed: int
    error: str
    replay: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What has come of a turn."""

    played: int
    """How many seeds, from the first on."""
    finds: tuple[Find, ...] = ()
    counts: Mapping[str, Any] = field(default_factory=dict)
    """What else was counted: summed up over a campaign by whoever knows what it is."""


@dataclass(frozen=True, slots=True)
class Player:
    """One way to look for faults."""

    name: str
    share: float
    """Of the time, in proportion to the shares of the others."""
    turn_seconds: float
    """How long a turn takes, about: what an interruption costs at most."""
    seeds_per_second: float
    """At most: so many are set aside for a turn."""
    command: Callable[[Turn], Sequence[str]]
    read: Callable[[Turn, str], Outcome]
    """From the output of a turn that has ended, whatever its status was."""
    why_left_out: Callable[[], str] = str
    """What he needs and is not here; empty when he can play."""


def _python(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]


def _seeds(turn: Turn) -> tuple[object, ...]:
    return ("--first-seed", turn.first_seed, "--count", turn.most_seeds)


def read_runs(turn: Turn, output: str, replay: str) -> Outcome:
    """Of a module that says ``seed N: error`` of each run that failed and ``N runs, …`` as it goes."""
    finds = [
        Find(int(seed), error, replay.format(seed=seed))
        for seed, error in re.findall(r"^seed (\d+): (?!python -m)(.*)$", output, re.MULTILINE)
    ]
    runs = [int(count) for count in re.findall(r"^(\d+) runs, ", output, re.MULTILINE)]
    return Outcome(max(runs, default=turn.most_seeds), tuple(finds))


def read_chaos(turn: Turn, output: str) -> Outcome:
    """Chaos says of each group of schedules that it was as without faults, or how to play it again."""
    played = sum(len(seeds.split(",")) for seeds in re.findall(r"^schedule ([\d, ]+): ", output, re.MULTILINE))
    finds = []
    for replay in re.findall(r"^failed: (make chaos SEED=.*?) replays it", output, re.MULTILINE):
        seed = int(re.findall(r"SEED=(\d+)", replay)[0])
        errors = re.findall(r"^\S*Error: (.*)$", output, re.MULTILINE)
        finds.append(Find(seed, errors[-1] if errors else "see the log of the turn", replay))
        played += BESIDE
    kept = turn.directory / "counts.json"
    return Outcome(played, tuple(finds), json.loads(kept.read_text()) if kept.is_file() else {})


def read_fuzz(turn: Turn, output: str) -> Outcome:
    """The fuzzer says of each round that has found something which input it was."""
    finds = [
        Find(int(seed), error, f"python -m tests.fuzz --play {found}")
        for seed, error, found in re.findall(r"^seed (\d+): (.*); its input: (.*)$", output, re.MULTILINE)
    ]
    return Outcome(read_runs(turn, output, "").played, tuple(finds))


_SIMULATION_REPLAY = "python -m tests.simulation.run_seeds --seed {seed}"
_RECORDINGS_REPLAY = "python -m tests.campaign.recordings --first-seed {seed} --count 1"

PLAYERS = (
    Player(
        "simulator",
        share=4,
        turn_seconds=120,
        seeds_per_second=20,
        command=lambda turn: _python("tests.simulation.run_seeds", *_seeds(turn)),
        read=lambda turn, output: read_runs(turn, output, _SIMULATION_REPLAY),
    ),
    Player(
        CHAOS,
        share=5,
        turn_seconds=420,
        seeds_per_second=len(POINTS) / 120,
        command=lambda turn: _python(
            "tests.chaos",
            *_seeds(turn),
            *("--seconds", turn.seconds, "--beside", BESIDE),
            *("--home", turn.directory / "plane", "--counts", turn.directory / "counts.json"),
        ),
        read=read_chaos,
    ),
    Player(
        "recordings",
        share=1,
        turn_seconds=60,
        seeds_per_second=4,
        command=lambda turn: _python("tests.campaign.recordings", *_seeds(turn)),
        read=lambda turn, output: read_runs(turn, output, _RECORDINGS_REPLAY),
    ),
    Player(
        "fuzzer",
        share=1,
        turn_seconds=25 * len(TARGETS),
        seeds_per_second=1 / 25,
        command=lambda turn: _python(
            "tests.fuzz", *_seeds(turn), *("--seconds", turn.seconds, "--found", turn.directory)
        ),
        read=read_fuzz,
        why_left_out=lambda: "" if is_installed() else MISSING,
    ),
)
"""By default; a share is of the time, so that slow players play, too."""
