"""Plays turns until a campaign's hours are over: whoever is furthest behind his share of the time is next."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import randbelow

from bench.figures import commit
from tests.campaign.players import Find, Outcome, Player, Turn
from tests.campaign.table import Table

GRACE_SECONDS = 1_200.0
"""What a turn may take beyond its time: the last schedules of chaos are judged, a busy machine is slow."""
STOP_SECONDS = 90.0
SHORTEST_TURN_SECONDS = 1.0
LAST_LINE_LETTERS = 300
SEEDS = 2**31


@dataclass(slots=True)
class Campaign:
    """One campaign over a directory that keeps the table of all."""

    directory: Path
    players: Sequence[Player]
    say: Callable[[str], None] = print

    def play(self, hours: float) -> Table:
        """Play for so long in all, counting what this campaign has played before it was interrupted.

        One whose hours are over is finished: then the next one begins, with seeds behind those of all before.
        """
        table = Table(self.directory)
        number, wanted_seconds = max(0, table.last_campaign()), hours * 3600
        if table.of(number) and wanted_seconds - self._spent(table, number) < SHORTEST_TURN_SECONDS:
            number += 1
        while (left := wanted_seconds - self._spent(table, number)) >= SHORTEST_TURN_SECONDS or not table.of(number):
            self._play_turn(table, number, self._next(table, number), left)
        return table

    def _spent(self, table: Table, campaign: int, player: str = "") -> float:
        return sum(turn.seconds for turn in table.of(campaign) if player in ("", turn.player))

    def _next(self, table: Table, campaign: int) -> Player:
        return min(self.players, key=lambda player: self._spent(table, campaign, player.name) / player.share)

    def _play_turn(self, table: Table, campaign: int, player: Player, left_seconds: float) -> None:
        seconds = min(player.turn_seconds, max(left_seconds, SHORTEST_TURN_SECONDS))
        first = table.next_seed(player.name)
        directory = self.directory / f"turn-{len(table.turns)}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        turn = Turn(
            randbelow(SEEDS) if first is None else first, self._most(table, player, seconds), seconds, directory
        )
        begun_at = datetime.now(UTC).isoformat(timespec="seconds")
        number = table.begin(campaign, player.name, commit()[:12], begun_at, turn)
        self.say(f"turn {number}: {player.name}, up to {turn.most_seeds} seeds from {turn.first_seed} on")
        started = time.monotonic()
        status, output = run_command(player.command(turn), directory / "output.log", seconds + GRACE_SECONDS)
        outcome = self._outcome(player, turn, status, output)
        table.end(number, time.monotonic() - started, outcome)
        for find in outcome.finds:
            self.say(f"found by {player.name}: {find.error}\n  again: {find.replay}\n  its log: {directory}")
        if not outcome.finds:
            shutil.rmtree(directory, ignore_errors=True)

    def _most(self, table: Table, player: Player, seconds: float) -> int:
        """How many seeds to set aside: as many as he has played in that time before, on this machine."""
        ended = [turn for turn in table.turns if turn.player == player.name and turn.played and turn.seconds]
        rate = player.seeds_per_second
        if ended:
            rate = min(rate, sum(turn.played or 0 for turn in ended) / sum(turn.seconds for turn in ended))
        return max(1, round(rate * seconds))

    def _outcome(self, player: Player, turn: Turn, status: int | None, output: str) -> Outcome:
        """What a player says, and that he failed without a find, which is one."""
        outcome = player.read(turn, output)
        if status == 0 or outcome.finds:
            return outcome
        ended = "did not end in time" if status is None else f"ended with status {status}"
        last = output.strip().splitlines()[-1][:LAST_LINE_LETTERS] if output.strip() else "it said nothing"
        error = f"{player.name} {ended}: {last}"
        return Outcome(outcome.played, (Find(turn.first_seed, error, " ".join(player.command(turn))),), outcome.counts)


def run_command(command: Sequence[str], log_file: Path, most_seconds: float) -> tuple[int | None, str]:
    """Run a command with all that it starts; its status, None if it had to be ended, and what it said."""
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status: int | None = process.wait(most_seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
    return status, log_file.read_text("utf-8", errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Have it stop what it has started, and whatever of that is left then."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):  # nothing is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
