"""Long work says its rate and the time that is left, on a terminal and elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.cli.progress import TimeLeft, counting, shown_progress

Clock = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Sets the clock, which does not go on by itself."""

    def set_to(seconds: float) -> None:
        monkeypatch.setattr("services.cli.progress.time.monotonic", lambda: seconds)

    set_to(100.0)
    return set_to


def test_the_time_left_is_that_of_the_step_at_its_own_pace(set_clock: Clock) -> None:
    left = TimeLeft()
    assert left.text(4, "starting") == ""
    set_clock(130.0)
    assert left.text(20, "reading") == "", "the pace of another step says nothing"
    set_clock(140.0)
    assert left.text(40, "reading") == ", about 30s left"
    set_clock(200.0)
    assert left.text(100, "reading") == ""


def test_each_quarter_is_a_line_where_there_is_no_terminal(
    set_clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with shown_progress("shard 0") as shown:
        told = counting(shown, "replaying", "command")
        for done in range(0, 1_001, 10):
            set_clock(100.0 + done / 50)
            told(done, 1_000)
    assert capsys.readouterr().err.splitlines() == [
        "shard 0: replaying (0 %), 0 of 1,000 commands, 0 a second",
        "shard 0: replaying (25 %), 250 of 1,000 commands, 50 a second, about 15s left",
        "shard 0: replaying (50 %), 500 of 1,000 commands, 50 a second, about 10s left",
        "shard 0: replaying (75 %), 750 of 1,000 commands, 50 a second, about 5s left",
        "shard 0: replaying (100 %), 1,000 of 1,000 commands, 50 a second",
    ]


def test_nothing_to_do_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress("shard 0") as shown:
        counting(shown, "replaying", "command")(0, 0)
    assert capsys.readouterr().err == "shard 0: replaying (100 %), 0 of 0 commands, 0 a second\n"
