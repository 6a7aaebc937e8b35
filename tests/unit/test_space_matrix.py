"""The space matrix: who holds what, what a drop changes, what it would free."""

from __future__ import annotations

import pytest

from services.domain.space_matrix import (
    EMPTY,
    NOBODY,
    SpaceCell,
    SpaceError,
    freed_by_dropping,
    holders,
    merged_after_drop,
)

LIVE = [10, 20, 30]


def cell(size_bytes: int) -> SpaceCell:
    return SpaceCell(size_bytes, 1, 1, 0, 0)


def test_cells_add_and_subtract() -> None:
    both = SpaceCell(1, 2, 3, 4, 5) + SpaceCell(10, 20, 30, 40, 50)
    assert both == SpaceCell(11, 22, 33, 44, 55)
    assert both - SpaceCell(1, 2, 3, 4, 5) == SpaceCell(10, 20, 30, 40, 50)
    assert (both - both).is_empty
    assert both.rows == 33 + 44 + 55


@pytest.mark.parametrize("place", range(5))
def test_no_part_of_a_cell_falls_below_zero(place: int) -> None:
    parts = [0, 0, 0, 0, 0]
    parts[place] = 1
    assert not SpaceCell(*parts).is_empty
    with pytest.raises(SpaceError, match="compare"):
        SpaceCell(0, 0, 0, 0, 0) - SpaceCell(*parts)


@pytest.mark.parametrize(
    ("birth", "death", "expected"),
    [
        pytest.param(10, 11, (10, 10), id="born at a snapshot, died just after"),
        pytest.param(9, 10, NOBODY, id="died at a snapshot"),
        pytest.param(11, 20, NOBODY, id="between two"),
        pytest.param(11, 21, (20, 20), id="just around the second"),
        pytest.param(10, 30, (10, 20), id="the third is at the death"),
        pytest.param(1, 31, (10, 30), id="all"),
        pytest.param(31, 40, NOBODY, id="after the last"),
        pytest.param(1, 9, NOBODY, id="before the first"),
    ],
)
def test_holders_are_the_ends_of_a_run(birth: int, death: int, expected: tuple[int, int]) -> None:
    assert holders(birth, death, LIVE) == expected


CELLS = {
    NOBODY: cell(1),
    (10, 10): cell(2),
    (10, 20): cell(4),
    (20, 20): cell(8),
    (20, 30): cell(16),
    (30, 30): cell(32),
    (10, 30): cell(64),
}


def test_a_drop_in_the_middle_merges_into_both_neighbours() -> None:
    assert merged_after_drop(CELLS, 20, LIVE) == {
        (20, 20): EMPTY,
        NOBODY: cell(1) + cell(8),
        (10, 20): EMPTY,
        (10, 10): cell(2) + cell(4),
        (20, 30): EMPTY,
        (30, 30): cell(32) + cell(16),
    }


def test_a_drop_of_the_first_and_of_the_last() -> None:
    assert merged_after_drop(CELLS, 10, LIVE)[20, 30] == cell(16) + cell(64)
    assert merged_after_drop(CELLS, 30, LIVE)[10, 20] == cell(4) + cell(64)


def test_two_cells_merge_into_a_new_one() -> None:
    cells = {(10, 30): cell(1), (20, 20): EMPTY}
    assert merged_after_drop(cells, 30, LIVE) == {(10, 30): EMPTY, (10, 20): cell(1)}


def test_a_snapshot_that_holds_nothing_changes_nothing() -> None:
    assert merged_after_drop({(10, 30): cell(1)}, 20, LIVE) == {}
    assert merged_after_drop({}, 20, LIVE) == {}
    assert merged_after_drop({(20, 20): EMPTY, (20, 30): EMPTY}, 20, LIVE) == {}


@pytest.mark.parametrize("dropped", [0, 15, 40])
def test_only_a_live_snapshot_can_be_dropped(dropped: int) -> None:
    with pytest.raises(SpaceError, match="not live"):
        merged_after_drop(CELLS, dropped, LIVE)


@pytest.mark.parametrize("run", [(20, 30), (10, 20)])
def test_a_cell_of_a_run_that_is_not_there_is_a_defect(run: tuple[int, int]) -> None:
    with pytest.raises(SpaceError, match="no live snapshots"):
        merged_after_drop({run: cell(1)}, 20, [20])
    with pytest.raises(SpaceError, match="no live snapshots"):
        freed_by_dropping({run: cell(1)}, {20}, [20])


def test_rows_of_a_cell_are_those_of_all_tables() -> None:
    assert SpaceCell(9, 9, 1, 2, 4).rows == 7
    assert EMPTY.rows == 0


@pytest.mark.parametrize(
    ("dropped", "freed_bytes"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([20], 8, id="one"),
        pytest.param([10, 20], 2 + 4 + 8, id="two neighbours"),
        pytest.param([10, 30], 2 + 32, id="two apart: what the middle one holds stays"),
        pytest.param([30, 20, 10, 10], 2 + 4 + 8 + 16 + 32 + 64, id="all, in any order"),
        pytest.param([15], 0, id="one that is not live"),
    ],
)
def test_what_dropping_a_set_would_free(dropped: list[int], freed_bytes: int) -> None:
    assert freed_by_dropping(CELLS, dropped, LIVE).bytes == freed_bytes
