"""The rule at its edges, and the numbers that no lifetime has."""

from __future__ import annotations

import pytest

from services.domain.reclaimability import (
    LifetimeError,
    Verdict,
    is_reclaimable_after,
    judge,
    judge_with_previous,
)

R, E, S = Verdict.RECLAIMABLE, Verdict.EXCLUSIVE_TO_PREVIOUS, Verdict.SHARED


@pytest.mark.parametrize(
    ("birth", "death", "live", "expected"),
    [
        pytest.param(1, 2, [], R, id="no snapshot at all"),
        pytest.param(10, 20, [10], E, id="born at the snapshot: held"),
        pytest.param(11, 20, [10], R, id="born just after the snapshot"),
        pytest.param(9, 20, [10], E, id="born just before the snapshot"),
        pytest.param(9, 10, [10], R, id="died at the snapshot: not held"),
        pytest.param(9, 11, [10], E, id="died just after the snapshot"),
        pytest.param(5, 9, [10], R, id="died just before the snapshot"),
        pytest.param(10, 30, [10, 20], S, id="born at the older of two"),
        pytest.param(11, 30, [10, 20], E, id="born just after the older of two"),
        pytest.param(20, 30, [10, 20], E, id="born at the newer of two"),
        pytest.param(21, 30, [10, 20], R, id="born just after the newer of two"),
        pytest.param(15, 20, [10, 20], R, id="both snapshots just outside the life"),
        pytest.param(5, 20, [10, 20, 30], E, id="snapshots after the death do not count"),
        pytest.param(5, 21, [10, 20, 30], S, id="the newest before the death is the second"),
        pytest.param(1, 40, [10, 20, 30], S, id="held by all three"),
    ],
)
def test_the_rule_at_its_edges(birth: int, death: int, live: list[int], expected: Verdict) -> None:
    assert judge(birth, death, live) is expected


@pytest.mark.parametrize(("birth", "previous", "expected"), [(10, 10, False), (11, 10, True), (9, 10, False)])
def test_a_snapshot_at_the_birth_holds_the_version(birth: int, previous: int, expected: bool) -> None:
    assert is_reclaimable_after(birth, previous) is expected


@pytest.mark.parametrize(
    ("birth", "death"),
    [
        pytest.param(11, 10, id="died before born"),
        pytest.param(0, 10, id="never born"),
        pytest.param(-1, 10, id="born before the first txn"),
    ],
)
def test_impossible_lives_get_no_verdict(birth: int, death: int) -> None:
    with pytest.raises(LifetimeError, match="keep the row"):
        judge(birth, death, [5])
    with pytest.raises(LifetimeError, match="keep the row"):
        judge_with_previous(birth, death, 5, 0)


@pytest.mark.parametrize(
    ("previous", "before_previous"),
    [
        pytest.param(20, 0, id="previous at the death"),
        pytest.param(21, 0, id="previous after the death"),
        pytest.param(-1, 0, id="previous before the first txn"),
        pytest.param(15, 15, id="one snapshot given twice"),
        pytest.param(15, 16, id="the wrong way round"),
        pytest.param(0, 5, id="one before, but no previous"),
        pytest.param(15, -1, id="one before the first txn"),
    ],
)
def test_impossible_neighbours_get_no_verdict(previous: int, before_previous: int) -> None:
    with pytest.raises(LifetimeError, match="keep the row"):
        judge_with_previous(18, 20, previous, before_previous)


def test_previous_just_before_the_death_is_possible() -> None:
    assert judge_with_previous(18, 20, 19, 18) is S
    assert judge_with_previous(18, 20, 19, 17) is E
    assert judge_with_previous(18, 20, 17, 16) is R
