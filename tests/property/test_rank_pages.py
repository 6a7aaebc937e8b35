"""A rank found by way of pages equals a search, and pages are as few as they say."""

from __future__ import annotations

from bisect import bisect_right
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.domain.rank_pages import MOST_PAGES, PAGES_PER_ORDINAL, RankPages, rank_pages


def rank(pages: RankPages, ordinals: list[int], n: int) -> int:
    """The rank of n by as many steps as the pages say."""
    found = pages.ranks[n >> pages.shift]
    for step in (1 << number for number in reversed(range(pages.steps))):
        if found + step <= len(ordinals) and ordinals[found + step - 1] <= n:
            found += step
    return found


@given(st.sets(st.integers(1, 1_000)), st.integers(0, 3_000))
def test_a_rank_from_pages_equals_a_search(ordinals: set[int], beyond: int) -> None:
    live = sorted(ordinals)
    last = (live[-1] if live else 0) + beyond
    pages = rank_pages(live, last)
    assert [rank(pages, live, n) for n in range(last + 1)] == [bisect_right(live, n) for n in range(last + 1)]
    assert len(pages.ranks) == (last >> pages.shift) + 1, "no n beyond the last page has a rank"


@pytest.mark.parametrize(
    ("live", "last", "steps"), [(0, 1_000_000, 0), (1, 1, 0), (100, 1_000_000, 3), (10, 1_000, 3), (9_999, 10_000, 0)]
)
def test_pages_are_few_and_searches_are_short(live: int, last: int, steps: int) -> None:
    spread = sorted(Random(live).sample(range(1, last + 1), live))
    for ordinals in (spread, list(range(last - live + 1, last + 1))):
        pages = rank_pages(ordinals, last)
        assert len(pages.ranks) <= max(MOST_PAGES, PAGES_PER_ORDINAL * live) + 1
        assert pages.steps <= live.bit_length()
    assert rank_pages(spread, last).steps <= steps
