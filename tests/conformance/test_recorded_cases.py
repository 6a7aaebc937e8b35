"""What a real Apache Ozone 2.2.0 answered to the recorded workloads, line by line: the plane, and the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from services.workloads.workload import read_operations
from tests.model_lines import lines_of

CASES = sorted((Path(__file__).parent / "cases").glob("*.ops.jsonl"))


def _expected(case: Path) -> list[Any]:
    text = case.with_name(case.name.replace(".ops.", ".expected.")).read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _name(case: Path) -> str:
    return case.name.removesuffix(".ops.jsonl")


def test_all_cases_are_here() -> None:
    assert len(CASES) == 25


@pytest.mark.parametrize("case", CASES, ids=_name)
@pytest.mark.parametrize("shards", [1, 2])
def test_the_plane_answers_as_ozone_did(case: Path, shards: int) -> None:
    client = InMemoryClient(InMemoryPlane(shards=shards))
    lines = [json.loads(json.dumps(line)) for line in Replay(client).run(read_operations(case))]
    for line, expected in zip(lines, _expected(case), strict=True):
        assert line == expected


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_the_model_answers_as_ozone_did(case: Path) -> None:
    """The judge of the simulator and of git histories is itself judged by Ozone."""
    assert lines_of(read_operations(case)) == _expected(case)
