"""Finds the smallest set of snapshots whose drop frees at least the wanted bytes.

A set of snapshots frees more than the sum of what each of them frees alone: a version that two neighbours hold is freed
only when both are dropped. But holders are runs of the chain. So a set splits into maximal runs of neighbours, and each
run frees the sum of the cells inside it. The best set of each size follows from the runs alone:

    best(i, j) = the most that at most j drops among the snapshots from place i on can free
               = max( best(i + 1, j),                                               i stays
                      max over n of within(i, i + n - 1) + best(i + n + 1, j - n) )  drop n from i on, keep the next

*The optimum.* The plan has the fewest snapshots: the smallest j with ``best(0, j) >= wanted``. Among all sets of that
size which free enough it is the oldest: the one whose list of places in the chain comes first in lexicographic order.
The search goes forward from the oldest snapshot and drops each run after which the wanted bytes can still be reached.

*Cost.* A table of runs, n² / 2 sums for n snapshots, then n · k² / 2 steps for a plan of k; a step is one addition
and one comparison, 0.1 µs. Protected snapshots bound the runs, and so both. A search stops after ``MAX_STEPS``
(1 s; reached by plans of more than 140 out of 1,000), and never covers more than ``MAX_SNAPSHOTS_AT_ONCE``. In both
cases the chain is searched window by window, the oldest first. If all of a window does not free enough, all of it is
dropped and the next window is searched. Such a plan frees the wanted bytes but may not be the smallest, and
``is_smallest`` is false. Freeing all that can be freed takes one pass for a chain of any length: each droppable cell
needs all of its holders.
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
    """Which snapshots to drop, and how much that frees."""

    snapshots: tuple[Txn, ...]
    """In the order of the chain."""
    freed: SpaceCell
    is_enough: bool
    """Whether it frees the wanted bytes; otherwise it frees all that can be freed."""
    is_smallest: bool
    """Whether it is proven that no smaller set frees as much: true when the chain was searched as a whole, or when one
    snapshot is enough."""


def plan_drops(
    cells: Mapping[Holders, SpaceCell],
    live: Sequence[Txn],
    wanted_bytes: int,
    *,
    protected: Collection[Txn] = (),
    max_snapshots_at_once: int = MAX_SNAPSHOTS_AT_ONCE,
    max_steps: int = MAX_STEPS,
) -> DropPlan:
    """Return the smallest set of unprotected live snapshots that frees at least the wanted bytes.

    Ties prefer older snapshots. When all unprotected snapshots do not free enough, return the smallest set that frees
    as much as all of them.

    Raises:
        SpaceError: a cell names a snapshot that is not live.
    """
    kept = frozenset(protected)
    candidates = [snapshot for snapshot in live if snapshot not in kept]
    everything = _Droppable(cells, live, candidates)
    if wanted_bytes >= everything.most_bytes:
        dropped, is_smallest = everything.needed_for_all(), True
    else:
        window = min(max_snapshots_at_once, len(candidates))
        is_smallest = window == len(candidates)
        while (found := _window_by_window(cells, live, candidates, wanted_bytes, window, max_steps)) is None:
            window, is_smallest = max(1, window // 2), False
        dropped = found
    freed = freed_by_dropping(cells, dropped, live)
    return DropPlan(tuple(dropped), freed, everything.most_bytes >= wanted_bytes, is_smallest or len(dropped) == 1)


def _window_by_window(
    cells: Mapping[Holders, SpaceCell],
    live: Sequence[Txn],
    candidates: Sequence[Txn],
    wanted_bytes: int,
    window: int,
    max_steps: int,
) -> list[Txn] | None:
    """Return all snapshots of the oldest windows and the fewest of the last one; None after too many steps.

    All candidates together free enough.
    """
    dropped: list[Txn] = []
    for start in range(0, len(candidates), window):
        among = candidates[start : start + window]
        droppable = _Droppable(cells, live, among)
        if droppable.most_bytes >= wanted_bytes:
            # A window of one snapshot is searched before the first step is counted, so every search ends.
            chosen = _smallest(droppable, wanted_bytes, max_steps)
            return None if chosen is None else dropped + chosen
        dropped += among
        wanted_bytes -= droppable.most_bytes
        cells, live = after_dropping(cells, among, live)
    return dropped


class _Droppable:
    """The runs of droppable neighbours, and the cells within them."""

    def __init__(self, cells: Mapping[Holders, SpaceCell], live: Sequence[Txn], candidates: Collection[Txn]) -> None:
        self.live = live
        may_go, count = frozenset(candidates), len(live)
        place = {snapshot: index for index, snapshot in enumerate(live)}
        self.beyond = [count] * (count + 1)
        """For each place the first one from there on that must be kept: a run ends before it."""
        for index in reversed(range(count)):
            self.beyond[index] = self.beyond[index + 1] if live[index] in may_go else index
        self.cells: dict[int, list[tuple[int, int]]] = {}
        """Droppable cells by the place of their first holder: the place of the last holder, and the bytes."""
        for (first, last), cell in cells.items():
            if (first, last) == NOBODY or not cell.bytes:
                continue
            if first not in place or last not in place:
                raise SpaceError(f"no live snapshots from {first} to {last}: compare the bucket's list with its matrix")
            if place[last] < self.beyond[place[first]]:
                self.cells.setdefault(place[first], []).append((place[last], cell.bytes))
        self.most_bytes = sum(size_bytes for ends in self.cells.values() for _, size_bytes in ends)

    def needed_for_all(self) -> list[Txn]:
        """Return the snapshots to drop to free all that can be freed: every holder of every droppable cell."""
        covered = [0] * (len(self.live) + 1)
        for first, ends in self.cells.items():
            covered[first] += 1
            covered[max(last for last, _ in ends) + 1] -= 1
        return [snapshot for snapshot, depth in zip(self.live, accumulate(covered), strict=False) if depth]

    def within(self) -> list[list[int]]:
        """Return the bytes that each run frees, by its first place and its length less one."""
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
    """best(i, j) of the module's docstring, computed for one j after the other.

    All inputs of one value lie on one diagonal, because (i + n + 1) + (j - n) is the same for every n. So the values
    are stored by their diagonal i + j, and on it by j.
    """

    def __init__(self, within: list[list[int]]) -> None:
        self._within = within
        self._beyond = len(within)
        """The chain's length plus one: the place after a run to the chain's end and the snapshot kept behind it."""
        self._diagonals: list[list[int]] = []
        self.drops = -1
        self.steps = 0
        self.add_drop()

    def of(self, place: int, drops: int) -> int:
        """Return the maximum bytes that a number of drops from a place on can free."""
        return self._diagonals[place + drops][drops]

    def add_drop(self) -> None:
        """Compute the values for one more drop."""
        self.drops += 1
        drops = self.drops
        while len(self._diagonals) <= self._beyond + drops:
            # Behind the chain any number of drops frees nothing.
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
    """Return the smallest, then oldest, set that frees the wanted bytes; None after too many steps.

    All droppable snapshots together free enough.
    """
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
