"""What a snapshot shares, worked out from cells and referenced sizes alone, equals a recount by sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.domain.space_matrix import EMPTY, Holders, SpaceCell, SpaceError, holders
from services.domain.space_shares import shares

MAX_TXN = 30
NOW = MAX_TXN + 2
"""A version that dies now is live still."""

births, sizes = st.integers(1, MAX_TXN), st.sampled_from([0, 1, 5, 40])
dead = st.tuples(births, st.integers(1, MAX_TXN), sizes).map(lambda drawn: (drawn[0], drawn[0] + drawn[1], drawn[2]))
alive = st.tuples(births, st.just(NOW), sizes)
lives = st.lists(st.one_of(dead.map(lambda life: (life[0], min(life[1], NOW - 1), life[2])), alive), max_size=12)
snapshots = st.lists(st.integers(1, MAX_TXN + 1), unique=True, max_size=7).map(sorted)


@given(lives, snapshots)
def test_shares_equal_a_recount_by_sets(given_lives: list[tuple[int, int, int]], live: list[int]) -> None:
    sizes = {number: size for number, (_, _, size) in enumerate(given_lives)}
    held = {s: {n for n, (birth, death, _) in enumerate(given_lives) if birth <= s < death} for s in live}
    active = {n for n, (_, death, _) in enumerate(given_lives) if death == NOW}
    cells: dict[Holders, SpaceCell] = {}
    for birth, death, size in given_lives:
        if death != NOW and size:
            holder = holders(birth, death, live)
            cells[holder] = cells.get(holder, EMPTY) + SpaceCell(size, 1, 1, 0, 0)

    def of(numbers: set[int]) -> int:
        return sum(sizes[number] for number in numbers)

    found = shares(cells, {s: of(held[s]) for s in live})
    assert [share.snapshot for share in found] == live
    for index, share in enumerate(found):
        mine = held[share.snapshot]
        others = set[int]().union(active, *(held[s] for s in live if s != share.snapshot))
        assert share.referenced_bytes == of(mine)
        assert share.held_bytes == of(mine - active)
        assert share.exclusive_bytes == of(mine - others)
        assert share.exclusive_versions == len([n for n in mine - others if sizes[n]])
        assert share.shared_with_previous_bytes == (of(mine & held[live[index - 1]]) if index else 0)
        following = held[live[index + 1]] if index + 1 < len(live) else active
        assert share.shared_with_next_bytes == of(mine & following)
        sharers = [s for s in live if s == share.snapshot or of(mine & held[s])]
        assert [s for s in live if share.oldest_sharer <= s <= share.newest_sharer] == sharers


def test_a_cell_of_a_snapshot_that_is_not_live_is_a_defect() -> None:
    with pytest.raises(SpaceError, match="no live snapshots"):
        shares({(10, 20): SpaceCell(1, 1, 1, 0, 0)}, {10: 1})
