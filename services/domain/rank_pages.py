"""The rank of n among some ordinals by two array look-ups, for code that cannot do a binary search.

The numbers from 0 to the last one are divided into pages of equal width, a power of two. ``starts`` has a cell for each
page: the index in ``ranks`` at which the page begins. Pages within which the rank is constant share one page for each
rank. The width makes both arrays together about as short as possible: for k ordinals up to N they have at most
4 * sqrt(N * (2k + 2)) + 4k + 4 cells. So a hundred live snapshots among a million dropped ones need less than 60,000
cells.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

_MOST_SHIFT = 31


@dataclass(frozen=True, slots=True)
class RankPages:
    """The rank of n is ``ranks[starts[n >> shift] + (n & mask)]``."""

    shift: int
    mask: int
    starts: list[int]
    ranks: list[int]


def rank_pages(ordinals: Sequence[int], last: int) -> RankPages:
    """Return pages for every n from 0 to ``last``. ``ordinals`` are ascending and at least 1."""
    shift = min(range(_MOST_SHIFT), key=lambda one: (last >> one) + ((2 * len(ordinals) + 2) << one))
    width = 1 << shift
    starts: list[int] = []
    ranks: list[int] = []
    of_rank: dict[int, int] = {}

    def add_even(rank: int, until_page: int) -> None:
        """Add pages of one constant rank, up to a page."""
        if until_page > len(starts):
            if rank not in of_rank:
                of_rank[rank] = len(ranks)
                ranks.extend([rank] * width)
            starts.extend([of_rank[rank]] * (until_page - len(starts)))

    before = 0
    while before < len(ordinals):
        page = ordinals[before] >> shift
        add_even(before, page)
        starts.append(len(ranks))
        first = page << shift
        inside = bisect_right(ordinals, first + width - 1, before)
        at = first
        for rank in range(before, inside):
            ranks.extend([rank] * (ordinals[rank] - at))
            at = ordinals[rank]
        ranks.extend([inside] * (first + width - at))
        before = inside
    add_even(before, (last >> shift) + 1)
    return RankPages(shift, width - 1, starts, ranks)
