"""Sums of a batch: what a refused command has added is taken off again, and leaves no key behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.metadata.batch_sums import BatchSums

ADDITIONS = st.lists(st.tuples(st.sampled_from("abc"), st.tuples(st.integers(), st.integers())), max_size=4)


@given(st.lists(st.tuples(ADDITIONS, st.booleans()), max_size=8))
def test_only_what_is_kept_counts(messages: list[tuple[list[tuple[str, tuple[int, int]]], bool]]) -> None:
    sums: BatchSums[str] = BatchSums()
    expected: dict[str, list[int]] = {}
    for additions, is_kept in messages:
        for key, amounts in additions:
            sums.add(key, amounts)
        assert list(sums.message()) == additions
        if not is_kept:
            sums.undo_message()
            continue
        sums.keep_message()
        for key, amounts in additions:
            before = expected.get(key, [0, 0])
            expected[key] = [before[0] + amounts[0], before[1] + amounts[1]]
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
