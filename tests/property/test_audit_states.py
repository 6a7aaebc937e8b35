"""Sets of states as numbers that SQL can add up."""

from __future__ import annotations

from functools import reduce
from operator import or_

from hypothesis import given
from hypothesis import strategies as st

from streaming.audit.fact_source import extent_of, seen_in
from streaming.audit.reach import ACTIVE, PRESENT
from tests.unit.test_audit_blocks import BUCKET, SNAPSHOTS, held, shard


@given(st.lists(st.integers(1, 255), min_size=1, max_size=4))
def test_the_extents_of_sets_tell_whether_they_make_up_one_stretch(sets: list[int]) -> None:
    every = reduce(or_, sets)
    stretch = (1 << every.bit_length()) - (every & -every)
    is_one = every == stretch and sum(one.bit_count() for one in sets) == every.bit_count()
    assert (sum(map(extent_of, sets)) == extent_of(stretch)) is is_one


def test_a_stretch_of_places_is_a_mask_of_states() -> None:
    bucket = shard().buckets[BUCKET]
    newest = len(SNAPSHOTS)
    assert seen_in(ACTIVE | PRESENT, 1, newest, bucket) == ACTIVE | PRESENT | held(1, 2)
    assert seen_in(PRESENT, 0, 1, bucket) == PRESENT | held(0, 1)
    assert seen_in(PRESENT, None, None, bucket) == PRESENT
