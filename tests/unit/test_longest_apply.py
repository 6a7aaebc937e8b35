"""How the bench reads a histogram of times: a straight line between two bounds."""

from __future__ import annotations

import pytest

from bench.longest_apply import away_counts, quantile

INFINITE = float("inf")
PAGE = """
# HELP deepclean_away_from_log_seconds x
deepclean_away_from_log_seconds_bucket{le="0.1",service="metadata",shard="0"} 10.0
deepclean_away_from_log_seconds_bucket{le="+Inf",service="metadata",shard="0"} 12.0
deepclean_away_from_log_seconds_bucket{le="0.1",service="metadata",shard="1"} 1.0
deepclean_away_from_log_seconds_bucket{le="+Inf",service="metadata",shard="1"} 2.0
deepclean_away_from_log_seconds_count{service="metadata",shard="0"} 12.0
deepclean_batch_seconds_bucket{le="0.1",service="metadata",shard="0"} 99.0
"""


def test_a_page_reports_how_often_it_was_away_for_so_long() -> None:
    assert away_counts(PAGE) == {0.1: 11, INFINITE: 14}
    assert away_counts("") == {}


@pytest.mark.parametrize(
    ("share", "seconds"), [(0.0, 0.0), (0.25, 0.1), (0.5, 0.2), (0.75, 0.3), (0.999, 0.3996), (1.0, 0.4)]
)
def test_a_quantile_lies_on_a_line_between_two_bounds(share: float, seconds: float) -> None:
    assert quantile({0.2: 500, 0.4: 1_000, INFINITE: 1_000}, share) == pytest.approx(seconds)


def test_what_is_beyond_every_bound_is_infinite() -> None:
    counts = {0.2: 998, INFINITE: 1_000}
    assert quantile(counts, 0.998) == pytest.approx(0.2)
    assert quantile(counts, 0.999) == INFINITE
    assert quantile({}, 0.999) == 0.0
