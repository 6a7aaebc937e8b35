"""How many of some ordinals lie among the first n, as two look-ups in arrays: a search for who cannot search.

The numbers from 0 to the last one are divided into pages of equal width, a power of two. ``starts`` has a cell for each
page, which says where in ``ranks`` the page begins; pages within which nothing changes share one for each rank. The
width is chosen so that both arrays together are about as short as they can be: for k ordinals up to N there are no more
than 4 * sqrt(N * (2k + 2)) + 4k + 4 cells, and so a million dropped snapshots around a hundred cost what 60,000 do.
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

    def rank(self, n: int) -> int:
        """How many of the ordinals are at most n."""
        return self.ranks[self.starts[n >> self.shift] + (n & self.mask)]


def rank_pages(ordinals: Sequence[int], last: int) -> RankPages:
    """Pages for every n from 0 to ``last``, of ascending ordinals from 1 on."""
    shift = min(range(_MOST_SHIFT), key=lambda one: (last >> one) + ((2 * len(ordinals) + 2) << one))
    width = 1 << shift
    starts: list[int] = []
    ranks: list[int] = []
    of_rank: dict[int, int] = {}

    def add_even(rank: int, until_page: int) -> None:
        """Pages up to one in which nothing changes."""
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
