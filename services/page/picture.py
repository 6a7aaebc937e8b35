"""What the browser draws of a bucket, for the page of a plane and for that of a report alike.

A script draws timeline and matrix from cells, and frames the cells that lie within the snapshots that a reader chooses.
Where there are too many cells to draw, neighbouring snapshots become groups, which are chosen as a whole: sums stay
exact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from services.domain.run_space import Runs, renumbered
from services.domain.space_matrix import SpaceCell, total
from services.wording.figures import time_text

MOST_CELLS = 5_000


class Holder(Protocol):
    """A snapshot, or another reference that holds versions, as the picture needs it."""

    @property
    def name(self) -> str:
        """Return its name, unique in its bucket."""
        ...

    @property
    def time_ms(self) -> int:
        """Return when it was created; -1 if that is not known."""
        ...

    @property
    def is_droppable(self) -> bool:
        """Return whether it can be dropped at all."""
        ...

    @property
    def protected_by(self) -> tuple[str, ...]:
        """Return what has to be removed before it can be dropped."""
        ...


H = TypeVar("H", bound=Holder)


@dataclass(frozen=True, slots=True)
class Picture(Generic[H]):
    """What the script draws of a bucket."""

    groups: tuple[tuple[H, ...], ...]
    """All holders but the active namespace, in their order; a group is chosen as a whole."""
    cells: tuple[tuple[Runs, SpaceCell], ...]
    """What the active namespace does not hold, by runs of groups; the largest first."""
    left_out: SpaceCell
    """What is too small and too scattered to be drawn: dropping snapshots may free up to this much more."""


def draw(
    holders: Sequence[H],
    cells: Mapping[Runs, SpaceCell],
    most_cells: int = MOST_CELLS,
    chosen: Collection[str] = (),
) -> Picture[H]:
    """Return what to draw: each holder by itself, or groups as large as it takes.

    ``cells`` are what holders hold and the active namespace does not, by runs of places in ``holders``; ``chosen`` are
    the names of those that are chosen from the start.
    """
    groups, drawn = [[one] for one in holders], dict(cells)
    while len(drawn) > most_cells:
        pairs, number = _paired(groups, chosen)
        if len(pairs) == len(groups):
            break
        groups, drawn = pairs, renumbered(drawn.items(), number)
    largest = sorted(drawn.items(), key=lambda one: (-one[1].replicated_bytes, one[0]))
    left_out = total(cell for _, cell in largest[most_cells:])
    return Picture(tuple(map(tuple, groups)), tuple(largest[:most_cells]), left_out)


def _paired(groups: Sequence[Sequence[H]], chosen: Collection[str]) -> tuple[list[list[H]], dict[int, int]]:
    """Return groups of two neighbours each, and each one's new number.

    The holders of a group are alike: none can be dropped, or all are protected, or nothing protects any; and all or
    none are chosen.
    """

    def sort_of(group: Sequence[H]) -> tuple[bool, bool, bool]:
        return group[0].is_droppable, bool(group[0].protected_by), group[0].name in chosen

    pairs: list[list[H]] = []
    number: dict[int, int] = {}
    is_open = False
    for index, group in enumerate(groups):
        if is_open and sort_of(group) == sort_of(pairs[-1]):
            pairs[-1] += group
            is_open = False
        else:
            pairs.append(list(group))
            is_open = True
        number[index] = len(pairs) - 1
    return pairs, number


def script_data(picture: Picture[H], chosen: Collection[str] = (), *, is_exact: bool) -> dict[str, Any]:
    """Return what the script reads. Bytes are text, since its numbers are exact up to 8 PiB only."""
    return {
        "groups": [_group_data(group, chosen) for group in picture.groups],
        "cells": [
            [[list(run) for run in runs], str(cell.bytes), str(cell.replicated_bytes), cell.versions]
            for runs, cell in picture.cells
        ],
        "leftOut": str(picture.left_out.bytes),
        "isExact": is_exact,
    }


def _group_data(group: Sequence[H], chosen: Collection[str]) -> dict[str, Any]:
    first, last = group[0], group[-1]
    time = time_text(last.time_ms)
    return {
        "names": [one.name for one in group],
        "from": time_text(first.time_ms) if len(group) > 1 else time,
        "time": time,
        "isDroppable": first.is_droppable,
        "protectedBy": sorted({name for one in group for name in one.protected_by}),
        "isChosen": first.is_droppable and first.name in chosen,
    }
