"""What services do under load runs in simulation, too: counted at the places of the loop where it happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from services.runtime.loop.runner import Runner
from services.runtime.loop.service import Message
from tests.simulation.simulator import simulate

SEEDS = range(1, 61)
FEWEST = 20
"""Times that each of it happens at least, over all of these runs: most of it happens a thousand times."""


def _count_paths(patch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()
    step, poll, next_inputs, run_unit, run_apart = (
        getattr(Runner, name) for name in ("step", "_poll", "_next_inputs", "_run_unit", "_run_apart")
    )

    def counted_step(self: Any, timeout_seconds: float = 0.0) -> int:
        messages: int = step(self, timeout_seconds)
        counts["acknowledged beside the next unit"] += messages > 0 and bool(self._outbox._sent)
        return messages

    def counted_poll(self: Any, timeout_seconds: float) -> bool:
        is_full: bool = poll(self, timeout_seconds)
        counts["full batches"] += is_full
        return is_full

    def counted_next_inputs(self: Any) -> Sequence[Any]:
        inputs: Sequence[Any] = next_inputs(self)
        next_two = [decoded for _, decoded in self._ahead[len(inputs) - 1 : len(inputs) + 1]]
        stands_alone = any(isinstance(one, Message) and self.service.stands_alone(one) for one in next_two)
        counts["units split by bytes"] += len(inputs) < len(self._ahead) and not stands_alone
        return inputs

    def counted_run_unit(self: Any, inputs: Any) -> int:
        captured: int = run_unit(self, inputs)
        counts["units split by rows"] += 0 < captured < len(inputs)
        return captured

    def counted_run_apart(self: Any, inputs: Any, error: Exception) -> Any:
        counts["units taken apart"] += len(inputs) > 1
        return run_apart(self, inputs, error)

    for name, counted in (
        ("step", counted_step),
        ("_poll", counted_poll),
        ("_next_inputs", counted_next_inputs),
        ("_run_unit", counted_run_unit),
        ("_run_apart", counted_run_apart),
    ):
        patch.setattr(Runner, name, counted)
    return counts


@pytest.mark.long
def test_runs_take_the_paths_of_a_loaded_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = _count_paths(monkeypatch)
    for seed in SEEDS:
        simulate(seed)
    assert set(counts) == {
        "full batches",
        "acknowledged beside the next unit",
        "units split by bytes",
        "units split by rows",
        "units taken apart",
    }
    assert min(counts.values()) > FEWEST, counts
