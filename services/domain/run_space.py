"""The space matrix where holders need not be one run: branches, or what a source shows that the log of a plane cannot.

A *place* is the index of a holder in an order in which holders that follow each other stand side by side; the active
namespace has the last place. A thing is held by runs of places, both ends included, ascending and not adjacent. What
the active namespace holds is live; what nobody holds is pending. With one run a thing these are the cells of
``services.domain.space_matrix``, whose functions then do the work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from services.domain.space_matrix import EMPTY, Holders, SpaceCell, freed_by_dropping, total
from services.domain.space_plan import plan_drops

Runs = tuple[tuple[int, int], ...]
"""The first and last place of each run of holders. Empty: nobody holds the thing."""
RunCells = Mapping[Runs, SpaceCell]


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
    """The cells of one bucket by the runs of their holders."""

    def __init__(self, cells: RunCells, active_place: int) -> None:
        """``active_place``: the last place, and the number of snapshots before it."""
        self.active_place = active_place
        self.pending = cells.get((), EMPTY)
        self._held = {runs: cell for runs, cell in cells.items() if runs}
        self._live_txns = range(1, active_place + 1)
        """The place of a snapshot, plus one, as the txn of its capture."""
        garbage = {runs: cell for runs, cell in self._held.items() if runs[-1][1] != active_place}
        self._in_one_run: dict[Holders, SpaceCell] = {
            (runs[0][0] + 1, runs[0][1] + 1): cell for runs, cell in garbage.items() if len(runs) == 1
        }
        self._in_several = {runs: cell for runs, cell in garbage.items() if len(runs) > 1}
        self.held = total(garbage.values())
        self.live = total(cell for runs, cell in self._held.items() if runs[-1][1] == active_place)

    def freed_by_dropping(self, places: Collection[int]) -> SpaceCell:
        """Return what dropping snapshots frees: what they hold, all together, and nobody else does."""
        dropped = set(places)
        freed = freed_by_dropping(self._in_one_run, [place + 1 for place in dropped], self._live_txns)
        if not self._in_several:
            return freed
        kept_before = [0, *accumulate(place not in dropped for place in range(self.active_place))]
        several = (
            cell
            for runs, cell in self._in_several.items()
            if all(kept_before[first] == kept_before[last + 1] for first, last in runs)
        )
        return total([freed, *several])

    def shares(self) -> list[RunShare]:
        """Return the share of each snapshot, in the order of their places."""
        count = self.active_place
        ends: list[list[SpaceCell]] = [[] for _ in range(count + 2)]
        begins: list[list[SpaceCell]] = [[] for _ in range(count + 2)]
        for runs, cell in self._held.items():
            for first, last in runs:
                begins[first].append(cell)
                ends[last].append(cell)
        found: list[RunShare] = []
        carried = EMPTY
        for place in range(count):
            referenced = carried + total(begins[place])
            shared_with_next = referenced - total(ends[place])
            alone = self._held.get(((place, place),), EMPTY)
            found.append(RunShare(referenced, alone, carried, shared_with_next))
            carried = shared_with_next
        return found

    def plan(self, wanted_bytes: int, protected: Collection[int]) -> RunPlan:
        """Return a small set of unprotected snapshots that frees at least the wanted bytes, older ones first.

        It is the smallest if each thing has one run. Otherwise a thing with several runs counts only if the whole
        stretch from its first to its last holder is dropped, and snapshots that turn out not to be needed are left
        out. If all unprotected snapshots do not free enough, the plan frees as much as all of them.
        """
        kept = {place + 1 for place in protected}
        cells = dict(self._in_one_run)
        for runs, cell in self._in_several.items():
            stretch = (runs[0][0] + 1, runs[-1][1] + 1)
            cells[stretch] = cells.get(stretch, EMPTY) + cell
        found = plan_drops(cells, self._live_txns, wanted_bytes, protected=kept)
        places = [txn - 1 for txn in found.snapshots]
        if not self._in_several:
            return RunPlan(tuple(places), found.freed, found.is_enough, found.is_smallest)
        candidates = [place for place in range(self.active_place) if place not in protected]
        most = self.freed_by_dropping(candidates)
        if self.freed_by_dropping(places).bytes < min(wanted_bytes, most.bytes):
            places = candidates
        places = list(self._needed(places, min(wanted_bytes, most.bytes)))
        return RunPlan(tuple(places), self.freed_by_dropping(places), most.bytes >= wanted_bytes, is_smallest=False)

    def _needed(self, places: Sequence[int], wanted_bytes: int) -> Iterator[int]:
        """Yield the snapshots of a set without which it would not free enough; newer ones are left out first."""
        needed = list(places)
        for place in reversed(places):
            without = [one for one in needed if one != place]
            if self.freed_by_dropping(without).bytes >= wanted_bytes:
                needed = without
        yield from needed
