"""Sums of a batch: what a refused command has added is taken off again, and leaves no key behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.metadata.state.batch_sums import BatchSums, PresentTxn, undo_notes

ADDITIONS = st.lists(st.tuples(st.sampled_from("abc"), st.tuples(st.integers(), st.integers())), max_size=4)


@given(st.lists(st.tuples(ADDITIONS, st.booleans(), st.booleans()), max_size=8))
def test_only_what_is_applied_counts(messages: list[tuple[list[tuple[str, tuple[int, int]]], bool, bool]]) -> None:
    present = PresentTxn()
    sums: BatchSums[str] = BatchSums(present)
    expected, last_txns, txn = dict[str, tuple[int, int]](), dict[str, int](), 0
    for additions, is_applied, is_asked in messages:
        present.txn = txn + 1  # that of a refused command is the next one's
        for key, amounts in additions:
            sums.add(key, amounts)
        assert list(sums.message()) == additions
        for key in {key for key, _ in additions} if is_asked else ():
            own = [amounts for one, amounts in additions if one == key]
            before = expected.get(key, (0, 0))
            with_own = (before[0] + sum(one for one, _ in own), before[1] + sum(one for _, one in own))
            assert sums.of(key) == with_own, "asked in the middle of a message"
        if not is_applied:
            sums.undo_message()
            assert list(sums.message()) == []
            continue
        txn = present.txn
        for key, amounts in additions:
            before = expected.get(key, (0, 0))
            expected[key] = (before[0] + amounts[0], before[1] + amounts[1])
            last_txns[key] = txn
    assert dict(sums.items()) == expected
    assert all(sums.of(key) == values for key, values in expected.items())
    assert {key: sums.last_txn(key) for key in expected} == last_txns


def test_a_thrown_away_batch_leaves_nothing() -> None:
    present = PresentTxn(1)
    sums: BatchSums[str] = BatchSums(present)
    sums.add("a", (1,))
    present.txn = 2
    sums.add("b", (1,))
    sums.clear()
    sums.undo_message()
    assert not list(sums.items())
    assert not list(sums.message())


def test_notes_of_commands_before_stay() -> None:
    notes = [(1, "a"), (2, "b"), (3, "c"), (3, "d")]
    undo_notes(notes, 3)
    assert notes == [(1, "a"), (2, "b")]
    undo_notes(notes, 3)
    assert notes == [(1, "a"), (2, "b")]
