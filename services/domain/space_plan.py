"""The least that has to be dropped to free so many bytes.

What a set of snapshots frees is not the sum of what each of them frees: a version that two neighbours hold goes only
with both. But holders are runs of the chain, so a set falls apart into maximal runs of neighbours, and frees what lies
within each run (the sum of the cells inside it). That makes the best set of each size a matter of runs alone:

    best(i, j) = the most that at most j drops among the snapshots from place i on can free
               = max( best(i + 1, j),                                               i stays
                      max over n of within(i, i + n - 1) + best(i + n + 1, j - n) )  the n from i on go, the next stays

*The optimum.* Fewest snapshots first: the smallest j with ``best(0, j) >= wanted``. Among all sets of that size which
free enough, the oldest: the one whose list of places in the chain is smallest in the order of a dictionary. It is
found by going forward from the oldest snapshot and dropping whatever still leaves a way to the wanted bytes.

*Cost.* A table of runs, n² / 2 sums for n snapshots, then n · k² / 2 steps for a plan of k; a step is one addition
and one comparison, 0.1 µs. Protected snapshots bound the runs, and so both. A search is given up after ``MAX_STEPS``
(1 s; reached by plans of more than 140 out of 1,000), and never looks at more than ``MAX_SNAPSHOTS_AT_ONCE``: then
the chain is looked at window by window, the oldest first. Where all of a window together do not free enough, all of
it goes and the next one is looked at. Such a plan frees what is wanted but may not be the smallest, and says so.
To free all that can be freed, however long the chain, is one pass: each cell that may go needs all of its holders.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add

from services.domain.reclaimability import Txn
from services.domain.space_matrix import NOBODY, Holders, SpaceCell, SpaceError, after_dropping, freed_by_dropping

MAX_SNAPSHOTS_AT_ONCE = 1_000
MAX_STEPS = 10_000_000


@dataclass(frozen=True, slots=True)
class DropPlan:
    """Which snapshots to drop, and what that frees."""

    snapshots: tuple[Txn, ...]
    """In the order of the chain."""
    freed: SpaceCell
    is_enough: bool
    """Whether it frees as much as was wanted; otherwise it frees all that can be freed."""
    is_smallest: bool
    """Whether no smaller set frees as much: so whenever the chain was looked at as a whole."""


def plan_drops(
    cells: Mapping[Holders, SpaceCell],
    live: Sequence[Txn],
    wanted_bytes: int,
    *,
    protected: Collection[Txn] = (),
    max_snapshots_at_once: int = MAX_SNAPSHOTS_AT_ONCE,
    max_steps: int = MAX_STEPS,
) -> DropPlan:
    """The fewest live snapshots, then the oldest, that free at least so many bytes; none of them is protected.

    When all that may go does not free enough, the fewest that free as much as all of them.

    Raises:
        SpaceError: a cell names a snapshot that is not live.
    """
    kept = frozenset(protected)
    candidates = [snapshot for snapshot in live if snapshot not in kept]
    everything = _Droppable(cells, live, candidates)
    if wanted_bytes >= everything.most_bytes:
        dropped, is_smallest = everything.needed_for_all(), True
    else:
        search = _Search(cells, live, candidates, max_steps)
        window = min(max_snapshots_at_once, len(candidates))
        is_smallest = window == len(candidates)
        while (found := search.window_by_window(wanted_bytes, window)) is None:
            window, is_smallest = max(1, window // 2), False
        dropped = found
    freed = freed_by_dropping(cells, dropped, live)
    return DropPlan(tuple(dropped), freed, everything.most_bytes >= wanted_bytes, is_smallest)


@dataclass(frozen=True, slots=True)
class _Search:
    """Looks for a set that frees enough, when all that may go does."""

    cells: Mapping[Holders, SpaceCell]
    live: Sequence[Txn]
    candidates: Sequence[Txn]
    max_steps: int

    def window_by_window(self, wanted_bytes: int, window: int) -> list[Txn] | None:
        """All of the oldest windows but the last one needed, and of that one the fewest; None if it is too much."""
        cells, live = self.cells, self.live
        dropped: list[Txn] = []
        for start in range(0, len(self.candidates), window):
            among = self.candidates[start : start + window]
            droppable = _Droppable(cells, live, among)
            if droppable.most_bytes >= wanted_bytes:
                # A window of one snapshot is searched before the first step is counted: so a search comes to an end.
                chosen = _smallest(droppable, wanted_bytes, self.max_steps)
                return None if chosen is None else dropped + chosen
            dropped += among
            wanted_bytes -= droppable.most_bytes
            cells, live = after_dropping(cells, among, live)
        return dropped


class _Droppable:
    """The runs of neighbours that may go, and the cells within them."""

    def __init__(self, cells: Mapping[Holders, SpaceCell], live: Sequence[Txn], candidates: Collection[Txn]) -> None:
        self.live = live
        may_go, count = frozenset(candidates), len(live)
        place = {snapshot: index for index, snapshot in enumerate(live)}
        self.beyond = [count] * (count + 1)
        """For each place the first one from there on that has to stay: a run ends before it."""
        for index in reversed(range(count)):
            self.beyond[index] = self.beyond[index + 1] if live[index] in may_go else index
        self.cells: dict[int, list[tuple[int, int]]] = {}
        """By the place of its first holder, each cell that may go: the place of its last one, and its bytes."""
        for (first, last), cell in cells.items():
            if (first, last) == NOBODY or not cell.bytes:
                continue
            if first not in place or last not in place:
                raise SpaceError(f"no live snapshots from {first} to {last}: compare the bucket's list with its matrix")
            if place[last] < self.beyond[place[first]]:
                self.cells.setdefault(place[first], []).append((place[last], cell.bytes))
        self.most_bytes = sum(size_bytes for ends in self.cells.values() for _, size_bytes in ends)

    def needed_for_all(self) -> list[Txn]:
        """The snapshots that have to go to free all that can be freed: every holder of every cell that may go."""
        covered = [0] * (len(self.live) + 1)
        for first, ends in self.cells.items():
            covered[first] += 1
            covered[max(last for last, _ in ends) + 1] -= 1
        return [snapshot for snapshot, depth in zip(self.live, accumulate(covered), strict=False) if depth]

    def within(self) -> list[list[int]]:
        """By its first place, and its length less one, what each run frees."""
        table: list[list[int]] = [[] for _ in range(len(self.live) + 1)]
        for index in reversed(range(len(self.live))):
            length = self.beyond[index] - index
            if length > 0:
                alone = [0] * length
                for last, size_bytes in self.cells.get(index, ()):
                    alone[last - index] += size_bytes
                sums = accumulate(alone)
                table[index] = [next(sums), *map(add, sums, table[index + 1])]
        return table


class _Best:
    """best(i, j) of the module's docstring, made for one j after the other.

    What one value is made of lies on one diagonal, (i + n + 1) + (j - n) being the same for every n. So the values are
    kept by their diagonal i + j, and on it by j.
    """

    def __init__(self, within: list[list[int]]) -> None:
        self._within = within
        self._beyond = len(within)
        """A place behind the one behind the chain: where what follows a run to the chain's end begins."""
        self._diagonals: list[list[int]] = []
        self.drops = -1
        self.steps = 0
        self.add_drop()

    def of(self, place: int, drops: int) -> int:
        """The most that so many drops from a place on can free."""
        return self._diagonals[place + drops][drops]

    def add_drop(self) -> None:
        """Make the values for one drop more."""
        self.drops += 1
        drops = self.drops
        while len(self._diagonals) <= self._beyond + drops:
            # Behind the chain nothing is freed, by however many drops.
            self._diagonals.append([0] * max(0, len(self._diagonals) - self._beyond))
        self._diagonals[self._beyond + drops].append(0)
        most = 0
        for place in reversed(range(self._beyond)):
            within = self._within[place]
            longest = min(len(within), drops)
            if longest:
                behind = self._diagonals[place + drops + 1][drops - longest : drops]
                freed_by_longest_first = map(add, behind, within[longest - 1 :: -1])
                most = max(most, *freed_by_longest_first)
                self.steps += longest
            self._diagonals[place + drops].append(most)


def _smallest(droppable: _Droppable, wanted_bytes: int, max_steps: int) -> list[Txn] | None:
    """The fewest snapshots, then the oldest, that free so many bytes, as all do; None after too many steps."""
    within = droppable.within()
    best = _Best(within)
    while best.of(0, best.drops) < wanted_bytes:
        if best.steps > max_steps:
            return None
        best.add_drop()
    chosen: list[Txn] = []
    place, drops, missing = 0, best.drops, wanted_bytes
    while drops:
        for length in range(min(len(within[place]), drops), 0, -1):  # the longest run has the oldest places
            if within[place][length - 1] + best.of(place + length + 1, drops - length) >= missing:
                chosen += droppable.live[place : place + length]
                missing -= within[place][length - 1]
                drops -= length
                place += length
                break
        place += 1
    return chosen
