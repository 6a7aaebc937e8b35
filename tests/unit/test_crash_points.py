"""A process of the real plane dies at a named point when it is told to at its start, else never; what a schedule is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from schemas.records import CollectionState
from services.log.clock import SystemClock
from services.log.kafka_sinks import FLUSH_SECONDS
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.runtime.loop.probe import Point, crash_probe, no_probe, parse_crash_point
from services.runtime.process.settings import InvalidSettingsError, read_settings
from services.workloads.replay import Replay
from tests.chaos.counts import POINTS, Counts
from tests.chaos.run import expected_lines, operate
from tests.chaos.schedule import KILLED_IN_TURN, POINTS_OF_SERVICES, TWINNED, CutKind, FaultKind, draw_schedule

PROGRAM = """
from services.runtime.loop.probe import Point, crash_probe
probe = crash_probe("after_write:2")
probe(Point.AFTER_WRITE)
probe(Point.BEFORE_WRITE)
print("still here", flush=True)
probe(Point.AFTER_WRITE)
print("not here")
"""


def test_a_process_dies_at_the_given_pass() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (-signal.SIGKILL, "still here\n")


def test_without_a_crash_point_nothing_dies() -> None:
    assert crash_probe("") is no_probe
    assert read_settings("metadata", ["--directory", "x"]).crash_at == ""
    for point in Point:
        no_probe(point)


@pytest.mark.parametrize("text", ["after_write", "after_write:0", "after_write:x", "nowhere:1", ":1"])
def test_what_is_no_point_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="as in after_write:3; points are before_write, "):
        parse_crash_point(text)
    with pytest.raises(InvalidSettingsError, match="--crash-at"):
        read_settings("metadata", ["--directory", "x", "--crash-at", text])


def test_a_clock_can_be_ahead() -> None:
    assert 59_000 < SystemClock(60_000).now_ms() - SystemClock().now_ms() <= 60_000


def test_a_seed_draws_one_schedule_and_seeds_in_a_row_arm_every_point() -> None:
    schedules = [draw_schedule(seed) for seed in range(len(POINTS_OF_SERVICES))]
    assert schedules[3] == draw_schedule(3)
    armed = {
        (fault.target, fault.point)
        for schedule in schedules
        for fault in schedule.faults
        if fault.kind is FaultKind.CRASH_AT
    }
    assert armed == set(POINTS_OF_SERVICES)


@pytest.mark.parametrize("first", [0, 1, 2, 1_795_418_196])
def test_as_many_seeds_in_a_row_as_the_gate_plays_kill_what_others_rely_on(first: int) -> None:
    faults = [fault for seed in range(first, first + len(KILLED_IN_TURN)) for fault in draw_schedule(seed).faults]
    killed = {fault.target for fault in faults if fault.kind is FaultKind.KILL}
    assert killed >= {"broker", "streaming", "metadata", "directory_deletion"}


def test_schedules_cut_pause_longer_than_any_time_out_and_run_twins() -> None:
    faults = [fault for seed in range(60) for fault in draw_schedule(seed).faults]
    assert {fault.cut for fault in faults if fault.kind is FaultKind.CUT} == set(CutKind)
    longest = {
        kind: max(one.seconds for one in faults if one.kind is kind) for kind in (FaultKind.PAUSE, FaultKind.CUT)
    }
    assert min(longest.values()) > FLUSH_SECONDS
    assert {fault.target for fault in faults if fault.kind is FaultKind.TWIN} == set(TWINNED)


def test_a_point_that_was_never_struck_is_named() -> None:
    counts = Counts()
    counts.armed.update(POINTS)
    counts.points.update(POINTS[1:])
    assert counts.never_struck() == [POINTS[0]] == ["metadata before_write"]
    assert counts.table()[2:4] == ["| metadata before_write | 1 | 0 |", "| metadata after_write | 1 | 1 |"]
    assert not Counts().add(counts.to_json()).add({"points": {POINTS[0]: 2}}).never_struck()


def test_the_summary_names_every_figure() -> None:
    counts = Counts(schedules=3, restarts=7, repeated_messages=40, trips=2)
    counts.kills["metadata"] = 2
    counts.points["mock_scm after_write"] = 1
    counts.missed["metadata before_write"] = 1
    assert counts.lines()[0].startswith("3 schedules: 3 kills, 7 restarts, 0 broker restarts, 40 messages repeated")
    assert counts.lines()[0].endswith("0 databases restored, 0 workers lost, 0 owners fenced, 2 breakers tripped")
    assert counts.lines()[1:] == [
        "  killed at random moments: metadata 2",
        "  died at named points (1): mock_scm after_write 1",
        "  armed and did not strike (1): metadata before_write 1",
        "  cut off from the broker: none",
    ]


@pytest.mark.parametrize("seed", range(6))
def test_pauses_of_a_schedule_change_nothing_of_what_is_seen_when_it_is_settled(seed: int) -> None:
    schedule = draw_schedule(seed)
    replay, found = Replay(InMemoryClient(InMemoryPlane(shards=2))), list[Any]()
    for number, operation in schedule.operations:
        operate(replay, schedule, number, found)
        found += replay.execute(number, operation)
    found += replay.collect()
    assert json.loads(json.dumps(found)) == expected_lines(schedule)


def test_schedules_pause_and_resume() -> None:
    holds = [hold for seed in range(20) for hold in draw_schedule(seed).holds]
    assert {one.state for one in holds} == {CollectionState.PAUSED, CollectionState.SHADOW, CollectionState.RUNNING}


def test_schedules_trip_breakers_that_are_reset_before_the_next_settle_and_change_nothing() -> None:
    tripped = 0
    for schedule in [one for one in map(draw_schedule, range(20)) if one.limits][:6]:
        replay, found = Replay(InMemoryClient(InMemoryPlane(shards=2))), list[Any]()
        for number, operation in schedule.operations:
            tripped += operate(replay, schedule, number, found)
            found += replay.execute(number, operation)
        found += replay.collect()
        assert json.loads(json.dumps(found)) == expected_lines(schedule)
        assert not any(line.limits or line.trip for one in range(2) for line in replay.plane.metadata(one).collection())
    assert tripped >= 3
