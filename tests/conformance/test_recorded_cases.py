"""What a real Apache Ozone 2.2.0 answered to the recorded workloads, line by line: the plane, and the model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from tests.model_lines import lines_of
from tests.recorded_cases import CASES, DEVIATIONS, expected_lines, operations_of, recorded_lines

STEPS = ("e", "m", "n", "x", "y")
"""How the names of the cases begin that write in steps; those with e have buckets with copies or erasure codes."""
PLAIN = [case for case in CASES if not case.startswith(STEPS)]


def test_all_cases_are_here() -> None:
    assert (len(CASES), len(PLAIN)) == (64, 25)


def _played(case: str, shards: int) -> list[Any]:
    client = InMemoryClient(InMemoryPlane(shards=shards))
    return [json.loads(json.dumps(line)) for line in Replay(client).run(operations_of(case))]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shards", [1, 2])
def test_the_plane_answers_as_ozone_did(case: str, shards: int) -> None:
    expected, _ = expected_lines(case)
    for line, wanted in zip(_played(case, shards), expected, strict=True):
        assert line == wanted


@pytest.mark.parametrize("case", CASES)
def test_the_model_answers_as_ozone_did(case: str) -> None:
    """The judge of the simulator and of git histories is itself judged by Ozone."""
    assert lines_of(operations_of(case)) == expected_lines(case)[0]


@pytest.mark.parametrize("case", PLAIN)
def test_whole_versions_need_no_deviation(case: str) -> None:
    assert expected_lines(case) == (recorded_lines(case), set())


def test_each_deviation_is_one_that_was_recorded() -> None:
    found = set[int]().union(*(expected_lines(case)[1] for case in CASES))
    assert found == {number for number, deviation in DEVIATIONS.items() if deviation.figures}
