"""The rank of n among some ordinals by one look-up and few steps of a search, for code that cannot loop.

The numbers from 0 to the last one are divided into pages of equal width, a power of two. Each page has the rank of its
first number; a binary search among the ordinals of the page does the rest. There are at most ``MOST_PAGES`` pages, or
four for each ordinal if that is more. So the size depends on the ordinals alone, however many numbers lie between them,
and ordinals that are spread evenly need one or two steps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

MOST_PAGES = 64
PAGES_PER_ORDINAL = 4


@dataclass(frozen=True, slots=True)
class RankPages:
    """The rank of n is at least ``ranks[n >> shift]``, and less than ``2 ** steps`` above it."""

    shift: int
    ranks: list[int]
    steps: int


def rank_pages(ordinals: Sequence[int], last: int) -> RankPages:
    """Return pages for every n from 0 to ``last``. ``ordinals`` are ascending, at least 1 and at most ``last``."""
    most_pages = max(MOST_PAGES, PAGES_PER_ORDINAL * len(ordinals))
    shift = max(0, (last // most_pages).bit_length())
    width = 1 << shift
    firsts = range(0, last + 1, width)
    ranks = [bisect_right(ordinals, first) for first in firsts]
    most_inside = max(bisect_left(ordinals, first + width) - rank for first, rank in zip(firsts, ranks, strict=True))
    return RankPages(shift, ranks, most_inside.bit_length())
