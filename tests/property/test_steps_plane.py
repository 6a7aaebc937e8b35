"""Workloads that write in steps, played by the plane in memory and by the brute-force model: line by line the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from tests.model_lines import lines_of
from tests.steps_workload import random_workload

pytestmark = pytest.mark.long


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_plane_answers_as_the_model(seed: int) -> None:
    operations = random_workload(seed, "vol")
    lines = list(Replay(InMemoryClient(InMemoryPlane())).run(operations))
    assert [json.loads(json.dumps(line)) for line in lines] == lines_of(operations)
