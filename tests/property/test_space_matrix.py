"""The matrix after any drops equals the one made from scratch; a what-if equals a recount."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.domain.space_matrix import (
    EMPTY,
    NOBODY,
    Holders,
    SpaceCell,
    after_dropping,
    freed_by_dropping,
    holders,
    merged_after_drop,
    runs_of,
)

MAX_TXN = 40
Life = tuple[int, int, int]

lives = st.lists(
    st.tuples(st.integers(1, MAX_TXN), st.integers(1, MAX_TXN), st.integers(0, 100)).map(
        lambda drawn: (min(drawn[:2]), max(drawn[:2]) + 1, drawn[2])
    ),
    max_size=30,
)
snapshots = st.lists(st.integers(1, MAX_TXN), unique=True, max_size=8).map(sorted)


def counted(life: Life) -> SpaceCell:
    birth, death, size_bytes = life
    return SpaceCell(size_bytes, 1, birth % 2, death % 2, (birth + death) % 3)


def matrix(given_lives: list[Life], live: list[int]) -> dict[Holders, SpaceCell]:
    cells: dict[Holders, SpaceCell] = {}
    for life in given_lives:
        holder = holders(life[0], life[1], live)
        cells[holder] = cells.get(holder, EMPTY) + counted(life)
    return cells


def held_by(life: Life, live: list[int]) -> set[int]:
    return {snapshot for snapshot in live if life[0] <= snapshot < life[1]}


def total(given_lives: list[Life]) -> SpaceCell:
    result = EMPTY
    for life in given_lives:
        result += counted(life)
    return result


@given(lives, snapshots)
def test_holders_are_the_oldest_and_newest_of_all_that_hold_it(given_lives: list[Life], live: list[int]) -> None:
    for life in given_lives:
        held = held_by(life, live)
        assert holders(life[0], life[1], live) == ((min(held), max(held)) if held else NOBODY)


@given(lives, snapshots, st.data())
def test_drops_equal_a_matrix_from_scratch(given_lives: list[Life], live: list[int], data: st.DataObject) -> None:
    cells = matrix(given_lives, live)
    for dropped in data.draw(st.permutations(live)):
        before = dict(cells)
        changed = merged_after_drop(cells, dropped, live)
        assert cells == before
        assert all(cells.get(holder, EMPTY) != cell for holder, cell in changed.items())
        live = [snapshot for snapshot in live if snapshot != dropped]
        cells = {holder: cell for holder, cell in {**cells, **changed}.items() if not cell.is_empty}
        assert cells == matrix(given_lives, live)
    assert cells.get(NOBODY, EMPTY) == total(given_lives)


@given(lives, snapshots, st.data())
def test_a_what_if_equals_a_recount(given_lives: list[Life], live: list[int], data: st.DataObject) -> None:
    dropped = data.draw(st.sets(st.sampled_from(live))) if live else set[int]()
    expected = [life for life in given_lives if held_by(life, live) and held_by(life, live) <= dropped]
    cells = matrix(given_lives, live)
    assert freed_by_dropping(cells, dropped, live) == total(expected)
    for snapshot in live:
        alone = total([life for life in given_lives if held_by(life, live) == {snapshot}])
        assert cells.get((snapshot, snapshot), EMPTY) == freed_by_dropping(cells, {snapshot}, live) == alone
        assert alone.rows == alone.key_rows + alone.directory_rows + alone.rename_rows


@given(lives, snapshots, st.data())
def test_the_matrix_after_dropping_a_set_is_the_one_from_scratch(
    given_lives: list[Life], live: list[int], data: st.DataObject
) -> None:
    dropped = data.draw(st.sets(st.sampled_from(live))) if live else set[int]()
    cells, left = after_dropping(matrix(given_lives, live), dropped, live)
    assert left == [snapshot for snapshot in live if snapshot not in dropped]
    expected = {holder: cell for holder, cell in matrix(given_lives, left).items() if not cell.is_empty}
    assert cells == expected


@given(lives, snapshots, st.data())
def test_a_set_frees_what_its_runs_free(given_lives: list[Life], live: list[int], data: st.DataObject) -> None:
    dropped = data.draw(st.sets(st.sampled_from(live))) if live else set[int]()
    runs = runs_of(dropped, live)
    members = [[snapshot for snapshot in live if first <= snapshot <= last] for first, last in runs]
    assert [snapshot for run in members for snapshot in run] == sorted(dropped)
    cells = matrix(given_lives, live)
    freed = EMPTY
    for run in members:
        freed += freed_by_dropping(cells, run, live)
    assert freed == freed_by_dropping(cells, dropped, live)
