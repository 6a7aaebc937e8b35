"""The space matrix where holders need not be one run: branches, or what a source shows that the log of a plane cannot.

A *place* is the index of a holder in an order in which holders that follow each other stand side by side; the active
namespace has the last place. A thing is held by runs of places, both ends included, ascending and not adjacent. What
the active namespace holds is live; what nobody holds is pending. With one run a thing the answers are those of
``services.domain.space_matrix``, and its plan is used. Sums are taken over columns: half a million cells need no
objects, and a what-if on them takes a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, compress, pairwise

from services.domain.space_matrix import EMPTY, Holders, SpaceCell
from services.domain.space_plan import plan_drops

Runs = tuple[tuple[int, int], ...]
"""The first and last place of each run of holders. Empty: nobody holds the thing."""


@dataclass(frozen=True, slots=True)
class RunCells:
    """Bytes and versions by the runs of their holders, a column each. No two cells have the same runs."""

    run_ends: Sequence[int]
    """0, then for each cell the number of runs of all cells up to it."""
    firsts: Sequence[int]
    """Of each run its first place."""
    lasts: Sequence[int]
    """Of each run its last place."""
    bytes: Sequence[int]
    replicated_bytes: Sequence[int]
    versions: Sequence[int]

    def sum_of(self, chosen: Iterable[bool]) -> SpaceCell:
        """Return the sum of the cells for which ``chosen`` is true."""
        marks = list(chosen)
        size_bytes, replicated_bytes, versions = (
            sum(compress(column, marks)) for column in (self.bytes, self.replicated_bytes, self.versions)
        )
        return SpaceCell(size_bytes, versions, 0, 0, 0, replicated_bytes - size_bytes)

    def within(self, places: Collection[int], count: int) -> Iterator[bool]:
        """Yield for each cell whether it has holders, all of them among some places. ``count``: how many there are."""
        among = set(places)
        others_before = [0, *accumulate(place not in among for place in range(count))]
        runs = zip(self.firsts, self.lasts, strict=True)
        beyond = [0, *accumulate(others_before[first] != others_before[last + 1] for first, last in runs)]
        return (start < end and beyond[start] == beyond[end] for start, end in pairwise(self.run_ends))

    def items(self, chosen: Iterable[bool]) -> Iterator[tuple[Runs, SpaceCell]]:
        """Yield the cells for which ``chosen`` is true, each with its runs."""
        columns = zip(self.bytes, self.replicated_bytes, self.versions, strict=True)
        for is_chosen, (start, end), sizes in zip(chosen, pairwise(self.run_ends), columns, strict=True):
            if is_chosen:
                size_bytes, replicated_bytes, versions = sizes
                runs = tuple(zip(self.firsts[start:end], self.lasts[start:end], strict=True))
                yield runs, SpaceCell(size_bytes, versions, 0, 0, 0, replicated_bytes - size_bytes)


@dataclass(frozen=True, slots=True)
class RunShare:
    """What the holder at one place holds."""

    referenced: SpaceCell
    exclusive: SpaceCell
    """What only this holder holds."""
    shared_with_previous: SpaceCell
    """What the holder at the place before holds, too."""
    shared_with_next: SpaceCell
    """What the holder at the next place holds, too; behind the last snapshot stands the active namespace."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Which snapshots to drop, and what that frees."""

    places: tuple[int, ...]
    freed: SpaceCell
    is_enough: bool
    is_smallest: bool
    """Whether it is proven that no smaller set frees as much."""


class RunSpace:
    """The matrix of one bucket."""

    def __init__(self, cells: RunCells, active_place: int) -> None:
        """``active_place``: the last place, and the number of snapshots before it."""
        self.cells = cells
        self.active_place = active_place

    @property
    def live(self) -> SpaceCell:
        """What the active namespace holds."""
        return self.cells.sum_of(last == self.active_place for last in self._last_holders())

    @property
    def held(self) -> SpaceCell:
        """What snapshots hold, and the active namespace does not."""
        return self.cells.sum_of(0 <= last < self.active_place for last in self._last_holders())

    @property
    def pending(self) -> SpaceCell:
        """What nobody holds."""
        return self.cells.sum_of(last < 0 for last in self._last_holders())

    def _last_holders(self) -> Iterator[int]:
        """Yield for each cell the place of its last holder; -1 if nobody holds it."""
        lasts = self.cells.lasts
        return (lasts[end - 1] if start < end else -1 for start, end in pairwise(self.cells.run_ends))

    def held_cells(self) -> Iterator[tuple[Runs, SpaceCell]]:
        """Yield what snapshots hold and the active namespace does not, by its runs."""
        return self.cells.items(0 <= last < self.active_place for last in self._last_holders())

    def freed_by_dropping(self, places: Collection[int]) -> SpaceCell:
        """Return what dropping snapshots frees: what they hold, all together, and nobody else does."""
        return self.cells.sum_of(self.cells.within(places, self.active_place + 1))

    def shares(self) -> list[RunShare]:
        """Return the share of each snapshot, in the order of their places."""
        cells = self.cells
        columns = [self._shares_of(one) for one in (cells.bytes, cells.replicated_bytes, cells.versions)]
        return [
            RunShare(
                *(
                    SpaceCell(size_bytes, versions, 0, 0, 0, replicated_bytes - size_bytes)
                    for size_bytes, replicated_bytes, versions in zip(*of_place, strict=True)
                )
            )
            for of_place in zip(*columns, strict=True)
        ]

    def _shares_of(self, column: Sequence[int]) -> list[tuple[int, int, int, int]]:
        """Return the figures of ``RunShare`` for one column of the cells."""
        count = self.active_place + 1
        begins, ends, alone = [0] * count, [0] * count, [0] * count
        firsts, lasts = self.cells.firsts, self.cells.lasts
        for (start, end), amount in zip(pairwise(self.cells.run_ends), column, strict=True):
            for run in range(start, end):
                begins[firsts[run]] += amount
                ends[lasts[run]] += amount
            if end - start == 1 and firsts[start] == lasts[start]:
                alone[firsts[start]] += amount
        found, carried = [], 0
        for place in range(self.active_place):
            referenced = carried + begins[place]
            found.append((referenced, alone[place], carried, referenced - ends[place]))
            carried = referenced - ends[place]
        return found

    def plan(self, wanted_bytes: int, protected: Collection[int], *, is_replicated: bool = False) -> RunPlan:
        """Return a small set of unprotected snapshots that frees at least the wanted bytes, older ones first.

        If each thing has one run, or one snapshot is enough, it is the smallest. Otherwise the search counts a thing
        with several runs only where the whole stretch from its first to its last holder is dropped; then snapshots
        without which the plan still frees enough are left out, newer ones first. If all unprotected snapshots do not
        free enough, the plan frees as much as all of them. ``is_replicated``: the wanted bytes are those that all
        copies take.
        """
        candidates = sorted(set(range(self.active_place)) - set(protected))
        columns = replace(self.cells, bytes=self.cells.replicated_bytes) if is_replicated else self.cells
        droppable = dict(columns.items(columns.within(candidates, self.active_place + 1)))
        order: Sequence[int] = range(self.active_place)
        kept = set(protected)
        if any(len(runs) > 1 for runs in droppable):
            number = {place: index for index, place in enumerate(candidates)}
            order, kept, droppable = candidates, set(), renumbered(droppable.items(), number)
        cells: dict[Holders, SpaceCell] = {}
        for runs, cell in droppable.items():
            stretch = (runs[0][0] + 1, runs[-1][1] + 1)
            cells[stretch] = cells.get(stretch, EMPTY) + cell
        live = range(1, len(order) + 1)
        found = plan_drops(cells, live, wanted_bytes, protected={place + 1 for place in kept})
        places, is_smallest = [order[txn - 1] for txn in found.snapshots], found.is_smallest
        if any(len(runs) > 1 for runs in droppable):
            places = _needed(columns, places, wanted_bytes, self.active_place + 1)
            is_smallest = len(places) == 1 or not found.is_enough
        return RunPlan(tuple(places), self.freed_by_dropping(places), found.is_enough, is_smallest)


def renumbered(cells: Iterable[tuple[Runs, SpaceCell]], number: Mapping[int, int]) -> dict[Runs, SpaceCell]:
    """Return cells by runs of other numbers, which rise with the places: neighbours may have one number in common.

    Runs whose numbers follow each other become one: what stood between them has no number.
    """
    found: dict[Runs, SpaceCell] = {}
    for runs, cell in cells:
        by_number = merged((number[first], number[last]) for first, last in runs)
        found[by_number] = found.get(by_number, EMPTY) + cell
    return found


def merged(runs: Iterable[tuple[int, int]]) -> Runs:
    """Return overlapping, adjacent or unordered runs as the fewest runs, ascending."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def _needed(cells: RunCells, places: Sequence[int], wanted_bytes: int, count: int) -> list[int]:
    """Return a subset of places that frees as much as is wanted, or as all places do; it needs each of its places.

    Newer places are left out first. One pass is enough: what is needed in a set is needed in each of its subsets.
    """
    freed = [(runs, cell.bytes) for runs, cell in cells.items(cells.within(places, count)) if cell.bytes]
    spare_bytes = sum(size_bytes for _, size_bytes in freed)
    spare_bytes -= min(wanted_bytes, spare_bytes)
    needed: list[int] = []
    lost_bytes = _held_at(freed, places)
    for place in reversed(places):
        if lost_bytes[place] > spare_bytes:
            needed.append(place)
            continue
        spare_bytes -= lost_bytes[place]
        if lost_bytes[place]:
            freed = [(runs, size) for runs, size in freed if not any(first <= place <= last for first, last in runs)]
            lost_bytes = _held_at(freed, places)
    return needed[::-1]


def _held_at(sized: Iterable[tuple[Runs, int]], places: Sequence[int]) -> dict[int, int]:
    """Return for each place the bytes that it holds."""
    if not places:
        return {}
    change = [0] * (places[-1] + 2)
    for runs, size_bytes in sized:
        for first, last in runs:
            change[first] += size_bytes
            change[last + 1] -= size_bytes
    held = list(accumulate(change))
    return {place: held[place] for place in places}
