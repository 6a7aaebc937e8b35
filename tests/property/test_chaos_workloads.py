"""The workloads of chaos runs without any fault: the whole plane in memory says what a model of plain sets says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.workloads import workload
from tests.chaos.run import expected_lines
from tests.chaos.schedule import draw_schedule

pytestmark = pytest.mark.long

OUTCOMES_WANTED = {
    ("UndeleteKey", ""),
    ("UndeleteKey", "SNAPSHOT_IN_BETWEEN"),
    ("UndeleteKey", "KEY_ALREADY_EXISTS"),
    ("DeleteBucket", ""),
    ("DeleteBucket", "BUCKET_NOT_EMPTY"),
    ("DeleteKeys", "left"),
    ("ExpireSnapshots", "expired"),
    ("DeleteSnapshot", "TAGGED_SNAPSHOT"),
}
SEEDS = range(7, 31)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**40))
def test_plane_and_model_agree_on_the_workload_of_a_seed(seed: int) -> None:
    expected_lines(draw_schedule(seed))


def test_what_was_added_to_the_workloads_does_happen() -> None:
    """A workload whose every undelete is refused would tell nothing: these few have all the outcomes between them."""
    met = {outcome for seed in SEEDS for outcome in outcomes(seed)}
    assert met >= OUTCOMES_WANTED


def outcomes(seed: int) -> set[tuple[str, str]]:
    """What has become of the operations of a workload, by their kinds."""
    schedule = draw_schedule(seed)
    by_operation = {line["op"]: _outcome(line) for line in expected_lines(schedule)}
    kinds = ((number, type(operation).__name__) for number, operation in schedule.operations)
    return {(kind, by_operation.get(number, "")) for number, kind in kinds if kind != workload.Observe.__name__}


def _outcome(line: dict[str, object]) -> str:
    return str(line.get("error") or ("left" if "left" in line else "expired" if line.get("expired") else ""))
