"""Prints the snapshots that hold something."""

from __future__ import annotations

from collections.abc import Sequence

from services.cli.output import print_table
from services.cli.terminal import say
from services.domain.words import counted
from services.wording.holders import Holder

MOST_SHOWN = 12
"""Of more holders than that, the oldest and the newest are printed."""


def print_holders(holders: Sequence[Holder]) -> None:
    """Print why holders stay and until when, in chain order: of many, the oldest and the newest."""
    if not holders:
        return
    rows = [(one.name, one.created, one.why, one.until) for one in holders]
    left_out, half = len(rows) - MOST_SHOWN, MOST_SHOWN // 2
    if left_out > 0:
        rows[half:-half] = [("…", "", f"{counted(left_out, 'more holder')} (--json has all)", "")]
    say("")
    print_table(["HOLDER", "CREATED", "STAYS BECAUSE", "UNTIL"], rows)
