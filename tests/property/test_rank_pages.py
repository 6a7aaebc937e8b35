"""A rank read from pages equals a search, and pages are as short as they say."""

from __future__ import annotations

from bisect import bisect_right
from math import sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.domain.rank_pages import RankPages, rank_pages


def rank(pages: RankPages, n: int) -> int:
    return pages.ranks[pages.starts[n >> pages.shift] + (n & pages.mask)]


@given(st.sets(st.integers(1, 400)), st.integers(0, 300))
def test_a_rank_from_pages_equals_a_search(ordinals: set[int], beyond: int) -> None:
    live = sorted(ordinals)
    last = (live[-1] if live else 0) + beyond
    pages = rank_pages(live, last)
    assert [rank(pages, n) for n in range(last + 1)] == [bisect_right(live, n) for n in range(last + 1)]
    with pytest.raises(IndexError):
        rank(pages, len(pages.starts) << pages.shift)


@pytest.mark.parametrize(
    ("live", "last"), [(0, 1_000_000), (1, 1), (100, 1_000_000), (5_000, 300_000), (9_999, 10_000)]
)
def test_pages_are_short(live: int, last: int) -> None:
    for spread in (Random(live).sample(range(1, last + 1), live), range(last - live + 1, last + 1)):
        pages = rank_pages(sorted(spread), last)
        assert len(pages.starts) + len(pages.ranks) <= 4 * sqrt(last * (2 * live + 2)) + 4 * live + 4
