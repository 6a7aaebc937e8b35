"""Campaigns of players that are small programs: what they find, what is kept, and what an interruption costs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaign import recordings
from tests.campaign.__main__ import INTERRUPTED, main
from tests.campaign.campaign import Campaign, run_command
from tests.campaign.players import PLAYERS, Find, Outcome, Player, Turn, read_chaos, read_fuzz, read_runs
from tests.campaign.table import FILE, Table, finds_of, missing_points, summary
from tests.chaos.counts import POINTS, Counts
from tests.waiting import eventually

SECOND = 1 / 3600
PROGRAM = """
import sys
first, count, bad = map(int, sys.argv[1:])
for seed in range(first, first + count):
    if seed == bad:
        print(f"seed {seed}: a block was lost")
print(f"{count} runs, 0 failed")
sys.exit(first <= bad < first + count)
"""


def player(name: str = "quick", *, bad: int = -1, share: float = 1, program: str = PROGRAM) -> Player:
    """One whose turns take as long as Python takes to start; a campaign of a second has one at least."""
    return Player(
        name,
        share,
        turn_seconds=SECOND * 3600,
        seeds_per_second=5,
        command=lambda turn: [sys.executable, "-c", program, str(turn.first_seed), str(turn.most_seeds), str(bad)],
        read=lambda turn, output: read_runs(turn, output, "play {seed}"),
    )


def silent(said: str) -> None:
    """Nobody listens."""


def ranges(table: Table, name: str = "quick") -> list[tuple[int, int]]:
    return [(turn.first_seed, turn.next_seed) for turn in table.turns if turn.player == name]


def test_seeds_go_on_from_turn_to_turn_and_from_campaign_to_campaign(tmp_path: Path) -> None:
    for _ in range(3):
        Campaign(tmp_path, [player()], silent).play(SECOND / 100)
    table = Table(tmp_path)
    assert [turn.campaign for turn in table.turns] == [0, 1, 2]
    played = ranges(table)
    assert [start for start, _ in played[1:]] == [end for _, end in played[:-1]]
    assert all(turn.played == turn.set_aside == 5 for turn in table.turns)


def test_what_a_turn_that_was_cut_off_has_set_aside_is_not_played_again(tmp_path: Path) -> None:
    first = Turn(100, 50, 1.0, tmp_path)
    Table(tmp_path).begin(0, "quick", "abc", "now", first)
    Campaign(tmp_path, [player()], silent).play(SECOND)
    table = Table(tmp_path)
    assert {turn.campaign for turn in table.turns} == {0}, "it goes on rather than begin a new one"
    assert ranges(table)[:2] == [(100, 150), (150, 155)]


def test_whoever_is_behind_his_share_is_next(tmp_path: Path) -> None:
    table = Table(tmp_path)
    both = [player("often", share=3), player("seldom")]
    campaign = Campaign(tmp_path, both, silent)
    order = []
    for _ in range(8):
        one = campaign._next(table, 0)
        number = table.begin(0, one.name, "abc", "now", Turn(0, 1, 1.0, tmp_path))
        table.end(number, 1.0, Outcome(1))
        order.append(one.name)
    assert order.count("often") == 6


def test_a_find_is_said_with_how_to_see_it_again_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Table(tmp_path).begin(0, "quick", "abc", "now", Turn(0, 7, 1.0, tmp_path))
    assert main(["--hours", str(SECOND / 100), "--directory", str(tmp_path)], [player(bad=9)]) == 1
    said = capsys.readouterr().out
    assert "Found: a block was lost\n  again: play 9" in said
    assert re.search(r"^\| quick \| \w* \| 5 \(7 to 11\) \| 1 \| 0.00 \| 1 \|$", said, re.MULTILINE)
    assert (tmp_path / "turn-1" / "output.log").is_file()
    assert main(["--hours", str(SECOND / 100), "--directory", str(tmp_path)], [player(bad=9)]) == 0


def test_a_player_that_fails_without_a_find_is_one(tmp_path: Path) -> None:
    broken = player(program="raise SystemExit('no such module')")
    table = Campaign(tmp_path, [broken], silent).play(SECOND / 100)
    (find,) = finds_of(table.turns)
    assert find.error == "quick ended with status 1: no such module"
    assert str(find.seed) in find.replay


def test_what_does_not_end_is_ended(tmp_path: Path) -> None:
    status, said = run_command([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log", 0.2)
    assert (status, said) == (None, "")


SLOW = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.campaign.__main__ import main
from tests.campaign.players import Player, read_runs
wait = "import time, pathlib, sys; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
slow = Player("slow", 1, 60, 5, lambda turn: [sys.executable, "-c", wait, sys.argv[1] + "/begun"],
              lambda turn, output: read_runs(turn, output, ""))
sys.exit(main(["--hours", "1", "--directory", sys.argv[1]], [slow]))
"""


@pytest.mark.timeout(120)
def test_what_a_player_leaves_behind_is_ended(tmp_path: Path) -> None:
    """As the workers of the simulator, when it is told to stop."""
    leaves = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"
    status, said = run_command([sys.executable, "-c", leaves], tmp_path / "log", 60)
    assert status == 0
    stat = Path("/proc") / said.strip() / "stat"
    eventually(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")


def test_an_interrupted_campaign_ends_its_player_and_says_that_it_goes_on(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    eventually((tmp_path / "begun").exists)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == INTERRUPTED
    assert "interrupted: the same command goes on" in said
    (turn,) = Table(tmp_path).turns
    assert (turn.played, turn.next_seed) == (None, turn.first_seed + turn.set_aside)
    assert len((tmp_path / FILE).read_text().splitlines()) == 1


CHAOS_OUTPUT = """schedule 5, 6: as without faults, 80.1 s
Traceback (most recent call last):
tests.chaos.run.ChaosError: schedule 7: what is seen differs
failed: make chaos SEED=7 BESIDE=4 replays it; its plane is in x
"""


def test_what_chaos_says_is_understood(tmp_path: Path) -> None:
    turn = Turn(5, 40, 60.0, tmp_path)
    outcome = read_chaos(turn, CHAOS_OUTPUT)
    assert outcome == Outcome(6, (Find(7, "schedule 7: what is seen differs", "make chaos SEED=7 BESIDE=4"),), {})
    assert read_chaos(turn, CHAOS_OUTPUT.splitlines()[0]) == Outcome(2)


def test_a_run_that_failed_is_one_find_though_it_says_how_to_play_it_again(tmp_path: Path) -> None:
    output = "seed 8: LossError: a block\nseed 8: python -m tests.simulation.run_seeds --seed 8\n9 runs, 1 failed\n"
    assert read_runs(Turn(7, 40, 60.0, tmp_path), output, "again {seed}") == Outcome(
        9, (Find(8, "LossError: a block", "again 8"),)
    )


FUZZ_OUTPUT = """1 runs, 0 failed; decoders: 12,000 inputs
seed 8: stored_rows: KeyError: 'row'; its input: turn-3/stored_rows/crash-1
2 runs, 1 failed; stored_rows: 400 inputs
"""


def test_what_the_fuzzer_says_is_understood(tmp_path: Path) -> None:
    turn = Turn(7, 40, 60.0, tmp_path)
    replay = "python -m tests.fuzz --play turn-3/stored_rows/crash-1"
    assert read_fuzz(turn, FUZZ_OUTPUT) == Outcome(2, (Find(8, "stored_rows: KeyError: 'row'", replay),))


def test_a_player_who_misses_something_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = replace(player("fuzzer"), why_left_out=lambda: "no fuzzer")
    arguments = ["--hours", str(SECOND / 100), "--directory", str(tmp_path)]
    assert main(arguments, [missing, player()]) == 0
    assert "fuzzer is left out: no fuzzer\n" in capsys.readouterr().out
    assert {turn.player for turn in Table(tmp_path).turns} == {"quick"}
    assert main([*arguments, "--only", "fuzzer"], [missing, player()]) == 1


def test_points_that_were_never_struck_fail_a_campaign_that_armed_them(tmp_path: Path) -> None:
    table = Table(tmp_path)
    counts = Counts(schedules=len(POINTS) - 1)
    counts.points.update(POINTS[1:])
    for schedules in (counts.schedules, 1):
        counts.schedules = schedules
        assert not missing_points(table.turns)
        table.end(
            table.begin(0, "chaos", "abc", "now", Turn(0, 9, 1.0, tmp_path)), 1.0, Outcome(9, (), counts.to_json())
        )
    assert missing_points(Table(tmp_path).turns) == [POINTS[0]]
    assert f"Never struck: {POINTS[0]}" in summary(table.turns)
    assert f"| {POINTS[1]} | 0 | 2 |" in summary(table.turns)


@pytest.mark.long
def test_the_commands_of_all_players_are_modules_of_this_tree(tmp_path: Path) -> None:
    for one in PLAYERS:
        command = one.command(Turn(1, 2, 3.0, tmp_path))
        helped = subprocess.run([*command[:3], "--help"], capture_output=True, text=True, check=True).stdout
        assert {word for word in command[3:] if word.startswith("--")} <= set(re.findall(r"--[a-z-]+", helped))


@pytest.mark.parametrize("seed", range(3))
def test_a_recording_is_answered_on_any_plane(seed: int) -> None:
    recordings.play(seed)


def test_a_recording_that_is_answered_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.workloads.block_groups.BlockGroup.is_reclaimed", False)
    with pytest.raises(recordings.RecordingError, match=r"instead of"):
        recordings.play(0)
