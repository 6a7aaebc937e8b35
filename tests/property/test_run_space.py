"""Holders in several runs: every answer equals a recount over sets, and with one run a thing it is the plane's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations, pairwise, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.domain.run_space import RunPlan, Runs, RunSpace, merged
from services.domain.space_matrix import EMPTY, NOBODY, Holders, SpaceCell, freed_by_dropping, total
from services.domain.space_plan import plan_drops
from services.domain.space_shares import shares
from tests.lens_reports import columns_of

Cells = Mapping[Runs, SpaceCell]
MOST_SNAPSHOTS = 6
Situation = tuple[int, dict[Runs, SpaceCell]]
"""How many snapshots there are, and the cells."""


@st.composite
def situations(draw: st.DrawFn, *, in_one_run: bool = False) -> Situation:
    count = draw(st.integers(0, MOST_SNAPSHOTS))
    places = st.integers(0, count)
    if in_one_run:
        ends = st.tuples(places, places).map(lambda pair: (min(pair), max(pair)))
        holders: st.SearchStrategy[Runs] = st.one_of(ends.map(lambda run: (run,)), st.just(()))
    else:
        holders = st.sets(places).map(lambda held: merged((place, place) for place in held))
    cells: dict[Runs, SpaceCell] = {}
    for runs, size, redundancy in draw(
        st.lists(st.tuples(holders, st.sampled_from([0, 1, 2, 5, 30]), st.sampled_from([0, 2, 60])), max_size=14)
    ):
        cells[runs] = cells.get(runs, EMPTY) + SpaceCell(size, 1, 0, 0, 0, redundancy)
    return count, cells


def space_of(cells: Cells, count: int) -> RunSpace:
    return RunSpace(columns_of(cells), count)


def held(runs: Runs) -> set[int]:
    return {place for first, last in runs for place in range(first, last + 1)}


def sum_if(cells: Cells, condition: Callable[[set[int]], bool]) -> SpaceCell:
    return total(cell for runs, cell in cells.items() if condition(held(runs)))


def sum_at(cells: Cells, *places: int) -> SpaceCell:
    """What all of these hold."""
    return sum_if(cells, lambda holders: set(places) <= holders)


def freed(cells: Cells, dropped: set[int]) -> SpaceCell:
    return sum_if(cells, lambda holders: bool(holders) and holders <= dropped)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)).map(lambda pair: (pair[0], sum(pair)))))
def test_merged_runs_have_the_same_places_and_gaps_between_them(runs: list[tuple[int, int]]) -> None:
    found = merged(runs)
    assert held(found) == held(tuple(runs))
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))


@given(situations(), st.data())
def test_states_and_what_if_equal_a_recount_by_sets(situation: Situation, data: st.DataObject) -> None:
    count, cells = situation
    space = space_of(cells, count)
    assert space.live == sum_if(cells, lambda holders: count in holders)
    assert space.held == sum_if(cells, lambda holders: bool(holders) and count not in holders)
    assert space.pending == sum_if(cells, lambda holders: not holders)
    dropped = data.draw(st.sets(st.integers(0, count - 1))) if count else set[int]()
    assert space.freed_by_dropping(dropped) == freed(cells, dropped)


@given(situations())
def test_shares_equal_a_recount_by_sets(situation: Situation) -> None:
    count, cells = situation
    found = space_of(cells, count).shares()
    assert len(found) == count
    for place, share in enumerate(found):
        assert share.referenced == sum_at(cells, place)
        assert share.exclusive == cells.get(((place, place),), EMPTY)
        assert share.shared_with_previous == sum_at(cells, place - 1, place)
        assert share.shared_with_next == sum_at(cells, place, place + 1)


def check_plan(cells: Cells, count: int, wanted_bytes: int, protected: set[int], *, is_replicated: bool) -> bool:
    """Compare a plan with all sets of snapshots, and return whether it says that it is the smallest."""
    found = space_of(cells, count).plan(wanted_bytes, protected, is_replicated=is_replicated)

    def freed_bytes(dropped: Iterable[int]) -> int:
        cell = freed(cells, set(dropped))
        return cell.replicated_bytes if is_replicated else cell.bytes

    candidates = [place for place in range(count) if place not in protected]
    most_bytes = freed_bytes(candidates)
    assert list(found.places) == sorted(set(found.places) - protected)
    assert found.freed == freed(cells, set(found.places))
    assert found.is_enough == (most_bytes >= wanted_bytes)
    enough = min(wanted_bytes, most_bytes)
    assert freed_bytes(found.places) >= enough
    for place in found.places:
        assert freed_bytes(set(found.places) - {place}) < enough
    smallest = next(
        size
        for size in range(len(candidates) + 1)
        if any(freed_bytes(chosen) >= enough for chosen in combinations(candidates, size))
    )
    assert len(found.places) >= smallest
    if found.is_smallest:
        assert len(found.places) == smallest
    return found.is_smallest


@given(situations(), st.integers(0, 200), st.booleans(), st.data())
def test_a_plan_frees_what_it_says_and_needs_each_of_its_snapshots(
    situation: Situation, wanted_bytes: int, is_replicated: bool, data: st.DataObject
) -> None:
    count, cells = situation
    protected = data.draw(st.sets(st.integers(0, count - 1))) if count else set[int]()
    check_plan(cells, count, wanted_bytes, protected, is_replicated=is_replicated)


def test_plans_of_all_small_relations() -> None:
    """Three snapshots: each set of holders has nothing, little or more. One set of holders has two runs."""
    sets = [held for size in (1, 2, 3) for held in combinations(range(3), size)]
    all_runs = [merged((place, place) for place in places) for places in sets]
    unproven = 0
    for sizes in product((0, 1, 3), repeat=len(all_runs)):
        cells = {runs: SpaceCell(size, 1, 0, 0, 0) for runs, size in zip(all_runs, sizes, strict=True) if size}
        for wanted_bytes, protected in product((1, 2, 4, 100), (set[int](), {0}, {1})):
            unproven += not check_plan(cells, 3, wanted_bytes, protected, is_replicated=False)
    assert unproven, "some plans are not proven to be the smallest"


@given(situations(in_one_run=True), st.integers(0, 80), st.data())
def test_with_one_run_a_thing_the_answers_are_those_of_the_plane(
    situation: Situation, wanted_bytes: int, data: st.DataObject
) -> None:
    count, cells = situation
    live = [place + 1 for place in range(count)]
    matrix: dict[Holders, SpaceCell] = {NOBODY: cells.get((), EMPTY)}
    matrix |= {(runs[0][0] + 1, runs[0][1] + 1): cell for runs, cell in cells.items() if runs and runs[0][1] != count}
    space = space_of(cells, count)
    some = data.draw(st.sets(st.sampled_from(live))) if live else set[int]()
    places = {snapshot - 1 for snapshot in some}
    assert space.freed_by_dropping(places) == freed_by_dropping(matrix, some, live)
    planned = plan_drops(matrix, live, wanted_bytes, protected=some)
    expected = RunPlan(
        tuple(snapshot - 1 for snapshot in planned.snapshots), planned.freed, planned.is_enough, planned.is_smallest
    )
    assert space.plan(wanted_bytes, places) == expected
    referenced = {s: sum_at(cells, s - 1).bytes for s in live}
    for mine, theirs in zip(space.shares(), shares(matrix, referenced), strict=True):
        assert mine.referenced.bytes == theirs.referenced_bytes
        assert (mine.exclusive.bytes, mine.exclusive.versions) == (theirs.exclusive_bytes, theirs.exclusive_versions)
        assert mine.shared_with_previous.bytes == theirs.shared_with_previous_bytes
        assert mine.shared_with_next.bytes == theirs.shared_with_next_bytes


def test_a_protected_snapshot_in_a_gap_does_not_keep_what_it_does_not_hold() -> None:
    cells = {((0, 0), (2, 2)): SpaceCell(100, 1, 0, 0, 0), ((3, 3),): SpaceCell(5, 1, 0, 0, 0)}
    space = space_of(cells, 4)
    found = space.plan(100, protected=[1])
    assert (found.places, found.freed.bytes, found.is_smallest) == ((0, 2), 100, True)
    assert space.plan(100, protected=[2]).places == (3,)
    assert not space.plan(100, protected=[2]).is_enough


def test_a_snapshot_in_a_gap_is_left_out_of_a_plan() -> None:
    found = space_of({((0, 0), (2, 2)): SpaceCell(100, 1, 0, 0, 0)}, 4).plan(100, protected=[])
    assert (found.places, found.freed.bytes, found.is_enough) == ((0, 2), 100, True)


def test_a_plan_that_is_not_the_smallest_says_so() -> None:
    """Three holders with gaps between them look like five, so four neighbours are preferred."""
    cells = {((0, 0), (2, 2), (4, 4)): SpaceCell(100, 1, 0, 0, 0), ((6, 9),): SpaceCell(100, 1, 0, 0, 0)}
    found = space_of(cells, 11).plan(100, protected=[])
    assert found.places == (6, 7, 8, 9)
    assert not found.is_smallest


@pytest.mark.parametrize("in_several", [0, 2_000, 50_000])
def test_a_thousand_snapshots_are_planned_within_seconds(seed: int, in_several: int) -> None:
    random, count = Random(seed), 1_000
    cells: dict[Runs, SpaceCell] = {}
    for number in range(50_000):
        first = random.randrange(count - 40)
        runs = [(first, first + random.randrange(20))]
        if number < in_several:
            runs.append((runs[0][1] + 2, runs[0][1] + 2 + random.randrange(15)))
        cells[tuple(runs)] = SpaceCell(random.randrange(1 << 30), 1, 0, 0, 0)
    space = space_of(cells, count)
    wanted_bytes = space.held.bytes // 20
    started = time.process_time()
    found = space.plan(wanted_bytes, protected=range(0, count, 50))
    assert time.process_time() - started < 10
    assert found.is_enough
    assert found.freed.bytes >= wanted_bytes
