"""Where a new volume goes: the shard with least, by a rule that looks at shares and not at amounts."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from services.domain.volume_placement import ShardLoad, least_loaded

MIB = 1 << 20
LOADS = st.lists(
    st.builds(ShardLoad, st.integers(0, 50).map(lambda count: count * MIB), st.integers(0, 10_000)),
    min_size=1,
    max_size=12,
)


def share(amount: int, all_amounts: int) -> Fraction:
    return Fraction(amount, all_amounts) if all_amounts else Fraction(0)


@given(LOADS, st.integers(0, 11))
def test_no_shard_has_a_smaller_share_of_what_is_kept_and_done(loads: list[ShardLoad], first: int) -> None:
    first %= len(loads)
    kept, done = sum(one.kept_bytes for one in loads), sum(one.done_commands for one in loads)
    shares = [share(one.kept_bytes, kept) + share(one.done_commands, done) for one in loads]
    chosen = least_loaded(loads, first)
    assert shares[chosen] == min(shares)
    passed = [(first + step) % len(loads) for step in range((chosen - first) % len(loads))]
    assert all(shares[shard] > shares[chosen] for shard in passed), "an equal one comes earlier in the circle"


@given(LOADS, st.integers(0, 11), st.integers(1, 1_000), st.integers(1, 1_000))
def test_the_units_of_both_measures_do_not_matter(loads: list[ShardLoad], first: int, more: int, busier: int) -> None:
    first %= len(loads)
    larger = [ShardLoad(one.kept_bytes * more, one.done_commands * busier) for one in loads]
    assert least_loaded(larger, first) == least_loaded(loads, first)


def test_an_empty_shard_comes_first_and_chance_differences_of_databases_do_not_count() -> None:
    used = ShardLoad(3 * MIB, 40)
    assert least_loaded([used, used, ShardLoad(MIB // 2, 2), ShardLoad(MIB // 4, 2)], first=0) == 2
    assert least_loaded([used, used, ShardLoad(MIB // 2, 2), ShardLoad(MIB // 4, 2)], first=3) == 3


def test_a_shard_that_was_busy_long_ago_is_chosen_when_it_keeps_little() -> None:
    assert least_loaded([ShardLoad(2 * MIB, 0), ShardLoad(9 * MIB, 0), ShardLoad(2 * MIB, 500)], first=1) == 0
