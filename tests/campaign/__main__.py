"""Plays simulator, chaos, recordings and fuzzer for hours: ``python -m tests.campaign --hours 3``.

Interrupted and started again it goes on, and no seed is played twice. It fails if anything was found, or if a named
point of chaos was never struck.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from services.plane.machine.signals import stopping_on_signals
from tests.campaign.campaign import Campaign
from tests.campaign.players import PLAYERS, Player
from tests.campaign.table import Table, finds_of, missing_points, summary

DIRECTORY = Path(".deepclean") / "campaign"
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None, players: Sequence[Player] = PLAYERS) -> int:
    """Play, show the table, and fail when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="how long in all, as in 0.25")
    parser.add_argument(
        "--only", action="append", choices=[player.name for player in players], help="let this one play"
    )
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="where the table is kept")
    parser.add_argument("--show", action="store_true", help="show the tables of all campaigns, and play nothing")
    options = parser.parse_args(arguments)
    if options.show:
        print(summary(Table(options.directory).turns))
        return 0
    chosen = []
    for player in players:
        if options.only and player.name not in options.only:
            continue
        if reason := player.why_left_out():
            print(f"{player.name} is left out: {reason}", flush=True)
        else:
            chosen.append(player)
    if not chosen:
        return 1
    campaign = Campaign(options.directory, chosen, partial(print, flush=True))
    is_over = False
    try:
        with stopping_on_signals():
            campaign.play(options.hours)
        is_over = True
    except KeyboardInterrupt:
        print("interrupted: the same command goes on", flush=True)
    table = Table(options.directory)
    turns = table.of(table.last_campaign())
    print(summary(turns), flush=True)
    if not is_over:
        return INTERRUPTED
    return 1 if finds_of(turns) or missing_points(turns) else 0


if __name__ == "__main__":
    sys.exit(main())
