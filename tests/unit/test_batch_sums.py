"""Sums of a batch: what a refused command has added is taken off again, and leaves no key behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.metadata.batch_sums import BatchSums

ADDITIONS = st.lists(st.tuples(st.sampled_from("abc"), st.tuples(st.integers(), st.integers())), max_size=4)


@given(st.lists(st.tuples(ADDITIONS, st.booleans()), max_size=8))
def test_only_what_is_kept_counts(messages: list[tuple[list[tuple[str, tuple[int, int]]], bool]]) -> None:
    sums: BatchSums[str] = BatchSums()
    expected: dict[str, tuple[int, int]] = {}
    for additions, is_kept in messages:
        for key, amounts in additions:
            sums.add(key, amounts)
        assert list(sums.message()) == additions
        for key in {key for key, _ in additions}:
            own = [amounts for one, amounts in additions if one == key]
            before = expected.get(key, (0, 0))
            with_own = (before[0] + sum(one for one, _ in own), before[1] + sum(one for _, one in own))
            assert sums.of(key) == with_own, "asked in the middle of a message"
        if not is_kept:
            sums.undo_message()
            continue
        sums.keep_message()
        for key, amounts in additions:
            before = expected.get(key, (0, 0))
            expected[key] = (before[0] + amounts[0], before[1] + amounts[1])
    assert dict(sums.items()) == expected
    assert all(sums.of(key) == values for key, values in expected.items())


def test_a_thrown_away_batch_leaves_nothing() -> None:
    sums: BatchSums[str] = BatchSums()
    sums.add("a", (1,))
    sums.keep_message()
    sums.add("b", (1,))
    sums.clear()
    sums.undo_message()
    assert not list(sums.items())
    assert not list(sums.message())
