"""Plays a workload on a plane in memory; the model must have the same lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from services.workloads.workload import Operation, has_wide_observations, parse_line, to_json
from tests.model_lines import lines_of

PLACE = ("v", "b")


def play(operations: Sequence[Operation]) -> list[Any]:
    """Return the lines of a plane, which are those of the model. Each operation is read from its line."""
    numbered = [(number, parse_line(to_json(one), number)) for number, one in enumerate(operations)]
    assert [one for _, one in numbered] == list(operations)
    lines = list(Replay(InMemoryClient(InMemoryPlane()), is_wide=has_wide_observations(numbered)).run(numbered))
    assert lines == lines_of(numbered)
    return lines
