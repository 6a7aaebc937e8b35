"""What a campaign has played, kept as one JSON object a line, and shown as tables in Markdown.

A turn has two lines: what was set aside for it, before it begins, and what came of it. One that was cut off has the
first alone. So no seed is ever played twice, whenever a campaign is interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.players import CHAOS, Find, Outcome, Turn
from tests.chaos.counts import POINTS, Counts

FILE = "turns.jsonl"


@dataclass(slots=True)
class PlayedTurn:
    """One turn of a player, as the table keeps it."""

    turn: int
    campaign: int
    player: str
    commit: str
    begun_at: str
    first_seed: int
    set_aside: int
    """Seeds that nobody else gets."""
    seconds: float = 0.0
    played: int | None = None
    """None when it was cut off."""
    finds: list[dict[str, Any]] = field(default_factory=list)
    counts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def next_seed(self) -> int:
        """The first that was neither played nor is it known to have been."""
        return self.first_seed + (self.set_aside if self.played is None or self.finds else self.played)


class Table:
    """All turns of all campaigns in a directory."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE
        self.turns: list[PlayedTurn] = []
        if self._file.is_file():
            for line in self._file.read_text("utf-8").splitlines():
                self._take(json.loads(line))

    def _take(self, row: Mapping[str, Any]) -> None:
        if "player" in row:
            self.turns.append(PlayedTurn(**row))
            return
        turn = next(one for one in self.turns if one.turn == row["turn"])
        turn.seconds, turn.played = row["seconds"], row["played"]
        turn.finds, turn.counts = row["finds"], row["counts"]

    def _append(self, row: Mapping[str, Any]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._take(row)

    def begin(self, campaign: int, player: str, commit: str, begun_at: str, turn: Turn) -> int:
        """Set the seeds of a turn aside; says its number."""
        number = len(self.turns)
        begun = PlayedTurn(number, campaign, player, commit, begun_at, turn.first_seed, turn.most_seeds)
        row = asdict(begun)
        for later in ("seconds", "played", "finds", "counts"):
            del row[later]
        self._append(row)
        return number

    def end(self, number: int, seconds: float, outcome: Outcome) -> None:
        """What has come of a turn."""
        finds = [asdict(find) for find in outcome.finds]
        row = {"turn": number, "seconds": round(seconds, 3), "played": outcome.played, "finds": finds}
        self._append({**row, "counts": dict(outcome.counts)})

    def next_seed(self, player: str) -> int | None:
        """The first seed of a player that was never set aside; None when he has not played."""
        return max((turn.next_seed for turn in self.turns if turn.player == player), default=None)

    def last_campaign(self) -> int:
        """The number of the newest; -1 when there is none."""
        return max((turn.campaign for turn in self.turns), default=-1)

    def of(self, campaign: int) -> list[PlayedTurn]:
        """The turns of a campaign."""
        return [turn for turn in self.turns if turn.campaign == campaign]


def finds_of(turns: Sequence[PlayedTurn]) -> list[Find]:
    """What was found."""
    return [Find(**find) for turn in turns for find in turn.finds]


def chaos_counts(turns: Sequence[PlayedTurn]) -> Counts:
    """What all turns of chaos have counted together."""
    counts = Counts()
    for turn in turns:
        if turn.player == CHAOS:
            counts.add(turn.counts)
    return counts


def missing_points(turns: Sequence[PlayedTurn]) -> list[str]:
    """Named points that were never struck, once so many schedules were played that each was armed."""
    counts = chaos_counts(turns)
    return counts.never_struck() if counts.schedules >= len(POINTS) else []


def summary(turns: Sequence[PlayedTurn]) -> str:
    """Tables in Markdown: by player and commit, what was found, and the points of chaos."""
    lines = ["| player | commit | seeds | turns | hours | finds |", "| --- | --- | --- | --- | --- | --- |"]
    for player, commit in dict.fromkeys((turn.player, turn.commit) for turn in turns):
        mine = [turn for turn in turns if (turn.player, turn.commit) == (player, commit)]
        played, hours = sum(turn.played or 0 for turn in mine), sum(turn.seconds for turn in mine) / 3600
        first, last = mine[0].first_seed, max(turn.next_seed for turn in mine) - 1
        finds = len(finds_of(mine))
        lines.append(f"| {player} | {commit} | {played} ({first} to {last}) | {len(mine)} | {hours:.2f} | {finds} |")
    for find in finds_of(turns):
        lines += ["", f"Found: {find.error}", f"  again: {find.replay}"]
    counts = chaos_counts(turns)
    if counts.schedules:
        lines += ["", *counts.lines(), "", *counts.table()]
    if missing := missing_points(turns):
        lines += ["", f"Never struck: {', '.join(missing)}"]
    return "\n".join(lines)
